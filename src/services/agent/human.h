// Parses codex's output for people (standard error and standard output combined), for programs without events.
#pragma once

#include <string>
#include <string_view>

#include "services/agent/stream.h"

namespace gdnctl::codex {

class HumanReader {
public:
    void take(std::string_view line, Stream& stream);
    std::string model;

private:
    bool m_tokens_follow = false;
    int m_rules = 0;  // "--------" lines so far: the banner is between the first two
};

// Whether a line of standard error is an error rather than a warning.
bool is_complaint(std::string_view line);

}  // namespace gdnctl::codex
