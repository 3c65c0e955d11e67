// From tensors to a verdict in one call.
#pragma once

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "oracle/tensor/formats.h"

namespace gdnctl::oracle::testing {

inline GdnReference reference_for(const TensorFile& inputs, std::string_view contract_name = "marin",
                                  const std::vector<std::string>& sets = {}) {
    auto contract = resolve_contract(contract_name, inputs.metadata, sets);
    REQUIRE(contract);
    auto problem = read_problem(inputs, *contract);
    REQUIRE_MESSAGE(problem, (problem ? std::string() : problem.error().message));
    return make_reference(std::move(*problem), std::move(*contract), 2);
}

inline GdnReport judged(const GdnReference& reference, const TensorFile& dump, const CompareOptions& options = {}) {
    auto report = judge(reference, dump, options);
    REQUIRE_MESSAGE(report, (report ? std::string() : report.error().message));
    return *report;
}

inline double worst_score(const GdnReport& report) {
    double worst = 0;
    for (const TensorReport& t : report.tensors) worst = std::max(worst, t.error_over_budget);
    return worst;
}

inline TensorFile outputs_of(const GdnReference& r, const GdnOutputs& outputs, DType out = DType::f32,
                             DType state = DType::f32) {
    return outputs_file(r.problem, r.contract.value, outputs, out, state);
}

inline std::vector<std::uint8_t> file_bytes(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    REQUIRE_MESSAGE(in, path.string());
    std::vector<std::uint8_t> bytes(std::filesystem::file_size(path));
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    REQUIRE_MESSAGE(in, path.string());
    return bytes;
}

inline TensorFile load_safetensors(const std::filesystem::path& path) {
    auto file = parse_safetensors(file_bytes(path), path.filename().string());
    REQUIRE(file);
    return *file;
}

inline std::filesystem::path vectors() { return std::filesystem::path(GDNCTL_FIXTURES) / "oracle"; }

// "gdn_base" and so on, in order.
inline std::vector<std::string> recorded_names() {
    std::vector<std::string> names;
    for (const auto& item : std::filesystem::directory_iterator(vectors())) {
        const std::string file = item.path().filename().string();
        const auto end = file.find(".inputs.safetensors");
        if (end != std::string::npos) names.push_back(file.substr(0, end));
    }
    std::sort(names.begin(), names.end());
    return names;
}

inline std::vector<std::filesystem::path> recorded_outputs(const std::string& name) {
    std::vector<std::filesystem::path> paths;
    for (const auto& item : std::filesystem::directory_iterator(vectors())) {
        const std::string file = item.path().filename().string();
        if (file.starts_with(name + ".") && file.ends_with(".outputs.safetensors")) paths.push_back(item.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

}  // namespace gdnctl::oracle::testing
