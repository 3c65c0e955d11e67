// The classes of changes that the stage search tries: factors on terms, and values that were moved, omitted or rounded.
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "oracle/gdn/compare/stage_search.h"
#include "oracle/judge/linear_algebra.h"

namespace gdnctl::oracle {

Reals damped_solution(const std::vector<Reals>& a, const Reals& b, double damping, double* log_determinant) {
    const std::size_t n = b.size();
    double largest = 0;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, a[i][i]);
    if (!(largest > 0) || !std::isfinite(largest)) return {};
    std::vector<Reals> l(n, Reals(n, 0));
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            double sum = a[i][j] - inner(std::span(l[i]).first(j), std::span(l[j]).first(j));
            if (i == j) {
                sum += damping * a[i][i] + 1e-13 * largest;
                if (!(sum > 0)) return {};
                l[i][i] = std::sqrt(sum);
                if (log_determinant != nullptr) *log_determinant += std::log(sum);
            } else {
                l[i][j] = sum / l[j][j];
            }
        }
    }
    Reals x = b;
    for (std::size_t i = 0; i < n; ++i)
        x[i] = (x[i] - inner(std::span(l[i]).first(i), std::span(x).first(i))) / l[i][i];
    for (std::size_t i = n; i-- > 0;) {
        for (std::size_t j = i + 1; j < n; ++j) x[i] -= l[j][i] * x[j];
        x[i] /= l[i][i];
    }
    return x;
}

namespace {

class Fitter {
public:
    Fitter(const Family& family, const Section& s, std::size_t index, const Reals& state)
        : m_family(family),
          m_s(s),
          m_index(index),
          m_base(s.honest[index]),
          m_place{m_base, s.parts[index], s.head.q.data() + s.parts[index].first * s.head.dk,
                  s.head.k.data() + s.parts[index].first * s.head.dk} {
        if (state != m_base.state) {
            const KeyUses uses = key_uses(s.head, s.parts[index].first, m_base.rows);
            m_base.KS = product(uses.key_state, state, m_base.dk, m_base.columns);
            m_base.QS = product(uses.query_state, state, m_base.dk, m_base.columns);
            m_base.state = state;
        }
    }

    std::optional<Explanation> run() {
        const std::size_t count = m_family.count(m_place);
        const double before = rms_of(errors_of(m_base));
        if (count == 0 || count > k_most || !(before > 0) || !std::isfinite(before)) return std::nullopt;
        OpenChunk c = m_base;
        Reals numbers(count, 0);
        double after = stepped(c, numbers, before);
        if (!explains(before, after) && m_family.scans) {
            c = m_base;
            numbers.assign(count, 0);
            scan(c, numbers);
            after = stepped(c, numbers, before);
        }
        if (!explains(before, after)) return std::nullopt;
        const Reals U = solved(c, right_hand_side(c));
        Explanation e{before, after, 0, state_after(c, U), {}};
        describe(numbers, e);
        return e;
    }

private:
    static constexpr int k_steps = 14;
    static constexpr std::size_t k_most = 256;

    Reals errors_of(const OpenChunk& c) const {
        const Reals U = solved(c, right_hand_side(c));
        if (m_family.carries && m_index + 1 < m_s.parts.size())
            return honest_errors(m_s, m_index + 1, state_after(c, U));
        Reals errors;
        if (!m_family.carries && !m_s.out.empty()) add_out_errors(m_s, m_index, out_of(c, U), errors);
        if (m_s.knows_state_after(m_index)) add_state_errors(m_s, state_after(c, U), errors);
        return errors;
    }

    // Takes steps from c while they help. Returns the remaining error.
    double stepped(OpenChunk& c, Reals& numbers, double before) const {
        Reals errors = errors_of(c);
        double now = rms_of(errors);
        double damping = 0;
        for (int step = 0; step < k_steps; ++step) {
            const double last = now;
            if (!improve(c, errors, now, numbers, damping)) break;
            const bool hopeless = (step >= 2 && now > 0.6 * before) || (step >= 5 && now > 0.2 * before);
            if (hopeless || now < 0.05 || (now > 0.9 * last && explains(before, now))) break;
        }
        return now;
    }

    // Finds each token's number from its own row of out, given those before it.
    void scan(OpenChunk& c, Reals& numbers) const {
        const auto row_error = [&](const OpenChunk& tried, std::size_t i) {
            Reals errors;
            add_out_errors(m_s, m_index, out_of(tried, solved(tried, right_hand_side(tried))), errors);
            return rms_of({errors.begin() + static_cast<std::ptrdiff_t>(i * c.columns),
                           errors.begin() + static_cast<std::ptrdiff_t>((i + 1) * c.columns)});
        };
        for (std::size_t i = 0; i < c.rows && !m_s.out.empty(); ++i) {
            double best = row_error(c, i);
            const OpenChunk start = c;
            double number = 0;
            const auto try_at = [&](double d) {
                OpenChunk tried = start;
                m_family.nudge(tried, m_place, i, d);
                const double error = row_error(tried, i);
                if (!(error < best)) return false;
                best = error;
                number = d;
                c = std::move(tried);
                return true;
            };
            for (double d = 0.05; d < 20 && best > 1; d *= 1.6) {
                try_at(d);
                try_at(-d);
            }
            double step = 0.25 * std::fabs(number);
            for (int more = 0; more < 24 && step > 0 && best > 1; ++more) {
                if (!try_at(number + step) && !try_at(number - step)) step /= 2.5;
            }
            numbers[i] += number;
        }
    }

    // One step. false: no step improves it.
    bool improve(OpenChunk& c, Reals& errors, double& now, Reals& numbers, double& damping) const {
        const std::size_t count = numbers.size();
        constexpr double k_small = 1e-6;
        std::vector<Reals> slopes(count);
        for (std::size_t i = 0; i < count; ++i) {
            OpenChunk near = c;
            m_family.nudge(near, m_place, i, k_small);
            slopes[i] = errors_of(near);
            scale_difference(slopes[i], errors, 1 / k_small);
        }
        std::vector<Reals> a(count, Reals(count));
        Reals b(count);
        for (std::size_t i = 0; i < count; ++i) {
            b[i] = -inner(slopes[i], errors);
            for (std::size_t j = 0; j <= i; ++j) a[i][j] = a[j][i] = inner(slopes[i], slopes[j]);
        }
        for (int attempt = 0; attempt < 6; ++attempt) {
            const Reals step = damped_solution(a, b, damping);
            if (step.empty()) return false;
            OpenChunk moved = c;
            for (std::size_t i = 0; i < count; ++i) m_family.nudge(moved, m_place, i, step[i]);
            Reals left = errors_of(moved);
            const double after = rms_of(left);
            if (after < now) {
                c = std::move(moved);
                errors = std::move(left);
                now = after;
                for (std::size_t i = 0; i < count; ++i) numbers[i] += step[i];
                damping = damping < 1e-9 ? 0 : damping / 10;
                return true;
            }
            damping = std::max(damping * 10, 1e-4);
        }
        return false;
    }

    void describe(const Reals& numbers, Explanation& e) const {
        const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
        const double largest = std::max(std::fabs(*low), std::fabs(*high));
        const auto moved =
            std::count_if(numbers.begin(), numbers.end(), [&](double x) { return std::fabs(x) > 1e-3 * largest; });
        e.numbers = *high - *low < 1e-3 * largest ? 1 : static_cast<std::size_t>(moved);
        e.text = m_family.what;
    }

    const Family& m_family;
    const Section& m_s;
    std::size_t m_index;
    OpenChunk m_base;
    FitInputs m_place;
};

}  // namespace

std::optional<Explanation> fit(const Family& family, const Section& s, std::size_t index, const Reals& state) {
    return Fitter(family, s, index, state).run();
}

// Classes of changes, at least one per stage: a factor for each token, dimension or distance, without any assumption
// about its cause.

namespace {

using Stages = std::vector<std::string>;
using Index = std::size_t;
using Nudge = std::function<void(OpenChunk&, const FitInputs&, Index, double)>;

Index tokens_of(const FitInputs& p) { return p.base.rows; }
Index twice_tokens_of(const FitInputs& p) { return 2 * p.base.rows; }
Index keys_of(const FitInputs& p) { return p.base.dk; }
Index one_of(const FitInputs&) { return 1; }

constexpr Index k_degrees = 10;
Index degrees_of(const FitInputs& p) { return p.base.rows < 3 ? 0 : k_degrees; }

constexpr Index k_blocks = 8;  // in each direction
Index blocks_of(const FitInputs& p) { return p.base.rows < 2 * k_blocks ? 0 : k_blocks * (k_blocks + 1) / 2; }

class Families {
public:
    std::vector<Family> all() {
        tokens();
        gates();
        matrices();
        dimensions();
        carries();
        return std::move(m_all);
    }

private:
    void add(Stages stages, std::string what, Index (*count)(const FitInputs&), Nudge nudge, bool carries = false) {
        m_all.push_back({std::move(stages), std::move(what), count, std::move(nudge), carries});
    }
    static void row(Reals& matrix, const Reals& base, Index n, Index i, double d) {
        for (Index j = 0; j < n; ++j) matrix[i * n + j] += d * base[i * n + j];
    }
    static void column(Reals& matrix, const Reals& base, Index n, Index j, double d) {
        for (Index i = 0; i < n; ++i) matrix[i * n + j] += d * base[i * n + j];
    }

    static void scale_key(OpenChunk& c, Index i, double factor) {
        c.forget[i] *= factor;
        c.insert[i] *= factor;
        for (Index j = 0; j < c.rows; ++j) {
            c.M[i * c.rows + j] *= factor;
            c.M[j * c.rows + i] *= factor;
            c.P[j * c.rows + i] *= factor;
        }
    }

    void tokens() {
        add({"wu", "beta"}, "V in the right-hand side has an extra factor in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) { c.write[i] += d * p.base.write[i]; });
        add({"wu", "gate"}, "K S in the right-hand side has an extra factor in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) { c.forget[i] += d * p.base.forget[i]; });
        add({"wu", "beta"}, "the right-hand side has an extra factor in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) {
                c.write[i] += d * p.base.write[i];
                c.forget[i] += d * p.base.forget[i];
            });
        add({"beta", "wu"}, "beta has an extra factor in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) {
                c.write[i] += d * p.base.write[i];
                c.forget[i] += d * p.base.forget[i];
                row(c.M, p.base.M, c.rows, i, d);
            });
        add({"output", "gate"}, "Q S has an extra factor in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) { c.read[i] += d * p.base.read[i]; });
        add({"l2norm", "output", "scale"}, "q (or out) has an extra factor in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) {
                c.read[i] += d * p.base.read[i];
                row(c.P, p.base.P, c.rows, i, d);
            });
        add({"l2norm", "layout"}, "k has an extra factor in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs&, Index i, double d) { scale_key(c, i, std::exp(d)); });
        add({"l2norm", "layout"}, "q and k each have extra factors in some tokens", twice_tokens_of,
            [](OpenChunk& c, const FitInputs&, Index number, double d) {
                if (number >= c.rows) return scale_key(c, number - c.rows, std::exp(d));
                c.read[number] *= std::exp(d);
                for (Index j = 0; j < c.rows; ++j) c.P[number * c.rows + j] *= std::exp(d);
            });
        add({"wu", "solve"}, "U has an extra factor in some tokens after the solve", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) {
                column(c.P, p.base.P, c.rows, i, d);
                c.insert[i] += d * p.base.insert[i];
            });
    }

    // Adds d to the sum of gates at row i in the Gamma of M or of P.
    static void shift_rows(Reals& matrix, Index n, Index i, double d) {
        const double up = std::exp(d);
        for (Index j = 0; j < i; ++j) matrix[i * n + j] *= up;
        for (Index j = i + 1; j < n; ++j) matrix[j * n + i] /= up;
    }
    static void shift_write(OpenChunk& c, Index i, double d) {
        c.insert[i] *= std::exp(-d);
        if (i + 1 != c.rows) return;
        c.keep *= std::exp(d);
        for (double& x : c.insert) x *= std::exp(d);
    }

    void gates() {
        add({"gate", "decay"}, "the sums of gates are others in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs&, Index i, double d) {
                shift_rows(c.M, c.rows, i, d);
                shift_rows(c.P, c.rows, i, d);
                c.forget[i] *= std::exp(d);
                c.read[i] *= std::exp(d);
                shift_write(c, i, d);
            });
        m_all.back().scans = true;
        add({"gate", "decay"}, "the sums of gates are others in some tokens, but not where the chunk writes", tokens_of,
            [](OpenChunk& c, const FitInputs&, Index i, double d) {
                shift_rows(c.M, c.rows, i, d);
                shift_rows(c.P, c.rows, i, d);
                c.forget[i] *= std::exp(d);
                c.read[i] *= std::exp(d);
            });
        add({"gate", "decay"}, "the decay from the chunk's start is another in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) {
                c.forget[i] += d * p.base.forget[i];
                c.read[i] += d * p.base.read[i];
            });
        add({"decay", "gate"}, "Gamma is built from other sums of gates in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs&, Index i, double d) {
                shift_rows(c.M, c.rows, i, d);
                shift_rows(c.P, c.rows, i, d);
            });
        add({"decay", "solve"}, "Gamma of M is built from other sums of gates in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs&, Index i, double d) { shift_rows(c.M, c.rows, i, d); });
        add({"decay", "intra"}, "Gamma of P is built from other sums of gates in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs&, Index i, double d) { shift_rows(c.P, c.rows, i, d); });
    }

    // Factors on the entries of M, of P, or of both: of(place, i, j, number).
    template <class Of>
    void entries(Index (*count)(const FitInputs&), const std::string& how, const Of& of) {
        const auto change = [of](Reals& matrix, const Reals& base, const FitInputs& p, Index number, double d) {
            const Index n = p.base.rows;
            for (Index i = 0; i < n; ++i) {
                for (Index j = 0; j <= i; ++j) matrix[i * n + j] += d * base[i * n + j] * of(p, i, j, number);
            }
        };
        add({"solve", "decay"}, "M has a factor " + how, count,
            [change](OpenChunk& c, const FitInputs& p, Index i, double d) { change(c.M, p.base.M, p, i, d); });
        add({"intra", "decay"}, "P has a factor " + how, count,
            [change](OpenChunk& c, const FitInputs& p, Index i, double d) { change(c.P, p.base.P, p, i, d); });
        add({"decay", "gate"}, "M and P have a factor " + how, count,
            [change](OpenChunk& c, const FitInputs& p, Index i, double d) {
                change(c.M, p.base.M, p, i, d);
                change(c.P, p.base.P, p, i, d);
            });
    }

    void matrices() {
        add({"solve", "beta"}, "rows of M have an extra factor each", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) { row(c.M, p.base.M, c.rows, i, d); });
        add({"solve", "wu"}, "columns of M have an extra factor each", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) { column(c.M, p.base.M, c.rows, i, d); });
        add({"intra", "output"}, "rows of P have an extra factor each", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) { row(c.P, p.base.P, c.rows, i, d); });
        add({"intra", "output"}, "columns of P have an extra factor each", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) { column(c.P, p.base.P, c.rows, i, d); });
        entries(tokens_of, "that depends on the distance of two tokens",
                [](const FitInputs&, Index i, Index j, Index lag) { return i - j == lag ? 1.0 : 0.0; });
        entries(blocks_of, "in some of its blocks", [](const FitInputs& p, Index i, Index j, Index block) {
            const Index a = i * k_blocks / p.base.rows;
            const Index b = j * k_blocks / p.base.rows;
            return a * (a + 1) / 2 + b == block ? 1.0 : 0.0;
        });
        entries(degrees_of, "that depends on the decay between two tokens",
                [](const FitInputs& p, Index i, Index j, Index degree) {
                    const Reals& sum = p.parts.sum;
                    const auto [low, high] = std::minmax_element(sum.begin(), sum.end());
                    const double x = *high > *low ? (sum[i] - sum[j]) / (*high - *low) : 0;
                    return std::cos(static_cast<double>(degree) * std::acos(std::clamp(x, -1.0, 1.0)));
                });
    }

    static void outer(Reals& matrix, const FitInputs& p, const double* a, const double* b, Index x, double d,
                      bool of_p) {
        const Index n = p.base.rows;
        for (Index i = 0; i < n; ++i) {
            const double left = d * a[i * p.base.dk + x] * (of_p ? p.parts.scale() : p.parts.beta(i));
            for (Index j = 0; j < i + (of_p ? 1 : 0); ++j)
                matrix[i * n + j] += left * b[j * p.base.dk + x] * p.parts.decay(i, j);
        }
    }
    static void through_state(Reals& rows, const FitInputs& p, const double* keys, Index x, double d) {
        const Index width = p.base.columns;
        for (Index i = 0; i < p.base.rows; ++i) {
            const double key = d * keys[i * p.base.dk + x];
            for (Index j = 0; j < width; ++j) rows[i * width + j] += key * p.base.state[x * width + j];
        }
    }
    static void written(OpenChunk& c, const FitInputs& p, Index x, double d) {
        for (Index i = 0; i < c.rows; ++i) c.keys[i * c.dk + x] += d * p.base.keys[i * c.dk + x];
    }

    // Changes the factor on dimension x of k, or of q and k, by d.
    static void scale_dimension(OpenChunk& c, const FitInputs& p, Index x, double d, bool of_q) {
        Index row = 0;
        for (Index i = 1; i < c.rows; ++i) {
            if (std::fabs(p.k[i * c.dk + x]) > std::fabs(p.k[row * c.dk + x])) row = i;
        }
        if (p.k[row * c.dk + x] == 0) return;
        const double before = c.keys[row * c.dk + x] / p.k[row * c.dk + x];
        const double squares = d * (2 * before + d);
        outer(c.M, p, p.k, p.k, x, squares, false);
        outer(c.P, p, p.q, p.k, x, of_q ? squares : d, true);
        through_state(c.KS, p, p.k, x, d);
        if (of_q) through_state(c.QS, p, p.q, x, d);
        written(c, p, x, d);
    }

    void dimensions() {
        add({"layout", "l2norm", "head_map"}, "dimensions of k have an extra factor each", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) { scale_dimension(c, p, x, d, false); });
        add({"l2norm", "layout", "head_map"}, "dimensions of q and k have an extra factor each", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) { scale_dimension(c, p, x, d, true); });
        add({"layout", "l2norm", "head_map"}, "dimensions of q have an extra factor each", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) {
                through_state(c.QS, p, p.q, x, d);
                outer(c.P, p, p.q, p.k, x, d, true);
            });
        add({"output", "layout"}, "dimensions of q have an extra factor each in Q S", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) { through_state(c.QS, p, p.q, x, d); });
        add({"intra", "layout"}, "dimensions of q have an extra factor each in P", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) { outer(c.P, p, p.q, p.k, x, d, true); });
        add({"solve", "layout"}, "dimensions of k have an extra factor each in M", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) { outer(c.M, p, p.k, p.k, x, d, false); });
        add({"wu", "layout"}, "dimensions of k have an extra factor each in K S", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) { through_state(c.KS, p, p.k, x, d); });
        add({"carry", "wu"}, "rows of the state have an extra factor each where the chunk reads it", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) {
                through_state(c.QS, p, p.q, x, d);
                through_state(c.KS, p, p.k, x, d);
                for (Index j = 0; j < c.columns; ++j) c.state[x * c.columns + j] += d * p.base.state[x * c.columns + j];
            });
    }

    void carries() {
        add(
            {"carry", "decay"}, "what the chunk writes has an extra factor in some tokens", tokens_of,
            [](OpenChunk& c, const FitInputs& p, Index i, double d) { c.insert[i] += d * p.base.insert[i]; }, true);
        add(
            {"carry", "decay"}, "the state's decay over the chunk is another", one_of,
            [](OpenChunk& c, const FitInputs& p, Index, double d) { c.keep += d * p.base.keep; }, true);
        add(
            {"carry", "decay"}, "the state after the chunk has a factor", one_of,
            [](OpenChunk& c, const FitInputs& p, Index, double d) {
                c.keep += d * p.base.keep;
                for (Index i = 0; i < c.rows; ++i) c.insert[i] += d * p.base.insert[i];
            },
            true);
        add(
            {"carry", "layout"}, "dimensions of k have an extra factor each in what the chunk writes", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) { written(c, p, x, d); }, true);
        add(
            {"carry", "layout"}, "rows of the state that is kept have an extra factor each", keys_of,
            [](OpenChunk& c, const FitInputs& p, Index x, double d) {
                for (Index j = 0; j < c.columns; ++j) c.state[x * c.columns + j] += d * p.base.state[x * c.columns + j];
            },
            true);
    }

    std::vector<Family> m_all;
};

}  // namespace

std::vector<Suspicion> factor_suspicions() {
    std::vector<Suspicion> all;
    for (Family& family : Families().all()) {
        Suspicion s;
        s.stages = family.stages;
        s.carries = family.carries;
        const auto kept = std::make_shared<const Family>(std::move(family));
        s.attempt = [kept](const Section& section, std::size_t index, const Reals& state) {
            return fit(*kept, section, index, state);
        };
        all.push_back(std::move(s));
    }
    return all;
}

// Right values that were moved, shifted or rounded somewhere inside a chunk: tries every such change at every point.

namespace {

// A change of rows of `width` values.
struct Change {
    std::string what;
    std::function<void(Reals&, Index width)> apply;
    bool rounds = false;
    int tokens_on = 0;  // every row moves to the next token (1) or the previous one (-1)
};

template <class From>
Change columns_change(std::string what, const From& from) {
    return {std::move(what), [from](Reals& x, Index width) {
                const Reals old = x;
                for (Index at = 0; at < x.size(); ++at) x[at] = old[at - at % width + from(at % width, width)];
            }};
}

template <class From>
Change rows_change(std::string what, const From& from) {  // from(i, rows) == rows: none
    return {std::move(what), [from](Reals& x, Index width) {
                const Reals old = x;
                const Index rows = x.size() / width;
                for (Index at = 0; at < x.size(); ++at) {
                    const Index row = from(at / width, rows);
                    x[at] = row < rows ? old[row * width + at % width] : 0;
                }
            }};
}

// Within a row.
std::vector<Change> column_changes() {
    std::vector<Change> all;
    all.push_back(
        columns_change("has its halves exchanged", [](Index j, Index w) { return w % 2 != 0 ? j : (j + w / 2) % w; }));
    all.push_back(columns_change("has neighbouring dimensions exchanged",
                                 [](Index j, Index w) { return (j ^ 1U) < w ? j ^ 1U : j; }));
    all.push_back(columns_change("has its dimensions in reverse order", [](Index j, Index w) { return w - 1 - j; }));
    all.push_back(columns_change("has its dimensions one place on", [](Index j, Index w) { return (j + w - 1) % w; }));
    all.push_back(columns_change("has its dimensions one place back", [](Index j, Index w) { return (j + 1) % w; }));
    all.push_back(columns_change("has even and odd dimensions apart instead of in turn", [](Index j, Index w) {
        const Index half = (w + 1) / 2;
        return j < half ? 2 * j : 2 * (j - half) + 1;
    }));
    all.push_back(columns_change("has dimensions in turn that should be apart",
                                 [](Index j, Index w) { return j % 2 == 0 ? j / 2 : (w + 1) / 2 + j / 2; }));
    return all;
}

// Of whole rows.
std::vector<Change> row_changes() {
    std::vector<Change> all;
    all.push_back(rows_change("is that of the token before", [](Index i, Index n) { return i == 0 ? n : i - 1; }));
    all.back().tokens_on = 1;
    all.push_back(rows_change("is that of the next token", [](Index i, Index) { return i + 1; }));
    all.back().tokens_on = -1;
    all.push_back(rows_change("has the tokens of each pair exchanged",
                              [](Index i, Index n) { return (i ^ 1U) < n ? i ^ 1U : i; }));
    all.push_back(rows_change("has its tokens in reverse order", [](Index i, Index n) { return n - 1 - i; }));
    all.push_back(rows_change("has the halves of the chunk exchanged",
                              [](Index i, Index n) { return n % 2 != 0 ? i : (i + n / 2) % n; }));
    return all;
}

std::vector<Change> roundings() {
    std::vector<Change> all;
    for (const DType dtype : {DType::bf16, DType::f16}) {
        all.push_back({fmt::format("is rounded to {}", name_of(dtype)),
                       [dtype](Reals& x, Index) {
                           for (double& value : x) value = rounded_to(value, dtype);
                       },
                       true});
    }
    return all;
}

std::vector<Change> joined(std::vector<Change> a, const std::vector<Change>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

enum class Point { keys, M, P, v, KS, QS, rhs, U, U_read, U_written, PU, out, state_read, state };

// Where a change may be made, and the stage it belongs to.
struct Site {
    std::vector<std::string> stages;
    std::string name;
    Point point;
    std::vector<Reals KeyUses::*> uses;  // of Point::keys
    bool carries = false;
};

const std::vector<Site>& sites() {
    using K = KeyUses;
    static const std::vector<Site> k_all = {
        {{"layout", "head_map", "l2norm"}, "q", Point::keys, {&K::query_state, &K::query_gram}},
        {{"layout", "head_map", "l2norm"},
         "k",
         Point::keys,
         {&K::key_state, &K::key_solve, &K::key_intra, &K::key_write}},
        {{"output", "layout"}, "q in Q S", Point::keys, {&K::query_state}},
        {{"intra", "layout"}, "q in P", Point::keys, {&K::query_gram}},
        {{"wu", "layout"}, "k in K S", Point::keys, {&K::key_state}},
        {{"solve", "layout"}, "k in M", Point::keys, {&K::key_solve}},
        {{"intra", "layout"}, "k in P", Point::keys, {&K::key_intra}},
        {{"carry", "layout"}, "k in what is written to the state", Point::keys, {&K::key_write}, true},
        {{"solve", "decay"}, "M", Point::M, {}},
        {{"intra", "decay"}, "P", Point::P, {}},
        {{"wu", "layout"}, "v", Point::v, {}},
        {{"wu", "layout"}, "K S", Point::KS, {}},
        {{"output", "layout"}, "Q S", Point::QS, {}},
        {{"wu", "solve"}, "the right-hand side", Point::rhs, {}},
        {{"solve", "wu"}, "U", Point::U, {}},
        {{"intra", "output"}, "U in P U", Point::U_read, {}},
        {{"carry", "wu"}, "U in what is written to the state", Point::U_written, {}, true},
        {{"intra", "output"}, "P U", Point::PU, {}},
        {{"layout", "output", "tile"}, "out", Point::out, {}},
        {{"carry", "layout"}, "the state that the chunk reads", Point::state_read, {}},
        {{"carry", "layout"}, "the state after the chunk", Point::state, {}, true},
    };
    return k_all;
}

// One chunk with one change at one site.
class Moved {
public:
    Moved(const Section& s, Index index, const Site& site, const Change& change)
        : m_s(s), m_index(index), m_site(site), m_change(change), m_chunk(s.honest[index]) {}

    std::optional<Explanation> run(const Reals& state) {
        const Reals wrong = m_site.carries ? without(state) : Reals{};
        open(state);
        Reals U = solved(m_chunk, changed(right_hand_side(m_chunk), Point::rhs));
        U = changed(std::move(U), Point::U);
        Reals errors;
        Explanation e;
        if (!m_site.carries) {
            Reals out = changed(times_p(m_chunk, changed(U, Point::U_read)), Point::PU);
            add_read(m_chunk, out);
            if (!m_s.out.empty()) add_out_errors(m_s, m_index, changed(std::move(out), Point::out), errors);
        }
        e.state = changed(state_after(m_chunk, changed(std::move(U), Point::U_written)), Point::state);
        if (m_site.carries && m_index + 1 < m_s.parts.size()) {
            errors = honest_errors(m_s, m_index + 1, e.state);
        } else if (m_s.knows_state_after(m_index)) {
            add_state_errors(m_s, e.state, errors);
        }
        e.before = rms_of(m_site.carries ? wrong : honest_errors(m_s, m_index, state));
        e.after = rms_of(errors);
        const bool fits = m_change.rounds ? e.after <= e.before / 12 : explains(e.before, e.after);
        if (!(e.before > 0) || !fits) return std::nullopt;
        e.text = fmt::format("{} {}", m_site.name, m_change.what);
        return e;
    }

private:
    Reals without(const Reals& state) const {
        Reals after;
        honest_errors(m_s, m_index, state, &after);
        if (m_index + 1 < m_s.parts.size()) return honest_errors(m_s, m_index + 1, after);
        Reals errors;
        if (m_s.knows_state_after(m_index)) add_state_errors(m_s, after, errors);
        return errors;
    }

    Reals changed(Reals x, Point point) const {
        if (m_site.point == point)
            m_change.apply(x, point == Point::M || point == Point::P ? m_chunk.rows : m_chunk.columns);
        return x;
    }

    // The row that comes from the next chunk, or from the previous one.
    void add_neighbour(Reals& rows, const Reals& all, Index width) const {
        const Index first = m_s.parts[m_index].first;
        const auto take = [&](Index from, Index to) {
            std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                        rows.begin() + static_cast<std::ptrdiff_t>(to * width));
        };
        if (m_change.tokens_on == 1 && first > 0) take(first - 1, 0);
        const Index end = first + m_chunk.rows;
        if (m_change.tokens_on == -1 && end < m_s.head.tokens) take(end, m_chunk.rows - 1);
    }

    void open(const Reals& state) {
        const Reals read = changed(state, Point::state_read);
        KeyUses uses = key_uses(m_s.head, m_s.parts[m_index].first, m_chunk.rows);
        for (Reals KeyUses::* use : m_site.uses) {
            m_change.apply(uses.*use, m_chunk.dk);
            const bool of_q = use == &KeyUses::query_state || use == &KeyUses::query_gram;
            add_neighbour(uses.*use, of_q ? m_s.head.q : m_s.head.k, m_chunk.dk);
        }
        if (m_site.point == Point::keys) {
            m_chunk = open_chunk(m_s.parts[m_index], uses, read);
        } else if (read != m_chunk.state) {
            m_chunk.KS = product(uses.key_state, read, m_chunk.dk, m_chunk.columns);
            m_chunk.QS = product(uses.query_state, read, m_chunk.dk, m_chunk.columns);
            m_chunk.state = read;
        }
        m_chunk.M = changed(std::move(m_chunk.M), Point::M);
        m_chunk.P = changed(std::move(m_chunk.P), Point::P);
        m_chunk.v = changed(std::move(m_chunk.v), Point::v);
        if (m_site.point == Point::v) add_neighbour(m_chunk.v, m_s.head.v, m_chunk.columns);
        m_chunk.KS = changed(std::move(m_chunk.KS), Point::KS);
        m_chunk.QS = changed(std::move(m_chunk.QS), Point::QS);
    }

    const Section& m_s;
    Index m_index;
    const Site& m_site;
    const Change& m_change;
    OpenChunk m_chunk;
};

}  // namespace

std::vector<Suspicion> move_suspicions() {
    static const std::vector<Change> k_columns_rows = joined(joined(column_changes(), row_changes()), roundings());
    static const std::vector<Change> k_states = joined(column_changes(), roundings());
    static const std::vector<Change> k_roundings = roundings();
    std::vector<Suspicion> all;
    for (const Site& site : sites()) {
        const bool matrix = site.point == Point::M || site.point == Point::P;
        const bool state = site.point == Point::state || site.point == Point::state_read;
        for (const Change& change : matrix ? k_roundings : state ? k_states : k_columns_rows) {
            Suspicion s;
            s.stages = site.stages;
            if (change.rounds) s.stages.insert(s.stages.begin(), "rounding");
            s.carries = site.carries;
            s.all_columns = true;
            s.attempt = [&site, &change](const Section& section, std::size_t index, const Reals& before) {
                return Moved(section, index, site, change).run(before);
            };
            all.push_back(std::move(s));
        }
    }
    return all;
}

}  // namespace gdnctl::oracle
