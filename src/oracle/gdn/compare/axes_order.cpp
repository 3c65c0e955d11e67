// Heads before tokens: bytes in the order [B,H,T,D] instead of [B,T,H,D]. Shapes cannot distinguish them.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "oracle/gdn/compare/rearranged.h"
#include "oracle/gdn/kernels/kernels.h"

namespace gdnctl::oracle {

namespace {

// Which inputs are misread.
struct Misread {
    bool keys = false, values = false, gates = false;
    std::string_view names;
};

constexpr std::array k_misread = {
    Misread{true, true, true, "q, k, v, g and beta are"}, Misread{true, true, false, "q, k and v are"},
    Misread{true, false, false, "q and k are"},           Misread{false, true, false, "v is"},
    Misread{false, false, true, "g and beta are"},
};

std::vector<double> tokens_first(const std::vector<double>& x, const GdnDims& d, std::int64_t heads,
                                 std::int64_t width) {
    return heads_first(x, static_cast<std::size_t>(d.B), static_cast<std::size_t>(heads), static_cast<std::size_t>(d.T),
                       static_cast<std::size_t>(width));
}

GdnProblem misread(const GdnProblem& p, const Misread& m) {
    const GdnDims& d = p.dims;
    GdnProblem other = p;
    if (m.keys) {
        other.q = tokens_first(p.q, d, d.Hk, d.dk);
        other.k = tokens_first(p.k, d, d.Hk, d.dk);
    }
    if (m.values) other.v = tokens_first(p.v, d, d.Hv, d.dv);
    if (m.gates) {
        other.gate = tokens_first(p.gate, d, d.Hv, 1);
        other.beta = tokens_first(p.beta, d, d.Hv, 1);
    }
    return other;
}

// The first tokens of the first value head as a mistake would read them: enough to see whether simulating it is
// worthwhile.
GdnProblem beginning(const GdnProblem& p, std::int64_t key_head, const Misread& m) {
    constexpr std::int64_t k_tokens = 24;
    const GdnDims& d = p.dims;
    GdnProblem few;
    few.dims = {1, std::min(k_tokens, p.sequences.front().end), 1, 1, d.dk, d.dv};
    few.sequences = {{0, few.dims.T}};
    few.qk_dtype = p.qk_dtype;
    const auto take = [&](const std::vector<double>& from, std::int64_t heads, std::int64_t head, std::int64_t width,
                          bool heads_first) {
        std::vector<double> to;
        for (std::int64_t t = 0; t < few.dims.T; ++t) {
            const auto at = from.begin() + (heads_first ? head * d.T + t : t * heads + head) * width;
            to.insert(to.end(), at, at + width);
        }
        return to;
    };
    few.q = take(p.q, d.Hk, key_head, d.dk, m.keys);
    few.k = take(p.k, d.Hk, key_head, d.dk, m.keys);
    few.v = take(p.v, d.Hv, 0, d.dv, m.values);
    few.gate = take(p.gate, d.Hv, 0, 1, m.gates);
    few.beta = take(p.beta, d.Hv, 0, 1, m.gates);
    if (!p.A_log.empty()) few.A_log = {p.A_log.front()};
    if (!p.dt_bias.empty()) few.dt_bias = {p.dt_bias.front()};
    if (!p.initial_state.empty()) {
        few.initial_state.assign(p.initial_state.begin(), p.initial_state.begin() + d.dk * d.dv);
    }
    return few;
}

// The distance between the dump's first value head and its `few` tokens, for out in place and for out with heads first.
struct Distances {
    double in_place = 0, heads_first = 0;
};

Distances distances(const std::vector<double>& got, const GdnDims& d, const std::vector<double>& few) {
    Distances sum;
    const auto dv = static_cast<std::size_t>(d.dv);
    const auto row = static_cast<std::size_t>(d.Hv) * dv;
    for (std::size_t i = 0; i < few.size(); ++i) {
        sum.in_place += std::pow(got[i / dv * row + i % dv] - few[i], 2);
        sum.heads_first += std::pow(got[i] - few[i], 2);
    }
    return sum;
}

bool can_differ(const GdnDims& d, const Misread& m) { return (m.keys && d.Hk > 1) || m.values || m.gates; }

}  // namespace

void match_axes_order(const GdnReference& r, const ForwardEvidence& evidence, int threads, std::vector<Hint>& hints) {
    const GdnProblem& p = r.problem;
    const GdnDims& d = p.dims;
    if (!evidence.out || d.T < 2 || d.Hv < 2 || p.sequences.empty() || p.sequences.front().end < 2) return;
    const Evidence& e = *evidence.out;
    const auto moved = [&](const std::vector<double>& out) {
        return heads_first(out, static_cast<std::size_t>(d.B), static_cast<std::size_t>(d.T),
                           static_cast<std::size_t>(d.Hv), static_cast<std::size_t>(d.dv));
    };
    const double before = distance(*e.got, *e.want, threads);
    note(hints, "layout", "out is written as [B,H,T,D], heads before tokens", before,
         distance(*e.got, moved(*e.want), threads), allowed(e));
    const GdnContract& c = r.contract.value;
    const std::int64_t key_head = key_head_of(0, d, c.head_map);
    const double size = distances(*e.got, d, run_recurrent64(beginning(p, key_head, {}), c, 1).out).in_place;
    for (const Misread& m : k_misread) {
        if (!can_differ(d, m)) continue;
        const Distances few = distances(*e.got, d, run_recurrent64(beginning(p, key_head, m), c, 1).out);
        if (!(std::min(few.in_place, few.heads_first) <= size / 100)) continue;
        const GdnOutputs as_read = run_recurrent64(misread(p, m), c, threads);
        if (evidence.state && distance(*evidence.state->got, as_read.final_state, threads) >
                                  distance(*evidence.state->got, *evidence.state->want, threads) / 9) {
            continue;
        }
        const std::string text = fmt::format("{} read as [B,H,T,D], heads before tokens", m.names);
        note(hints, "layout", text, before, distance(*e.got, as_read.out, threads), allowed(e));
        note(hints, "layout", text + ", and out is written so", before, distance(*e.got, moved(as_read.out), threads),
             allowed(e));
        return;
    }
}

}  // namespace gdnctl::oracle
