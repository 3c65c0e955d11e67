#include "commands/line_regex.h"

#include <re2/re2.h>

namespace gdnctl::commands {

Result<LineRegex> LineRegex::compile(const std::string& pattern, std::string_view option) {
    RE2::Options options;
    options.set_log_errors(false);
    // Logs may hold any bytes; only a pattern that needs Unicode is read as such.
    bool ascii = true;
    for (const char c : pattern) ascii = ascii && static_cast<unsigned char>(c) < 0x80;
    options.set_encoding(ascii ? RE2::Options::EncodingLatin1 : RE2::Options::EncodingUTF8);
    auto regex = std::make_unique<RE2>(pattern, options);
    if (!regex->ok()) {
        return fail(ErrorKind::usage, std::string(option) + ": " + regex->error() + " in '" + pattern + "'",
                    "RE2 syntax: no look-around and no backreferences");
    }
    return LineRegex(std::move(regex));
}

LineRegex::LineRegex(std::unique_ptr<re2::RE2> regex) : m_regex(std::move(regex)) {}
LineRegex::LineRegex(LineRegex&&) noexcept = default;
LineRegex& LineRegex::operator=(LineRegex&&) noexcept = default;
LineRegex::~LineRegex() = default;

bool LineRegex::matches(std::string_view line) const {
    return RE2::PartialMatch(re2::StringPiece(line.data(), line.size()), *m_regex);
}

}  // namespace gdnctl::commands
