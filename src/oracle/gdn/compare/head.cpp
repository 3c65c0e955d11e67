#include "oracle/gdn/compare/head.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/judge/linear_algebra.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

namespace {

void normalise(std::vector<double>& x, std::size_t width, const GdnContract& c, DType dtype) {
    if (c.l2norm == L2Norm::off) return;
    for (std::size_t at = 0; at < x.size(); at += width) {
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) squares += x[at + i] * x[at + i];
        const double factor = 1 / std::sqrt(squares + c.eps);
        for (std::size_t i = 0; i < width; ++i) {
            x[at + i] *= factor;
            if (c.rounding == NormRounding::input) x[at + i] = rounded_to(x[at + i], dtype);
        }
    }
}

double log_gate(double given, const HeadInputs& in, const GdnContract& c) {
    double g = given;
    if (c.g_kind == GateKind::alpha) g = std::log(given);
    if (c.g_kind == GateKind::raw) {
        const double z = given + in.dt_bias;
        g = -std::exp(in.A_log) * (z > 20 ? z : std::log1p(std::exp(z)));
    }
    return c.exp_clip && c.exp_clip->of_gates ? (*c.exp_clip)(g) : g;
}

double clipped_exp(const PreparedHead& head, double exponent) {
    return std::exp(head.clip ? (*head.clip)(exponent) : exponent);
}

// [n, n]: rows i of `a` times rows j of `b`, of the n tokens from `first` on.
std::vector<double> gram(const std::vector<double>& a, const std::vector<double>& b, std::size_t dk, std::size_t first,
                         std::size_t n) {
    std::vector<double> transposed(dk * n);  // one row per dimension of all keys, so that the inner loop runs over
                                             // tokens
    for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t x = 0; x < dk; ++x) transposed[x * n + j] = b[(first + j) * dk + x];
    }
    std::vector<double> result(n * n, 0);
    for (std::size_t i = 0; i < n; ++i) {
        add_rows<double>(std::span(result).subspan(i * n, n), 1, std::span(a).subspan((first + i) * dk, dk),
                         transposed);
    }
    return result;
}

// The Gram matrices of a head's chunks that are already known.
struct KnownGrams {
    const std::vector<std::vector<double>>* keys = nullptr;
    const std::vector<std::vector<double>>* queries = nullptr;
};

KnownGrams usable(const PreparedHead& head, const HeadGrams* known) {
    if (known == nullptr || known->chunk != head.chunk || known->k != head.k) return {};
    return {&known->key_gram, known->q == head.q ? &known->query_gram : nullptr};
}

// The correct coefficients of the chunk.
ChunkParts reference_parts(const PreparedHead& head, std::size_t first, double gates_before, const KnownGrams& known) {
    ChunkParts c;
    c.head = &head;
    c.first = first;
    c.rows = std::min(head.chunk, head.tokens - first);
    c.index = (head.before + first) / head.chunk;
    c.last_of_sequence = head.last && first + c.rows == head.tokens;
    c.gates_before = gates_before;
    const std::size_t n = c.rows;
    const std::size_t index = first / head.chunk;
    c.key_gram = known.keys != nullptr ? (*known.keys)[index] : gram(head.k, head.k, head.dk, first, n);
    c.query_gram = known.queries != nullptr ? (*known.queries)[index] : gram(head.q, head.k, head.dk, first, n);
    double sum = 0;
    int closed = 0;
    for (std::size_t i = 0; i < n; ++i) {
        c.sum_before.push_back(sum);
        if (c.gate(i) > -800) {
            sum += c.gate(i);
        } else {
            ++closed;
        }
        c.sum.push_back(sum);
        c.stretch.push_back(closed);
    }
    c.M.assign(n * n, 0);
    c.P.assign(n * n, 0);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            const double gamma = c.decay(i, j);
            if (j < i) c.M[i * n + j] = c.beta(i) * c.key_gram[i * n + j] * gamma;
            c.P[i * n + j] = c.scale() * c.query_gram[i * n + j] * gamma;
        }
        const double from_start = c.decay_from_start(i);
        c.write.push_back(c.beta(i));
        c.forget.push_back(c.beta(i) * from_start);
        c.read.push_back(c.scale() * from_start);
        c.insert.push_back(c.decay(n - 1, i));
    }
    c.keep = c.decay_from_start(n - 1);
    return c;
}

template <class Real>
class HeadRun {
public:
    HeadRun(const PreparedHead& head, const ChunkEdit& edit, const HeadGrams* known)
        : m_head(head), m_edit(edit), m_known(usable(head, known)) {
        m_result.out.assign(head.tokens * head.columns, 0);
        m_state.assign(head.state.begin(), head.state.end());
    }

    HeadResult run() {
        double gates = m_head.gates_before;
        for (std::size_t first = 0; first < m_head.tokens; first += m_head.chunk) {
            ChunkParts parts = reference_parts(m_head, first, gates, m_known);
            gates += parts.sum.back();
            if (m_edit) m_edit(parts);
            step(parts);
        }
        m_result.state.assign(m_state.begin(), m_state.end());
        return std::move(m_result);
    }

private:
    static Real operand(double x, const ChunkParts& c) {
        return static_cast<Real>(c.bf16_operands ? rounded_to(x, DType::bf16) : x);
    }

    // Factors as this run's products use them; valid until the next call.
    std::span<const double> operands(std::span<const double> factors, const ChunkParts& c) {
        if (!c.bf16_operands) return factors;
        m_rounded.assign(factors.begin(), factors.end());
        for (double& x : m_rounded) x = rounded_to(x, DType::bf16);
        return m_rounded;
    }

    std::span<Real> row_of(std::vector<Real>& rows, std::size_t i) const {
        return std::span(rows).subspan(i * m_head.columns, m_head.columns);
    }

    // [rows, dk] times the state.
    std::vector<Real> times_state(const std::vector<double>& rows, const ChunkParts& c,
                                  const std::vector<Real>& state) {
        const std::size_t dk = m_head.dk;
        const auto factors = operands(std::span(rows).subspan(c.first * dk, c.rows * dk), c);
        std::vector<Real> result(c.rows * m_head.columns, 0);
        for (std::size_t i = 0; i < c.rows; ++i) {
            add_rows<Real>(row_of(result, i), 1, factors.subspan(i * dk, dk), state);
        }
        return result;
    }

    // target += sign * sum_j matrix_ij source_j, for all j or only for those before i.
    void multiply(const std::vector<double>& matrix, const std::vector<Real>& source, Real sign, const ChunkParts& c,
                  std::size_t i, std::size_t end, std::span<Real> target) {
        const auto factors = operands(std::span(matrix).subspan(i * c.rows, end), c);
        add_rows<Real>(target, sign, factors, std::span(source).first(end * m_head.columns));
    }

    std::vector<Real> solve(std::vector<Real> rhs, const ChunkParts& c) {
        if (c.neumann == 0) {
            for (std::size_t i = 0; i < c.rows; ++i) multiply(c.M, rhs, -1, c, i, i, row_of(rhs, i));
            return rhs;
        }
        std::vector<Real> power = rhs;
        for (int term = 0; term < c.neumann; ++term) {
            std::vector<Real> next(power.size(), 0);
            for (std::size_t i = 0; i < c.rows; ++i) {
                multiply(c.M, power, -1, c, i, c.rows, row_of(next, i));
            }
            power = std::move(next);
            for (std::size_t i = 0; i < rhs.size(); ++i) rhs[i] += power[i];
        }
        return rhs;
    }

    void step(const ChunkParts& c) {
        const std::size_t width = m_head.columns;
        std::vector<Real> S = m_state;
        for (Real& s : S) s = operand(static_cast<double>(s) * c.before, c);
        std::vector<Real> U = times_state(m_head.k, c, S);
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j < width; ++j) {
                const auto v = static_cast<Real>(m_head.v[(c.first + i) * width + j]);
                U[i * width + j] =
                    static_cast<Real>(c.write[i]) * v - static_cast<Real>(c.forget[i]) * U[i * width + j];
            }
        }
        U = solve(std::move(U), c);
        if (c.bf16_operands) {
            for (Real& u : U) u = operand(static_cast<double>(u), c);
        }
        const std::vector<Real> QS = times_state(m_head.q, c, S);
        std::vector<Real> row(width);
        for (std::size_t i = 0; i < c.rows; ++i) {
            for (std::size_t j = 0; j < width; ++j) row[j] = static_cast<Real>(c.read[i]) * QS[i * width + j];
            multiply(c.P, U, 1, c, i, c.rows, row);
            std::copy(row.begin(), row.end(),
                      m_result.out.begin() + static_cast<std::ptrdiff_t>((c.first + i) * width));
        }
        carry(c, U);
    }

    void carry(const ChunkParts& c, const std::vector<Real>& U) {
        if (c.handover == Handover::unchanged) return;
        std::vector<Real> next(m_state.size(), 0);
        if (c.handover != Handover::only_new) {
            const auto keep = static_cast<Real>(c.keep * c.before);
            std::transform(m_state.begin(), m_state.end(), next.begin(), [&](Real s) { return keep * s; });
        }
        std::vector<double> inserted(c.rows);
        for (std::size_t x = 0; x < m_head.dk; ++x) {
            for (std::size_t i = 0; i < c.rows; ++i)
                inserted[i] = c.insert[i] * m_head.k[(c.first + i) * m_head.dk + x];
            add_rows<Real>(row_of(next, x), 1, operands(inserted, c), U);
        }
        m_state = std::move(next);
        // The last chunk passes its state to no other: it is the final state.
        if (c.handover == Handover::zeros && !c.last_of_sequence) std::fill(m_state.begin(), m_state.end(), Real{0});
        if (c.handover == Handover::initial && !c.last_of_sequence) {
            m_state.assign(m_head.initial.begin(), m_head.initial.end());
        }
        if (c.handover == Handover::bf16) {
            for (Real& s : m_state) s = static_cast<Real>(rounded_to(static_cast<double>(s), DType::bf16));
        }
    }

    const PreparedHead& m_head;
    const ChunkEdit& m_edit;
    KnownGrams m_known;
    std::vector<Real> m_state;
    std::vector<double> m_rounded;
    HeadResult m_result;
};

}  // namespace

double ChunkParts::decay(std::size_t i, std::size_t j) const {
    return clipped_exp(*head, stretch[i] == stretch[j] ? sum[i] - sum[j] : -HUGE_VAL);
}

double ChunkParts::decay_from_start(std::size_t i) const {
    return clipped_exp(*head, stretch[i] == 0 ? sum[i] : -HUGE_VAL);
}

ChunkParts chunk_parts(const PreparedHead& head, std::size_t first) { return reference_parts(head, first, 0, {}); }

PreparedHead prepare_head(const HeadInputs& inputs, const GdnContract& c) {
    PreparedHead head{inputs, 1, {}};
    if (c.exp_clip && !c.exp_clip->of_gates) head.clip = c.exp_clip;
    normalise(head.q, head.dk, c, head.qk_dtype);
    normalise(head.k, head.dk, c, head.qk_dtype);
    for (double& g : head.gate) g = log_gate(g, inputs, c);
    if (c.beta_kind != BetaKind::prob) {
        const double factor = c.beta_kind == BetaKind::twice_logit ? 2 : 1;
        for (double& b : head.beta) b = factor / (1 + std::exp(-b));
    }
    head.scale = c.scale.value_or(1 / std::sqrt(static_cast<double>(head.dk)));
    return head;
}

HeadGrams grams_of(const PreparedHead& head) {
    HeadGrams grams{head.chunk, head.q, head.k, {}, {}};
    for (std::size_t first = 0; first < head.tokens; first += head.chunk) {
        const std::size_t n = std::min(head.chunk, head.tokens - first);
        grams.key_gram.push_back(gram(head.k, head.k, head.dk, first, n));
        grams.query_gram.push_back(gram(head.q, head.k, head.dk, first, n));
    }
    return grams;
}

template <class Real>
HeadResult run_head(const PreparedHead& head, const ChunkEdit& edit, const HeadGrams* known) {
    return HeadRun<Real>(head, edit, known).run();
}

namespace {

// `alpha`: the decay of a gate; `stored` rounds an entry of the state, before or after out is read from it.
template <class Alpha, class Stored>
HeadResult by_tokens(const PreparedHead& head, const Alpha& alpha, const Stored& stored, bool read_first) {
    const std::size_t width = head.columns;
    HeadResult result{std::vector<double>(head.tokens * width, 0), head.state};
    std::vector<double>& S = result.state;
    std::vector<double> write(width);
    for (std::size_t t = 0; t < head.tokens; ++t) {
        const double* q = head.q.data() + t * head.dk;
        const double* k = head.k.data() + t * head.dk;
        const double factor = alpha(head.gate[t]);
        for (double& s : S) s *= factor;
        for (std::size_t j = 0; j < width; ++j) {
            double recalled = 0;
            for (std::size_t x = 0; x < head.dk; ++x) recalled += k[x] * S[x * width + j];
            write[j] = head.beta[t] * (head.v[t * width + j] - recalled);
        }
        double* out = result.out.data() + t * width;
        for (std::size_t x = 0; x < head.dk; ++x) {
            for (std::size_t j = 0; j < width; ++j) {
                double& s = S[x * width + j];
                s += k[x] * write[j];
                const double rounded = stored(s);
                out[j] += head.scale * q[x] * (read_first ? s : rounded);
                s = rounded;
            }
        }
    }
    return result;
}

double to_bf16(double x) { return rounded_to(x, DType::bf16); }
double to_alpha(double gate) { return std::exp(gate); }

}  // namespace

HeadResult run_head_by_factors(const PreparedHead& head) {
    const auto same = [](double x) { return x; };
    return by_tokens(head, same, same, false);
}

HeadResult run_head_rounded(const PreparedHead& head) { return by_tokens(head, to_alpha, to_bf16, false); }

HeadResult run_head_rounded_late(const PreparedHead& head) { return by_tokens(head, to_alpha, to_bf16, true); }

template HeadResult run_head<float>(const PreparedHead&, const ChunkEdit&, const HeadGrams*);
template HeadResult run_head<double>(const PreparedHead&, const ChunkEdit&, const HeadGrams*);

// Cuts a head's window out of a problem.

namespace {

// The head's state after `rows`, starting from the initial state of `sequence`: [dk, columns].
std::vector<double> state_after(const HeadSlice& place, std::size_t sequence, const std::vector<GdnSequence>& rows) {
    const GdnReference& reference = *place.reference;
    const GdnProblem& p = reference.problem;
    const GdnDims& d = p.dims;
    const auto dk = static_cast<std::size_t>(d.dk);
    const auto dv = static_cast<std::size_t>(d.dv);
    const auto Hk = static_cast<std::size_t>(d.Hk);
    const auto Hv = static_cast<std::size_t>(d.Hv);
    const std::size_t columns = place.columns.size();
    std::vector<double> initial(dk * columns, 0);
    for (std::size_t x = 0; x < dk && !p.initial_state.empty(); ++x) {
        const std::size_t row = ((sequence * Hv + place.head) * dk + x) * dv;
        for (std::size_t j = 0; j < columns; ++j) initial[x * columns + j] = p.initial_state[row + place.columns[j]];
    }
    GdnProblem one;
    one.dims = {1, 0, 1, 1, d.dk, static_cast<std::int64_t>(columns)};
    for (const GdnSequence& s : rows) one.dims.T += s.end - s.begin;
    if (one.dims.T == 0) return initial;
    one.sequences = {{0, one.dims.T}};
    one.qk_dtype = p.qk_dtype;
    one.initial_state = std::move(initial);
    const auto key = static_cast<std::size_t>(
        key_head_of(static_cast<std::int64_t>(place.head), d, reference.contract.value.head_map));
    const auto tokens = static_cast<std::size_t>(one.dims.T);
    one.q.reserve(tokens * dk);
    one.k.reserve(tokens * dk);
    one.v.reserve(tokens * columns);
    const auto add_row = [&](std::size_t row) {
        const auto keys = [&](const std::vector<double>& from, std::vector<double>& to) {
            const auto at = from.begin() + static_cast<std::ptrdiff_t>((row * Hk + key) * dk);
            to.insert(to.end(), at, at + static_cast<std::ptrdiff_t>(dk));
        };
        keys(p.q, one.q);
        keys(p.k, one.k);
        for (const std::size_t column : place.columns) one.v.push_back(p.v[(row * Hv + place.head) * dv + column]);
        one.gate.push_back(p.gate[row * Hv + place.head]);
        one.beta.push_back(p.beta[row * Hv + place.head]);
    };
    for (const GdnSequence& s : rows) {
        for (std::int64_t row = s.begin; row < s.end; ++row) add_row(static_cast<std::size_t>(row));
    }
    if (!p.A_log.empty()) one.A_log = {p.A_log[place.head]};
    if (!p.dt_bias.empty()) one.dt_bias = {p.dt_bias[place.head]};
    return run_recurrent64(one, reference.contract.value, 1).final_state;
}

}  // namespace

std::vector<double> state_before(const HeadSlice& place) {
    const std::int64_t first = place.reference->problem.sequences[place.sequence].begin;
    return state_after(place, place.sequence, {{first, first + static_cast<std::int64_t>(place.begin)}});
}

std::vector<double> state_carried_to(const HeadSlice& place) {
    const auto& all = place.reference->problem.sequences;
    return state_after(place, 0, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(place.sequence)});
}

HeadInputs head_inputs(const HeadSlice& place, std::size_t key_head, std::size_t chunk, std::vector<double> state) {
    const GdnReference& r = *place.reference;
    const GdnProblem& p = r.problem;
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    HeadInputs in;
    in.tokens = place.tokens;
    in.dk = static_cast<std::size_t>(p.dims.dk);
    in.columns = place.columns.size();
    in.chunk = chunk;
    in.before = place.begin;
    const auto begin = static_cast<std::size_t>(p.sequences[place.sequence].begin);
    const auto end = static_cast<std::size_t>(p.sequences[place.sequence].end);
    in.first = place.begin == 0;
    in.last = begin + place.begin + place.tokens == end;
    in.qk_dtype = p.qk_dtype;
    in.gate_dtype = p.gate_dtype;
    if (!p.A_log.empty()) in.A_log = p.A_log[place.head];
    if (!p.dt_bias.empty()) in.dt_bias = p.dt_bias[place.head];
    for (std::size_t t = 0; t < place.tokens; ++t) {
        const std::size_t row = begin + place.begin + t;
        for (std::size_t x = 0; x < in.dk; ++x) {
            in.q.push_back(p.q[(row * Hk + key_head) * in.dk + x]);
            in.k.push_back(p.k[(row * Hk + key_head) * in.dk + x]);
        }
        for (const std::size_t column : place.columns) in.v.push_back(p.v[(row * Hv + place.head) * dv + column]);
        in.gate.push_back(p.gate[row * Hv + place.head]);
        in.beta.push_back(p.beta[row * Hv + place.head]);
    }
    const auto columns_of = [&](const std::vector<double>& from, std::size_t at) {
        std::vector<double> to;
        for (std::size_t x = 0; x < in.dk; ++x) {
            for (const std::size_t column : place.columns) to.push_back(from.empty() ? 0 : from[at + x * dv + column]);
        }
        return to;
    };
    const bool given = !state.empty();
    in.state = given ? std::move(state) : std::vector<double>(in.dk * in.columns, 0);
    in.initial = columns_of(p.initial_state, (place.sequence * Hv + place.head) * in.dk * dv);
    if (place.begin > 0 && given) {
        HeadInputs gates;
        gates.dk = 1;
        gates.A_log = in.A_log;
        gates.dt_bias = in.dt_bias;
        for (std::size_t t = 0; t < place.begin; ++t) gates.gate.push_back(p.gate[(begin + t) * Hv + place.head]);
        for (const double g : prepare_head(gates, r.contract.value).gate) in.gates_before += std::max(g, -1e4);
    }
    return in;
}

namespace {

Reals rows_of(const Reals& all, std::size_t first, std::size_t rows, std::size_t width) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(first * width);
    return {at, at + static_cast<std::ptrdiff_t>(rows * width)};
}

// [rows, rows]: rows of `a` times rows of `b`.
Reals gram_of(const Reals& a, const Reals& b, std::size_t rows, std::size_t dk) {
    Reals transposed(dk * rows);
    for (std::size_t j = 0; j < rows; ++j) {
        for (std::size_t x = 0; x < dk; ++x) transposed[x * rows + j] = b[j * dk + x];
    }
    return product(a, transposed, dk, rows);
}

// Row i of `to` += factor times that of `from`.
void add_row(Reals& to, double factor, const Reals& from, std::size_t i, std::size_t width) {
    add_rows<double>(std::span(to).subspan(i * width, width), 1, std::span<const double>(&factor, 1),
                     std::span(from).subspan(i * width, width));
}

}  // namespace

Reals product(const Reals& rows, const Reals& matrix, std::size_t inner, std::size_t columns) {
    const std::size_t count = inner == 0 ? 0 : rows.size() / inner;
    Reals result(count * columns, 0);
    for (std::size_t i = 0; i < count; ++i) {
        add_rows<double>(std::span(result).subspan(i * columns, columns), 1, std::span(rows).subspan(i * inner, inner),
                         matrix);
    }
    return result;
}

KeyUses key_uses(const PreparedHead& head, std::size_t first, std::size_t rows) {
    const Reals q = rows_of(head.q, first, rows, head.dk);
    const Reals k = rows_of(head.k, first, rows, head.dk);
    return {q, q, k, k, k, k};
}

OpenChunk open_chunk(const ChunkParts& parts, const KeyUses& uses, Reals state) {
    const PreparedHead& head = *parts.head;
    const std::size_t n = parts.rows;
    OpenChunk c{n,
                head.dk,
                head.columns,
                Reals(n * n, 0),
                Reals(n * n, 0),
                parts.write,
                parts.forget,
                parts.read,
                parts.insert,
                rows_of(head.v, parts.first, n, head.columns),
                product(uses.key_state, state, head.dk, head.columns),
                product(uses.query_state, state, head.dk, head.columns),
                uses.key_write,
                {},
                parts.keep};
    c.state = std::move(state);
    const Reals keys = gram_of(uses.key_solve, uses.key_solve, n, head.dk);
    const Reals queries = gram_of(uses.query_gram, uses.key_intra, n, head.dk);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            const double gamma = parts.decay(i, j);
            if (j < i) c.M[i * n + j] = parts.beta(i) * keys[i * n + j] * gamma;
            c.P[i * n + j] = parts.scale() * queries[i * n + j] * gamma;
        }
    }
    return c;
}

Reals right_hand_side(const OpenChunk& c) {
    Reals rhs(c.v.size(), 0);
    for (std::size_t i = 0; i < c.rows; ++i) {
        add_row(rhs, c.write[i], c.v, i, c.columns);
        add_row(rhs, -c.forget[i], c.KS, i, c.columns);
    }
    return rhs;
}

Reals solved(const OpenChunk& c, Reals rhs) {
    for (std::size_t i = 1; i < c.rows; ++i) {
        add_rows<double>(std::span(rhs).subspan(i * c.columns, c.columns), -1, std::span(c.M).subspan(i * c.rows, i),
                         std::span(rhs).first(i * c.columns));
    }
    return rhs;
}

Reals times_p(const OpenChunk& c, const Reals& U) {
    Reals out(U.size(), 0);
    for (std::size_t i = 0; i < c.rows; ++i) {
        add_rows<double>(std::span(out).subspan(i * c.columns, c.columns), 1, std::span(c.P).subspan(i * c.rows, i + 1),
                         std::span(U).first((i + 1) * c.columns));
    }
    return out;
}

void add_read(const OpenChunk& c, Reals& out) {
    for (std::size_t i = 0; i < c.rows; ++i) add_row(out, c.read[i], c.QS, i, c.columns);
}

Reals out_of(const OpenChunk& c, const Reals& U) {
    Reals out = times_p(c, U);
    add_read(c, out);
    return out;
}

Reals state_after(const OpenChunk& c, const Reals& U) {
    Reals next(c.state);
    for (double& s : next) s *= c.keep;
    Reals factors(c.rows);
    for (std::size_t x = 0; x < c.dk; ++x) {
        for (std::size_t i = 0; i < c.rows; ++i) factors[i] = c.insert[i] * c.keys[i * c.dk + x];
        add_rows<double>(std::span(next).subspan(x * c.columns, c.columns), 1, std::span<const double>(factors),
                         std::span<const double>(U));
    }
    return next;
}

}  // namespace gdnctl::oracle
