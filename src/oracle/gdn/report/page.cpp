#include "oracle/judge/page.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/report/report.h"
#include "oracle/judge/error_curve.h"
#include "render/page.h"

namespace gdnctl::oracle_report {

namespace {

using html::escaped;
using oracle::GdnReference;
using oracle::GdnReport;

// Distances in ULPs that are too large to mean anything are shortened.
std::string ulp_text(double ulp) { return ulp < 1e6 ? fmt::format("{:.0f}", ulp) : fmt::format("{:.1e}", ulp); }

std::string tensors_table(const GdnReport& report) {
    html::Table table("tensor|dtype|shape|verdict|error / budget@n|rms ratio@n|max abs@n|ulp@n|not finite@n");
    for (const auto& t : report.tensors) {
        table.row({escaped(t.name), oracle::name_of(t.stored), oracle::text_of(t.shape),
                   oracle::verdict_html(t.verdict), fmt::format("{:.3g}", t.error_over_budget),
                   fmt::format("{:.2g}", t.rms_ratio), fmt::format("{:.2g}", t.max_abs), ulp_text(t.ulp.max),
                   fmt::format("{}", t.nonfinite_got)});
    }
    return table.section("Tensors");
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
                            escaped(text::join(unread_names(report.unread), ", ")));
    }
    return html;
}

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

// The curve over tokens, and what they belong to.
std::string token_curve(const GdnReference& reference, const GdnReport& report, std::string_view of,
                        const oracle::ErrorCurve& curve) {
    std::string title = fmt::format("Error of {} by token", of);
    if (reference.problem.sequences.size() > 1) {
        title += fmt::format(" of sequence {}", report.place ? report.place->first_sequence : 0);
    }
    return html::section(title, curve_html(curve));
}

std::string charts(const GdnReference& reference, const GdnReport& report) {
    std::string html;
    if (!report.errors.empty()) {
        html +=
            html::section("Error by value head and chunk", map_html(lane_map(reference, report.errors, "final state")));
    }
    html += token_curve(reference, report, "out",
                        {report.token_errors, "token", wrong_token(reference, report, false), "first wrong",
                         "out is not in the dump, or has no tokens"});
    if (report.gradient_errors.empty()) return html;
    return html +
           html::section("Error of the worst gradient by value head and chunk",
                         map_html(lane_map(reference, report.gradient_errors, "d_initial_state"))) +
           token_curve(reference, report, "the worst gradient",
                       {report.gradient_token_errors, "token", wrong_token(reference, report, true), "last wrong",
                        "no gradient in the dump has tokens"});
}

}  // namespace

std::string page(const GdnReference& reference, const GdnReport& report) {
    return oracle::page_html(
        {"Gated DeltaNet", oracle::name_of(report.verdict), report.reason, sizes(reference),
         diagnosis_text(reference, report),
         tensors_table(report) + gaps(report) + charts(reference, report) + oracle::worst_html(worst_elements(report)) +
             oracle::contract_html("Contract: " + reference.contract.name, reference.contract.fields)});
}

}  // namespace gdnctl::oracle_report
