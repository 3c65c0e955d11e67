// A solution by FlashInfer-Bench's convention in the child: its function, and the arguments that the shared memory
// holds.
#pragma once

#include <array>
#include <string>

#include "harness/child/entry.h"
#include "harness/child/solution_abi.h"

namespace gdnctl::harness {

class SolutionEntry : public Entry {
public:
    // `name` as the library exports it.
    explicit SolutionEntry(std::string name) : m_name(std::move(name)) {}

    std::string load(void* library) override;
    bool has(std::uint32_t /*entry*/) const override { return true; }
    void describe(const Header& header, const GuardedMapping& mapping) override;
    int call() override;

private:
    std::string m_name;
    TVMFFISafeCallType m_function = nullptr;
    std::int32_t m_count = 0;
    std::array<DLTensor, k_most_arrays> m_tensors = {};
    std::array<std::array<std::int64_t, 5>, k_most_arrays> m_shapes = {}, m_strides = {};
    std::array<TVMFFIAny, k_most_arrays> m_values = {};
};

}  // namespace gdnctl::harness
