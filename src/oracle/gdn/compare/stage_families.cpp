// Classes of changes, at least one per stage: a factor for each token, dimension or distance, without any assumption
// about its cause.
#include <algorithm>
#include <cmath>
#include <memory>

#include "oracle/gdn/compare/stage_fit.h"

namespace gdnctl::oracle {

namespace {

using Stages = std::vector<std::string>;
using Index = std::size_t;
using Nudge = std::function<void(OpenChunk&, const FitPlace&, Index, double)>;

Index tokens_of(const FitPlace& p) { return p.base.rows; }
Index twice_tokens_of(const FitPlace& p) { return 2 * p.base.rows; }
Index keys_of(const FitPlace& p) { return p.base.dk; }
Index one_of(const FitPlace&) { return 1; }

constexpr Index k_degrees = 10;
Index degrees_of(const FitPlace& p) { return p.base.rows < 3 ? 0 : k_degrees; }

constexpr Index k_blocks = 8;  // in each direction
Index blocks_of(const FitPlace& p) { return p.base.rows < 2 * k_blocks ? 0 : k_blocks * (k_blocks + 1) / 2; }

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
    void add(Stages stages, std::string what, Index (*count)(const FitPlace&), Nudge nudge, bool carries = false) {
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
        add({"wu", "beta"}, "V in the right-hand side has a factor of its own in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) { c.write[i] += d * p.base.write[i]; });
        add({"wu", "gate"}, "K S in the right-hand side has a factor of its own in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) { c.forget[i] += d * p.base.forget[i]; });
        add({"wu", "beta"}, "the right-hand side has a factor of its own in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) {
                c.write[i] += d * p.base.write[i];
                c.forget[i] += d * p.base.forget[i];
            });
        add({"beta", "wu"}, "beta has a factor of its own in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) {
                c.write[i] += d * p.base.write[i];
                c.forget[i] += d * p.base.forget[i];
                row(c.M, p.base.M, c.rows, i, d);
            });
        add({"output", "gate"}, "Q S has a factor of its own in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) { c.read[i] += d * p.base.read[i]; });
        add({"l2norm", "output", "scale"}, "q (or out) has a factor of its own in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) {
                c.read[i] += d * p.base.read[i];
                row(c.P, p.base.P, c.rows, i, d);
            });
        add({"l2norm", "layout"}, "k has a factor of its own in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace&, Index i, double d) { scale_key(c, i, std::exp(d)); });
        add({"l2norm", "layout"}, "q and k each have factors of their own in some tokens", twice_tokens_of,
            [](OpenChunk& c, const FitPlace&, Index number, double d) {
                if (number >= c.rows) return scale_key(c, number - c.rows, std::exp(d));
                c.read[number] *= std::exp(d);
                for (Index j = 0; j < c.rows; ++j) c.P[number * c.rows + j] *= std::exp(d);
            });
        add({"wu", "solve"}, "U has a factor of its own in some tokens, once it is solved for", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) {
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
            [](OpenChunk& c, const FitPlace&, Index i, double d) {
                shift_rows(c.M, c.rows, i, d);
                shift_rows(c.P, c.rows, i, d);
                c.forget[i] *= std::exp(d);
                c.read[i] *= std::exp(d);
                shift_write(c, i, d);
            });
        m_all.back().scans = true;
        add({"gate", "decay"}, "the sums of gates are others in some tokens, but not where the chunk writes", tokens_of,
            [](OpenChunk& c, const FitPlace&, Index i, double d) {
                shift_rows(c.M, c.rows, i, d);
                shift_rows(c.P, c.rows, i, d);
                c.forget[i] *= std::exp(d);
                c.read[i] *= std::exp(d);
            });
        add({"gate", "decay"}, "the decay from the chunk's start is another in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) {
                c.forget[i] += d * p.base.forget[i];
                c.read[i] += d * p.base.read[i];
            });
        add({"decay", "gate"}, "Gamma is built from other sums of gates in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace&, Index i, double d) {
                shift_rows(c.M, c.rows, i, d);
                shift_rows(c.P, c.rows, i, d);
            });
        add({"decay", "solve"}, "Gamma of M is built from other sums of gates in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace&, Index i, double d) { shift_rows(c.M, c.rows, i, d); });
        add({"decay", "intra"}, "Gamma of P is built from other sums of gates in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace&, Index i, double d) { shift_rows(c.P, c.rows, i, d); });
    }

    // Factors on the entries of M, of P, or of both: of(place, i, j, number).
    template <class Of>
    void entries(Index (*count)(const FitPlace&), const std::string& how, const Of& of) {
        const auto change = [of](Reals& matrix, const Reals& base, const FitPlace& p, Index number, double d) {
            const Index n = p.base.rows;
            for (Index i = 0; i < n; ++i) {
                for (Index j = 0; j <= i; ++j) matrix[i * n + j] += d * base[i * n + j] * of(p, i, j, number);
            }
        };
        add({"solve", "decay"}, "M has a factor " + how, count,
            [change](OpenChunk& c, const FitPlace& p, Index i, double d) { change(c.M, p.base.M, p, i, d); });
        add({"intra", "decay"}, "P has a factor " + how, count,
            [change](OpenChunk& c, const FitPlace& p, Index i, double d) { change(c.P, p.base.P, p, i, d); });
        add({"decay", "gate"}, "M and P have a factor " + how, count,
            [change](OpenChunk& c, const FitPlace& p, Index i, double d) {
                change(c.M, p.base.M, p, i, d);
                change(c.P, p.base.P, p, i, d);
            });
    }

    void matrices() {
        add({"solve", "beta"}, "rows of M have a factor of their own", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) { row(c.M, p.base.M, c.rows, i, d); });
        add({"solve", "wu"}, "columns of M have a factor of their own", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) { column(c.M, p.base.M, c.rows, i, d); });
        add({"intra", "output"}, "rows of P have a factor of their own", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) { row(c.P, p.base.P, c.rows, i, d); });
        add({"intra", "output"}, "columns of P have a factor of their own", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) { column(c.P, p.base.P, c.rows, i, d); });
        entries(tokens_of, "that depends on the distance of two tokens",
                [](const FitPlace&, Index i, Index j, Index lag) { return i - j == lag ? 1.0 : 0.0; });
        entries(blocks_of, "in some of its blocks", [](const FitPlace& p, Index i, Index j, Index block) {
            const Index a = i * k_blocks / p.base.rows;
            const Index b = j * k_blocks / p.base.rows;
            return a * (a + 1) / 2 + b == block ? 1.0 : 0.0;
        });
        entries(degrees_of, "that depends on the decay between two tokens",
                [](const FitPlace& p, Index i, Index j, Index degree) {
                    const Reals& sum = p.parts.sum;
                    const auto [low, high] = std::minmax_element(sum.begin(), sum.end());
                    const double x = *high > *low ? (sum[i] - sum[j]) / (*high - *low) : 0;
                    return std::cos(static_cast<double>(degree) * std::acos(std::clamp(x, -1.0, 1.0)));
                });
    }

    static void outer(Reals& matrix, const FitPlace& p, const double* a, const double* b, Index x, double d,
                      bool of_p) {
        const Index n = p.base.rows;
        for (Index i = 0; i < n; ++i) {
            const double left = d * a[i * p.base.dk + x] * (of_p ? p.parts.scale() : p.parts.beta(i));
            for (Index j = 0; j < i + (of_p ? 1 : 0); ++j)
                matrix[i * n + j] += left * b[j * p.base.dk + x] * p.parts.decay(i, j);
        }
    }
    static void through_state(Reals& rows, const FitPlace& p, const double* keys, Index x, double d) {
        const Index width = p.base.columns;
        for (Index i = 0; i < p.base.rows; ++i) {
            const double key = d * keys[i * p.base.dk + x];
            for (Index j = 0; j < width; ++j) rows[i * width + j] += key * p.base.state[x * width + j];
        }
    }
    static void written(OpenChunk& c, const FitPlace& p, Index x, double d) {
        for (Index i = 0; i < c.rows; ++i) c.keys[i * c.dk + x] += d * p.base.keys[i * c.dk + x];
    }

    // Changes the factor on dimension x of k, or of q and k, by d.
    static void scale_dimension(OpenChunk& c, const FitPlace& p, Index x, double d, bool of_q) {
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
        add({"layout", "l2norm", "head_map"}, "dimensions of k have a factor of their own", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) { scale_dimension(c, p, x, d, false); });
        add({"l2norm", "layout", "head_map"}, "dimensions of q and k have a factor of their own", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) { scale_dimension(c, p, x, d, true); });
        add({"layout", "l2norm", "head_map"}, "dimensions of q have a factor of their own", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) {
                through_state(c.QS, p, p.q, x, d);
                outer(c.P, p, p.q, p.k, x, d, true);
            });
        add({"output", "layout"}, "dimensions of q have a factor of their own in Q S", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) { through_state(c.QS, p, p.q, x, d); });
        add({"intra", "layout"}, "dimensions of q have a factor of their own in P", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) { outer(c.P, p, p.q, p.k, x, d, true); });
        add({"solve", "layout"}, "dimensions of k have a factor of their own in M", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) { outer(c.M, p, p.k, p.k, x, d, false); });
        add({"wu", "layout"}, "dimensions of k have a factor of their own in K S", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) { through_state(c.KS, p, p.k, x, d); });
        add({"carry", "wu"}, "rows of the state have a factor of their own where the chunk reads it", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) {
                through_state(c.QS, p, p.q, x, d);
                through_state(c.KS, p, p.k, x, d);
                for (Index j = 0; j < c.columns; ++j) c.state[x * c.columns + j] += d * p.base.state[x * c.columns + j];
            });
    }

    void carries() {
        add(
            {"carry", "decay"}, "what the chunk writes has a factor of its own in some tokens", tokens_of,
            [](OpenChunk& c, const FitPlace& p, Index i, double d) { c.insert[i] += d * p.base.insert[i]; }, true);
        add(
            {"carry", "decay"}, "the state's decay over the chunk is another", one_of,
            [](OpenChunk& c, const FitPlace& p, Index, double d) { c.keep += d * p.base.keep; }, true);
        add(
            {"carry", "decay"}, "the state after the chunk has a factor", one_of,
            [](OpenChunk& c, const FitPlace& p, Index, double d) {
                c.keep += d * p.base.keep;
                for (Index i = 0; i < c.rows; ++i) c.insert[i] += d * p.base.insert[i];
            },
            true);
        add(
            {"carry", "layout"}, "dimensions of k have a factor of their own in what the chunk writes", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) { written(c, p, x, d); }, true);
        add(
            {"carry", "layout"}, "rows of the state that is kept have a factor of their own", keys_of,
            [](OpenChunk& c, const FitPlace& p, Index x, double d) {
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

}  // namespace gdnctl::oracle
