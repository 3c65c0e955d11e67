#include "services/agent/human.h"

#include <algorithm>

#include "core/text.h"

namespace gdnctl::codex {

namespace {

std::string_view after(std::string_view line, std::string_view lead) {
    return line.starts_with(lead) ? text::trim(line.substr(lead.size())) : std::string_view();
}

}  // namespace

void HumanReader::take(std::string_view line, Stream& stream) {
    if (line == "--------") ++m_rules;
    if (m_rules == 1) {
        if (const auto id = after(line, "session id:"); !id.empty()) stream.thread_id = std::string(id);
        if (const auto name = after(line, "model:"); !name.empty()) model = std::string(name);
    }
    if (const auto error = after(line, "ERROR:"); !error.empty() && !error.starts_with("Reconnecting...")) {
        stream.failure = std::string(error);
    }
    if (m_tokens_follow) {
        std::string digits(text::trim(line));
        std::erase(digits, ',');
        // Uncached input and output in one number; it reports nothing else.
        if (const auto count = text::parse_int(digits)) stream.usage = AgentTokens{*count, 0, 0, 0};
    }
    m_tokens_follow = line == "tokens used";
}

bool is_complaint(std::string_view line) {
    line = text::trim(line);
    const std::string lower = text::to_lower(line.substr(0, 8));
    return !line.empty() && !lower.starts_with("warning") && !line.starts_with("Reading additional input") &&
           !line.starts_with("Reading prompt from stdin");
}

}  // namespace gdnctl::codex
