#include "harness/child/kernel.h"

#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace gdnctl::harness {

std::uint64_t secret_seed() {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

bool is_library(std::string_view spelling) { return spelling.starts_with("lib:") || spelling.starts_with("src:"); }

ExitCode exit_code_of(oracle::KernelFaultKind kind) {
    switch (kind) {
        case oracle::KernelFaultKind::timed_out: return ExitCode::timeout;
        case oracle::KernelFaultKind::wrong_shape:
        case oracle::KernelFaultKind::no_entry_point:
        case oracle::KernelFaultKind::build_failed: return ExitCode::bad_input;
        default: return ExitCode::check_failed;
    }
}

Json fault_json(const std::optional<oracle::KernelFault>& fault) {
    if (!fault) return nullptr;
    return {{"kind", oracle::name_of(fault->kind)}, {"text", fault->text}, {"output", fault->output}};
}

std::string quoted_output(const oracle::KernelFault& fault) {
    std::string quoted;
    if (fault.output.empty()) return quoted;
    for (const auto line : text::split(fault.output, '\n')) quoted += fmt::format("       | {}\n", line);
    return quoted;
}

}  // namespace gdnctl::harness
