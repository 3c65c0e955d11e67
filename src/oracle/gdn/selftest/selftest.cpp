#include "oracle/gdn/selftest/selftest.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::oracle {

namespace {

// With other tokens, values and gates than any other one: what the mistakes need to show.
GdnCase mistakes_case() {
    GdnCase c;
    c.name = "selftest";
    c.dims = {2, 104, 2, 4, 16, 16};  // a tail of 8 tokens, because padding is part of what can be wrong
    c.seed = 901;
    c.state_scale = 0.3;
    c.contract = {"head_map=interleaved", "chunk=32"};
    return c;
}

// Correct kernels are judged on these.
constexpr std::string_view k_variant_cases[] = {"random_normed", "keys_cos91", "keys_identical", "gate_1e4",
                                                "gate_inf",      "odd_dims",   "gva_4",          "varlen",
                                                "tail_1_C16",    "values_1e18"};

// Our own cases are well-formed: a failure here is a defect of this program.
GdnReference reference_of(const GdnCase& c, int threads) {
    const TensorFile inputs = make_inputs(c);
    ResolvedContract contract = resolve_contract("marin", inputs.metadata, {}).value();
    GdnProblem problem = read_problem(inputs, contract).value();
    GdnReference r = make_reference(std::move(problem), std::move(contract), threads);
    TensorFile names;  // any gradient requires the truth of all
    names.tensors.push_back({"d_initial_state", {}});
    if (const Status done = add_backward(r, with_cotangents({}, r, c.seed), names, threads); !done)
        throw std::logic_error(done.error().message);
    return r;
}

// Where a dump differs from the truth. A key head's gradient belongs to all its value heads.
struct Changed {
    std::set<std::int64_t> heads;
    std::int64_t first_chunk = -1;  // of outputs
};

class Selftest {
public:
    Selftest(int threads, const std::function<bool()>& stop) : m_threads(threads), m_stop(stop) {}

    SelftestReport run() {
        const GdnReference r = reference_of(mistakes_case(), m_threads);
        forward_mistakes(r);
        backward_mistakes(r);
        for (const std::string_view name : k_variant_cases) {
            if (m_stop()) break;
            variants(*find_gdn_case(name));
        }
        return std::move(m_report);
    }

private:
    GdnReport judged(const GdnReference& r, const TensorFile& dump, bool hints) const {
        CompareOptions options;
        options.hints = hints;
        options.threads = m_threads;
        return judge(r, dump, options).value();
    }
    TensorFile file_of(const GdnReference& r, const GdnOutputs& x) const {
        return outputs_file(r.problem, r.contract.value, x, out_dtype_of(r.contract.value, r.problem), DType::f32);
    }
    TensorFile file_of(const GdnReference& r, const GdnGradients& x) const {
        return gradients_file(r.problem, r.contract.value, x, DType::f32, DType::f32);
    }

    // Each in every head; and in one chunk of one head, if it is made inside a chunk.
    void forward_mistakes(const GdnReference& r) {
        for (const Hypothesis& h : forward_hypotheses()) {
            for (const bool everywhere : {true, false}) {
                if (m_stop()) return;
                if (!everywhere && !h.chunk) continue;
                const auto x = everywhere ? outputs_under(r, h, {}, {}) : outputs_under(r, h, 1, 1);
                if (!x) continue;
                const Changed changed = changed_by(r, *x);
                if (changed.heads.empty()) continue;  // makes no difference on these inputs
                const GdnReport report = judged(r, file_of(r, *x), true);
                // A state that is damaged at the end of a chunk shows in the next one.
                const bool placed =
                    report.place && same_heads(report, changed) &&
                    (report.place->first_chunk == changed.first_chunk || report.place->first_chunk == 1);
                count(h.text + (everywhere ? "" : " (chunk 1 of head 1)"), h.stage, h.text, report, placed, changed,
                      m_report.totals);
            }
        }
    }

    // The outputs of a kernel that makes this mistake; nullopt: it does not apply to this problem.
    static std::optional<GdnOutputs> outputs_under(const GdnReference& r, const Hypothesis& h,
                                                   std::optional<std::size_t> only_head,
                                                   std::optional<std::size_t> only_chunk) {
        Hypothesis faulty = h;
        if (only_chunk) {
            faulty.chunk = [&](ChunkParts& c) {
                if (c.index == *only_chunk) h.chunk(c);
            };
        }
        const GdnProblem& p = r.problem;
        const GdnContract& contract = r.contract.value;
        const auto heads = static_cast<std::size_t>(p.dims.Hv);
        const auto dv = static_cast<std::size_t>(p.dims.dv);
        GdnOutputs x = r.truth;
        for (std::size_t n = 0; n < p.sequences.size(); ++n) {
            const auto begin = static_cast<std::size_t>(p.sequences[n].begin);
            const std::size_t tokens = static_cast<std::size_t>(p.sequences[n].end) - begin;
            for (std::size_t head = 0; head < heads; ++head) {
                if (only_head && head != *only_head) continue;
                HeadSlice place{&r, n, head, 0, tokens, std::vector<std::size_t>(dv)};
                std::iota(place.columns.begin(), place.columns.end(), 0);
                const auto key = key_head_of(static_cast<std::int64_t>(head), p.dims, contract.head_map);
                const HeadInputs inputs = head_inputs(place, static_cast<std::size_t>(key),
                                                      static_cast<std::size_t>(contract.chunk), state_before(place));
                const auto result = faulty.simulate(inputs, contract, place);
                if (!result) return std::nullopt;
                for (std::size_t t = 0; t < tokens; ++t) {
                    std::copy_n(result->out.begin() + static_cast<std::ptrdiff_t>(t * dv), dv,
                                x.out.begin() + static_cast<std::ptrdiff_t>(((begin + t) * heads + head) * dv));
                }
                std::copy(
                    result->state.begin(), result->state.end(),
                    x.final_state.begin() + static_cast<std::ptrdiff_t>((n * heads + head) * result->state.size()));
            }
        }
        return x;
    }

    static bool differs(double a, double b, double limit) { return !(std::fabs(a - b) <= k_ok_band * limit); }

    static Changed changed_by(const GdnReference& r, const GdnOutputs& x) {
        const GdnProblem& p = r.problem;
        const auto heads = static_cast<std::size_t>(p.dims.Hv);
        const auto dv = static_cast<std::size_t>(p.dims.dv);
        const auto state = static_cast<std::size_t>(p.dims.dk) * dv;
        Changed changed;
        const auto note = [&](std::size_t head, std::int64_t chunk) {
            changed.heads.insert(static_cast<std::int64_t>(head));
            if (changed.first_chunk < 0 || chunk < changed.first_chunk) changed.first_chunk = chunk;
        };
        for (std::size_t n = 0; n < p.sequences.size(); ++n) {
            const GdnSequence s = p.sequences[n];
            for (std::int64_t token = s.begin; token < s.end; ++token) {
                for (std::size_t i = 0; i < heads * dv; ++i) {
                    const std::size_t at = static_cast<std::size_t>(token) * heads * dv + i;
                    if (differs(x.out[at], r.truth.out[at], r.out.groups[n * heads + i / dv].max_abs))
                        note(i / dv, (token - s.begin) / r.contract.value.chunk);
                }
            }
            for (std::size_t at = n * heads * state; at < (n + 1) * heads * state; ++at) {
                if (differs(x.final_state[at], r.truth.final_state[at], r.final_state.groups[at / state].max_abs))
                    note(at / state % heads, (s.end - s.begin - 1) / r.contract.value.chunk);
            }
        }
        return changed;
    }

    void backward_mistakes(const GdnReference& r) {
        for (const BackwardMistake& m : known_backward_mistakes(r, m_threads)) {
            if (m_stop()) return;
            const Changed changed = changed_by(r, m.gradients);
            if (changed.heads.empty()) continue;
            const GdnReport report = judged(r, file_of(r, m.gradients), true);
            const bool placed = report.place && report.backward_fault && same_heads(report, changed);
            count(m.text, m.stage, m.text, report, placed, changed, *m_report.backward);
        }
    }

    static Changed changed_by(const GdnReference& r, const GdnGradients& x) {
        const GdnDims& dims = r.problem.dims;
        Changed changed;
        std::set<std::int64_t> key_heads;
        for (const GradientTruth& t : r.backward->truths) {
            const std::vector<double>& values = gradient_of(x, t.canonical);
            const bool of_key = t.canonical == "dq" || t.canonical == "dk";
            const auto heads = static_cast<std::size_t>(of_key ? dims.Hk : dims.Hv);
            for (std::size_t i = 0; i < values.size(); ++i) {
                const std::size_t group = t.groups.of(i);
                if (!differs(values[i], t.want[i], t.budget.groups[group].max_abs)) continue;
                (of_key ? key_heads : changed.heads).insert(static_cast<std::int64_t>(group % heads));
            }
        }
        for (std::int64_t h = 0; h < dims.Hv; ++h) {
            if (key_heads.contains(key_head_of(h, dims, r.contract.value.head_map))) changed.heads.insert(h);
        }
        return changed;
    }

    static bool same_heads(const GdnReport& report, const Changed& changed) {
        return std::set<std::int64_t>(report.place->heads.begin(), report.place->heads.end()) == changed.heads;
    }

    // Another mistake that gives the same result is as right as the one that was made.
    void count(const std::string& name, std::string_view stage, const std::string& text, const GdnReport& report,
               bool placed, const Changed& changed, SelftestTotals& totals) {
        const bool named = std::any_of(report.hints.begin(), report.hints.end(),
                                       [&](const Hint& hint) { return hint.text.find(text) != std::string::npos; });
        const std::string hint = report.hints.empty() ? "" : report.hints.front().text;
        count_mistake(
            {name, report.verdict, named || report.stage == stage, placed, std::string(stage),
             fmt::format("{} ({})", report.stage, hint), heads_text(changed.heads.size(), changed.first_chunk),
             report.place ? heads_text(report.place->heads.size(), report.place->first_chunk) : "nowhere"},
            totals, m_report);
    }
    static std::string heads_text(std::size_t heads, std::int64_t chunk) {
        return chunk < 0 ? fmt::format("{} heads", heads) : fmt::format("{} heads from chunk {} on", heads, chunk);
    }

    void variants(const GdnCase& c) {
        const GdnReference r = reference_of(c, m_threads);
        const GdnContract& contract = r.contract.value;
        const auto forward = [&](const std::string& what, const GdnOutputs& x) {
            variant(what, c, r, file_of(r, x), m_report.totals);
        };
        forward("recurrence in fp32", run_recurrent32(r.problem, contract, m_threads));
        for (const int chunk : {1, 16, 64}) {
            forward(fmt::format("chunks of {}", chunk),
                    run_chunk32(r.problem, contract, {chunk, GateSum::fp64_with_resets, Matmul::f32}, m_threads));
        }
        for (const Isa isa : available_isas()) {
            forward(fmt::format("fused, {}", name_of(isa)), run_fused32(r.problem, contract, m_threads, isa));
            variant(fmt::format("chunked backward, {}", name_of(isa)), c, r,
                    file_of(r, run_backward32(r.problem, contract, r.backward->cotangents, m_threads, isa)),
                    *m_report.backward);
        }
    }

    void variant(const std::string& what, const GdnCase& c, const GdnReference& r, const TensorFile& dump,
                 SelftestTotals& totals) {
        const GdnReport report = judged(r, dump, false);
        count_variant(fmt::format("{} ({})", what, c.name), report.verdict, report.reason, totals, m_report);
    }

    int m_threads;
    const std::function<bool()>& m_stop;
    SelftestReport m_report{.totals = {}, .backward = SelftestTotals{}, .findings = {}};
};

}  // namespace

SelftestReport run_selftest(int threads, const std::function<bool()>& stop) { return Selftest(threads, stop).run(); }

}  // namespace gdnctl::oracle
