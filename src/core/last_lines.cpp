#include "core/last_lines.h"

#include <algorithm>

namespace gdnctl::text {

std::string_view last_lines(std::string_view text, std::size_t count) {
    if (count == 0) return {};
    std::size_t at = text.size();
    if (at > 0 && text[at - 1] == '\n') --at;
    for (std::size_t n = 0; n < count; ++n) {
        if (at == 0) return text;
        at = text.rfind('\n', at - 1);
        if (at == std::string_view::npos) return text;
    }
    return text.substr(at + 1);
}

std::string_view end_within(std::string_view text, std::size_t bytes) {
    if (text.size() <= bytes) return text;
    text.remove_prefix(text.size() - bytes);
    text.remove_prefix(std::min(text.find('\n') + 1, text.size()));  // npos + 1 is 0
    return text;
}

}  // namespace gdnctl::text
