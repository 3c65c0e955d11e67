#include "render/page.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/text.h"
#include "core/time.h"

namespace gdnctl::html {

namespace {

struct Colour {
    std::string_view name, light, dark;
};

// Each is var(--NAME); those from `best` on are also the class NAME, which fills shapes of charts and squares of
// legends.
constexpr Colour k_colours[] = {
    {"ground", "#ffffff", "#14171b"},  {"ink", "#1b1f24", "#e4e8ec"},      {"soft", "#56606b", "#a3adb8"},
    {"line", "#d5dae0", "#39414a"},    {"code", "#f2f4f7", "#1f242a"},     {"ok", "#17692f", "#5cc981"},
    {"suspect", "#8a5a00", "#e3ac45"}, {"wrong", "#b3203a", "#ff7d92"},    {"best", "#1d6fd1", "#62a8ff"},
    {"kept", "#3f8f52", "#5cb874"},    {"rejected", "#c44e52", "#e8696e"}, {"trouble", "#e0a63a", "#d9a441"},
    {"agent", "#8b6fb8", "#a98bd8"},   {"none", "#b4bcc5", "#59636e"},     {"band", "#1d6fd12b", "#62a8ff33"},
    {"e0", "#dcefe1", "#1c3627"},      {"e1", "#9fd0ae", "#2f7049"},       {"e2", "#efb84f", "#b5801c"},
    {"e3", "#cc3f54", "#e0526a"},      {"e9", "#e6e9ed", "#2a3037"}};
constexpr std::size_t k_variables_only = 8;

constexpr std::string_view k_css = R"css(
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .wide { overflow-x: auto; } .soft { color: var(--soft); } code { font-size: .92em; }
table { border-collapse: collapse; } td, th { padding: .25rem 1rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td { overflow-wrap: break-word; } td:last-child { overflow-wrap: anywhere; min-width: 7rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } .dense td { white-space: nowrap; }
.dense { font-size: .9em; } .dense td:last-child:not(.n) { white-space: normal; }
pre { background: var(--code); padding: .7rem 1rem; border-radius: 6px; white-space: pre-wrap; margin: 0; }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; margin: 1rem 0; } dl div { min-width: 6rem; }
dt { color: var(--soft); font-size: .85em; } dd { margin: 0; font-size: 1.15em; font-variant-numeric: tabular-nums; }
details table { font-size: .9em; }
details { border-bottom: 1px solid var(--line); padding: .25rem 0; } summary { cursor: pointer; }
details:target { background: var(--code); } details > div { padding: .4rem 0 .8rem 1.2rem; }
summary i, .legend i { display: inline-block; width: .85em; height: .85em; margin-right: .4em; vertical-align: -.1em; }
.legend { color: var(--soft); font-size: .9em; } .legend span { margin-right: 1rem; white-space: nowrap; }
.OK, .SUSPECT, .WRONG, .pass, .fail { font-weight: 700; } .OK, .pass { color: var(--ok); }
.WRONG, .fail, .remark { color: var(--wrong); } .SUSPECT, .UNSTABLE_INPUT, .NO_DATA { color: var(--suspect); }
svg { display: block; } svg[viewBox] { max-width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
svg .axis, svg .edge { stroke: var(--line); stroke-width: 1.2; fill: none; } .zone { opacity: .38; }
svg polyline { fill: none; stroke: var(--ink); stroke-width: 1.4; } svg polyline.best { fill: none;
  stroke: var(--best); }
svg path.cross { fill: none; }
@media (max-width: 760px) { svg[viewBox] { max-width: none; } }
svg .mark { stroke: var(--wrong); stroke-width: 1.2; stroke-dasharray: 4 3; }
svg .mark + text { fill: var(--wrong); font-weight: 600; } circle { fill: var(--ink); }
svg .chosen { stroke: var(--best); stroke-width: 3; } svg .open { fill: var(--ground); stroke: var(--soft); }
i.open { border: 1px solid var(--soft); }
@page { size: landscape; margin: 12mm; }
@media print { body { margin: 0; max-width: none; zoom: .85; print-color-adjust: exact; } .wide { overflow: visible; }
  h2 { break-after: avoid; } tr, pre, svg { break-inside: avoid; } }
)css";

std::string variables(std::string_view Colour::* shade) {
    std::string css;
    for (const Colour& c : k_colours) css += fmt::format("--{}: {}; ", c.name, c.*shade);
    return css;
}

std::string style() {
    std::string css = fmt::format(
        "\n:root {{ color-scheme: light dark; {}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {}}} "
        "}}{}",
        variables(&Colour::light), variables(&Colour::dark), k_css);
    for (std::size_t i = k_variables_only; i < std::size(k_colours); ++i) {
        css += fmt::format(
            ".{0} {{ fill: var(--{0}); }} line.{0}, path.cross.{0} {{ stroke: var(--{0}); stroke-width: 2; }} i.{0} {{ "
            "background: "
            "var(--{0}); }}\n",
            k_colours[i].name);
    }
    return css;
}

std::string cut(std::string_view text, std::int64_t columns) {
    std::size_t end = 0;
    for (std::int64_t points = 0; end < text.size(); ++end) {
        if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && ++points > columns) break;
    }
    return end == text.size() ? std::string(text) : std::string(text.substr(0, end)) + "…";
}

std::string text_of(const Json& value, std::string_view format) {
    if (value.is_null()) return {};
    if (value.is_string()) {
        const auto columns = text::parse_int(format);
        return columns ? cut(value.get_ref<const std::string&>(), *columns) : value.get<std::string>();
    }
    if (value.is_array()) {
        std::string list;
        for (const Json& one : value) list += (list.empty() ? "" : ", ") + text_of(one, format);
        return list;
    }
    if (!value.is_number() || format.empty())
        return value.is_number_float() ? fmt::format("{}", value.get<double>()) : gdnctl::to_text(value);
    const auto number = value.get<double>();
    if (format == "people") return number_for_people(number);
    if (format == "grouped") return grouped(value.get<std::int64_t>());
    if (format == "duration") return format_duration(std::chrono::milliseconds(value.get<std::int64_t>()));
    return fmt::format(fmt::runtime(fmt::format("{{:{}}}", format)), number);
}

bool is_there(const Json& value) {
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_string()) return !value.get_ref<const std::string&>().empty();
    if (value.is_number()) return value.get<double>() != 0;
    return !value.is_null() && !value.empty();
}

class Filling {
public:
    Filling(std::string_view body, const Json& data) : m_body(body) { m_sections.push_back({&data, {}}); }
    std::string text() && {
        section(0, true);
        return std::move(m_out);
    }

private:
    struct Section {
        const Json* value;
        std::string_view name;
    };

    const Json& at(std::string_view path) const {
        if (path == ".") return *m_sections.back().value;
        for (auto s = m_sections.rbegin(); s != m_sections.rend(); ++s) {
            if (s->value->is_object() && s->value->contains(path.substr(0, path.find('/')))) {
                return json::field_at(*s->value, fmt::format("/{}", path));
            }
        }
        return json::field(Json(), path);
    }

    // Writes what lies between `from` and the {{/}} that ends it if `shown`; returns the place behind that.
    std::size_t section(std::size_t from, bool shown) {
        for (;;) {
            const std::size_t open = std::min(m_body.find("{{", from), m_body.size());
            if (shown) m_out += m_body.substr(from, open - from);
            if (open == m_body.size()) return open;
            const std::size_t close = m_body.find("}}", open);
            const std::string_view tag = m_body.substr(open + 2, close - open - 2);
            from = close + 2;
            if (tag == "/") return from;
            if (std::string_view("#*?^").find(tag.front()) != std::string_view::npos) {
                from = inner(tag.front(), shown ? &at(tag.substr(1)) : nullptr, from);
            } else if (shown) {
                value(tag);
            }
        }
    }

    std::size_t inner(char kind, const Json* value, std::size_t from) {
        const bool there = value != nullptr && is_there(*value);
        if (kind == '?' || kind == '^') return section(from, value != nullptr && there == (kind == '?'));
        if (!there) return section(from, false);
        std::size_t end = from;
        const auto enter = [&](const Json& one, std::string_view name) {
            m_sections.push_back({&one, name});
            end = section(from, true);
            m_sections.pop_back();
        };
        if (kind == '*') {
            for (const auto& member : value->items()) enter(member.value(), member.key());
        } else if (value->is_array()) {
            for (const Json& one : *value) enter(one, {});
        } else {
            enter(*value, {});
        }
        return end;
    }

    void value(std::string_view tag) {
        if (tag == "@") {
            m_out += escaped(m_sections.back().name);
        } else if (tag.front() == '&') {
            m_out += text_of(at(tag.substr(1)), {});
        } else {
            const std::size_t bar = std::min(tag.find('|'), tag.size());
            m_out += escaped(text_of(at(tag.substr(0, bar)), tag.substr(std::min(bar + 1, tag.size()))));
        }
    }

    std::string_view m_body;
    std::vector<Section> m_sections;
    std::string m_out;
};

}  // namespace

std::string escaped(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text::visible(text)) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            default: out += c;
        }
    }
    return out;
}

std::string page(std::string_view title, std::string_view body, const Json& data) {
    return fmt::format(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
        "<title>{}</title>\n<style>{}</style></head>\n<body>\n{}</body></html>\n",
        Filling(title, data).text(), style(), Filling(body, data).text());
}

}  // namespace gdnctl::html
