#include "oracle/gdn/selftest/backward_selftest.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

#include <fmt/format.h>

#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/selftest/tally.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::oracle {

namespace {

GdnReference with_backward(const GdnCase& c, int threads) {
    GdnReference r = selftest_reference(c, threads);
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

const std::vector<double>& values_of(const GdnGradients& g, std::string_view name) {
    if (name == "dq") return g.dq;
    if (name == "dk") return g.dk;
    if (name == "dv") return g.dv;
    if (name == "dg") return g.dg;
    return name == "dbeta" ? g.dbeta : g.d_initial_state;
}

Changed changed_places(const GdnReference& r, const GdnGradients& honest, const GdnGradients& x) {
    const GdnProblem& p = r.problem;
    Changed changed;
    std::set<std::int64_t> key_heads;
    for (const GradientTruth& t : r.backward->truths) {
        const auto& a = values_of(honest, t.canonical);
        const auto& b = values_of(x, t.canonical);
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

}  // namespace

void BackwardSelftest::run() {
    mutants(unexpected_backward_mutants(), m_report.backward_unexpected);
    mutants(all_backward_mutants(), m_report.backward);
    variants();
}

void BackwardSelftest::mutants(const std::vector<BackwardMutant>& all, SelftestTotals& totals) {
    for (const bool real : {true, false}) {
        if (stopped()) return;
        const GdnCase c = selftest_case(real, real ? GdnDims{1, 200, 2, 4, 32, 32} : GdnDims{2, 72, 1, 2, 8, 16});
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

void BackwardSelftest::judge_mutant(const Round& round, const BackwardMutant& m, const MutantScope& scope,
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

void BackwardSelftest::variants() {
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

void BackwardSelftest::judge_variant(const GdnReference& r, const GdnCase& c, std::string_view what,
                                     const GdnGradients& gradients) {
    const GdnReport report = judged(r, gradients, false);
    count_variant(what, c.name, report, m_report.backward, m_report);
}

GdnReport BackwardSelftest::judged(const GdnReference& r, const GdnGradients& gradients, bool hints) const {
    CompareOptions options;
    options.hints = hints;
    options.threads = m_options.threads;
    auto report = judge(r, gradients_file(r.problem, r.contract.value, gradients, DType::f32, DType::f32), options);
    return report ? std::move(*report) : GdnReport{};
}

}  // namespace gdnctl::oracle
