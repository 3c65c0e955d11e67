// The embedded copies of prompts/ and session_directives/, generated when CMake configures.
#pragma once

#include <span>
#include <string_view>

namespace gdnctl::loop {

struct EmbeddedDocument {
    bool prompt;
    std::string_view name, text;
};
std::span<const EmbeddedDocument> embedded_documents();

}  // namespace gdnctl::loop
