#include "commands/oracle_html.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "commands/oracle_report.h"

namespace gdnctl::commands::oracle_html {

namespace {

using oracle::GdnReference;
using oracle::GdnReport;

constexpr std::string_view k_style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #5b6570; --line: #d5dae0;
  --c0: #dfeee3; --c1: #b9dcc4; --c2: #f2c879; --c3: #d1495b; --none: #eceff2; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e4e8ec; --soft: #98a2ad; --line: #333a42;
  --c0: #1d3a28; --c1: #2f6b46; --c2: #a87416; --c3: #e0526a; --none: #22272d; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .7rem .2rem 0; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } .soft { color: var(--soft); } code { font-size: .92em; }
.OK, .SUSPECT, .WRONG { font-weight: 700; } .WRONG { color: var(--c3); }
svg text { fill: var(--soft); font-size: 11px; } svg line { stroke: var(--line); }
.e0 { fill: var(--c0); } .e1 { fill: var(--c1); } .e2 { fill: var(--c2); } .e3 { fill: var(--c3); } .e9 { fill: var(--none); }
polyline { fill: none; stroke: var(--ink); stroke-width: 1.2; } .band { stroke-dasharray: 4 3; }
)css";

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
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

int level(double error) {
    if (error <= 1) return 0;
    if (error <= oracle::k_ok_band) return 1;
    return error <= oracle::k_wrong_band ? 2 : 3;
}

std::string tensors_table(const GdnReport& report) {
    std::string html =
        "<table><tr><th>tensor<th>dtype<th>shape<th>verdict<th class=n>error / budget<th class=n>rms ratio"
        "<th class=n>max abs<th class=n>ulp</tr>\n";
    for (const auto& t : report.tensors) {
        const auto verdict = oracle::name_of(t.verdict);
        html += fmt::format(
            "<tr><td>{}<td>{}<td>{}<td class={}>{}<td class=n>{:.3g}<td class=n>{:.2g}<td class=n>{:.2g}"
            "<td class=n>{:.0f}</tr>\n",
            escaped(t.name), oracle::name_of(t.stored), oracle::text_of(t.shape), verdict, verdict, t.error_over_budget,
            t.rms_ratio, t.max_abs, t.ulp.max);
    }
    return html + "</table>\n";
}

// One rectangle for each lane and chunk; chunks share one when there are more than 256.
std::string map_svg(const GdnReport& report) {
    std::size_t chunks = 0;
    for (const auto& lane : report.errors) chunks = std::max(chunks, lane.chunks.size());
    const std::size_t per_cell = std::max<std::size_t>(1, (chunks + 255) / 256);
    const std::size_t cells = (chunks + per_cell - 1) / per_cell;
    const double width = cells == 0 ? 12 : std::clamp(860.0 / static_cast<double>(cells), 3.0, 26.0);
    constexpr double k_height = 16;
    constexpr double k_left = 120;
    const double state_at = k_left + static_cast<double>(cells) * width + 10;
    const double total = k_height * static_cast<double>(report.errors.size());
    std::string html =
        fmt::format("<div class=wide><svg width=\"{:.0f}\" height=\"{:.0f}\" role=img>\n", state_at + 90, total + 34);
    double y = 18;
    html += fmt::format("<text x=\"{}\" y=\"11\">chunks 0 to {}</text><text x=\"{:.1f}\" y=\"11\">final state</text>\n",
                        k_left, chunks == 0 ? 0 : chunks - 1, state_at);
    for (const auto& lane : report.errors) {
        html += fmt::format("<text x=\"0\" y=\"{:.1f}\">seq {} head {}</text>\n", y + 11, lane.sequence, lane.head);
        for (std::size_t cell = 0; cell * per_cell < lane.chunks.size(); ++cell) {
            double worst = 0;
            for (std::size_t c = cell * per_cell; c < std::min((cell + 1) * per_cell, lane.chunks.size()); ++c) {
                worst = std::isnan(lane.chunks[c]) ? HUGE_VAL : std::max(worst, lane.chunks[c]);
            }
            html += fmt::format(
                "<rect class=e{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"><title>seq {} head {} chunk "
                "{}: {:.3g}</title></rect>\n",
                level(worst), k_left + static_cast<double>(cell) * width, y, width - 1, k_height - 1, lane.sequence,
                lane.head, cell * per_cell, worst);
        }
        html += fmt::format(
            "<rect class=e{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"24\" height=\"{}\"><title>final state: "
            "{}</title></rect>\n",
            lane.final_state ? level(*lane.final_state) : 9, state_at, y, k_height - 1,
            lane.final_state ? fmt::format("{:.3g}", *lane.final_state) : std::string("not in the dump"));
        y += k_height;
    }
    return html +
           "</svg></div>\n<p class=soft>error / budget: palest up to 1, green up to 4 (OK), amber up to 30 (SUSPECT), "
           "red beyond (WRONG)</p>\n";
}

// log10 of error / budget against the token, the worst head of each.
std::string tokens_svg(const std::vector<double>& errors) {
    if (errors.empty()) return "<p class=soft>out is not in the dump</p>\n";
    constexpr double k_width = 900;
    constexpr double k_height = 220;
    constexpr double k_low = -2;
    double high = 2;
    for (const double e : errors) {
        if (std::isfinite(e) && e > 0) high = std::max(high, std::ceil(std::log10(e)));
    }
    const auto y_of = [&](double e) {
        const double log = !std::isfinite(e) ? high : e > 0 ? std::log10(e) : k_low;
        return 10 + (high - std::clamp(log, k_low, high)) / (high - k_low) * k_height;
    };
    std::string html =
        fmt::format("<div class=wide><svg width=\"{}\" height=\"{}\" role=img>\n", k_width + 70, k_height + 40);
    for (const auto& [value, label] :
         {std::pair{1.0, "1"}, {oracle::k_ok_band, "4 OK"}, {oracle::k_wrong_band, "30 WRONG"}}) {
        html += fmt::format(
            "<line class=band x1=\"60\" x2=\"{0}\" y1=\"{1:.1f}\" y2=\"{1:.1f}\"/><text x=\"0\" "
            "y=\"{2:.1f}\">{3}</text>\n",
            k_width + 60, y_of(value), y_of(value) + 4, label);
    }
    // At most 900 points: the worst of the tokens that share one.
    const std::size_t step = std::max<std::size_t>(1, errors.size() / 900);
    html += "<polyline points=\"";
    for (std::size_t first = 0; first < errors.size(); first += step) {
        const double worst =
            *std::max_element(errors.begin() + static_cast<std::ptrdiff_t>(first),
                              errors.begin() + static_cast<std::ptrdiff_t>(std::min(first + step, errors.size())));
        const double x = 60 + k_width * static_cast<double>(first) /
                                  static_cast<double>(std::max<std::size_t>(errors.size() - 1, 1));
        html += fmt::format("{:.1f},{:.1f} ", x, y_of(worst));
    }
    return html + fmt::format(
                      "\"/>\n<text x=\"60\" y=\"{0}\">token 0</text><text x=\"{1}\" y=\"{0}\" "
                      "text-anchor=\"end\">token {2}</text></svg></div>\n",
                      k_height + 30, k_width + 60, errors.size() - 1);
}

std::string worst_table(const GdnReport& report) {
    std::string html = "<table><tr><th>element<th class=n>got<th class=n>want<th class=n>difference</tr>\n";
    for (const auto& t : report.tensors) {
        for (const auto& w : t.worst_elements) {
            const std::string place = oracle_report::place_text(w);
            html += fmt::format("<tr><td><code>{}</code><td class=n>{:.9g}<td class=n>{:.9g}<td class=n>{:.3g}</tr>\n",
                                escaped(place.substr(0, place.find(" got "))), w.got, w.want, w.got - w.want);
        }
    }
    return html + "</table>\n";
}

std::string contract_table(const oracle::ResolvedContract& contract) {
    std::string html = fmt::format("<p>{}</p><table><tr><th>field<th>value<th>origin</tr>\n", escaped(contract.name));
    for (const auto& f : contract.fields) {
        html += fmt::format("<tr><td>{}<td><code>{}</code><td class=soft>{}</tr>\n", escaped(f.name), escaped(f.value),
                            escaped(f.origin));
    }
    return html + "</table>\n";
}

std::string diagnosis(const GdnReference& reference, const GdnReport& report) {
    std::string html;
    const std::string text = oracle_report::diagnosis_text(reference, report);
    if (!text.empty()) html += "<h2>Where, and why</h2>\n<pre>" + escaped(text) + "</pre>\n";
    for (const auto& item : report.not_compared) {
        html += fmt::format("<p class=soft>not compared: {} ({})</p>\n", escaped(item.tensor), escaped(item.reason));
    }
    return html;
}

}  // namespace

std::string page(const GdnReference& reference, const GdnReport& report) {
    const auto verdict = oracle::name_of(report.verdict);
    std::string html = fmt::format(
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
        "<title>{} - Gated DeltaNet verdict</title>\n<style>{}</style>\n",
        verdict, k_style);
    html += fmt::format("<h1>Gated DeltaNet: <span class={}>{}</span></h1>\n<p>{}</p>\n", verdict, verdict,
                        escaped(report.reason));
    html += tensors_table(report) + diagnosis(reference, report);
    html += "<h2>Error by value head and chunk</h2>\n" + map_svg(report);
    html += "<h2>Error by token</h2>\n" + tokens_svg(report.token_errors);
    html += "<h2>Worst elements</h2>\n" + worst_table(report);
    html += "<h2>Contract</h2>\n" + contract_table(reference.contract);
    return html + "</html>\n";
}

}  // namespace gdnctl::commands::oracle_html
