#include "oracle/gdn/report/report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "oracle/judge/charts.h"
#include "oracle/judge/report.h"

namespace gdnctl::oracle_report {

namespace {

using oracle::GdnReference;
using oracle::GdnReport;
using oracle::TensorReport;

std::string place_of_fault_text(const GdnReference& reference, const GdnReport& report) {
    const oracle::FaultLocation& place = *report.place;
    const auto& d = reference.problem.dims;
    const std::string tokens = fmt::format("(of {} tokens)", reference.contract.value.chunk);
    std::vector<oracle::PlaceAxis> axes = {{"value head", "value heads", place.heads, d.Hv}};
    const auto sequences = static_cast<std::int64_t>(reference.problem.sequences.size());
    if (sequences > 1) axes.push_back({"sequence", "sequences", place.sequences, sequences});
    axes.push_back({"chunk", "chunks", place.chunks, 0, tokens});
    const std::string text = oracle::place_text(axes);
    if (report.backward_fault) {
        return text + fmt::format("last wrong token (gradients run from the end): {}[b={},t={},h={}], chunk {}\n",
                                  place.tensor, place.first_batch, place.first_token, place.first_head,
                                  place.first_chunk);
    }
    const bool has_out = std::any_of(report.tensors.begin(), report.tensors.end(),
                                     [](const TensorReport& t) { return t.canonical == "out"; });
    if (place.tensor == "final_state") {
        return text + (has_out ? "first wrong: final_state alone, out is right\n" : "first wrong: final_state\n");
    }
    return text + fmt::format("first wrong token: {}[b={},t={},h={}], chunk {}\n", place.tensor, place.first_batch,
                              place.first_token, place.first_head, place.first_chunk);
}

Json place_json(const std::optional<oracle::FaultLocation>& place) {
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

// `state`: what the heads' states belong to.
Json heads_json(const std::vector<oracle::HeadErrors>& heads, const char* state) {
    Json all = Json::array();
    for (const oracle::HeadErrors& head : heads) {
        Json chunks = Json::array();
        for (const double error : head.chunks) chunks.push_back(number(error));
        all.push_back({{"sequence", head.sequence},
                       {"head", head.head},
                       {"chunks", std::move(chunks)},
                       {state, head.final_state ? number(*head.final_state) : Json()}});
    }
    return all;
}

}  // namespace

std::vector<std::string> missing_gradients(const GdnReport& report) {
    std::vector<std::string> names;
    for (const auto& item : report.not_compared) {
        if (item.tensor != "out" && item.tensor != "final_state") names.push_back(item.tensor);
    }
    return names;
}

std::string diagnosis_text(const GdnReference& reference, const GdnReport& report) {
    std::string text;
    if (report.place) text += place_of_fault_text(reference, report);
    text += stages_text(report.stages);
    constexpr std::size_t k_shown = 6;
    for (std::size_t i = 0; i < std::min(report.hints.size(), k_shown); ++i) {
        const oracle::Hint& h = report.hints[i];
        const std::string gain = h.improvement > 1 ? fmt::format(" (error {:.1e} times smaller)", h.improvement) : "";
        text += (i == 0 ? "hint: " : "  or: ") + h.text + gain + "\n";
    }
    return text;
}

std::string contract_text(const oracle::ResolvedContract& contract) {
    const std::string own = "contract " + contract.name;
    return contract_text(own, contract.fields, own);
}

Json contract_json(const oracle::ResolvedContract& contract) { return contract_json(contract.name, contract.fields); }

std::string report_text(const GdnReference& reference, const GdnReport& report) {
    std::string text;
    std::size_t width = 0;
    for (const TensorReport& t : report.tensors) width = std::max(width, t.name.size());
    for (const TensorReport& t : report.tensors) text += tensor_text(t, width);
    text += not_compared_text(report.not_compared);
    text += missing_gradients_text(has_gradients(report), missing_gradients(report));
    text += unjudged_gradients_text(report);
    text += left_alone_text(report.unknown, report.unread);
    text += contract_text(reference.contract);
    const std::string cotangent = oracle::cotangent_used(reference);
    if (!cotangent.empty()) text += fmt::format("cotangent: {} (gradients agree with it best)\n", cotangent);
    if (report.worst && !report.worst->index.empty()) text += "worst: " + place_text(*report.worst) + "\n";
    text += diagnosis_text(reference, report);
    if (!report.declare.empty()) {
        const std::string widens = report.declare_widens.empty() ? "" : fmt::format(" ({})", report.declare_widens);
        text += "declare: " + text::shell_join(report.declare) + widens + "\n";
    }
    if (report.outputs_are_truth) text += oracle_report::k_truth_note;
    return text + verdict_text(oracle::name_of(report.verdict), report.reason);
}

void add_report(Json& object, const GdnReference& reference, const GdnReport& report,
                const oracle::Condition& condition) {
    object["verdict"] = oracle::name_of(report.verdict);
    object["reason"] = report.reason;
    add_diagnosis(object, report.stages, report.hints);
    object["declare"] = report.declare.empty() ? Json() : Json(report.declare);
    object["place"] = place_json(report.place);
    object["worst"] = worst_json(report.worst);
    object["forward_only"] = !has_gradients(report);
    object["outputs_are_truth"] = report.outputs_are_truth;
    object["cotangent_rounded"] = oracle::cotangent_rounded(reference);
    const std::string cotangent = oracle::cotangent_used(reference);
    object["cotangent"] = cotangent.empty() ? Json() : Json(cotangent);
    object["tensors"] = Json::array();
    for (const TensorReport& t : report.tensors) object["tensors"].push_back(tensor_json(t));
    object["not_compared"] = not_compared_json(report.not_compared);
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
                           {"forward", heads_json(report.errors, "final_state")},
                           {"gradients", heads_json(report.gradient_errors, "d_initial_state")}};
    object["bands"] = {
        {"ok", oracle::k_ok_band}, {"wrong", oracle::k_wrong_band}, {"wrong_gradients", oracle::k_wrong_gradient_band}};
    object["contract"] = contract_json(reference.contract);
}

oracle::ErrorMap head_error_map(const GdnReference& reference, const std::vector<oracle::HeadErrors>& errors,
                                std::string_view state) {
    oracle::ErrorMap map{{{"sequence", static_cast<std::int64_t>(reference.problem.sequences.size())},
                          {"head", reference.problem.dims.Hv}},
                         "value head",
                         "chunk",
                         fmt::format("{} tokens", reference.contract.value.chunk),
                         state,
                         {}};
    for (const oracle::HeadErrors& head : errors) {
        map.all.push_back(
            {{fmt::format("{}", head.sequence), fmt::format("{}", head.head)}, head.chunks, head.final_state});
    }
    return map;
}

std::string heatmap_text(const GdnReference& reference, const GdnReport& report) {
    std::string text = oracle::map_text(head_error_map(reference, report.errors, "final state"), "");
    if (!report.gradient_errors.empty()) {
        text += oracle::map_text(head_error_map(reference, report.gradient_errors, "d_initial_state"),
                                 " of the worst gradient");
    }
    return text + oracle::map_key_text();
}

namespace {

std::vector<oracle::Worst> worst_elements(const GdnReport& report) {
    std::vector<oracle::Worst> all;
    const std::size_t shown = report.tensors.size() <= 2 ? oracle::k_worst_elements : 3;
    for (const auto& t : report.tensors) {
        for (std::size_t i = 0; i < std::min(shown, t.worst_elements.size()); ++i) all.push_back(t.worst_elements[i]);
    }
    return all;
}

std::string sizes(const GdnReference& reference) {
    const auto& d = reference.problem.dims;
    return fmt::format("B {}, T {}, {} key heads, {} value heads, dk {}, dv {}, {} sequence{}; chunks of {} tokens",
                       d.B, d.T, d.Hk, d.Hv, d.dk, d.dv, reference.problem.sequences.size(),
                       reference.problem.sequences.size() == 1 ? "" : "s", reference.contract.value.chunk);
}

// The token (position in its sequence) where out first goes wrong, or the gradients last, since they run backwards.
// nullopt: none, or the tensor has no tokens.
std::optional<std::int64_t> wrong_token(const GdnReference& reference, const GdnReport& report, bool gradients) {
    if (!report.place || report.backward_fault != gradients) return std::nullopt;
    const auto& place = *report.place;
    if (place.tensor == "final_state" || place.tensor == "d_initial_state") return std::nullopt;
    const auto& sequence = reference.problem.sequences[static_cast<std::size_t>(place.first_sequence)];
    return place.first_batch * reference.problem.dims.T + place.first_token - sequence.begin;
}

using Charts = std::vector<std::pair<std::string, std::string>>;

// The curve over tokens, and what they belong to.
void add_token_curve(const GdnReference& reference, const GdnReport& report, std::string_view of,
                     const oracle::ErrorCurve& curve, Charts& charts) {
    std::string title = fmt::format("Error of {} by token", of);
    if (reference.problem.sequences.size() > 1) {
        title += fmt::format(" of sequence {}", report.place ? report.place->first_sequence : 0);
    }
    charts.emplace_back(std::move(title), curve_html(curve));
}

Charts charts_of(const GdnReference& reference, const GdnReport& report) {
    Charts charts;
    if (!report.errors.empty()) {
        charts.emplace_back("Error by value head and chunk",
                            map_html(head_error_map(reference, report.errors, "final state")));
    }
    add_token_curve(reference, report, "out",
                    {report.token_errors, "token", wrong_token(reference, report, false), "first wrong",
                     "out is not in the dump, or has no tokens"},
                    charts);
    if (report.gradient_errors.empty()) return charts;
    charts.emplace_back("Error of the worst gradient by value head and chunk",
                        map_html(head_error_map(reference, report.gradient_errors, "d_initial_state")));
    add_token_curve(reference, report, "the worst gradient",
                    {report.gradient_token_errors, "token", wrong_token(reference, report, true), "last wrong",
                     "no gradient in the dump has tokens"},
                    charts);
    return charts;
}

}  // namespace

std::string page(const GdnReference& reference, const GdnReport& report, const Json& verdict) {
    return oracle::page_html(verdict, {.what = "Gated DeltaNet",
                                       .about = sizes(reference),
                                       .why = diagnosis_text(reference, report),
                                       .charts = charts_of(reference, report),
                                       .worst = worst_elements(report)});
}

}  // namespace gdnctl::oracle_report
