#include <algorithm>
#include <array>

#include "core/text.h"
#include "trace/model/model.h"

namespace gdnctl::trace {

namespace {

constexpr std::array<std::string_view, k_classes> k_class_names = {"compute",    "kernel",  "wait", "issue",
                                                                   "collective", "control", "copy"};
constexpr std::array<std::string_view, 7> k_collectives = {"all-reduce",          "all-gather", "reduce-scatter",
                                                           "collective-permute",  "all-to-all", "ragged-all-to-all",
                                                           "collective-broadcast"};
constexpr std::array<std::string_view, 4> k_copies = {"Memcpy", "Memset", "__amd_rocclr_copyBuffer",
                                                      "__amd_rocclr_fillBuffer"};

constexpr std::array<Generation, 5> k_generations = {{
    {"v4", {"TPU v4", ""}, 2, 275, 1200},
    {"v5e", {"TPU v5 lite", "TPU v5e"}, 1, 197, 819},
    {"v5p", {"TPU v5", "TPU v5p"}, 2, 459, 2765},
    {"v6e", {"TPU v6 lite", "TPU v6e"}, 1, 918, 1638},
    {"tpu7x", {"TPU7x", ""}, 2, 2310, 7400},
}};

// "all-reduce" of "all-reduce.12"; "%" and what follows a dot or a bracket go.
std::string_view stem_of(std::string_view name) {
    if (name.starts_with('%')) name.remove_prefix(1);
    return name.substr(0, name.find_first_of(".("));
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// `word`: an HLO category, or the stem of a name, which are spelled alike.
OpClass class_of_hlo(std::string_view word) {
    if (word.ends_with("-done")) return OpClass::wait;
    if (word.ends_with("-start")) return OpClass::issue;
    for (const std::string_view collective : k_collectives) {
        if (word.starts_with(collective)) return OpClass::collective;
    }
    if (is_any_of(word, {"while", "conditional", "call"})) return OpClass::control;
    if (word == "custom-call") return OpClass::kernel;
    return OpClass::compute;
}

}  // namespace

std::string_view name_of(OpClass cls) { return k_class_names[static_cast<std::size_t>(cls)]; }

std::string_view name_of(DeviceKind kind) {
    constexpr std::array<std::string_view, 3> k_names = {"tpu", "gpu", "cpu"};
    return k_names[static_cast<std::size_t>(kind)];
}

OpClass class_of(const Op& op, DeviceKind kind, bool by_name) {
    if (!by_name) return class_of_hlo(op.category);
    if (kind != DeviceKind::gpu) return class_of_hlo(stem_of(op.name));
    if (op.category == "gpu_memcpy" || op.category == "gpu_memset") return OpClass::copy;
    for (const std::string_view copy : k_copies) {
        if (op.name.starts_with(copy)) return OpClass::copy;
    }
    const std::string lower = text::to_lower(op.name);
    if (lower.starts_with("nccl") || lower.starts_with("rccl")) return OpClass::collective;
    return OpClass::compute;
}

std::optional<double> flops_of(const Op& op) { return op.model_flops ? op.model_flops : op.flops; }

const Generation* find_generation(std::string_view word) {
    const std::string lower = text::to_lower(word);
    if (lower.empty()) return nullptr;
    for (const Generation& one : k_generations) {
        if (lower == one.name) return &one;
        for (const std::string_view device : one.devices) {
            if (lower == text::to_lower(device)) return &one;
        }
    }
    return nullptr;
}

}  // namespace gdnctl::trace
