#include "oracle/gdn/compare/element_allowance.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <unordered_map>

#include "oracle/gdn/compare/budget.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

using Index = std::size_t;

constexpr double k_largest_fp32 = static_cast<double>(std::numeric_limits<float>::max());
// A single row measures its own error poorly, so it is allowed this many times that error, and at least this many
// roundoffs.
constexpr double k_row_allowance = 8;
constexpr double k_row_roundoffs = 8;
// A row is not judged by itself if the state grows this far beyond its writes.
constexpr double k_row_growth_limit = 1e6;
// The decay of such a gate is 0 even in fp64.
constexpr double k_wiping_gate = -745;
// So is nearly everything below this: fp32 sums of gates lose what follows.
constexpr double k_closing_gate = -16;
// fp32 sums of gates restart at such a gate.
constexpr double k_unsummed_gate = -2e4;

// Infinite if it overflows fp32: no element is judged by it.
float to_float(double x) { return static_cast<float>(x <= k_largest_fp32 ? x : HUGE_VAL); }

double length_of(const double* x, Index count) {
    double sum = 0;
    for (Index i = 0; i < count; ++i) sum += x[i] * x[i];
    return std::sqrt(sum);
}

// The relative error of a state whose tokens' decays are each off by one ulp of fp32, and by what their fp32 sums lose.
// Equal gates have equal errors, which add up over tokens; those of different gates are independent. Each counts as far
// as the state still holds what it multiplied. exp(0) is exact.
class DecayDrift {
public:
    // `kept`: the part of the state's content that a token leaves. `sum`: of gates that closed earlier in the chunk;
    // the fp32 sum of all of them rounds each later gate to multiples of its ulp.
    void advance(double gate, double kept, double sum) {
        if (!(kept > 0) || !std::isfinite(gate)) {
            *this = {};
            return;
        }
        double& own = m_by_gate[gate];
        const double before = own * m_factor;
        const double after = before + ulp_of_decay(gate) + k_rounding * ulp(sum);
        m_squares = std::max(0.0, m_squares + after * after - before * before) * kept * kept;
        own = after / m_factor;
        m_factor *= kept;
        if (m_factor < k_smallest) rescale();
    }
    double squared() const { return m_squares; }

private:
    // The root mean square of roundings to multiples of 1.
    static constexpr double k_rounding = 0.29;

    // Of fp32, at the values just below a positive `x`.
    static double ulp(double x) {
        return x >= k_smallest ? std::ldexp(2 * k_fp32_roundoff, std::ilogb(std::nexttoward(x, 0))) : 0;
    }
    static double ulp_of_decay(double gate) {
        const double decay = std::exp(gate);
        return gate == 0 || decay < k_smallest || std::isinf(decay) ? 0 : ulp(decay) / decay;
    }
    void rescale() {
        for (auto& [gate, error] : m_by_gate) error *= m_factor;
        m_factor = 1;
    }

    std::unordered_map<double, double> m_by_gate;  // errors / m_factor
    double m_factor = 1, m_squares = 0;
};

// One value head of one sequence, token by token. The columns of its state are independent.
class HeadSizes {
public:
    HeadSizes(const GdnProblem& p, const GdnContract& c, const Prepared<double>& in, Index head, LocalSizes& sizes)
        : m_in(in),
          m_sizes(sizes),
          m_sequence_head(head),
          m_Hv(static_cast<Index>(p.dims.Hv)),
          m_Hk(static_cast<Index>(p.dims.Hk)),
          m_dk(static_cast<Index>(p.dims.dk)),
          m_dv(static_cast<Index>(p.dims.dv)),
          m_head(head % m_Hv),
          m_begin(static_cast<Index>(p.sequences[head / m_Hv].begin)),
          m_tokens(static_cast<Index>(p.sequences[head / m_Hv].end) - m_begin),
          m_chunk(static_cast<Index>(c.chunk)),
          m_window(2 * static_cast<Index>(std::max(c.chunk, 64))),
          m_history((m_tokens + 1) * m_dv),
          m_ages(m_dv) {}

    void run() {
        std::vector<double> squares = start();
        for (Index t = 0; t < m_tokens; ++t) {
            sum_gates(t);
            advance(t, squares);
            lose(t);
            write_out(t, squares);
        }
        const double* last = m_history.data() + m_tokens * m_dv;
        float* state = m_sizes.state.data() + m_sequence_head * m_dv;
        for (Index j = 0; j < m_dv; ++j) state[j] = m_explodes ? to_float(HUGE_VAL) : to_float(last[j]);
        if (!m_lost.empty()) m_sizes.finally_lost[m_sequence_head] = *std::max_element(m_lost.begin(), m_lost.end());
        m_sizes.state_age[m_sequence_head] = age_of(squares);
        m_sizes.state_drift[m_sequence_head] = std::sqrt(m_drift.squared());
        if (m_out_squares > 0) {
            m_sizes.out_age[m_sequence_head] = m_out_ages / m_out_squares;
            m_sizes.out_drift[m_sequence_head] = std::sqrt(m_out_drifts / m_out_squares);
        }
        m_sizes.state_gate_loss[m_sequence_head] = m_tokens == 0 ? 0 : m_sizes.gate_loss[at(m_tokens - 1)];
    }

private:
    Index at(Index t) const { return (m_begin + t) * m_Hv + m_head; }
    const double* key_of(const std::vector<double>& keys, Index t) const {
        return keys.data() + ((m_begin + t) * m_Hk + m_in.key_head[m_head]) * m_dk;
    }

    std::vector<double> start() {
        std::vector<double> squares(m_dv, 0);
        const double* state = m_in.state.data() + m_sequence_head * m_dk * m_dv;
        for (Index i = 0; i < m_dk * m_dv; ++i) squares[i % m_dv] += state[i] * state[i];
        for (const double x : squares) m_explained = std::max(m_explained, x);
        note(0, squares);
        return squares;
    }

    // Records the sizes after `t` tokens.
    void note(Index t, const std::vector<double>& squares) {
        double largest = 0;
        for (const double x : squares) largest = std::max(largest, x);
        m_explodes = largest > k_row_growth_limit * k_row_growth_limit * m_explained;
        double* to = m_history.data() + t * m_dv;
        for (Index j = 0; j < m_dv; ++j) to[j] = std::sqrt(squares[j]);
        m_fading.push_back({t, m_decay, std::sqrt(largest)});
    }

    // The difference between the sums before a token and at it has no error from its own gate.
    void sum_gates(Index t) {
        m_summed.push_back(0);
        if (t > 0) {
            const double before = m_in.g[at(t - 1)];
            const bool restart = !(before > k_unsummed_gate);
            m_summed[t] = m_summed[t - 1] + (restart ? 0 : std::fabs(before));
            if (restart) m_restart = t;
        }
        const Index from = std::max(m_restart, t - std::min(t, m_window - 1));
        m_sizes.gate_loss[at(t)] = to_float(2 * k_fp32_roundoff * (m_summed[t] - m_summed[from]));
    }

    void advance(Index t, std::vector<double>& squares) {
        const double k = length_of(key_of(m_in.k, t), m_dk);
        const double beta = m_in.beta[at(t)];
        const double write = beta * k * k;
        // The component along k is multiplied by 1 - write; in a random column, it is 1 / dk of the square.
        const double kept =
            write >= 0 && write <= 2 ? 1 - write * (2 - write) / static_cast<double>(m_dk) : (1 - write) * (1 - write);
        const double decay = std::exp(2 * m_in.g[at(t)]);
        const double factor = decay == 0 ? 0 : decay * kept;
        // A gate above 1 amplifies errors and values alike.
        m_explained *= std::max(1.0, decay);
        const double* v = m_in.v.data() + at(t) * m_dv;
        double before = 0, after = 0;
        for (Index j = 0; j < m_dv; ++j) {
            const double written = beta * k * v[j];
            m_explained = std::max(m_explained, written * written);
            const double left = factor == 0 ? 0 : factor * squares[j];
            squares[j] = left + written * written;
            before += left;
            after += squares[j];
            m_ages[j] = left > 0 && std::isfinite(squares[j]) ? left / squares[j] * (m_ages[j] + 1) : 0;
        }
        const double gate = m_in.g[at(t)];
        if (t % m_chunk == 0 || !(gate > k_unsummed_gate)) m_closed = 0;
        m_drift.advance(gate, std::isfinite(after) && after > 0 ? before / after : 0, m_closed);
        if (gate > k_unsummed_gate && gate < k_closing_gate) m_closed -= gate;
        m_sizes.drift[at(t)] = to_float(std::sqrt(m_drift.squared()));
        if (gate > k_wiping_gate) {
            m_decay += gate;
        } else {
            m_fading.clear();
            m_decay = 0;
            m_lost.clear();
        }
        note(t + 1, squares);
    }

    // Adds what has decayed below fp32's range by now: a chunked form keeps the product of all its decays.
    void lose(Index t) {
        const double alpha = std::exp(m_in.g[at(t)]);
        for (double& x : m_lost) x *= alpha;
        for (; !m_fading.empty() && std::exp(m_decay - m_fading.front().decay) < k_smallest; m_fading.pop_front()) {
            const double left = std::exp(m_decay - m_fading.front().decay);
            if (!(left * m_fading.front().largest > k_smallest)) continue;
            m_lost.resize(m_dv, 0);
            const double* size = m_history.data() + m_fading.front().token * m_dv;
            for (Index j = 0; j < m_dv; ++j) m_lost[j] = std::max(m_lost[j], left * size[j]);
        }
        if (m_lost.empty()) return;
        std::vector<float>& record = m_sizes.lost[m_sequence_head];
        record.resize(m_tokens * m_dv, 0);
        std::transform(m_lost.begin(), m_lost.end(), record.begin() + static_cast<std::ptrdiff_t>(t * m_dv), to_float);
        const double largest = *std::max_element(m_lost.begin(), m_lost.end());
        m_sizes.largest_lost[m_sequence_head] = std::max(m_sizes.largest_lost[m_sequence_head], largest);
    }

    double age_of(const std::vector<double>& squares) const {
        double sum = 0;
        double ages = 0;
        for (Index j = 0; j < m_dv; ++j) {
            sum += squares[j];
            ages += squares[j] * m_ages[j];
        }
        return sum > 0 && std::isfinite(ages) ? ages / sum : 0;
    }

    void write_out(Index t, const std::vector<double>& squares) {
        const double query = std::fabs(m_in.scale) * length_of(key_of(m_in.q, t), m_dk);
        m_sizes.query[at(t)] = to_float(query);
        float* out = m_sizes.out.data() + at(t) * m_dv;
        const double* size = m_history.data() + (t + 1) * m_dv;
        double sum = 0;
        for (Index j = 0; j < m_dv; ++j) {
            out[j] = m_explodes ? to_float(HUGE_VAL) : to_float(query * size[j]);
            sum += query * query * squares[j];
        }
        if (!std::isfinite(sum)) return;
        m_out_squares += sum;
        m_out_ages += sum * age_of(squares);
        m_out_drifts += sum * m_drift.squared();
    }

    struct Fading {
        Index token = 0;   // the state after this many tokens
        double decay = 0;  // sum of the gates up to there
        double largest = 0;
    };

    const Prepared<double>& m_in;
    LocalSizes& m_sizes;
    Index m_sequence_head, m_Hv, m_Hk, m_dk, m_dv, m_head, m_begin, m_tokens, m_chunk, m_window;
    std::vector<double> m_history;  // [tokens + 1, dv]
    std::vector<double> m_ages;     // of the columns
    std::vector<double> m_summed;   // |g| over the earlier tokens
    Index m_restart = 0;
    double m_explained = 0;  // square of the largest write, or of the initial state
    double m_decay = 0;
    std::deque<Fading> m_fading;
    std::vector<double> m_lost;
    bool m_explodes = false;  // after the latest token
    DecayDrift m_drift;
    double m_closed = 0;  // sum of the gates that closed in the chunk
    double m_out_squares = 0, m_out_ages = 0, m_out_drifts = 0;
};

// The largest error / size of a row; values that are not finite were not measured.
float ratio_of(const double* got, const double* want, const float* sizes, Index rows, Index columns) {
    double ratio = 0;
    for (Index i = 0; i < rows * columns; ++i) {
        const double error = std::fabs(got[i] - want[i]);
        const double size = static_cast<double>(sizes[i % columns]) + k_smallest;
        // Only divides if it is the largest. Comparisons ignore NaN.
        if (error > ratio * size && std::isfinite(error)) ratio = error / size;
    }
    return to_float(ratio);
}

}  // namespace

LocalSizes local_sizes(const GdnProblem& p, const GdnContract& c, int threads) {
    const Prepared<double> in = prepare<double>(p, c, threads);
    const auto heads = p.sequences.size() * static_cast<Index>(p.dims.Hv);
    LocalSizes sizes;
    sizes.out.resize(p.v.size(), 0);
    sizes.state.resize(heads * static_cast<Index>(p.dims.dv), 0);
    sizes.query.resize(in.g.size(), 0);
    sizes.gate_loss.resize(in.g.size(), 0);
    sizes.drift.resize(in.g.size(), 0);
    sizes.state_gate_loss.resize(heads, 0);
    sizes.lost.resize(heads);
    for (auto* values : {&sizes.largest_lost, &sizes.finally_lost, &sizes.state_age, &sizes.out_age, &sizes.state_drift,
                         &sizes.out_drift})
        values->resize(heads, 0);
    run_tasks(heads, threads, [&] { return [&](Index head) { HeadSizes(p, c, in, head, sizes).run(); }; });
    return sizes;
}

LocalErrors local_errors(const GdnProblem& p, const LocalSizes& sizes, const GdnOutputs& run, const GdnOutputs& truth,
                         int threads) {
    const auto dk = static_cast<Index>(p.dims.dk);
    const auto dv = static_cast<Index>(p.dims.dv);
    LocalErrors errors{std::vector<float>(sizes.query.size()), std::vector<float>(sizes.largest_lost.size())};
    const Blocks blocks(errors.out.size(), dv);
    run_tasks(blocks.count, threads, [&] {
        return [&](Index b) {
            for (Index row = blocks.begin(b); row < blocks.end(b); ++row) {
                const Index at = row * dv;
                errors.out[row] = ratio_of(run.out.data() + at, truth.out.data() + at, sizes.out.data() + at, 1, dv);
            }
        };
    });
    for (Index head = 0; head < errors.state.size(); ++head) {
        const Index at = head * dk * dv;
        errors.state[head] = ratio_of(run.final_state.data() + at, truth.final_state.data() + at,
                                      sizes.state.data() + head * dv, dk, dv);
    }
    return errors;
}

namespace {

class Grants {
public:
    Grants(const GdnProblem& p, const GdnContract& c, const LocalMeasured& m, double chunk_allowance)
        : m_measured(m), m_chunk_allowance(chunk_allowance), m_roundoff(roundoff_of(c)) {
        m_least = k_row_roundoffs * m_roundoff;
        // Correct kernels round a normalised key to one of two neighbours.
        const bool narrow_keys = c.l2norm != L2Norm::off && c.rounding == NormRounding::input;
        if (narrow_keys && p.qk_dtype == DType::bf16) m_least = std::max(m_least, 0x1p-8);
        if (narrow_keys && p.qk_dtype == DType::f16) m_least = std::max(m_least, 0x1p-11);
    }

    // Relative to the size of an element, without the loss from sums of gates.
    double of(std::vector<float> LocalErrors::* tensor, Index row, double gate_loss) const {
        const auto at = [&](const LocalErrors& e) { return static_cast<double>((e.*tensor)[row]); };
        const double base = std::max({at(m_measured.base_a), at(m_measured.base_b), m_least});
        const double chunk = std::max(at(m_measured.chunk_a), at(m_measured.chunk_b));
        return k_row_allowance * std::max(base, std::min(chunk, m_chunk_allowance * (base + gate_loss)));
    }

private:
    const LocalMeasured& m_measured;
    double m_chunk_allowance, m_roundoff, m_least = 0;
};

}  // namespace

void grant_locally(const GdnProblem& p, const GdnContract& c, const LocalMeasured& measured, const LocalSizes& sizes,
                   const std::vector<double>& widening, double chunk_allowance, TensorBudget& out,
                   TensorBudget& state) {
    const auto Hv = static_cast<Index>(p.dims.Hv);
    const auto dk = static_cast<Index>(p.dims.dk);
    const auto dv = static_cast<Index>(p.dims.dv);
    const Grants grants(p, c, measured, chunk_allowance);
    // Rows outside all sequences are judged with their group.
    out.local.assign(p.v.size(), to_float(HUGE_VAL));
    state.local.assign(sizes.largest_lost.size() * dk * dv, 0);
    const auto granted = [](double relative, float size, double lost, double query) {
        return to_float(relative * static_cast<double>(size) + 2 * lost * query +
                        8 * k_smallest * std::max(1.0, query));
    };
    for (Index head = 0; head < sizes.largest_lost.size(); ++head) {
        const auto begin = static_cast<Index>(p.sequences[head / Hv].begin);
        const auto tokens = static_cast<Index>(p.sequences[head / Hv].end) - begin;
        const std::vector<float>& lost = sizes.lost[head];
        const auto lost_at = [&](Index t, Index j) { return lost.empty() ? 0 : static_cast<double>(lost[t * dv + j]); };
        double before = 0;
        for (Index t = 0; t < tokens; ++t) {
            const Index row = (begin + t) * Hv + head % Hv;
            const auto gate_loss = static_cast<double>(sizes.gate_loss[row]);
            const double own = widening[head] * grants.of(&LocalErrors::out, row, gate_loss);
            const double relative = std::max(own, before) + gate_loss + static_cast<double>(sizes.drift[row]);
            before = own;
            for (Index j = 0; j < dv; ++j) {
                out.local[row * dv + j] =
                    granted(relative, sizes.out[row * dv + j], lost_at(t, j), static_cast<double>(sizes.query[row]));
            }
        }
        const auto gate_loss = static_cast<double>(sizes.state_gate_loss[head]);
        const double relative =
            widening[head] * grants.of(&LocalErrors::state, head, gate_loss) + gate_loss + sizes.state_drift[head];
        for (Index i = 0; i < dk * dv; ++i) {
            const Index j = i % dv;
            state.local[head * dk * dv + i] =
                granted(relative, sizes.state[head * dv + j], tokens == 0 ? 0 : lost_at(tokens - 1, j), 1);
        }
    }
}

}  // namespace gdnctl::oracle
