#include "core/glob.h"

#include <algorithm>
#include <vector>

namespace gdnctl {

namespace {

struct Part {
    enum class Kind { byte, any, one_of, star, double_star, folders };
    Kind kind = Kind::byte;
    char byte = 0;
    std::string_view set = {};  // between the brackets
};

bool in_set(std::string_view set, char c) {
    const bool negated = !set.empty() && (set.front() == '!' || set.front() == '^');
    if (negated) set.remove_prefix(1);
    bool found = false;
    for (std::size_t i = 0; i < set.size(); ++i) {
        if (i + 2 < set.size() && set[i + 1] == '-') {
            found = found || (set[i] <= c && c <= set[i + 2]);
            i += 2;
        } else {
            found = found || set[i] == c;
        }
    }
    return found != negated && c != '/';
}

std::vector<Part> parse(std::string_view pattern) {
    using Kind = Part::Kind;
    std::vector<Part> parts;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c == '*') {
            const bool at_start = i == 0 || pattern[i - 1] == '/';
            if (pattern.substr(i, 3) == "**/" && at_start) {
                parts.push_back({Kind::folders});  // "**/": zero or more whole folders
                i += 2;
            } else if (pattern.substr(i, 2) == "**") {
                parts.push_back({Kind::double_star});
                i += 1;
            } else {
                parts.push_back({Kind::star});
            }
        } else if (c == '?') {
            parts.push_back({Kind::any});
        } else if (const auto end = c == '[' ? pattern.find(']', i + 2) : std::string_view::npos;
                   end != std::string_view::npos) {
            parts.push_back({Kind::one_of, 0, pattern.substr(i + 1, end - i - 1)});
            i = end;
        } else {
            if (c == '\\' && i + 1 < pattern.size()) ++i;
            parts.push_back({Kind::byte, pattern[i]});
        }
    }
    return parts;
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view path) {
    using Kind = Part::Kind;
    // reach[j]: the parts so far match the first j bytes.
    std::vector<char> reach(path.size() + 1, 0);
    reach[0] = 1;
    for (const Part& part : parse(pattern)) {
        std::vector<char> next(path.size() + 1, 0);
        for (std::size_t j = 0; j <= path.size(); ++j) {
            const bool consumed = j > 0;
            const char c = consumed ? path[j - 1] : '\0';
            switch (part.kind) {
                case Kind::byte: next[j] = static_cast<char>(consumed && reach[j - 1] != 0 && c == part.byte); break;
                case Kind::any: next[j] = static_cast<char>(consumed && reach[j - 1] != 0 && c != '/'); break;
                case Kind::one_of:
                    next[j] = static_cast<char>(consumed && reach[j - 1] != 0 && in_set(part.set, c));
                    break;
                case Kind::star:
                    next[j] = static_cast<char>(reach[j] != 0 || (consumed && next[j - 1] != 0 && c != '/'));
                    break;
                case Kind::double_star:
                    next[j] = static_cast<char>(reach[j] != 0 || (consumed && next[j - 1] != 0));
                    break;
                case Kind::folders:
                    next[j] = static_cast<char>(
                        reach[j] != 0 ||
                        (c == '/' && std::any_of(reach.begin(), reach.begin() + static_cast<std::ptrdiff_t>(j),
                                                 [](char was) { return was != 0; })));
                    break;
            }
        }
        reach = std::move(next);
    }
    return reach.back() != 0;
}

bool glob_covers(std::span<const std::string> patterns, std::string_view path) {
    return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& given) {
        std::string_view pattern = given;
        while (pattern.starts_with("./")) pattern.remove_prefix(2);
        while (pattern.size() > 1 && pattern.ends_with('/')) pattern.remove_suffix(1);
        for (auto end = path.find('/');; end = path.find('/', end + 1)) {
            if (glob_matches(pattern, path.substr(0, end))) return true;
            if (end == std::string_view::npos) return false;
        }
    });
}

}  // namespace gdnctl
