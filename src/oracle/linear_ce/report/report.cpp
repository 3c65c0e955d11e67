#include "oracle/linear_ce/report/report.h"

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "oracle/judge/charts.h"
#include "oracle/judge/report.h"
#include "render/page.h"

namespace gdnctl::oracle::linear_ce {

namespace {

using oracle_report::number;
using oracle_report::worst_json;

std::string place_text(const Place& place) {
    const auto range = [](const std::pair<std::size_t, std::size_t>& r) {
        return std::vector{static_cast<std::int64_t>(r.first), static_cast<std::int64_t>(r.second) - 1};
    };
    std::vector<PlaceAxis> axes = {{place.tensor, place.tensor}};
    if (!place.rows.empty()) axes.push_back({"row", "rows", {place.rows.begin(), place.rows.end()}});
    if (!place.columns.empty()) {
        axes.push_back({"columns", "columns", {place.columns.begin(), place.columns.end()}});
    }
    if (place.block) axes.push_back({"vocabulary", "vocabulary", range(*place.block), 0, {}, true});
    if (place.hidden) axes.push_back({"hidden dimensions", "hidden dimensions", range(*place.hidden), 0, {}, true});
    return oracle::place_text(axes);
}

std::string checks_text(const Report& report) {
    std::string text;
    for (const CheckReport& c : report.checks) {
        text += c.verdict == "not_run"
                    ? fmt::format("check {:<8} not run\n", c.name)
                    : fmt::format("check {:<8} {:<6} {:.2g} (limit {:.2g})\n", c.name, c.verdict, c.value, c.limit);
    }
    return text;
}

std::string worst_text(const oracle::Worst& w) {
    return w.index.empty() ? fmt::format("{} got {:.9g}, want {:.9g}", w.tensor, w.got, w.want)
                           : oracle_report::place_text(w);
}

std::vector<std::string> missing_gradients(const Report& report) {
    std::vector<std::string> names;
    for (const oracle::NotCompared& item : report.not_compared) {
        const bool gradient = item.tensor == "gx" || item.tensor == "gw";
        if (gradient && item.reason == "not in the dump") names.push_back(item.tensor);
    }
    return names;
}

Json tensor_json(const TensorVerdict& t) {
    return {{"name", t.name},
            {"meaning", t.name},
            {"shape", t.shape},
            {"dtype", oracle::name_of(t.stored)},
            {"class", t.error_class},
            {"verdict", oracle::name_of(t.verdict)},
            {"compared", t.compared},
            {"error_over_budget", number(t.error_over_limit)},
            {"max_abs", number(t.max_abs)},
            {"max_over_largest", number(t.relative_max)},
            {"rms_ratio", number(t.rms_ratio)},
            {"nonfinite", {{"got", t.nonfinite}, {"want", 0}}},
            {"loose", t.loose},
            {"worst", worst_json(t.worst)}};
}

Json range_json(const std::optional<std::pair<std::size_t, std::size_t>>& range) {
    return range ? Json{{"begin", range->first}, {"end", range->second}} : Json();
}

Json place_json(const std::optional<Place>& place) {
    if (!place) return nullptr;
    return {{"tensor", place->tensor},
            {"rows", place->rows},
            {"columns", place->columns},
            {"block", range_json(place->block)},
            {"hidden", range_json(place->hidden)}};
}

}  // namespace

std::string contract_text(const ResolvedContract& contract) {
    return oracle_report::contract_text("contract", contract.fields, "default");
}

std::string tensors_text(const Report& report) {
    std::string text;
    for (const TensorVerdict& t : report.tensors) {
        text += fmt::format("{:<8} {:<8} {:<14} {:<6} {:>8.2g} x limit  rms {:.2g}  max {:.2g}  ({}){}\n", t.name,
                            oracle::name_of(t.stored), oracle::text_of(t.shape), oracle::name_of(t.verdict),
                            t.error_over_limit, t.rms_ratio, t.max_abs, t.error_class, t.loose ? "  loose" : "");
        if (t.nonfinite > 0) text += fmt::format("{:<8} {} values are not finite\n", "", t.nonfinite);
    }
    return text;
}

std::string diagnosis_text(const Report& report) {
    std::string text;
    if (report.place) text += place_text(*report.place);
    text += oracle_report::stages_text(report.stages);
    for (const oracle::Hint& h : report.hints) text += fmt::format("hint: {}\n", h.text);
    if (!report.declare.empty()) text += fmt::format("declare: {}\n", text::shell_join(report.declare));
    return text;
}

std::string report_text(const Problem& problem, const CompareOptions& options, const Report& report,
                        const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
    std::string text = fmt::format("{} against {}\n", text::join(outputs, ", "), text::join(inputs, ", "));
    text += fmt::format("B {}, H {}, V {}; x {}, w {}; level {}{}\n", problem.batch, problem.hidden, problem.vocab,
                        oracle::name_of(problem.x_dtype), oracle::name_of(problem.w_dtype), name_of(options.level),
                        options.level == Level::sampled ? fmt::format(", seed {}", options.seed) : "");
    if (problem.ignored_count > 0)
        text += fmt::format("rows with the ignored label, taken as weight 0: {}\n", problem.ignored_count);
    text += tensors_text(report) + checks_text(report);
    text += oracle_report::not_compared_text(report.not_compared);
    text += oracle_report::missing_gradients_text(!report.forward_only, missing_gradients(report));
    text += oracle_report::left_alone_text(report.unknown, report.unread);
    text += contract_text(problem.contract);
    if (report.worst) text += "worst: " + worst_text(*report.worst) + "\n";
    text += diagnosis_text(report);
    if (report.outputs_are_truth) text += oracle_report::k_truth_note;
    if (report.invariants_hold) {
        return text + "verdict: INVARIANTS_HOLD: nothing was accepted; compare values with --level sampled or exact\n";
    }
    return text + oracle_report::verdict_text(report.verdict_name(), report.reason);
}

Json contract_json(const ResolvedContract& contract) {
    return oracle_report::contract_json("linear-ce", contract.fields);
}

void add_report(Json& object, const Problem& problem, const CompareOptions& options, const Report& report) {
    object["verdict"] = report.verdict_name();
    object["reason"] = report.reason;
    object["level"] = name_of(options.level);
    object["matmul"] = name_of(problem.c().matmul);
    object["seed"] = options.seed;
    object["shape"] = {{"batch", problem.batch}, {"hidden", problem.hidden}, {"vocab", problem.vocab}};
    oracle_report::add_diagnosis(object, report.stages, report.hints);
    object["declare"] = report.declare.empty() ? Json() : Json(report.declare);
    object["place"] = place_json(report.place);
    object["worst"] = worst_json(report.worst);
    object["forward_only"] = report.forward_only;
    object["outputs_are_truth"] = report.outputs_are_truth;
    object["classes"] = Json::object();
    object["tensors"] = Json::array();
    for (const TensorVerdict& t : report.tensors) {
        object["classes"][t.name] = t.error_class;
        object["tensors"].push_back(tensor_json(t));
    }
    object["sampled"] = options.level == Level::sampled
                            ? Json{{"rows", report.sampled_rows}, {"columns", report.sampled_columns}}
                            : Json();
    object["checks"] = Json::array();
    for (const CheckReport& c : report.checks) {
        object["checks"].push_back(
            {{"name", c.name}, {"verdict", c.verdict}, {"value", number(c.value)}, {"limit", number(c.limit)}});
    }
    object["not_compared"] = oracle_report::not_compared_json(report.not_compared);
    object["ignored_rows"] = problem.ignored_count;
    oracle_report::add_left_alone(object, report.unknown, report.unread);
    object["contract"] = contract_json(problem.contract);
}

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
