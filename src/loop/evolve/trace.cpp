#include "loop/evolve/trace.h"

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/text.h"
#include "loop/report/report.h"

namespace gdnctl::loop::evolve {

namespace {

struct Place {
    std::size_t from = 0, to = 0;            // of what is taken out
    std::size_t object = 0, object_end = 0;  // of the object in it
};

// The end of the object that begins at `from`, by its braces; npos: it does not end.
std::size_t end_of_object(std::string_view text, std::size_t from) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = from; i < text.size(); ++i) {
        const char c = text[i];
        if (quoted) {
            if (c == '\\') ++i;
            if (c == '"') quoted = false;
            continue;
        }
        if (c == '"') quoted = true;
        if (c == '{') ++depth;
        if (c == '}' && --depth == 0) return i + 1;
    }
    return std::string_view::npos;
}

std::size_t skip_space(std::string_view text, std::size_t at) {
    const auto found = text.find_first_not_of(" \t\r\n", at);
    return found == std::string_view::npos ? text.size() : found;
}

std::optional<Place> leading_object(std::string_view text) {
    const std::size_t from = skip_space(text, 0);
    if (from == text.size() || text[from] != '{') return std::nullopt;
    const std::size_t end = end_of_object(text, from);
    if (end == std::string_view::npos) return std::nullopt;
    return Place{0, end, from, end};
}

// The first fence, where it is a json one.
std::optional<Place> fenced_object(std::string_view text) {
    const std::size_t fence = text.starts_with("```") ? 0 : text.find("\n```");
    if (fence == std::string_view::npos) return std::nullopt;
    const std::size_t ticks = fence + (text[fence] == '\n' ? 1 : 0);
    const std::size_t line_end = text.find('\n', ticks);
    if (line_end == std::string_view::npos) return std::nullopt;
    if (text::to_lower(text::trim(text.substr(ticks + 3, line_end - ticks - 3))) != "json") return std::nullopt;
    const std::size_t close = text.find("\n```", line_end);
    if (close == std::string_view::npos) return std::nullopt;
    const std::size_t after = text.find('\n', close + 1);
    return Place{ticks, after == std::string_view::npos ? text.size() : after + 1, line_end + 1, close};
}

}  // namespace

TracedReply split_trace(std::string_view message) {
    TracedReply out;
    auto place = leading_object(message);
    if (!place) place = fenced_object(message);
    if (place) {
        const std::string_view object = message.substr(place->object, place->object_end - place->object);
        const auto parsed = parse_json(object, "trace");
        if (parsed && parsed->is_object()) {
            out.trace = std::string(text::trim(object));
            const auto technique = parsed->find("technique");
            if (technique != parsed->end() && technique->is_string())
                out.technique = shown(technique->get<std::string>(), 100);
            out.reply = std::string(message.substr(0, place->from)) +
                        std::string(message.substr(skip_space(message, place->to)));
            return out;
        }
    }
    out.reply = std::string(message);
    return out;
}

}  // namespace gdnctl::loop::evolve
