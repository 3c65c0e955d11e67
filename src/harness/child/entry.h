// What the child does with a kernel of one kind: load it, and call it with the arrays of the shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gdn/gdn_kernel.h"
#include "harness/child/arena.h"
#include "oracle/gdn/under_test/call.h"
#include "platform/sandbox.h"

namespace gdnctl::harness {

// The kinds, as the hidden command's MODE spells them.
inline constexpr std::string_view k_gdn_mode = "lib", k_linear_ce_mode = "linear-ce", k_solution_mode = "solution";

class Entry {
public:
    virtual ~Entry() = default;
    // Why it cannot be used, or nothing.
    virtual std::string load(void* library) = 0;
    virtual std::uint32_t dtypes() const { return 0; }   // bits 1 << GDN_F32, ...
    virtual std::uint32_t entries() const { return 0; }  // bits 1 << GDN_FORWARD, ... of its own header
    virtual std::int64_t chunk() const { return 0; }     // length of the chunks that it states; 0: none
    virtual bool has(std::uint32_t entry) const { return (entries() & (1U << entry)) != 0; }
    virtual void describe(const Header& header, const GuardedMapping& mapping) = 0;
    // Bytes that the kernel asks for; the query sees no data: it is not timed.
    virtual std::size_t workspace_size() const { return 0; }
    virtual void give_workspace(void* /*memory*/, std::size_t /*bytes*/) {}
    virtual int call() = 0;  // what the kernel returned
};

// `kernel`: the path of the library; of a solution FUNCTION:PATH. `path` gets the library's.
std::unique_ptr<Entry> make_entry(std::string_view mode, const std::string& kernel, std::string& path);

// The array of that name, in place; empty: there is none.
gdn_tensor tensor_of(const Header& header, const GuardedMapping& mapping, std::string_view name);

// A kernel of gdn/gdn_kernel.h in the child: its object, and the call that the shared memory holds.

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
