#include "harness/linear_ce/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "oracle/judge/report.h"

namespace gdnctl::harness::linear_ce {

namespace {

namespace lce = oracle::linear_ce;
using oracle_report::number;
using oracle_report::wrapped;

// "0-3, 7": numbers in ascending order, at most a dozen runs.
std::string numbers_text(const std::vector<std::size_t>& numbers) {
    std::string text;
    int runs = 0;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t end = i;
        while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
        if (++runs > 12) return fmt::format("{}, ... ({} in all)", text, numbers.size());
        text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
        if (end > i) text += fmt::format("-{}", numbers[end]);
        i = end + 1;
    }
    return text;
}

std::string place_text(const lce::Place& place) {
    std::string text = fmt::format("where: {}", place.tensor);
    if (!place.rows.empty())
        text += fmt::format("; row{} {}", place.rows.size() == 1 ? "" : "s", numbers_text(place.rows));
    if (!place.columns.empty()) text += fmt::format("; columns {}", numbers_text(place.columns));
    if (place.block) text += fmt::format("; vocabulary {} to {}", place.block->first, place.block->second - 1);
    if (place.hidden)
        text += fmt::format("; hidden dimensions {} to {}", place.hidden->first, place.hidden->second - 1);
    return text + "\n";
}

std::string checks_text(const lce::Report& report) {
    std::string text;
    for (const lce::CheckReport& c : report.checks) {
        text += c.verdict == "not_run"
                    ? fmt::format("check {:<8} not run\n", c.name)
                    : fmt::format("check {:<8} {:<6} {:.2g} of {:.2g}\n", c.name, c.verdict, c.value, c.limit);
    }
    return text;
}

std::string worst_text(const oracle::Worst& w) {
    return w.index.empty() ? fmt::format("{} got {:.9g}, want {:.9g}", w.tensor, w.got, w.want)
                           : oracle_report::place_text(w);
}

std::vector<std::string> missing_gradients(const lce::Report& report) {
    std::vector<std::string> names;
    for (const oracle::NotCompared& item : report.not_compared) {
        const bool gradient = item.tensor == "gx" || item.tensor == "gw";
        if (gradient && item.reason == "not in the dump") names.push_back(item.tensor);
    }
    return names;
}

Json worst_json(const std::optional<oracle::Worst>& w) { return oracle_report::worst_json(w); }

Json tensor_json(const lce::TensorVerdict& t) {
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

Json place_json(const std::optional<lce::Place>& place) {
    if (!place) return nullptr;
    return {{"tensor", place->tensor},
            {"rows", place->rows},
            {"columns", place->columns},
            {"block", range_json(place->block)},
            {"hidden", range_json(place->hidden)}};
}

std::string hints_joined(const lce::Report& report) {
    std::string text;
    for (const oracle::Hint& h : report.hints) text += (text.empty() ? "" : "; or ") + h.text;
    return text;
}

}  // namespace

std::string contract_text(const lce::ResolvedContract& contract) {
    std::vector<std::string> fields;
    for (const lce::Field& f : contract.fields) {
        fields.push_back(f.origin == "default" ? fmt::format("{}={}", f.name, f.value)
                                               : fmt::format("{}={} ({})", f.name, f.value, f.origin));
    }
    return wrapped("contract: ", fields);
}

std::string tensors_text(const lce::Report& report) {
    std::string text;
    for (const lce::TensorVerdict& t : report.tensors) {
        text += fmt::format("{:<8} {:<8} {:<14} {:<6} {:>8.2g} x limit  rms {:.2g}  max {:.2g}  ({}){}\n", t.name,
                            oracle::name_of(t.stored), oracle::text_of(t.shape), oracle::name_of(t.verdict),
                            t.error_over_limit, t.rms_ratio, t.max_abs, t.error_class, t.loose ? "  loose" : "");
        if (t.nonfinite > 0) text += fmt::format("{:<8} {} values are not finite\n", "", t.nonfinite);
    }
    return text;
}

std::string diagnosis_text(const lce::Report& report) {
    std::string text;
    if (report.place) text += place_text(*report.place);
    if (!report.stage.empty()) {
        const std::vector<std::string> others(report.stages.begin() + 1, report.stages.end());
        text += others.empty() ? fmt::format("stage: {}\n", report.stage)
                               : wrapped(fmt::format("stage: {}; also possible: ", report.stage), others);
    }
    for (const oracle::Hint& h : report.hints) text += fmt::format("hint: {}\n", h.text);
    return text;
}

std::string report_text(const lce::Problem& problem, const lce::CompareOptions& options, const lce::Report& report,
                        const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
    std::string text = fmt::format("{} against {}\n", text::join(outputs, ", "), text::join(inputs, ", "));
    text += fmt::format("B {}, H {}, V {}; x {}, w {}; level {}{}\n", problem.batch, problem.hidden, problem.vocab,
                        oracle::name_of(problem.x_dtype), oracle::name_of(problem.w_dtype), name_of(options.level),
                        options.level == lce::Level::sampled ? fmt::format(", seed {}", options.seed) : "");
    if (problem.ignored_count > 0)
        text += fmt::format("{} rows have the ignored label: weight 0\n", problem.ignored_count);
    text += tensors_text(report) + checks_text(report);
    text += oracle_report::not_compared_text(report.not_compared);
    text += oracle_report::missing_gradients_text(!report.forward_only, missing_gradients(report));
    text += oracle_report::left_alone_text(report.unknown, report.unread);
    text += contract_text(problem.contract);
    if (report.worst) text += "worst: " + worst_text(*report.worst) + "\n";
    text += diagnosis_text(report);
    if (report.invariants_hold) {
        return text + "verdict: INVARIANTS_HOLD: nothing was accepted; compare values with --level sampled or exact\n";
    }
    return text +
           fmt::format("verdict: {}{}{}\n", report.verdict_name(), report.reason.empty() ? "" : ": ", report.reason);
}

Json contract_json(const lce::ResolvedContract& contract) {
    Json fields = Json::object();
    for (const lce::Field& f : contract.fields) fields[f.name] = {{"value", f.value}, {"origin", f.origin}};
    return {{"name", "linear-ce"}, {"fields", std::move(fields)}};
}

void add_report(Json& object, const lce::Problem& problem, const lce::CompareOptions& options,
                const lce::Report& report) {
    object["verdict"] = report.verdict_name();
    object["reason"] = report.reason;
    object["level"] = name_of(options.level);
    object["matmul"] = name_of(problem.c().matmul);
    object["seed"] = options.seed;
    object["shape"] = {{"batch", problem.batch}, {"hidden", problem.hidden}, {"vocab", problem.vocab}};
    object["stage"] = report.stage.empty() ? Json() : Json(report.stage);
    object["stages"] = report.stages;
    object["hint"] = report.hints.empty() ? Json() : Json(hints_joined(report));
    object["hints"] = Json::array();
    for (const oracle::Hint& h : report.hints) {
        object["hints"].push_back({{"stage", h.stage}, {"text", h.text}, {"error_reduction", number(h.improvement)}});
    }
    object["place"] = place_json(report.place);
    object["worst"] = worst_json(report.worst);
    object["forward_only"] = report.forward_only;
    object["classes"] = Json::object();
    object["tensors"] = Json::array();
    for (const lce::TensorVerdict& t : report.tensors) {
        object["classes"][t.name] = t.error_class;
        object["tensors"].push_back(tensor_json(t));
    }
    object["sampled"] = options.level == lce::Level::sampled
                            ? Json{{"rows", report.sampled_rows}, {"columns", report.sampled_columns}}
                            : Json();
    object["checks"] = Json::array();
    for (const lce::CheckReport& c : report.checks) {
        object["checks"].push_back(
            {{"name", c.name}, {"verdict", c.verdict}, {"value", number(c.value)}, {"limit", number(c.limit)}});
    }
    object["not_compared"] = Json::array();
    for (const auto& item : report.not_compared) {
        object["not_compared"].push_back({{"tensor", item.tensor}, {"reason", item.reason}});
    }
    object["ignored_rows"] = problem.ignored_count;
    oracle_report::add_left_alone(object, report.unknown, report.unread);
    object["contract"] = contract_json(problem.contract);
}

}  // namespace gdnctl::harness::linear_ce
