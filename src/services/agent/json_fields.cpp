#include "services/agent/json_fields.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "core/json_fields.h"

namespace gdnctl::codex {

std::optional<std::int64_t> integer_field(const Json& object, std::string_view name) {
    constexpr double k_largest = 9e15;  // exact in a double; larger numbers are nonsense here
    const auto number = json::number(object, name);
    if (!number || std::abs(*number) > k_largest) return std::nullopt;
    return static_cast<std::int64_t>(*number);
}

std::optional<AgentTokens> tokens_of(const Json& usage) {
    if (!usage.is_object()) return std::nullopt;
    const auto count = [&](std::string_view name) {
        return std::max<std::int64_t>(0, integer_field(usage, name).value_or(0));
    };
    return AgentTokens{count("input_tokens"), count("cached_input_tokens"), count("output_tokens"),
                       count("reasoning_output_tokens")};
}

}  // namespace gdnctl::codex
