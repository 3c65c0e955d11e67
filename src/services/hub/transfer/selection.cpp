#include "services/hub/transfer/selection.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::hub {

namespace {

using Text = std::u32string;

// A byte that is not part of a valid sequence stands for itself, outside the range of characters.
Text code_points(std::string_view bytes) {
    constexpr char32_t k_stray = 0x200000;
    Text points;
    for (std::size_t i = 0; i < bytes.size();) {
        const auto lead = static_cast<unsigned char>(bytes[i]);
        const std::size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
        char32_t point = lead < 0x80 ? lead : lead & (0x7FU >> length);
        bool valid = length > 0 && i + length <= bytes.size();
        for (std::size_t j = 1; valid && j < length; ++j) {
            const auto next = static_cast<unsigned char>(bytes[i + j]);
            valid = (next & 0xC0U) == 0x80;
            point = (point << 6U) | (next & 0x3FU);
        }
        points += valid ? point : k_stray + lead;
        i += valid ? length : 1;
    }
    std::replace(points.begin(), points.end(), U'\\', U'/');
    return points;
}

struct Range {
    char32_t first, last;
};

struct Token {
    enum class Kind { literal, any, star, set };
    Kind kind = Kind::literal;
    char32_t literal = 0;
    bool negated = false;
    std::vector<Range> ranges;

    bool matches(char32_t c) const {
        if (kind == Kind::any) return true;
        if (kind == Kind::literal) return c == literal;
        const bool listed = std::any_of(ranges.begin(), ranges.end(),
                                        [c](const Range& range) { return range.first <= c && c <= range.last; });
        return listed != negated;
    }
};

void add_each(Token& set, const Text& characters) {
    for (const char32_t c : characters) set.ranges.push_back({c, c});
}

// The text between brackets, split at hyphens as Python does: the last character of one piece and the first of the next
// form a range. An empty range vanishes.
Token set_of(const Text& inside) {
    Token set;
    set.kind = Token::Kind::set;
    set.negated = !inside.empty() && inside.front() == U'!';
    const Text body = inside.substr(set.negated ? 1 : 0);
    std::vector<Text> pieces;
    std::size_t from = 0;
    for (std::size_t at = body.find(U'-', 1); at != Text::npos; at = body.find(U'-', at + 3)) {
        pieces.push_back(body.substr(from, at - from));
        from = at + 1;
        if (at + 3 > body.size()) break;
    }
    if (from < body.size() || pieces.empty()) {
        pieces.push_back(body.substr(from));
    } else {
        pieces.back() += U'-';
    }
    for (std::size_t k = pieces.size() - 1; k > 0; --k) {
        Text& before = pieces[k - 1];
        if (before.back() <= pieces[k].front()) continue;
        before.pop_back();
        before += pieces[k].substr(1);
        pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(k));
        if (before.empty()) break;  // nothing is left to join with what precedes it
    }
    for (std::size_t k = 0; k < pieces.size(); ++k) {
        add_each(set, pieces[k]);
        if (k > 0 && !pieces[k - 1].empty() && !pieces[k].empty()) {
            set.ranges.push_back({pieces[k - 1].back(), pieces[k].front()});
        }
    }
    return set;
}

std::vector<Token> tokens_of(const Text& pattern) {
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        Token token;
        token.literal = pattern[i];
        if (pattern[i] == U'*') token.kind = Token::Kind::star;
        if (pattern[i] == U'?') token.kind = Token::Kind::any;
        if (pattern[i] == U'[') {
            std::size_t end = i + 1;
            if (end < pattern.size() && pattern[end] == U'!') ++end;
            if (end < pattern.size() && pattern[end] == U']') ++end;
            end = pattern.find(U']', end);
            if (end != Text::npos) {
                token = set_of(pattern.substr(i + 1, end - i - 1));
                i = end;
            }
        }
        tokens.push_back(std::move(token));
    }
    return tokens;
}

}  // namespace

bool fnmatch(std::string_view pattern, std::string_view path) {
    Text wanted = code_points(pattern);
    if (!wanted.empty() && wanted.back() == U'/') wanted += U'*';
    const std::vector<Token> tokens = tokens_of(wanted);
    const Text text = code_points(path);
    std::size_t t = 0, c = 0, star = tokens.size(), resume = 0;
    while (c < text.size()) {
        if (t < tokens.size() && tokens[t].kind == Token::Kind::star) {
            star = t++;
            resume = c;
        } else if (t < tokens.size() && tokens[t].matches(text[c])) {
            ++t;
            ++c;
        } else if (star < tokens.size()) {  // the last star matches one more character
            t = star + 1;
            c = ++resume;
        } else {
            return false;
        }
    }
    while (t < tokens.size() && tokens[t].kind == Token::Kind::star) ++t;
    return t == tokens.size();
}

namespace {

constexpr const char* k_xplane_pattern = R"re(xplane\.pb$)re";
constexpr std::string_view k_profile_folder = "plugins/profile/";

std::string_view without_slashes(std::string_view text) {
    while (text.starts_with('/')) text.remove_prefix(1);
    while (text.ends_with('/')) text.remove_suffix(1);
    return text;
}

bool any_glob(const std::vector<std::string>& globs, std::string_view path) {
    return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return fnmatch(glob, path); });
}

struct Session {
    std::string_view run, name;
};

std::optional<Session> session_of(std::string_view path) {
    const std::size_t at = path.find(k_profile_folder);
    if (at == std::string_view::npos || (at > 0 && path[at - 1] != '/')) return std::nullopt;
    const std::string_view rest = path.substr(at + k_profile_folder.size());
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos || slash == 0) return std::nullopt;
    return Session{path.substr(0, at), rest.substr(0, slash)};
}

// "steps-10-to-20" -> {10, 20}
std::optional<std::pair<std::int64_t, std::int64_t>> steps_of(std::string_view name) {
    constexpr std::string_view k_before = "steps-", k_between = "-to-";
    if (!name.starts_with(k_before)) return std::nullopt;
    name.remove_prefix(k_before.size());
    const std::size_t at = name.find(k_between);
    if (at == std::string_view::npos) return std::nullopt;
    const auto first = text::parse_int(name.substr(0, at));
    const auto last = text::parse_int(name.substr(at + k_between.size()));
    if (!first || !last) return std::nullopt;
    return std::pair{*first, *last};
}

bool is_older(std::string_view a, std::string_view b) {
    const auto steps_a = steps_of(a), steps_b = steps_of(b);
    if (steps_a && steps_b) return *steps_a < *steps_b;
    return a < b;
}

}  // namespace

Result<Selection> Selection::make(SelectionOptions options) {
    options.prefix = without_slashes(options.prefix);
    if (options.limit && *options.limit < 1) {
        return fail(ErrorKind::usage, fmt::format("--limit {}: expected 1 or more", *options.limit));
    }
    if (options.patterns.empty() && options.includes.empty()) options.patterns.emplace_back(k_default_pattern);
    Selection selection(std::move(options));
    for (const std::string& pattern : selection.m_options.patterns) {
        GDNCTL_TRY_ASSIGN(LineRegex regex, LineRegex::compile(pattern, "--pattern"));
        selection.m_patterns.push_back(std::move(regex));
    }
    if (selection.m_options.include_xplane) {
        GDNCTL_TRY_ASSIGN(selection.m_xplane, LineRegex::compile(k_xplane_pattern, "--include-xplane"));
    }
    return selection;
}

bool Selection::takes(std::string_view path) const {
    const std::string& prefix = m_options.prefix;
    if (any_glob(m_options.excludes, path)) return false;
    if (!prefix.empty()) {
        if (path == prefix) return true;
        if (!path.starts_with(prefix) || path[prefix.size()] != '/') return false;
    }
    if (m_xplane && m_xplane->matches(path)) return true;
    if (!m_options.includes.empty() && !any_glob(m_options.includes, path)) return false;
    return m_patterns.empty() || std::any_of(m_patterns.begin(), m_patterns.end(),
                                             [&](const LineRegex& regex) { return regex.matches(path); });
}

std::vector<std::string> Selection::finish(std::vector<std::string> taken) const {
    std::sort(taken.begin(), taken.end());
    if (m_options.latest_session) taken = latest_sessions(taken);
    if (m_options.limit && taken.size() > static_cast<std::size_t>(*m_options.limit)) {
        taken.resize(static_cast<std::size_t>(*m_options.limit));
    }
    return taken;
}

std::vector<std::string> latest_sessions(const std::vector<std::string>& paths) {
    std::map<std::string_view, std::string_view> newest;
    for (const std::string& path : paths) {
        const auto session = session_of(path);
        if (!session) continue;
        std::string_view& best = newest[session->run];
        if (best.empty() || is_older(best, session->name)) best = session->name;
    }
    std::vector<std::string> kept;
    for (const std::string& path : paths) {
        const auto session = session_of(path);
        if (session && newest[session->run] == session->name) kept.push_back(path);
    }
    return kept;
}

std::vector<std::string> nearest_paths(std::string_view wanted, std::span<const std::string> paths) {
    constexpr std::size_t k_shown = 5, k_farthest = 200, k_looked_at = 5000;
    std::vector<std::pair<std::size_t, const std::string*>> ranked;
    for (const std::string& path : paths.first(std::min(paths.size(), k_looked_at))) {
        const bool part = !wanted.empty() && path.find(wanted) != std::string::npos;
        // Compare a folder's name only with as much of the path as could match.
        const std::string_view head = std::string_view(path).substr(0, std::min(path.size(), wanted.size() + 2));
        ranked.emplace_back(part ? 0 : text::edit_distance(wanted, head, k_farthest), &path);
    }
    const std::size_t shown = std::min(k_shown, ranked.size());
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> nearest;
    for (std::size_t i = 0; i < shown; ++i) nearest.push_back(*ranked[i].second);
    return nearest;
}

}  // namespace gdnctl::hub
