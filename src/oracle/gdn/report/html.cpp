#include "oracle/gdn/report/html.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/report/html_charts.h"
#include "oracle/gdn/report/report.h"
#include "render/html_page.h"

namespace gdnctl::oracle_html {

namespace {

using html::escaped;
using oracle::GdnReference;
using oracle::GdnReport;

constexpr std::string_view k_style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #56606b; --line: #d5dae0; --code: #f2f4f7;
  --c0: #dcefe1; --c1: #9fd0ae; --c2: #efb84f; --c3: #cc3f54; --none: #e6e9ed; --ok: #17692f; --suspect: #8a5a00;
  --wrong: #b3203a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e4e8ec; --soft: #a3adb8; --line: #39414a;
  --code: #1f242a; --c0: #1c3627; --c1: #2f7049; --c2: #b5801c; --c3: #e0526a; --none: #2a3037; --ok: #5cc981;
  --suspect: #e3ac45; --wrong: #ff7d92; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .wide { overflow-x: auto; }
table { border-collapse: collapse; } td, th { padding: .25rem 1rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
.soft { color: var(--soft); } code { font-size: .92em; }
pre { background: var(--code); padding: .7rem 1rem; border-radius: 6px; white-space: pre-wrap; margin: 0; }
.OK, .SUSPECT, .WRONG { font-weight: 700; } .OK { color: var(--ok); } .WRONG { color: var(--wrong); }
.SUSPECT, .UNSTABLE_INPUT, .NO_DATA { color: var(--suspect); }
svg { display: block; } svg text { fill: var(--soft); font-size: 12px; }
.e0 { fill: var(--c0); } .e1 { fill: var(--c1); } .e2 { fill: var(--c2); } .e3 { fill: var(--c3); } .e9 { fill: var(--none); }
.legend { color: var(--soft); font-size: .9em; } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .9em; height: .9em; margin-right: .35em; vertical-align: -.1em; }
i.e0 { background: var(--c0); } i.e1 { background: var(--c1); } i.e2 { background: var(--c2); } i.e3 { background: var(--c3); }
polyline { fill: none; stroke: var(--ink); stroke-width: 1.3; } circle { fill: var(--ink); } .band { opacity: .38; }
svg line { stroke: var(--wrong); stroke-width: 1.2; stroke-dasharray: 4 3; } svg .mark { fill: var(--wrong); font-weight: 600; }
)css";

// Distances in ULPs that are too large to mean anything are shortened.
std::string ulp_text(double ulp) { return ulp < 1e6 ? fmt::format("{:.0f}", ulp) : fmt::format("{:.1e}", ulp); }

std::string tensors_table(const GdnReport& report) {
    if (report.tensors.empty()) return {};
    std::string html =
        "<h2>Tensors</h2>\n<div class=wide><table><tr><th>tensor<th>dtype<th>shape<th>verdict<th class=n>error / budget"
        "<th class=n>rms ratio<th class=n>max abs<th class=n>ulp<th class=n>not finite</tr>\n";
    for (const auto& t : report.tensors) {
        const auto verdict = oracle::name_of(t.verdict);
        html += fmt::format(
            "<tr><td>{}<td>{}<td>{}<td class={}>{}<td class=n>{:.3g}<td class=n>{:.2g}<td class=n>{:.2g}"
            "<td class=n>{}<td class=n>{}</tr>\n",
            escaped(t.name), oracle::name_of(t.stored), oracle::text_of(t.shape), verdict, verdict, t.error_over_budget,
            t.rms_ratio, t.max_abs, ulp_text(t.ulp.max), t.nonfinite_got);
    }
    return html + "</table></div>\n";
}

// What the verdict does not cover: one paragraph per reason.
std::string gaps(const GdnReport& report) {
    std::string html;
    const bool gradients = std::any_of(report.tensors.begin(), report.tensors.end(), [](const auto& t) {
        return t.canonical != "out" && t.canonical != "final_state";
    });
    if (!gradients) html += "<p><b>Forward only: no gradient was compared</b></p>\n";
    std::vector<std::string> reasons;
    for (const auto& item : report.not_compared) {
        if (std::find(reasons.begin(), reasons.end(), item.reason) == reasons.end()) reasons.push_back(item.reason);
    }
    for (const std::string& reason : reasons) {
        std::vector<std::string> names;
        for (const auto& item : report.not_compared) {
            if (item.reason == reason) names.push_back(item.tensor);
        }
        html += fmt::format("<p class=soft>Not compared ({}): {}</p>\n", escaped(reason), text::join(names, ", "));
    }
    if (!report.unknown.empty()) {
        html += fmt::format("<p class=soft>Unknown tensors: {}</p>\n", escaped(text::join(report.unknown, ", ")));
    }
    if (!report.unread.empty()) {
        html += fmt::format("<p class=soft>Not read because of the dtype: {}</p>\n",
                            escaped(text::join(oracle_report::unread_names(report.unread), ", ")));
    }
    return html;
}

std::string worst_table(const GdnReport& report) {
    std::string rows;
    const std::size_t shown = report.tensors.size() <= 2 ? oracle::k_worst_elements : 3;
    for (const auto& t : report.tensors) {
        for (std::size_t i = 0; i < std::min(shown, t.worst_elements.size()); ++i) {
            const oracle::Worst& w = t.worst_elements[i];
            if (w.got == w.want) continue;
            const std::string place = oracle_report::place_text(w);
            rows += fmt::format("<tr><td><code>{}</code><td class=n>{:.9g}<td class=n>{:.9g}<td class=n>{:.3g}</tr>\n",
                                escaped(place.substr(0, place.find(" got "))), w.got, w.want, w.got - w.want);
        }
    }
    if (rows.empty()) return {};
    return "<h2>Worst elements</h2>\n<div class=wide><table><tr><th>element<th class=n>got<th class=n>want"
           "<th class=n>difference</tr>\n" +
           rows + "</table></div>\n";
}

std::string contract_table(const oracle::ResolvedContract& contract) {
    std::string html =
        fmt::format("<h2>Contract: {}</h2>\n<div class=wide><table><tr><th>field<th>value<th>origin</tr>\n",
                    escaped(contract.name));
    for (const auto& f : contract.fields) {
        html += fmt::format("<tr><td>{}<td><code>{}</code><td class=soft>{}</tr>\n", escaped(f.name), escaped(f.value),
                            escaped(f.origin));
    }
    return html + "</table></div>\n";
}

std::string heading(const GdnReference& reference, const GdnReport& report) {
    const auto verdict = oracle::name_of(report.verdict);
    const auto& d = reference.problem.dims;
    std::string html = fmt::format("<h1>Gated DeltaNet: <span class={}>{}</span></h1>\n", verdict, verdict);
    if (!report.reason.empty()) html += fmt::format("<p>{}</p>\n", escaped(report.reason));
    return html +
           fmt::format(
               "<p class=soft>B {}, T {}, {} key heads, {} value heads, dk {}, dv {}, {} sequence{}; chunks of {} "
               "tokens</p>\n",
               d.B, d.T, d.Hk, d.Hv, d.dk, d.dv, reference.problem.sequences.size(),
               reference.problem.sequences.size() == 1 ? "" : "s", reference.contract.value.chunk);
}

// What the tokens of a chart belong to.
std::string chart_heading(const GdnReference& reference, const GdnReport& report, std::string_view of) {
    if (reference.problem.sequences.size() < 2) return fmt::format("<h2>Error of {} by token</h2>\n", of);
    return fmt::format("<h2>Error of {} by token of sequence {}</h2>\n", of,
                       report.place ? report.place->first_sequence : 0);
}

// The gradients' map and chart; empty if the dump has none.
std::string gradient_charts(const GdnReference& reference, const GdnReport& report) {
    if (report.gradient_errors.empty()) return {};
    return "<h2>Error of the worst gradient by value head and chunk</h2>\n" +
           lane_map(reference, report.gradient_errors, "d_initial_state") +
           chart_heading(reference, report, "the worst gradient") +
           token_chart({report.gradient_token_errors, wrong_token(reference, report, true), "last wrong",
                        "no gradient in the dump has tokens"});
}

}  // namespace

std::string page(const GdnReference& reference, const GdnReport& report) {
    std::string body;
    body += heading(reference, report);
    const std::string why = oracle_report::diagnosis_text(reference, report);
    if (!why.empty()) body += "<h2>Where, and why</h2>\n<pre>" + escaped(why) + "</pre>\n";
    body += tensors_table(report) + gaps(report);
    if (!report.errors.empty())
        body += "<h2>Error by value head and chunk</h2>\n" + lane_map(reference, report.errors, "final state");
    body += chart_heading(reference, report, "out") +
            token_chart({report.token_errors, wrong_token(reference, report, false), "first wrong",
                         "out is not in the dump, or has no tokens"});
    body += gradient_charts(reference, report);
    body += worst_table(report) + contract_table(reference.contract);
    return html::document(fmt::format("{} - Gated DeltaNet verdict", oracle::name_of(report.verdict)), k_style, body);
}

}  // namespace gdnctl::oracle_html
