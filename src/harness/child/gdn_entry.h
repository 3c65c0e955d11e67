// A kernel of gdn/gdn_kernel.h in the child: its object, and the call that the shared memory holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gdn/gdn_kernel.h"
#include "harness/child/entry.h"
#include "oracle/gdn/under_test/call.h"

namespace gdnctl::harness {

// Where each step of a decode lies among the steps in memory: shuffled, so that no call knows where the next token is.
std::vector<std::int64_t> step_order(std::int64_t steps, std::uint64_t seed);

class GdnEntry : public Entry {
public:
    std::string load(void* library) override;
    std::uint32_t dtypes() const override { return m_kernel->dtypes; }
    std::uint32_t entries() const override;
    std::int64_t chunk() const override;
    void describe(const Header& header, const GuardedMapping& mapping) override;
    std::size_t workspace_size() const override;
    void give_workspace(void* memory, std::size_t bytes) override;
    int call() override { return m_order.empty() ? m_function(&m_call) : call_steps(); }

private:
    int call_steps() const;

    const gdn_kernel_info* m_kernel = nullptr;
    int (*m_function)(const gdn_call*) = nullptr;
    std::uint32_t m_entry = GDN_FORWARD;
    gdn_call m_call{};
    std::vector<std::int64_t> m_order;  // of steps; empty: one call
};

}  // namespace gdnctl::harness
