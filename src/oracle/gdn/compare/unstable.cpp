// Possible mistakes in inputs that cannot be judged.
#include <algorithm>
#include <cmath>

#include "oracle/gdn/compare/rearranged.h"
#include "oracle/gdn/kernels/kernels.h"

namespace gdnctl::oracle {

namespace {

struct Range {
    double least = HUGE_VAL, most = -HUGE_VAL;
};

Range range_of_gates(const GdnProblem& p) {
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    Range range;
    for (const GdnSequence& s : p.sequences) {
        for (auto i = static_cast<std::size_t>(s.begin) * heads; i < static_cast<std::size_t>(s.end) * heads; ++i) {
            range.least = std::isnan(p.gate[i]) ? -HUGE_VAL : std::min(range.least, p.gate[i]);
            range.most = std::max(range.most, p.gate[i]);
        }
    }
    return range;
}

bool holds_results(const std::optional<Evidence>& e, const std::vector<double>& other) {
    if (!e) return true;
    const std::vector<double> nothing(other.size(), 0);
    return distance(*e->got, other) <= 1e-4 * distance(other, nothing);
}

}  // namespace

std::optional<Hint> hint_for_unstable(const GdnReference& r, const ForwardEvidence& evidence, int threads) {
    const Range gates = range_of_gates(r.problem);
    // A factor is not negative, and if the state is to persist, factors cannot make it grow for long.
    if (r.contract.value.g_kind != GateKind::log || !(gates.least >= 0 && gates.most < 4)) return std::nullopt;
    GdnContract factors = r.contract.value;
    factors.g_kind = GateKind::alpha;
    const GdnOutputs other = run_recurrent64(r.problem, factors, threads);
    const bool matches = (evidence.out || evidence.state) && holds_results(evidence.out, other.out) &&
                         holds_results(evidence.state, other.final_state);
    if (matches) return Hint{"gate", "matches if g is alpha, the decay itself (declare it: --set g_kind=alpha)", 1};
    if (gates.most > 1) return std::nullopt;
    return Hint{"gate",
                "every g lies within 0 and 1: consistent with alpha, the decay itself (declare it: --set g_kind=alpha)",
                1};
}

}  // namespace gdnctl::oracle
