#include "oracle/linear_ce/judge/declare.h"

#include <algorithm>

#include <fmt/format.h>

namespace gdnctl::oracle::linear_ce {

namespace {

struct Redeclared {
    std::string set, stage, meaning;
    Contract contract;
    bool precision = false;
};

// Each changes one field.
std::vector<Redeclared> other_contracts(const Problem& problem) {
    const Contract& declared = problem.c();
    std::vector<Redeclared> all;
    const auto add = [&](std::string set, std::string stage, std::string meaning, const auto& change) {
        const bool precision = stage == "rounding";
        all.push_back({std::move(set), std::move(stage), std::move(meaning), declared, precision});
        change(all.back().contract);
    };
    if (declared.logits == Logits::f32) {
        add("logits=bf16", "rounding", "the logits are rounded to bf16", [](Contract& c) { c.logits = Logits::bf16; });
    }
    if (declared.matmul == Matmul::exact && (problem.x.dtype == DType::f32 || problem.w.dtype == DType::f32)) {
        add("matmul=tf32", "rounding", "the operands of products are rounded to tf32",
            [](Contract& c) { c.matmul = Matmul::tf32; });
        add("matmul=bf16", "rounding", "the operands of products are rounded to bf16",
            [](Contract& c) { c.matmul = Matmul::bf16; });
    }
    if (declared.logits == Logits::bf16) {
        add("logits=f32", "rounding", "the logits are not rounded", [](Contract& c) { c.logits = Logits::f32; });
    }
    if (declared.soft_cap > 0) {
        add("soft_cap=none", "cap", "there is no soft cap", [](Contract& c) { c.soft_cap = 0; });
    }
    if (declared.logsumexp_weight != 0) {
        add("logsumexp_weight=0", "penalty", "there is no penalty", [](Contract& c) { c.logsumexp_weight = 0; });
    }
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        if (problem.own_cotangents || declared.reduction == reduction) continue;
        add(fmt::format("reduction={}", name_of(reduction)), "reduction",
            fmt::format("the losses are reduced to their {}", name_of(reduction)),
            [reduction](Contract& c) { c.reduction = reduction; });
    }
    if (problem.hidden == problem.vocab) {
        const Layout other = declared.layout == Layout::hv ? Layout::vh : Layout::hv;
        add(fmt::format("layout={}", name_of(other)), "layout",
            fmt::format("w is {}", other == Layout::hv ? "[H,V]" : "[V,H]"),
            [other](Contract& c) { c.layout = other; });
    }
    return all;
}

// Whether each tensor that was wrong is now several times nearer.
bool explains(const Report& declared, const Report& before) {
    constexpr double k_nearer = 4;
    for (const TensorVerdict& was : before.tensors) {
        if (was.verdict != Verdict::wrong) continue;
        const auto is = std::find_if(declared.tensors.begin(), declared.tensors.end(),
                                     [&](const TensorVerdict& t) { return t.name == was.name; });
        if (is == declared.tensors.end() || is->nonfinite > 0 || is->max_abs * k_nearer > was.max_abs) return false;
    }
    return true;
}

}  // namespace

std::optional<Declaration> find_declaration(const Problem& problem, const TensorFile& dump,
                                            const CompareOptions& options, const Report& as_declared) {
    CompareOptions how = options;
    how.hints = false;
    const std::vector<Redeclared> all = other_contracts(problem);
    const auto holds = [&](const Contract& contract, bool precision) {
        const auto report = compare(redeclared(problem, contract), dump, how);
        return report && report->verdict == Verdict::ok && (!precision || explains(*report, as_declared));
    };
    for (const Redeclared& one : all) {
        if (holds(one.contract, one.precision)) return Declaration{{one.set}, one.precision, one.stage, one.meaning};
    }
    // Each costs as much as the comparison itself.
    constexpr double k_cheap = 1e10;
    const double products = static_cast<double>(problem.batch * problem.hidden) * static_cast<double>(problem.vocab);
    for (const Redeclared& operation : all) {
        if (products > k_cheap) break;
        for (const Redeclared& precision : all) {
            if (operation.precision || !precision.precision) continue;
            Contract both = operation.contract;
            both.matmul = precision.contract.matmul;
            both.logits = precision.contract.logits;
            if (!holds(both, true)) continue;
            return Declaration{
                {operation.set, precision.set}, false, operation.stage, operation.meaning + "; " + precision.meaning};
        }
    }
    return std::nullopt;
}

void apply(const Declaration& declaration, const Problem& problem, Report& report) {
    const auto is_redeclared = [&](const std::string& field) {
        return std::any_of(declaration.sets.begin(), declaration.sets.end(),
                           [&](const std::string& set) { return set.starts_with(field + "="); });
    };
    for (const Field& field : problem.contract.fields) {
        if (field.origin == "--set" && !is_redeclared(field.name))
            report.declare.insert(report.declare.end(), {"--set", field.name + "=" + field.value});
    }
    for (const std::string& set : declaration.sets) report.declare.insert(report.declare.end(), {"--set", set});
    report.stages = {declaration.stage};
    if (declaration.stage == "reduction") report.stages.emplace_back("weight");
    if (declaration.sets.front() == "logits=bf16") report.stages.emplace_back("lse");
    report.hints = {
        {declaration.stage,
         fmt::format("{} (declare it: --set {})", declaration.meaning, fmt::join(declaration.sets, " --set ")), 1}};
    report.stage = report.stages.front();
}

}  // namespace gdnctl::oracle::linear_ce
