// A solution by FlashInfer-Bench's convention in the child: its function, and the arguments that the shared memory
// holds.
#pragma once

#include <array>
#include <string>

#include "harness/child/arena.h"
#include "harness/child/solution_abi.h"
#include "platform/shared_memory.h"

namespace gdnctl::harness {

class SolutionEntry {
public:
    // `name` as the library exports it. Returns why it cannot be used, or nothing.
    std::string load(void* library, const std::string& name);
    void describe(const harness::Header& header, const GuardedMapping& mapping);
    // What it returned: 0 for done.
    int call();

private:
    TVMFFISafeCallType m_function = nullptr;
    std::int32_t m_count = 0;
    std::array<DLTensor, harness::k_most_arguments> m_tensors = {};
    std::array<std::array<std::int64_t, 5>, harness::k_most_arguments> m_shapes = {}, m_strides = {};
    std::array<TVMFFIAny, harness::k_most_arguments> m_values = {};
};

}  // namespace gdnctl::harness
