#include "core/line_regex.h"

#include <algorithm>
#include <array>

#include <re2/re2.h>

namespace gdnctl {

Result<LineRegex> LineRegex::compile(const std::string& pattern, std::string_view option) {
    RE2::Options options;
    options.set_log_errors(false);
    // Logs may hold any bytes, so a pattern is compiled as UTF-8 only if it contains non-ASCII characters.
    bool ascii = true;
    for (const char c : pattern) ascii = ascii && static_cast<unsigned char>(c) < 0x80;
    options.set_encoding(ascii ? RE2::Options::EncodingLatin1 : RE2::Options::EncodingUTF8);
    auto regex = std::make_unique<RE2>(pattern, options);
    if (!regex->ok()) {
        const std::size_t at = pattern.find(regex->error_arg());
        const std::string where = at == std::string::npos ? "" : " at offset " + std::to_string(at);
        return fail(ErrorKind::usage, std::string(option) + ": " + regex->error() + where + " in '" + pattern + "'",
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

std::optional<std::string_view> LineRegex::last_match(std::string_view line) const {
    const int groups = std::min(m_regex->NumberOfCapturingGroups(), 1);
    const re2::StringPiece text(line.data(), line.size());
    std::optional<std::string_view> last;
    for (std::size_t at = 0; at <= line.size();) {
        std::array<re2::StringPiece, 2> found;
        if (!m_regex->Match(text, at, line.size(), RE2::UNANCHORED, found.data(), groups + 1)) break;
        const re2::StringPiece& meant = found.at(static_cast<std::size_t>(groups));
        if (meant.data() != nullptr) last = std::string_view(meant.data(), meant.size());
        const auto end = static_cast<std::size_t>(found[0].data() - line.data()) + found[0].size();
        at = found[0].empty() ? end + 1 : end;
    }
    return last;
}

}  // namespace gdnctl
