#include "services/hub/transfer/fnmatch.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace gdnctl::hub
