#include "harness/verify/vectors.h"

#include <algorithm>

#include <fmt/format.h>

namespace gdnctl::harness {

Result<std::vector<std::pair<std::string, RecordedVector>>> find_vectors(const std::filesystem::path& folder) {
    constexpr std::string_view k_inputs = ".inputs.safetensors";
    constexpr std::string_view k_outputs = ".outputs.safetensors";
    std::error_code error;
    std::vector<std::string> files;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
        files.push_back(it->path().filename().string());
    }
    if (error)
        return fail(ErrorKind::usage, fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
    std::sort(files.begin(), files.end());
    std::vector<std::pair<std::string, RecordedVector>> vectors;
    for (const std::string& file : files) {
        if (!file.ends_with(k_inputs)) continue;
        const std::string name = file.substr(0, file.size() - k_inputs.size());
        RecordedVector vector{folder / file, {}};
        for (const std::string& other : files) {
            if (other.starts_with(name + ".") && other.ends_with(k_outputs)) vector.outputs.push_back(folder / other);
        }
        if (!vector.outputs.empty()) vectors.emplace_back(name, std::move(vector));
    }
    if (vectors.empty()) {
        return fail(ErrorKind::bad_input,
                    fmt::format("{} has no NAME.inputs.safetensors with NAME.*.outputs.safetensors", folder.string()));
    }
    return vectors;
}

}  // namespace gdnctl::harness
