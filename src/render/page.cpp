#include "render/page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::html {

namespace {

constexpr Colour k_common[] = {{"ground", "#ffffff", "#14171b"},  {"ink", "#1b1f24", "#e4e8ec"},
                               {"soft", "#56606b", "#a3adb8"},    {"line", "#d5dae0", "#39414a"},
                               {"code", "#f2f4f7", "#1f242a"},    {"ok", "#17692f", "#5cc981"},
                               {"suspect", "#8a5a00", "#e3ac45"}, {"wrong", "#b3203a", "#ff7d92"}};

constexpr std::string_view k_css = R"css(
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .wide { overflow-x: auto; } .soft { color: var(--soft); } code { font-size: .92em; }
table { border-collapse: collapse; } td, th { padding: .25rem 1rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: var(--code); padding: .7rem 1rem; border-radius: 6px; white-space: pre-wrap; margin: 0; }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; margin: 1rem 0; } dl div { min-width: 6rem; }
dt { color: var(--soft); font-size: .85em; } dd { margin: 0; font-size: 1.15em; font-variant-numeric: tabular-nums; }
svg { display: block; } svg[viewBox] { max-width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
svg .axis { stroke: var(--line); stroke-width: 1; }
.legend { color: var(--soft); font-size: .9em; } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .85em; height: .85em; margin-right: .4em; vertical-align: -.1em; }
)css";

std::string variables(const Look& look, std::string_view Colour::* shade) {
    std::string css;
    for (const Colour& c : k_common) css += fmt::format("--{}: {}; ", c.name, c.*shade);
    for (const Colour& c : look.colours) css += fmt::format("--{}: {}; ", c.name, c.*shade);
    return css;
}

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

std::string document(std::string_view title, const Look& look, std::string_view body) {
    std::string css = fmt::format(
        "\n:root {{ color-scheme: light dark; {}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {}}} }}{}",
        variables(look, &Colour::light), variables(look, &Colour::dark), k_css);
    for (const Colour& c : look.colours) {
        css += fmt::format(".{0} {{ fill: var(--{0}); }} i.{0} {{ background: var(--{0}); }}\n", c.name);
    }
    return fmt::format(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
        "<title>{}</title>\n<style>{}{}</style></head>\n<body>\n{}</body></html>\n",
        escaped(title), css, look.css, body);
}

Table::Table(std::string_view heads) {
    for (const std::string_view head : text::split(heads, '|')) {
        const std::size_t at = std::min(head.find('@'), head.size());
        m_columns.push_back({head.substr(0, at), head.substr(std::min(at + 1, head.size()))});
    }
}

void Table::row(std::initializer_list<std::string_view> cells) {
    m_rows += "<tr>";
    std::size_t column = 0;
    for (const std::string_view cell : cells) {
        const std::string_view css = m_columns[column++].css;
        m_rows += css.empty() ? fmt::format("<td>{}", cell) : fmt::format("<td class={}>{}", css, cell);
    }
    m_rows += "</tr>\n";
}

std::string Table::html() const {
    if (m_rows.empty()) return {};
    std::string head;
    for (const Column& c : m_columns) head += fmt::format("<th{}>{}", c.css == "n" ? " class=n" : "", escaped(c.head));
    return fmt::format("<div class=wide><table><tr>{}</tr>\n{}</table></div>\n", head, m_rows);
}

std::string Table::section(std::string_view title) const { return html::section(title, html()); }

std::string section(std::string_view title, std::string_view html) {
    return html.empty() ? std::string() : fmt::format("<h2>{}</h2>\n{}", escaped(title), html);
}

std::string preformatted(std::string_view title, std::string_view text) {
    return text.empty() ? std::string() : section(title, fmt::format("<pre>{}</pre>\n", escaped(text)));
}

std::string facts(std::initializer_list<std::pair<std::string_view, std::string>> items) {
    std::string html = "<dl>\n";
    for (const auto& [name, value] : items) {
        if (!value.empty()) html += fmt::format("<div><dt>{}<dd>{}</div>\n", name, escaped(value));
    }
    return html + "</dl>\n";
}

std::string legend(const std::vector<std::pair<std::string_view, std::string_view>>& items, std::string_view first,
                   std::string_view last) {
    std::string html = fmt::format("<p class=legend>{}", first);
    for (const auto& [name, text] : items) html += fmt::format("<span><i class={}></i>{}</span> ", name, text);
    return html + fmt::format("{}</p>\n", last);
}

}  // namespace gdnctl::html

namespace gdnctl::svg {

namespace {

std::string class_of(std::string_view css) {
    if (css.empty()) return {};
    return css.find(' ') == std::string_view::npos ? fmt::format(" class={}", css) : fmt::format(" class=\"{}\"", css);
}

// `attributes` begin with a space.
std::string element(std::string_view tag, const Mark& mark, const std::string& attributes) {
    if (mark.title.empty()) return fmt::format("<{}{}{}/>\n", tag, class_of(mark.css), attributes);
    return fmt::format("<{0}{1}{2}><title>{3}</title></{0}>\n", tag, class_of(mark.css), attributes,
                       html::escaped(mark.title));
}

}  // namespace

std::string open(double width, double height, std::string_view label, bool scales) {
    return fmt::format("<div class=wide><svg width=\"{0:.0f}\" height=\"{1:.0f}\"{2} role=img aria-label=\"{3}\">\n",
                       width, height, scales ? fmt::format(" viewBox=\"0 0 {:.0f} {:.0f}\"", width, height) : "",
                       html::escaped(label));
}

std::string text(double x, double y, std::string_view text, Anchor anchor) {
    const std::string_view where = anchor == Anchor::start    ? ""
                                   : anchor == Anchor::middle ? " text-anchor=\"middle\""
                                                              : " text-anchor=\"end\"";
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, where, html::escaped(text));
}

std::string rect(const Mark& mark, const Box& box) {
    return element("rect", mark,
                   fmt::format(" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"", box.x, box.y, box.width,
                               box.height));
}

std::string circle(const Mark& mark, double x, double y, double radius) {
    return element("circle", mark, fmt::format(" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"", x, y, radius));
}

std::string path(const Mark& mark, std::string_view data) {
    return element("path", mark, fmt::format(" d=\"{}\"", data));
}

std::string line(std::string_view css, double x1, double y1, double x2, double y2) {
    return fmt::format("<line{} x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", class_of(css), x1, x2, y1,
                       y2);
}

double round_step(double least) {
    if (!(least > 0)) return 1;
    const double decade = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0}) {
        if (factor * decade >= least) return factor * decade;
    }
    return 10 * decade;
}

}  // namespace gdnctl::svg
