#include <algorithm>

#include <fmt/format.h>

#include "render/html_page.h"
#include "sweep/report.h"

namespace gdnctl::sweep {

namespace {

using html::escaped;

constexpr std::string_view k_page_style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #56606b; --line: #d5dae0; --bar: #2f6fb5;
  --best: #17692f; --wrong: #b3203a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e4e8ec; --soft: #a3adb8; --line: #39414a;
  --bar: #6aa5e3; --best: #5cc981; --wrong: #ff7d92; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; } .soft { color: var(--soft); }
td, th { padding: .25rem 1rem .25rem 0; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
.remark { color: var(--wrong); } svg { display: block; max-width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg .axis { stroke: var(--line); }
svg .tick { fill: var(--soft); } svg rect { fill: var(--bar); } svg rect.best { fill: var(--best); }
)css";

// A step of 1, 2 or 5 times a power of ten that makes about five of `top`.
double tick_of(double top) {
    double unit = 1;
    while (unit * 10 <= top / 5) unit *= 10;
    while (unit > top / 5) unit /= 10;
    for (const double step : {1.0, 2.0, 5.0, 10.0}) {
        if (top / (unit * step) <= 6) return unit * step;
    }
    return unit * 10;
}

// Horizontal bars: tokens a second of one chip, the fastest first.
std::string plot(const Report& report) {
    std::vector<std::size_t> shown;
    bool steps = false;
    for (const Measured& m : report.results) steps = steps || (m.ranked() && m.step_tok_s);
    const auto rate = [&](std::size_t i) {
        const Measured& m = report.results[i];
        return (steps ? m.step_tok_s : m.forward_tok_s).value_or(0);
    };
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        if (report.results[i].ranked() && rate(i) > 0) shown.push_back(i);
    }
    if (shown.empty()) return {};
    std::stable_sort(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) { return rate(a) > rate(b); });
    constexpr std::size_t k_most = 60;
    constexpr double k_left = 376, k_width = 514, k_row = 22, k_top = 24;
    shown.resize(std::min(shown.size(), k_most));
    const double top = rate(shown.front());
    const double height = k_top + k_row * static_cast<double>(shown.size());
    std::string svg = fmt::format(
        "<svg viewBox=\"0 0 960 {:.0f}\" role=img aria-label=\"tokens a second of one chip, by configuration\">\n",
        height + 4);
    const double tick = tick_of(top);
    for (double at = 0; at <= top * 1.0001; at += tick) {
        const double x = k_left + k_width * at / top;
        svg += fmt::format(
            "<line class=axis x1={0:.1f} x2={0:.1f} y1={1:.0f} y2={2:.0f} /><text class=tick x={0:.1f} y=14 "
            "text-anchor=middle>{3}</text>\n",
            x, k_top - 4, height, rate_text(at));
    }
    double y = k_top;
    for (const std::size_t i : shown) {
        const Measured& m = report.results[i];
        const bool best = std::find(report.best.begin(), report.best.end(), i) != report.best.end();
        std::string name = name_of(m) + "  " + shape_text(m.record);
        if (name.size() > 52) name = name.substr(0, 51) + "~";
        const double width = k_width * rate(i) / top;
        svg += fmt::format(
            "<text x={:.0f} y={:.1f} text-anchor=end>{}</text><rect{} x={:.0f} y={:.1f} width={:.1f} height={:.0f} />"
            "<text x={:.1f} y={:.1f}>{}</text>\n",
            k_left - 8, y + 15, escaped(name), best ? " class=best" : "", k_left, y + 3, width, k_row - 6,
            k_left + width + 5, y + 15, rate_text(rate(i)));
        y += k_row;
    }
    return fmt::format("<h2>{} tok/s of one chip</h2>\n<div class=wide>{}</svg></div>\n", steps ? "Step" : "Forward",
                       svg);
}

std::string result_rows(const Report& report) {
    std::string rows;
    for (const Measured& m : report.results) {
        const Record& r = m.record;
        rows += fmt::format(
            "<tr><td>{}<td>{}<td>{}<td>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td class=n>{}<td "
            "class=remark>{}</tr>\n",
            escaped(name_of(m)), escaped(r.device_kind.empty() ? "unknown" : r.device_kind), escaped(shape_text(r)),
            escaped(r.x_dtype.empty() ? "unknown" : r.x_dtype), rate_text(m.forward_tok_s), rate_text(m.step_tok_s),
            rate_text(m.combined_tok_s), percent_text(m.forward_mfu), percent_text(m.step_mfu), escaped(remark_of(m)));
    }
    return rows;
}

std::string comparison_rows(const Report& report) {
    std::string rows;
    for (const Comparison& c : report.comparisons) {
        rows += fmt::format("<tr><td>{}<td>{} x {} x {}<td class=n>{}<td class=n>{}<td class=n>{}</tr>\n",
                            escaped(c.implementation), c.shape.batch, c.shape.hidden, c.shape.vocab,
                            ratio_text(c.forward_ratio), ratio_text(c.step_ratio), ratio_text(c.combined_ratio));
    }
    return rows;
}

}  // namespace

std::string report_html(const Report& report) {
    std::size_t ok = 0;
    for (const Measured& m : report.results) ok += m.record.status == ResultStatus::ok ? 1 : 0;
    std::string body = fmt::format(
        "<h1>Sweep of block sizes</h1>\n<p class=soft>{} of {} configurations have a time. Rates "
        "are of one chip; a step is forward and backward.</p>\n",
        ok, report.results.size());
    body += plot(report);
    body +=
        "<h2>Results</h2>\n<div class=wide><table><tr><th>configuration<th>device<th>B x H x V<th>dtype<th "
        "class=n>forward "
        "tok/s<th class=n>step tok/s<th class=n>combined<th class=n>forward MFU<th class=n>step MFU<th>remark</tr>\n" +
        result_rows(report) + "</table></div>\n";
    if (report.base) {
        body += fmt::format(
            "<h2>Beside {}</h2>\n<div class=wide><table><tr><th>implementation<th>B x H x V<th class=n>forward<th "
            "class=n>step<th class=n>combined</tr>\n{}</table></div>\n",
            escaped(*report.base), comparison_rows(report));
    }
    const auto notes = notes_of(report);
    if (!notes.empty()) body += "<h2>Corrections and warnings</h2>\n<ul>\n";
    for (const std::string& note : notes) body += "<li>" + escaped(note) + "</li>\n";
    if (!notes.empty()) body += "</ul>\n";
    return html::document("Sweep of block sizes", k_page_style, body);
}

}  // namespace gdnctl::sweep
