#include "sweep/record.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::sweep {

namespace {

constexpr std::array<std::pair<FailureKind, std::string_view>, 9> k_kinds = {{
    {FailureKind::vmem_oom, "vmem_oom"},
    {FailureKind::hbm_oom, "hbm_oom"},
    {FailureKind::lowering, "lowering"},
    {FailureKind::unsupported, "unsupported"},
    {FailureKind::environment, "environment"},
    {FailureKind::infra, "infra"},
    {FailureKind::crashed, "crashed"},
    {FailureKind::timed_out, "timed_out"},
    {FailureKind::no_result, "no_result"},
}};

// In lower case.
constexpr std::string_view k_lowering[] = {"expected matmul acc to be 32-bit", "_gather_lowering_rule", "mosaicerror"};
constexpr std::string_view k_vmem[] = {"ran out of memory in memory space vmem", "exceeded scoped vmem limit",
                                       "compiletimescopedvmemoom"};
constexpr std::string_view k_unsupported[] = {"pallasunsupportederror", "int32 word-count limit",
                                              "requires tpu backend"};
constexpr std::string_view k_infra[] = {"job_supervisor_actor_start_timeout",
                                        "job_supervisor_actor_died",
                                        "job_supervisor_actor_start_failure",
                                        "job_supervisor_actor_unschedulable",
                                        "actordiederror",
                                        "received sigterm",
                                        "ray client connection timeout"};

// The run had no device, or no room: another process holds it, or the disk is full.
constexpr std::string_view k_machine[] = {"already in use by",
                                          "device or resource busy",
                                          "resource busy",
                                          "device busy",
                                          "device is busy",
                                          "devices are busy",
                                          "ebusy",
                                          "errno 16]",
                                          "libtpu_lockfile",
                                          "multi-process lockfile",
                                          "tpu initialization failed",
                                          "no space left on device",
                                          "enospc",
                                          "errno 28]",
                                          "disk quota exceeded",
                                          "edquot",
                                          "errno 122]",
                                          "resource temporarily unavailable",
                                          "input/output error",
                                          "read-only file system"};

template <std::size_t N>
bool has_any(std::string_view text, const std::string_view (&words)[N]) {
    for (const std::string_view word : words) {
        if (text.find(word) != std::string_view::npos) return true;
    }
    return false;
}

// Whether the machine is to blame, or the memory of the device (`exhausted`). A status RESOURCE_EXHAUSTED is that of
// any resource: what its line says decides.
bool blames_machine(std::string_view text, bool& exhausted) {
    bool machine = false;
    for (const std::string_view line : text::split(text, '\n')) {
        const bool here = has_any(line, k_machine);
        machine = machine || here;
        exhausted = exhausted || (!here && line.find("resource_exhausted") != std::string_view::npos);
    }
    return machine && !exhausted;
}

// "20.19M", "1,024", "16.00m" at `at`: bytes, and where it ends. nullopt: no number there.
std::optional<std::pair<double, std::size_t>> read_size(std::string_view text, std::size_t at) {
    while (at < text.size() && text[at] == ' ') ++at;
    std::string digits;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        const bool digit = c >= '0' && c <= '9';
        if (digit || c == '.') {
            digits += c;
        } else if (c != ',') {
            break;
        }
    }
    while (digits.ends_with('.')) digits.pop_back();
    const auto number = text::parse_double(digits);
    if (!number) return std::nullopt;
    constexpr std::string_view k_units = "kmg";
    double scale = 1;
    const auto unit = at < text.size() ? k_units.find(text[at]) : std::string_view::npos;
    if (unit != std::string_view::npos) {
        scale = std::pow(1024.0, static_cast<double>(unit + 1));
        ++at;
    }
    return std::pair(std::round(*number * scale), at);
}

// The two sizes of "<before>SIZE<between>SIZE".
bool read_pair(std::string_view text, std::string_view before, std::string_view between, Failure& to) {
    for (std::size_t at = text.find(before); at != std::string_view::npos; at = text.find(before, at + 1)) {
        const auto used = read_size(text, at + before.size());
        if (!used || !text.substr(used->second).starts_with(between)) continue;
        const auto limit = read_size(text, used->second + between.size());
        if (!limit) continue;
        to.vmem_used_bytes = used->first;
        to.vmem_limit_bytes = limit->first;
        return true;
    }
    return false;
}

}  // namespace

std::string_view to_text(FailureKind kind) { return k_kinds[static_cast<std::size_t>(kind)].second; }

std::optional<FailureKind> parse_failure_kind(std::string_view text) {
    for (const auto& [kind, name] : k_kinds) {
        if (name == text) return kind;
    }
    return std::nullopt;
}

bool is_own(FailureKind kind) { return kind != FailureKind::infra && kind != FailureKind::environment; }

Failure classify_failure(std::string_view message) {
    const std::string lower = text::to_lower(message);
    const std::string_view text = lower;
    const auto has = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
    Failure found;
    if (has_any(text, k_lowering)) {
        found.kind = FailureKind::lowering;
        return found;
    }
    const bool exhausted = has("resource_exhausted");
    const bool sized = read_pair(text, "used ", " of ", found) || read_pair(text, "size ", " and limit ", found) ||
                       read_pair(text, "allocation ", " > ", found);
    // An HBM holds gigabytes, a VMEM does not.
    const bool small = sized && !has("hbm") && *found.vmem_limit_bytes < 1024.0 * 1024 * 1024;
    if (has_any(text, k_vmem) || (exhausted && has("vmem")) || small) {
        found.kind = FailureKind::vmem_oom;
        return found;
    }
    found = {};
    bool of_device = false;
    if (blames_machine(text, of_device)) {
        found.kind = FailureKind::infra;
        return found;
    }
    if (of_device) {
        found.kind = FailureKind::hbm_oom;
    } else if (has_any(text, k_unsupported)) {
        found.kind = FailureKind::unsupported;
    } else if (has("modulenotfounderror")) {
        found.kind = FailureKind::environment;
    } else if (has_any(text, k_infra) || (has("pending") && has("capacity"))) {
        found.kind = FailureKind::infra;
    }
    return found;
}

std::string_view to_text(Script script) {
    switch (script) {
        case Script::tune: return "tune";
        case Script::bench: return "bench";
        case Script::sweep: return "sweep";
    }
    return {};
}

std::string_view to_text(ResultStatus status) {
    switch (status) {
        case ResultStatus::ok: return "ok";
        case ResultStatus::failed: return "failed";
        case ResultStatus::wrong: return "wrong";
    }
    return {};
}

std::string long_dtype(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 3> k_names = {
        {{"f32", "float32"}, {"bf16", "bfloat16"}, {"f16", "float16"}}};
    for (const auto& [brief, whole] : k_names) {
        if (name == brief) return std::string(whole);
    }
    return std::string(name);
}

std::string label_of(const BlockSizes& sizes) { return fmt::format("b{}_h{}_v{}", sizes.b, sizes.h, sizes.v); }

std::optional<BlockSizes> sizes_of_label(std::string_view label) {
    BlockSizes sizes;
    const std::array<std::pair<char, std::int64_t*>, 3> parts = {{{'b', &sizes.b}, {'h', &sizes.h}, {'v', &sizes.v}}};
    const auto words = text::split(label, '_');
    if (words.size() != parts.size()) return std::nullopt;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (!words[i].starts_with(parts[i].first)) return std::nullopt;
        const auto number = text::parse_int(words[i].substr(1));
        if (!number || *number <= 0) return std::nullopt;
        *parts[i].second = *number;
    }
    return sizes;
}

}  // namespace gdnctl::sweep
