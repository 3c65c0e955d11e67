// A kernel of gdn/linear_ce_kernel.h in the child: its object, and the call that the shared memory holds.
#pragma once

#include <string>
#include <string_view>

#include "gdn/linear_ce_kernel.h"
#include "harness/child/arena.h"
#include "platform/shared_memory.h"

namespace gdnctl::harness {

// What such a library exports.
inline constexpr std::string_view k_linear_ce_entry = "linear_ce_kernel";

class LinearCeEntry {
public:
    // Returns why it cannot be used, or nothing.
    std::string load(void* library);
    std::uint32_t dtypes() const { return m_kernel->dtypes; }
    std::uint32_t entries() const;  // bits 1 << LINEAR_CE_FORWARD, ...

    bool has(std::uint32_t entry) const { return (entries() & (1U << entry)) != 0; }
    void describe(const Header& header, const GuardedMapping& mapping);
    // Bytes that the kernel asks for; the query sees no data.
    std::size_t workspace_size() const;
    void give_workspace(void* memory, std::size_t bytes);
    int call() const;

private:
    const linear_ce_kernel_info* m_kernel = nullptr;
    linear_ce_call m_call{};
    std::uint32_t m_entry = LINEAR_CE_FORWARD;
};

}  // namespace gdnctl::harness
