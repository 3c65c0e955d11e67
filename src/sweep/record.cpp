#include "sweep/record.h"

#include <array>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::sweep {

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
