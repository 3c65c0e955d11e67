#include "oracle/gdn/report/report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace gdnctl::oracle_report {

namespace {

using oracle::GdnReference;
using oracle::GdnReport;
using oracle::TensorReport;
using oracle::Verdict;
using oracle::Worst;

// "0-3, 7": numbers in ascending order, at most a dozen runs.
std::string ranges(const std::vector<std::int64_t>& numbers) {
    std::string text;
    int runs = 0;
    for (std::size_t i = 0; i < numbers.size();) {
        std::size_t end = i;
        while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
        if (++runs > 12) return text + ", ...";
        text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
        if (end > i) text += fmt::format("-{}", numbers[end]);
        i = end + 1;
    }
    return text;
}

std::string place_of_fault_text(const GdnReference& reference, const GdnReport& report) {
    const oracle::FaultPlace& place = *report.place;
    const auto& d = reference.problem.dims;
    std::string text =
        fmt::format("where: value head{} {} of {}", place.heads.size() == 1 ? "" : "s", ranges(place.heads), d.Hv);
    if (reference.problem.sequences.size() > 1) {
        text += fmt::format("; sequence{} {} of {}", place.sequences.size() == 1 ? "" : "s", ranges(place.sequences),
                            reference.problem.sequences.size());
    }
    text += fmt::format("; chunk{} {} (of {} tokens)\n", place.chunks.size() == 1 ? "" : "s", ranges(place.chunks),
                        reference.contract.value.chunk);
    if (report.backward_fault) {
        return text + fmt::format("last wrong token (gradients run from the end): {}[b={},t={},h={}], chunk {}\n",
                                  place.tensor, place.first_batch, place.first_token, place.first_head,
                                  place.first_chunk);
    }
    if (place.tensor == "final_state") return text + "first wrong: final_state alone, out is right\n";
    return text + fmt::format("first wrong token: {}[b={},t={},h={}], chunk {}\n", place.tensor, place.first_batch,
                              place.first_token, place.first_head, place.first_chunk);
}

// A sentence wrapped before 100 columns; later lines are indented by six.
std::string wrapped_words(std::string_view first, const std::string& sentence) {
    std::string text(first);
    std::size_t column = first.size();
    for (const std::string_view word : text::split(sentence, ' ')) {
        if (column + word.size() > 99) {
            while (text.ends_with(' ')) text.pop_back();
            text += "\n      ";
            column = 6;
        }
        text += fmt::format("{} ", word);
        column += word.size() + 1;
    }
    text.pop_back();
    return text + "\n";
}

Json place_json(const std::optional<oracle::FaultPlace>& place) {
    if (!place) return nullptr;
    return {{"heads", place->heads},
            {"sequences", place->sequences},
            {"chunks", place->chunks},
            {"first",
             {{"tensor", place->tensor},
              {"sequence", place->first_sequence},
              {"b", place->first_batch},
              {"t", place->first_token},
              {"h", place->first_head},
              {"chunk", place->first_chunk}}}};
}

Json hints_json(const GdnReport& report) {
    Json hints = Json::array();
    for (const oracle::Hint& h : report.hints) {
        hints.push_back({{"stage", h.stage}, {"text", h.text}, {"error_reduction", number(h.improvement)}});
    }
    return hints;
}

bool is_gradient(const TensorReport& t) { return t.canonical != "out" && t.canonical != "final_state"; }

bool has_gradients(const GdnReport& report) {
    return std::any_of(report.tensors.begin(), report.tensors.end(), is_gradient);
}

std::string unjudged_gradients_text(const GdnReport& report) {
    std::vector<std::string> names;
    for (const auto& item : report.unjudged_gradients)
        names.push_back(fmt::format("{} ({})", item.tensor, item.reason));
    return names.empty() ? std::string() : wrapped("GRADIENTS UNDER A NAME THAT IS NOT JUDGED (rename to): ", names);
}

// `state`: what the lanes' states belong to.
Json lanes_json(const std::vector<oracle::LaneErrors>& lanes, const char* state) {
    Json all = Json::array();
    for (const oracle::LaneErrors& lane : lanes) {
        Json chunks = Json::array();
        for (const double error : lane.chunks) chunks.push_back(number(error));
        all.push_back({{"sequence", lane.sequence},
                       {"head", lane.head},
                       {"chunks", std::move(chunks)},
                       {state, lane.final_state ? number(*lane.final_state) : Json()}});
    }
    return all;
}

Json outside_json(const oracle::Outside& outside) { return {{"count", outside.count}, {"fraction", outside.fraction}}; }

}  // namespace

std::vector<std::string> missing_gradients(const GdnReport& report) {
    std::vector<std::string> names;
    for (const auto& item : report.not_compared) {
        if (item.tensor != "out" && item.tensor != "final_state") names.push_back(item.tensor);
    }
    return names;
}

std::string tensor_text(const TensorReport& t) {
    std::string line = fmt::format("{:<15} {:<8} {:<14} {:<7} {:>7.2g} x budget  rms {:.2g}  max {:.2g}", t.name,
                                   oracle::name_of(t.stored), oracle::text_of(t.shape), oracle::name_of(t.verdict),
                                   t.error_over_budget, t.rms_ratio, t.max_abs);
    if (t.by_budget != t.verdict && t.verdict == Verdict::ok) {
        line += fmt::format("  ({} by the budget)", oracle::name_of(t.by_budget));
    }
    // Above that, a distance in ULPs says nothing more than rms.
    if (t.ulp.max < 1000) line += fmt::format("  ulp {:.0f}", t.ulp.max);
    if (t.nonfinite_got > 0) line += fmt::format("\n{:<15} {} values are not finite", "", t.nonfinite_got);
    if (t.nonfinite_want > 0)
        line += fmt::format("\n{:<15} {} values of the truth are not finite", "", t.nonfinite_want);
    return line + "\n";
}

std::string diagnosis_text(const GdnReference& reference, const GdnReport& report) {
    std::string text;
    if (report.place) text += place_of_fault_text(reference, report);
    if (!report.stage.empty()) {
        std::vector<std::string> others(report.stages.begin() + 1, report.stages.end());
        text += others.empty() ? fmt::format("stage: {}\n", report.stage)
                               : wrapped(fmt::format("stage: {}; also possible: ", report.stage), others);
    }
    constexpr std::size_t k_shown = 6;
    for (std::size_t i = 0; i < std::min(report.hints.size(), k_shown); ++i) {
        const oracle::Hint& h = report.hints[i];
        const std::string gain = h.improvement > 1 ? fmt::format(" (error {:.1e} times smaller)", h.improvement) : "";
        text += wrapped_words(i == 0 ? "hint: " : "  or: ", h.text + gain);
    }
    return text;
}

std::string hint_text(const GdnReport& report) {
    std::string text;
    for (const oracle::Hint& h : report.hints) text += (text.empty() ? "" : "; or ") + h.text;
    return text;
}

std::string contract_text(const oracle::ResolvedContract& contract) {
    std::vector<std::string> fields;
    const std::string own = "contract " + contract.name;
    for (const auto& f : contract.fields) {
        fields.push_back(f.origin == own ? fmt::format("{}={}", f.name, f.value)
                                         : fmt::format("{}={} ({})", f.name, f.value, f.origin));
    }
    return wrapped(own + ": ", fields);
}

std::string report_text(const GdnReference& reference, const GdnReport& report) {
    std::string text;
    for (const TensorReport& t : report.tensors) text += tensor_text(t);
    text += not_compared_text(report.not_compared);
    text += missing_gradients_text(has_gradients(report), missing_gradients(report));
    text += unjudged_gradients_text(report);
    text += left_alone_text(report.unknown, report.unread);
    text += contract_text(reference.contract);
    const std::string cotangent = oracle::cotangent_used(reference);
    if (!cotangent.empty()) text += fmt::format("cotangent: {} (gradients agree with it best)\n", cotangent);
    if (report.worst && !report.worst->index.empty()) text += "worst: " + place_text(*report.worst) + "\n";
    text += diagnosis_text(reference, report);
    if (report.outputs_are_truth) {
        text += "note: --outputs is a truth file that `gdnctl oracle run` wrote, so no kernel is judged here\n";
    }
    return text + fmt::format("verdict: {}{}{}\n", oracle::name_of(report.verdict), report.reason.empty() ? "" : ": ",
                              report.reason);
}

Json tensor_json(const TensorReport& t) {
    Json object;
    object["name"] = t.name;
    object["meaning"] = t.canonical;
    object["shape"] = t.shape;
    object["dtype"] = oracle::name_of(t.stored);
    object["judged_as"] = oracle::name_of(t.judged);
    object["verdict"] = oracle::name_of(t.verdict);
    object["budget_verdict"] = oracle::name_of(t.by_budget);
    object["error_over_budget"] = number(t.error_over_budget);
    object["budget_rms_ratio"] = number(t.budget_relative);
    object["max_abs"] = number(t.max_abs);
    object["max_rel"] = number(t.max_rel);
    object["rms_ratio"] = number(t.rms_ratio);
    object["nmse"] = number(t.nmse);
    object["cosine"] = number(t.cosine);
    object["ulp"] = {{"max", number(t.ulp.max)}, {"p50", number(t.ulp.p50)}, {"p99", number(t.ulp.p99)}};
    object["outside_atol_rtol"] = outside_json(t.numpy_rule);
    object["outside_flashinfer"] = outside_json(t.flashinfer_rule);
    object["nonfinite"] = {{"got", t.nonfinite_got}, {"want", t.nonfinite_want}};
    object["worst"] = t.worst.index.empty() ? Json() : worst_json(t.worst);
    return object;
}

Json contract_json(const oracle::ResolvedContract& contract) {
    Json fields = Json::object();
    for (const auto& f : contract.fields) fields[f.name] = {{"value", f.value}, {"origin", f.origin}};
    return {{"name", contract.name}, {"fields", fields}};
}

void add_report(Json& object, const GdnReference& reference, const GdnReport& report,
                const oracle::Condition& condition) {
    object["verdict"] = oracle::name_of(report.verdict);
    object["reason"] = report.reason;
    object["stage"] = report.stage.empty() ? Json() : Json(report.stage);
    object["stages"] = report.stages;
    object["hint"] = report.hints.empty() ? Json() : Json(hint_text(report));
    object["hints"] = hints_json(report);
    object["place"] = place_json(report.place);
    object["worst"] = worst_json(report.worst);
    object["forward_only"] = !has_gradients(report);
    object["outputs_are_truth"] = report.outputs_are_truth;
    object["cotangent_rounded"] = oracle::cotangent_rounded(reference);
    const std::string cotangent = oracle::cotangent_used(reference);
    object["cotangent"] = cotangent.empty() ? Json() : Json(cotangent);
    object["tensors"] = Json::array();
    for (const TensorReport& t : report.tensors) object["tensors"].push_back(tensor_json(t));
    object["not_compared"] = Json::array();
    for (const auto& item : report.not_compared) {
        object["not_compared"].push_back({{"tensor", item.tensor}, {"reason", item.reason}});
    }
    add_left_alone(object, report.unknown, report.unread);
    object["unjudged_gradients"] = Json::array();
    for (const auto& item : report.unjudged_gradients) {
        object["unjudged_gradients"].push_back({{"tensor", item.tensor}, {"rename_to", item.reason}});
    }
    object["condition"] = {
        {"state_growth", number(reference.growth)},
        {"growth_factor", number(condition.growth_factor)},
        {"inverse_norm", number(condition.inverse_norm)},
        {"unstable_reason", reference.unstable_reason.empty() ? Json() : Json(reference.unstable_reason)}};
    object["error_map"] = {{"chunk_tokens", reference.contract.value.chunk},
                           {"forward", lanes_json(report.errors, "final_state")},
                           {"gradients", lanes_json(report.gradient_errors, "d_initial_state")}};
    object["bands"] = {{"ok", oracle::k_ok_band}, {"wrong", oracle::k_wrong_band}};
    object["contract"] = contract_json(reference.contract);
}

}  // namespace gdnctl::oracle_report
