#include "unit/oracle/mutants/mutant_set.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "unit/oracle/mutants/backward_mutants.h"
#include "unit/oracle/mutants/forward_mutants.h"

namespace gdnctl::oracle::testing {

namespace {

// A mutant and its verdict. The places (where it changed values, and where it was found) are in words.
struct JudgedMutant {
    std::string name;
    const std::vector<std::string>& stages;  // any of these is right
    const GdnReport& report;
    bool right_place = false;
    std::string changed, found;
};

// Both count into `totals`, which is a part of `report`, and record there what was missed, misplaced or flagged.
void count_mutant(const JudgedMutant& m, MutantTotals& totals, MutantReport& report) {
    ++totals.mutants;
    if (m.report.verdict != Verdict::wrong && m.report.verdict != Verdict::suspect) {
        report.findings.push_back({"missed", m.name, "WRONG", std::string(name_of(m.report.verdict))});
        return;
    }
    ++totals.caught;
    if (std::find(m.stages.begin(), m.stages.end(), m.report.stage) != m.stages.end()) {
        ++totals.right_stage;
    } else {
        const std::string hint = m.report.hints.empty() ? "" : m.report.hints.front().text;
        report.findings.push_back({"stage", m.name, m.stages.front(), fmt::format("{} ({})", m.report.stage, hint)});
    }
    if (m.right_place) {
        ++totals.right_place;
    } else {
        report.findings.push_back({"place", m.name, m.changed, m.report.place ? m.found : "nowhere"});
    }
}

void count_variant(std::string_view what, std::string_view case_name, const GdnReport& verdict, MutantTotals& totals,
                   MutantReport& report) {
    ++totals.variants;
    if (verdict.verdict == Verdict::ok) return;
    ++totals.false_alarms;
    report.findings.push_back({"false alarm", fmt::format("{} ({})", what, case_name), "OK",
                               fmt::format("{}: {}", name_of(verdict.verdict), verdict.reason)});
}

GdnReference with_backward(const GdnCase& c, int threads) {
    GdnReference r = mutant_reference(c, threads);
    const TensorFile inputs = with_cotangents({}, r, c.seed);
    TensorFile names;  // any gradient requires the truth of all
    names.tensors.push_back({"d_initial_state", {}});
    // Our own cotangents have the right shapes, so an error here is a defect of this program.
    if (const Status done = add_backward(r, inputs, names, threads); !done)
        throw std::logic_error(done.error().message);
    return r;
}

// What a mutant changed compared with the correct run of the same kernel. A key head's gradient counts for all its
// value heads, unless their own gradients changed too and show which one.
struct Changed {
    std::set<std::int64_t> heads;
    std::int64_t last_chunk = -1;
};

Changed changed_places(const GdnReference& r, const GdnGradients& honest, const GdnGradients& x) {
    const GdnProblem& p = r.problem;
    Changed changed;
    std::set<std::int64_t> key_heads;
    for (const GradientTruth& t : r.backward->truths) {
        const auto& a = gradient_of(honest, t.canonical);
        const auto& b = gradient_of(x, t.canonical);
        const bool state = t.canonical == "d_initial_state";
        const auto heads = static_cast<std::size_t>(t.canonical == "dq" || t.canonical == "dk" ? p.dims.Hk : p.dims.Hv);
        for (std::size_t i = 0; i < a.size(); ++i) {
            const std::size_t group = t.groups.of(i);
            if (group >= heads * p.sequences.size()) continue;
            if (std::fabs(a[i] - b[i]) <= k_ok_band * t.budget.groups[group].max_abs) continue;
            const auto head = static_cast<std::int64_t>(group % heads);
            (heads == static_cast<std::size_t>(p.dims.Hv) ? changed.heads : key_heads).insert(head);
            const auto row = static_cast<std::int64_t>(i / t.groups.width / heads);
            const std::int64_t token = state ? 0 : row - p.sequences[group / heads].begin;
            changed.last_chunk = std::max(changed.last_chunk, token / r.contract.value.chunk);
        }
    }
    const auto key_head = [&](std::int64_t h) { return key_head_of(h, p.dims, r.contract.value.head_map); };
    for (const std::int64_t h : changed.heads) key_heads.erase(key_head(h));
    for (std::int64_t h = 0; h < p.dims.Hv; ++h) {
        if (key_heads.contains(key_head(h))) changed.heads.insert(h);
    }
    return changed;
}

bool right_place(const GdnReport& report, const Changed& changed, const MutantScope& scope) {
    if (!report.place) return false;
    const std::set<std::int64_t> heads(report.place->heads.begin(), report.place->heads.end());
    const std::int64_t chunk = report.place->first_chunk;
    // A state's gradient that is damaged at the start of a chunk shows in the previous one.
    const bool right_chunk =
        chunk == changed.last_chunk || (scope.chunk >= 0 && (chunk == scope.chunk || chunk + 1 == scope.chunk));
    return heads == changed.heads && right_chunk;
}

class BackwardMutantSet {
public:
    BackwardMutantSet(const MutantOptions& options, MutantReport& report) : m_options(options), m_report(report) {}

    // Adds mutants and correct variants to the report.
    void run();

private:
    // Shared by the mutants of one problem.
    struct Round {
        const GdnReference& reference;
        const GdnGradients& honest;
        MutantTotals& totals;
    };

    void mutants(const std::vector<BackwardMutant>& all, MutantTotals& totals);
    void variants();
    void judge_mutant(const Round& round, const BackwardMutant& mutant, const MutantScope& scope,
                      std::string_view where);
    void judge_variant(const GdnReference& reference, const GdnCase& c, std::string_view what,
                       const GdnGradients& gradients);
    GdnReport judged(const GdnReference& reference, const GdnGradients& gradients, bool hints) const;
    bool skipped() { return m_seen++ % m_options.every != 0; }
    bool stopped() const { return m_options.stop && m_options.stop(); }

    const MutantOptions& m_options;
    MutantReport& m_report;
    std::size_t m_seen = 0;
};

void BackwardMutantSet::run() {
    mutants(unexpected_backward_mutants(), m_report.backward_unexpected);
    mutants(all_backward_mutants(), m_report.backward);
    variants();
}

void BackwardMutantSet::mutants(const std::vector<BackwardMutant>& all, MutantTotals& totals) {
    for (const bool real : {true, false}) {
        if (stopped()) return;
        const GdnCase c = mutant_case(real, real ? GdnDims{1, 200, 2, 4, 32, 32} : GdnDims{2, 72, 1, 2, 8, 16});
        const GdnReference r = with_backward(c, m_options.threads);
        const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
        const GdnGradients honest = run_backward_chunks(r, {}, {}, chunk, m_options.threads);
        for (const BackwardMutant& m : all) {
            if (stopped()) return;
            if (skipped()) continue;
            judge_mutant({r, honest, totals}, m, {}, real ? "backward, real sizes" : "backward, small sizes");
            if (real && !m.whole_only) {
                judge_mutant({r, honest, totals}, m, {{1}, 1}, "backward, real sizes, chunk 1 of head 1");
            }
        }
    }
}

void BackwardMutantSet::judge_mutant(const Round& round, const BackwardMutant& m, const MutantScope& scope,
                                     std::string_view where) {
    const GdnReference& r = round.reference;
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    const GdnGradients x = run_backward_chunks(r, m.fault, scope, chunk, m_options.threads);
    const Changed changed = changed_places(r, round.honest, x);
    if (changed.heads.empty()) return;  // not a fault on these inputs: its scope does not include what it damages
    const GdnReport report = judged(r, x, true);
    const std::string found =
        report.place ? fmt::format("{} heads up to chunk {}", report.place->heads.size(), report.place->first_chunk)
                     : "";
    count_mutant({fmt::format("{} ({})", m.name, where), m.stages, report, right_place(report, changed, scope),
                  fmt::format("{} heads up to chunk {}", changed.heads.size(), changed.last_chunk), found},
                 round.totals, m_report);
}

void BackwardMutantSet::variants() {
    for (const GdnCase& c : all_cases()) {
        // Plain loops over chunks are slow.
        if (c.expected != Verdict::ok || c.dims.T > 1024 || c.dims.T == 0) continue;
        if (stopped()) return;
        if (skipped()) continue;
        const GdnReference r = with_backward(c, m_options.threads);
        const GdnCotangents& cotangents = r.backward->cotangents;
        const int threads = m_options.threads;
        judge_variant(r, c, "chunked backward", run_backward32(r.problem, r.contract.value, cotangents, threads));
        judge_variant(r, c, "chunked backward, scalar",
                      run_backward32(r.problem, r.contract.value, cotangents, threads, Isa::scalar));
        for (const std::size_t chunk : {1UL, 16UL, 64UL, 128UL}) {
            judge_variant(r, c, fmt::format("backward in chunks of {}", chunk),
                          run_backward_chunks(r, {}, {}, chunk, threads));
        }
        BackwardFault sums;
        sums.gates = GateGradient::running_sum;
        judge_variant(r, c, "dg by a reverse running sum",
                      run_backward_chunks(r, sums, {}, static_cast<std::size_t>(r.contract.value.chunk), threads));
    }
}

void BackwardMutantSet::judge_variant(const GdnReference& r, const GdnCase& c, std::string_view what,
                                      const GdnGradients& gradients) {
    const GdnReport report = judged(r, gradients, false);
    count_variant(what, c.name, report, m_report.backward, m_report);
}

GdnReport BackwardMutantSet::judged(const GdnReference& r, const GdnGradients& gradients, bool hints) const {
    CompareOptions options;
    options.hints = hints;
    options.threads = m_options.threads;
    auto report = judge(r, gradients_file(r.problem, r.contract.value, gradients, DType::f32, DType::f32), options);
    return report ? std::move(*report) : GdnReport{};
}

GdnCase whole_case(bool real) {
    // A tail of 8 tokens in both, because padding is part of what can be wrong.
    return mutant_case(real, real ? GdnDims{1, 200, 2, 4, 64, 64} : GdnDims{2, 104, 2, 4, 16, 16});
}

// What a mutant changed compared with the correct run of the same kernel.
struct Noticed {
    std::set<std::int64_t> heads;
    std::int64_t first_chunk = -1;
};

Noticed changed_places(const GdnReference& r, const GdnOutputs& honest, const GdnOutputs& x) {
    const GdnProblem& p = r.problem;
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    const auto state = static_cast<std::size_t>(p.dims.dk) * dv;
    Noticed changed;
    const auto note = [&](std::size_t head, std::int64_t chunk) {
        changed.heads.insert(static_cast<std::int64_t>(head));
        if (changed.first_chunk < 0 || chunk < changed.first_chunk) changed.first_chunk = chunk;
    };
    const auto differs = [](double a, double b, double limit) { return !(std::fabs(a - b) <= limit); };
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        const GdnSequence s = p.sequences[n];
        for (std::size_t at = static_cast<std::size_t>(s.begin) * heads * dv;
             at < static_cast<std::size_t>(s.end) * heads * dv; ++at) {
            const std::size_t head = at / dv % heads;
            if (!differs(x.out[at], honest.out[at], k_ok_band * r.out.groups[n * heads + head].max_abs)) continue;
            note(head, (static_cast<std::int64_t>(at / dv / heads) - s.begin) / r.contract.value.chunk);
        }
        for (std::size_t at = n * heads * state; at < (n + 1) * heads * state; ++at) {
            const std::size_t head = at / state % heads;
            if (!differs(x.final_state[at], honest.final_state[at],
                         k_ok_band * r.final_state.groups[n * heads + head].max_abs))
                continue;
            changed.heads.insert(static_cast<std::int64_t>(head));
            if (changed.first_chunk < 0) changed.first_chunk = (s.end - s.begin - 1) / r.contract.value.chunk;
        }
    }
    return changed;
}

class MutantSet {
public:
    explicit MutantSet(const MutantOptions& options) : m_options(options) {}

    MutantReport run_only(const std::vector<Mutant>& all) {
        mutants(all, m_report.totals);
        return std::move(m_report);
    }
    MutantReport run() {
        mutants(unexpected_mutants(), m_report.unexpected);
        mutants(all_mutants(), m_report.totals);
        variants();
        BackwardMutantSet(m_options, m_report).run();
        return std::move(m_report);
    }

private:
    bool skipped() { return m_seen++ % m_options.every != 0; }
    bool stopped() const { return m_options.stop && m_options.stop(); }

    void mutants(const std::vector<Mutant>& all, MutantTotals& totals) {
        for (const bool real : {true, false}) {
            const GdnReference r = mutant_reference(whole_case(real), m_options.threads);
            const GdnOutputs honest = run_mutant(r, nullptr, {}, m_options.threads);
            for (const Mutant& m : all) {
                if (stopped()) return;
                if (skipped()) continue;
                if (real) {
                    judge_mutant({r, honest, totals}, m, {}, "real sizes");
                    if (!m.whole_only) judge_mutant({r, honest, totals}, m, {{1}, 1}, "real sizes, chunk 1 of head 1");
                } else {
                    judge_mutant({r, honest, totals}, m, m.after ? MutantScope{} : MutantScope{{2}, -1},
                                 m.after ? "small sizes" : "small sizes, head 2");
                }
            }
        }
    }

    // Shared by the mutants of one problem.
    struct Round {
        const GdnReference& reference;
        const GdnOutputs& honest;
        MutantTotals& totals;
    };

    void judge_mutant(const Round& round, const Mutant& m, const MutantScope& scope, std::string_view where) {
        const GdnReference& r = round.reference;
        const GdnOutputs x = run_mutant(r, &m, scope, m_options.threads);
        const Noticed changed = changed_places(r, round.honest, x);
        if (changed.heads.empty()) return;  // not a fault on these inputs: its scope does not include what it damages
        const GdnReport report = judged(r, x, true);
        const std::string found = report.place ? fmt::format("{} heads from chunk {} on", report.place->heads.size(),
                                                             report.place->first_chunk)
                                               : "";
        count_mutant({fmt::format("{} ({})", m.name, where), m.stages, report, right_place(report, changed, scope),
                      fmt::format("{} heads from chunk {} on", changed.heads.size(), changed.first_chunk), found},
                     round.totals, m_report);
    }

    static bool right_place(const GdnReport& report, const Noticed& changed, const MutantScope& scope) {
        if (!report.place) return false;
        const std::set<std::int64_t> heads(report.place->heads.begin(), report.place->heads.end());
        const std::int64_t chunk = report.place->first_chunk;
        // A state that is damaged at the end of a chunk shows in the next one.
        const bool right_chunk =
            chunk == changed.first_chunk || (scope.chunk >= 0 && (chunk == scope.chunk || chunk == scope.chunk + 1));
        return heads == changed.heads && right_chunk;
    }

    void variants() {
        for (const GdnCase& c : all_cases()) {
            // The longest case alone would take as long as all others.
            if (c.expected != Verdict::ok || c.dims.T > 4096) continue;
            if (stopped()) return;
            if (skipped()) continue;
            const GdnReference r = mutant_reference(c, m_options.threads);
            const GdnProblem& p = r.problem;
            const GdnContract& k = r.contract.value;
            const int threads = m_options.threads;
            judge_variant(r, c, "recurrence in fp32", run_recurrent32(p, k, threads));
            judge_variant(r, c, "fused", run_fused32(p, k, threads));
            judge_variant(r, c, "fused, scalar", run_fused32(p, k, threads, Isa::scalar));
            judge_variant(r, c, "another chunked kernel", run_mutant(r, nullptr, {}, threads));
            for (const int chunk : {1, 16, 64, 128}) {
                judge_variant(r, c, fmt::format("chunks of {}", chunk),
                              run_chunk32(p, k, {chunk, GateSum::fp64_with_resets, Matmul::f32}, threads));
            }
            judge_variant(r, c, "gates summed in fp32",
                          run_chunk32(p, k, {k.chunk, GateSum::fp32, Matmul::f32}, threads));
        }
    }

    void judge_variant(const GdnReference& r, const GdnCase& c, std::string_view what, const GdnOutputs& x) {
        const GdnReport report = judged(r, x, false);
        count_variant(what, c.name, report, m_report.totals, m_report);
    }

    GdnReport judged(const GdnReference& r, const GdnOutputs& x, bool hints) const {
        CompareOptions options;
        options.hints = hints;
        options.threads = m_options.threads;
        auto report = judge(
            r, outputs_file(r.problem, r.contract.value, x, out_dtype_of(r.contract.value, r.problem), DType::f32),
            options);
        return report ? std::move(*report) : GdnReport{};
    }

    const MutantOptions& m_options;
    std::size_t m_seen = 0;
    MutantReport m_report;
};

}  // namespace

bool MutantReport::passed() const {
    const auto share = [](std::size_t part, std::size_t whole) {
        return static_cast<double>(part) / static_cast<double>(std::max<std::size_t>(whole, 1));
    };
    const auto found = [&](const MutantTotals& t) {
        return t.mutants > 0 && t.caught == t.mutants && share(t.right_stage, t.mutants) >= 0.9 &&
               share(t.right_place, t.mutants) >= 0.95;
    };
    const auto reached = [&](const MutantTotals& t) { return found(t) && t.variants > 0 && t.false_alarms == 0; };
    return reached(totals) && reached(backward) && found(unexpected) && found(backward_unexpected);
}

GdnReference mutant_reference(const GdnCase& c, int threads) {
    const TensorFile inputs = make_inputs(c);
    // Our own cases are well-formed: a failure here is a defect of this program, which value() would expose.
    ResolvedContract contract = resolve_contract("marin", inputs.metadata, {}).value();
    GdnProblem problem = read_problem(inputs, contract).value();
    return make_reference(std::move(problem), std::move(contract), threads);
}

GdnCase mutant_case(bool real, GdnDims dims) {
    GdnCase c;
    c.name = real ? "real" : "small";
    c.dims = dims;
    c.seed = real ? 900 : 901;
    c.state_scale = 0.3;
    c.contract = {"head_map=interleaved", real ? "chunk=64" : "chunk=32"};
    return c;
}

MutantReport run_mutant_set(const MutantOptions& options) { return MutantSet(options).run(); }
MutantReport judge_mutants(const std::vector<Mutant>& mutants, const MutantOptions& options) {
    return MutantSet(options).run_only(mutants);
}

}  // namespace gdnctl::oracle::testing
