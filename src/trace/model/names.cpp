#include "trace/model/names.h"

#include <algorithm>

namespace gdnctl::trace {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter_or_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_char(char c) { return is_letter_or_digit(c) || c == '_' || c == '-' || c == '.'; }

std::size_t end_of_digits(std::string_view text, std::size_t at) {
    while (at < text.size() && is_digit(text[at])) ++at;
    return at;
}

void append_base_name(std::string& out, std::string_view name) {
    std::size_t at = 0;
    while (at < name.size()) {
        if (name[at] == '.' && at > 0) {
            const std::size_t end = end_of_digits(name, at + 1);
            if (end > at + 1 && (end == name.size() || name[end] == '.')) {
                at = end;
                continue;
            }
        }
        out += name[at++];
    }
}

}  // namespace

std::string base_name(std::string_view name) {
    std::string out;
    append_base_name(out, name);
    return out;
}

std::string canonical_name(std::string_view name, std::string_view kind) {
    std::string out = base_name(name);
    while (kind == "gpu") {
        std::size_t start = out.size();
        while (start > 0 && is_digit(out[start - 1])) --start;
        if (start == out.size() || start < 2 || out[start - 1] != '_') break;
        out.resize(start - 1);
    }
    return out;
}

std::string output_shape(std::string_view text) {
    const std::size_t equals = text.find(" = ");
    if (equals == std::string_view::npos) return {};
    const std::size_t open = text.find('[', equals);
    if (open == std::string_view::npos) return {};
    const std::size_t close = text.find(']', open);
    if (close == std::string_view::npos) return {};
    std::size_t start = open;
    while (start > equals && is_letter_or_digit(text[start - 1])) --start;
    return std::string(text.substr(start, close + 1 - start));
}

std::string anonymise(std::string_view text) {
    // An attribute's value that names an instruction without a percent sign.
    constexpr std::string_view k_collective = "async_collective_name=\"", k_channel = "channel_id=";
    std::string out;
    out.reserve(text.size());
    std::size_t at = 0;
    while (at < text.size()) {
        const std::string_view rest = text.substr(at);
        std::size_t name = 0;  // offset of a name in `rest`; 0: none starts here
        if (rest.front() == '%') {
            name = 1;
        } else if (rest.starts_with(k_collective)) {
            name = k_collective.size();
        } else if (rest.starts_with(k_channel)) {
            out.append(k_channel).append("N");
            at = end_of_digits(text, at + k_channel.size());
            continue;
        }
        if (name == 0) {
            out += text[at++];
            continue;
        }
        const auto end = std::find_if_not(rest.begin() + static_cast<std::ptrdiff_t>(name), rest.end(), is_name_char);
        const auto length = static_cast<std::size_t>(end - rest.begin());
        out.append(rest.substr(0, name));
        append_base_name(out, rest.substr(name, length - name));
        at += length;
    }
    return out;
}

}  // namespace gdnctl::trace
