// Recorded inputs and outputs of real implementations.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"

namespace gdnctl::harness {

struct RecordedVector {
    std::filesystem::path inputs;
    std::vector<std::filesystem::path> outputs;
};

// NAME.inputs.safetensors with all NAME.*.outputs.safetensors beside it, in the order of their names. Errors: the
// folder cannot be read, or holds none.
Result<std::vector<std::pair<std::string, RecordedVector>>> find_vectors(const std::filesystem::path& folder);

}  // namespace gdnctl::harness
