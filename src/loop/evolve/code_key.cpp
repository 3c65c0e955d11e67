#include "loop/evolve/code_key.h"

#include <algorithm>
#include <array>

#include "core/text.h"

namespace gdnctl::loop::evolve {

namespace {

constexpr std::array<std::string_view, 6> k_like_c = {".c", ".h", ".cc", ".cpp", ".hpp", ".cu"};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// The text without its comments; a block comment becomes a blank.
std::string stripped(std::string_view text, bool like_c) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        const bool starts_word = i == 0 || is_blank(text[i - 1]) || text[i - 1] == '\n';
        if (like_c ? text.substr(i, 2) == "//" : c == '#' && starts_word && text.substr(i, 2) != "#!") {
            i = std::min(text.find('\n', i), text.size());
        } else if (like_c && text.substr(i, 2) == "/*") {
            const std::size_t end = text.find("*/", i + 2);
            i = end == std::string_view::npos ? text.size() : end + 2;
            out += ' ';
        } else if (c == '"' || c == '\'') {
            const std::size_t start = i++;
            while (i < text.size() && text[i] != c && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
            i = std::min(i + 1, text.size());
            out += text.substr(start, i - start);
        } else {
            out += c;
            ++i;
        }
    }
    return out;
}

}  // namespace

std::string without_comments(std::string_view path, std::string_view content) {
    const auto ends = [&](std::string_view ending) { return path.ends_with(ending); };
    const bool like_c = std::any_of(k_like_c.begin(), k_like_c.end(), ends), is_python = ends(".py");
    if (!like_c && !is_python && !ends(".sh")) return std::string(content);
    std::string out;
    const std::string bare = stripped(content, like_c);
    for (const std::string_view line : text::split(bare, '\n')) {
        const std::string_view words = text::trim(line);
        if (words.empty()) continue;
        if (is_python) out += line.substr(0, static_cast<std::size_t>(words.data() - line.data()));
        for (std::size_t i = 0; i < words.size(); ++i) {
            if (!is_blank(words[i])) {
                out += words[i];
            } else if (!is_blank(words[i - 1])) {
                out += ' ';
            }
        }
        out += '\n';
    }
    return out;
}

}  // namespace gdnctl::loop::evolve
