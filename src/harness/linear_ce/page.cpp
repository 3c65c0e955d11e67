#include "harness/linear_ce/page.h"

#include <fmt/format.h>

#include "core/text.h"
#include "harness/linear_ce/report.h"
#include "oracle/judge/report.h"
#include "render/html_page.h"

namespace gdnctl::harness::linear_ce {

namespace {

namespace lce = oracle::linear_ce;
using html::escaped;

constexpr std::string_view k_page_style = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --soft: #56606b; --line: #d5dae0; --code: #f2f4f7;
  --ok: #17692f; --wrong: #b3203a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --ink: #e4e8ec; --soft: #a3adb8; --line: #39414a;
  --code: #1f242a; --ok: #5cc981; --wrong: #ff7d92; } }
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .wide { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .25rem 1rem .25rem 0; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
.soft { color: var(--soft); } pre { background: var(--code); padding: .7rem 1rem; border-radius: 6px;
  white-space: pre-wrap; margin: 0; } .OK { color: var(--ok); font-weight: 700; } .WRONG { color: var(--wrong); font-weight: 700; }
)css";

std::string table(std::string_view title, std::string_view head, const std::string& rows) {
    if (rows.empty()) return {};
    return fmt::format("<h2>{}</h2>\n<div class=wide><table><tr>{}</tr>\n{}</table></div>\n", title, head, rows);
}

std::string tensor_rows(const lce::Report& report) {
    std::string rows;
    for (const lce::TensorVerdict& t : report.tensors) {
        const auto verdict = oracle::name_of(t.verdict);
        rows += fmt::format(
            "<tr><td>{}<td>{}<td>{}<td class={}>{}<td>{}<td class=n>{:.3g}<td class=n>{:.2g}<td class=n>{:.2g}<td "
            "class=n>{}</tr>\n",
            escaped(t.name), oracle::name_of(t.stored), oracle::text_of(t.shape), verdict, verdict,
            escaped(t.error_class), t.error_over_limit, t.rms_ratio, t.max_abs, t.nonfinite);
    }
    return rows;
}

std::string worst_rows(const lce::Report& report) {
    std::string rows;
    for (const lce::TensorVerdict& t : report.tensors) {
        if (!t.worst || t.worst->got == t.worst->want) continue;
        const std::string place = t.worst->index.empty() ? t.name : oracle_report::place_text(*t.worst);
        rows += fmt::format("<tr><td><code>{}</code><td class=n>{:.9g}<td class=n>{:.9g}</tr>\n",
                            escaped(place.substr(0, place.find(" got "))), t.worst->got, t.worst->want);
    }
    return rows;
}

}  // namespace

std::string page(const lce::Problem& problem, const lce::CompareOptions& options, const lce::Report& report) {
    const auto verdict = report.verdict_name();
    std::string body = fmt::format("<h1>Linear cross-entropy: <span class={}>{}</span></h1>\n", verdict, verdict);
    if (!report.reason.empty()) body += fmt::format("<p>{}</p>\n", escaped(report.reason));
    body += fmt::format("<p class=soft>B {}, H {}, V {}; level {}</p>\n", problem.batch, problem.hidden, problem.vocab,
                        name_of(options.level));
    const std::string why = diagnosis_text(report);
    if (!why.empty()) body += "<h2>Where, and why</h2>\n<pre>" + escaped(why) + "</pre>\n";
    body += table("Tensors",
                  "<th>tensor<th>dtype<th>shape<th>verdict<th>class<th class=n>error / limit<th class=n>rms ratio"
                  "<th class=n>max abs<th class=n>not finite",
                  tensor_rows(report));
    std::string checks;
    for (const lce::CheckReport& c : report.checks) {
        checks += fmt::format("<tr><td>{}<td class={}>{}<td class=n>{:.2g}<td class=n>{:.2g}</tr>\n", c.name, c.verdict,
                              c.verdict, c.value, c.limit);
    }
    body += table("Checks", "<th>check<th>verdict<th class=n>value<th class=n>limit", checks);
    body += table("Worst elements", "<th>element<th class=n>got<th class=n>want", worst_rows(report));
    const std::string gaps = oracle_report::not_compared_text(report.not_compared);
    if (!gaps.empty()) body += "<h2>Not compared</h2>\n<pre>" + escaped(gaps) + "</pre>\n";
    std::string fields;
    for (const lce::Field& f : problem.contract.fields) {
        fields +=
            fmt::format("<tr><td>{}<td><code>{}</code><td class=soft>{}</tr>\n", f.name, escaped(f.value), f.origin);
    }
    body += table("Contract", "<th>field<th>value<th>origin", fields);
    return html::document(fmt::format("{} - linear cross-entropy verdict", verdict), k_page_style, body);
}

}  // namespace gdnctl::harness::linear_ce
