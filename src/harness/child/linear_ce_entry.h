// A kernel of gdn/linear_ce_kernel.h in the child: its object, and the call that the shared memory holds.
#pragma once

#include <string>

#include "gdn/linear_ce_kernel.h"
#include "harness/child/entry.h"

namespace gdnctl::harness {

// Of Call::integers and Call::reals.
enum LinearCeInteger : std::size_t { k_rows, k_hidden, k_vocab, k_layout };
enum LinearCeReal : std::size_t { k_soft_cap, k_logsumexp_weight };

class LinearCeEntry : public Entry {
public:
    std::string load(void* library) override;
    std::uint32_t dtypes() const override { return m_kernel->dtypes; }
    std::uint32_t entries() const override;
    void describe(const Header& header, const GuardedMapping& mapping) override;
    std::size_t workspace_size() const override;
    void give_workspace(void* memory, std::size_t bytes) override;
    int call() override;

private:
    const linear_ce_kernel_info* m_kernel = nullptr;
    linear_ce_call m_call{};
    std::uint32_t m_entry = LINEAR_CE_FORWARD;
};

}  // namespace gdnctl::harness
