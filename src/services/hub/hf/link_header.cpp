#include "services/hub/hf/link_header.h"

#include <algorithm>

#include "core/text.h"

namespace gdnctl::hub {

namespace {

// Removes the text up to the next ',' or ';' outside quotes, which stays.
std::string_view take_parameter(std::string_view& rest) {
    bool quoted = false;
    std::size_t end = 0;
    for (; end < rest.size(); ++end) {
        if (rest[end] == '"') quoted = !quoted;
        if (quoted && rest[end] == '\\') ++end;
        if (!quoted && (rest[end] == ',' || rest[end] == ';')) break;
    }
    const std::string_view parameter = rest.substr(0, std::min(end, rest.size()));
    rest.remove_prefix(parameter.size());
    return text::trim(parameter);
}

bool says_next(std::string_view parameter) {
    const std::size_t equals = parameter.find('=');
    if (equals == std::string_view::npos || text::to_lower(text::trim(parameter.substr(0, equals))) != "rel")
        return false;
    std::string_view value = text::trim(parameter.substr(equals + 1));
    if (value.size() >= 2 && value.starts_with('"') && value.ends_with('"')) value = value.substr(1, value.size() - 2);
    const std::string lowered = text::to_lower(value);
    const auto relations = text::split(lowered, ' ');
    return std::find(relations.begin(), relations.end(), "next") != relations.end();
}

}  // namespace

std::optional<std::string> next_link(std::string_view header) {
    while (!header.empty()) {
        const std::size_t open = header.find('<');
        if (open == std::string_view::npos) return std::nullopt;
        header.remove_prefix(open + 1);
        const std::size_t close = header.find('>');
        if (close == std::string_view::npos) return std::nullopt;
        const std::string_view target = header.substr(0, close);
        header.remove_prefix(close + 1);
        bool next = false;
        take_parameter(header);  // nothing comes between the target and the first ';'
        while (header.starts_with(';')) {
            header.remove_prefix(1);
            next = says_next(take_parameter(header)) || next;
        }
        if (next) return std::string(text::trim(target));
    }
    return std::nullopt;
}

}  // namespace gdnctl::hub
