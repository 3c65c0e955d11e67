#include "oracle/linear_ce/judge/compare.h"

#include <algorithm>

#include "oracle/linear_ce/judge/comparer.h"
#include "oracle/linear_ce/judge/declare.h"

namespace gdnctl::oracle::linear_ce {

namespace {

std::size_t wrong_count(const Report& report) {
    return static_cast<std::size_t>(std::count_if(report.tensors.begin(), report.tensors.end(),
                                                  [](const auto& t) { return t.verdict == Verdict::wrong; })) +
           static_cast<std::size_t>(std::count_if(report.checks.begin(), report.checks.end(),
                                                  [](const auto& c) { return c.verdict == "WRONG"; }));
}

// The one of the problem's forms that the dump is nearest to; nullopt: the problem itself.
std::optional<Problem> nearest_form(const Problem& problem, const Dump& dump, const CompareOptions& options) {
    if (problem.c().logits != Logits::bf16) return std::nullopt;
    const auto never = [](const Report&) { return false; };
    std::size_t least = wrong_count(judged_as(problem, dump, options, never));
    std::optional<Problem> nearest;
    for (const Rounds rounds : {Rounds::forward, Rounds::label_products}) {
        if (least == 0) break;
        Problem form = problem;
        form.rounds = rounds;
        const std::size_t wrong = wrong_count(judged_as(form, dump, options, never));
        if (wrong >= least) continue;
        least = wrong;
        nearest = std::move(form);
    }
    return nearest;
}

Report judged(const Problem& problem, const Dump& dump, const TensorFile& file, const CompareOptions& options) {
    const std::optional<Problem> form = nearest_form(problem, dump, options);
    std::optional<Declaration> declaration;
    Report report = judged_as(form ? *form : problem, dump, options, [&](const Report& wrong) {
        if (options.hints) declaration = find_declaration(problem, file, options, wrong);
        return options.hints && !(declaration && declaration->is_precision);
    });
    if (declaration) apply(*declaration, problem, report);
    return report;
}

}  // namespace

std::string_view name_of(Level level) {
    return level == Level::exact ? "exact" : level == Level::sampled ? "sampled" : "invariants";
}

Result<Report> compare(const Problem& problem, const TensorFile& file, const CompareOptions& options) {
    GDNCTL_TRY_ASSIGN(const Dump dump, read_dump(problem, file));
    Report report;
    for (const char* name : {"rows", "columns", "I1", "I2"}) report.checks.push_back({name, "not_run", 0, 0});
    if (!problem.unstable_reason.empty()) {
        report.verdict = Verdict::unstable_input;
        report.reason = problem.unstable_reason;
    } else if (!dump.any()) {
        report.reason = "the dump contains none of loss, lse, gx, gw, argmax and reduced";
    } else {
        report = judged(problem, dump, file, options);
    }
    for (const NamedTensor& entry : file.tensors) {
        const bool input = entry.name == "x" || entry.name == "w" || entry.name == "labels" || entry.name == "weight" ||
                           entry.name == "d_loss" || entry.name == "d_lse";
        if (!is_output_name(entry.name) && !input) report.unknown.push_back(entry.name);
    }
    report.unread = file.unread;
    return report;
}

}  // namespace gdnctl::oracle::linear_ce
