// JSON readers for agents, in addition to core/json_fields.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/json_fields.h"
#include "services/agent/agent.h"

namespace gdnctl::codex {

std::optional<std::int64_t> integer_field(const Json& object, std::string_view name);
// {input_tokens, cached_input_tokens, output_tokens, reasoning_output_tokens}; nullopt: not such an object.
std::optional<AgentTokens> tokens_of(const Json& usage);

}  // namespace gdnctl::codex
