#include "oracle/judge/page.h"

#include <fmt/format.h>

#include "oracle/judge/heat_map.h"
#include "oracle/judge/report.h"
#include "oracle/linear_ce/report/report.h"
#include "render/page.h"

namespace gdnctl::oracle::linear_ce {

namespace {

using html::escaped;

std::string tensors_table(const Report& report) {
    html::Table table("tensor|dtype|shape|verdict|class|error / limit@n|rms ratio@n|max abs@n|not finite@n");
    for (const TensorVerdict& t : report.tensors) {
        table.row({escaped(t.name), oracle::name_of(t.stored), oracle::text_of(t.shape), verdict_html(t.verdict),
                   escaped(t.error_class), fmt::format("{:.3g}", t.error_over_limit),
                   fmt::format("{:.2g}", t.rms_ratio), fmt::format("{:.2g}", t.max_abs),
                   fmt::format("{}", t.nonfinite)});
    }
    return table.section("Tensors");
}

std::string checks_table(const Report& report) {
    html::Table table("check|verdict|value@n|limit@n");
    for (const CheckReport& c : report.checks) {
        table.row({c.name, fmt::format("<span class={0}>{0}</span>", c.verdict), fmt::format("{:.2g}", c.value),
                   fmt::format("{:.2g}", c.limit)});
    }
    return table.section("Checks");
}

// The tensors that have errors along an axis.
std::string map_of(std::string_view title, std::string_view cell, const std::vector<LineErrors>& lines,
                   const std::vector<std::size_t>& numbers) {
    if (lines.empty()) return {};
    ErrorMap map{{{"tensor", 1}}, "tensor", cell, {}, {}, {}, numbers, k_limit};
    for (const LineErrors& line : lines) map.all.push_back({{line.tensor}, line.errors});
    return html::section(title, map_html(map));
}

std::vector<Worst> worst_elements(const Report& report) {
    std::vector<Worst> all;
    for (const TensorVerdict& t : report.tensors) {
        if (t.worst) all.push_back(*t.worst);
    }
    return all;
}

}  // namespace

std::string page(const Problem& problem, const CompareOptions& options, const Report& report) {
    return page_html(
        {"Linear cross-entropy", report.verdict_name(), report.reason,
         fmt::format("B {}, H {}, V {}; level {}", problem.batch, problem.hidden, problem.vocab,
                     name_of(options.level)),
         diagnosis_text(report),
         tensors_table(report) + checks_table(report) +
             map_of("Error by row of the batch", "row", report.row_errors, report.compared_rows) +
             map_of("Error by column of the vocabulary", "column", report.column_errors, report.compared_columns) +
             worst_html(worst_elements(report)) +
             html::preformatted("Not compared", oracle_report::not_compared_text(report.not_compared)) +
             contract_html("Contract", problem.contract.fields)});
}

}  // namespace gdnctl::oracle::linear_ce
