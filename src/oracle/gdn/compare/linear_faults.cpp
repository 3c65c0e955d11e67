// Faults with a linear effect, found by least squares: factors on the terms of a chunk, and another initial state.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "oracle/gdn/compare/head.h"
#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/gdn/compare/localise.h"
#include "oracle/judge/linear_algebra.h"

namespace gdnctl::oracle {

namespace {

double dot(const Reals& a, const Reals& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

// A factor inside the chunk. `state` ones show in the following chunk.
struct Family {
    const char* stage;
    const char* other;
    const char* what;
    void (*apply)(ChunkParts& c, double factor);
};

constexpr Family k_families[] = {
    {"solve", "decay", "M",
     [](ChunkParts& c, double f) {
         for (double& m : c.M) m *= f;
     }},
    {"carry", "wu", "what a chunk writes to the state",
     [](ChunkParts& c, double f) {
         for (double& x : c.insert) x *= f;
     }},
    {"carry", "decay", "the state's decay over a chunk", [](ChunkParts& c, double f) { c.keep *= f; }},
    {"beta", "wu", "beta",
     [](ChunkParts& c, double f) {
         for (auto* x : {&c.M, &c.write, &c.forget}) {
             for (double& value : *x) value *= f;
         }
     }},
    {"wu", "beta", "U before it is solved for",
     [](ChunkParts& c, double f) {
         for (auto* x : {&c.write, &c.forget}) {
             for (double& value : *x) value *= f;
         }
     }},
};

class Coefficients {
public:
    Coefficients(const GdnReference& r, const ForwardEvidence& evidence, const HeadErrors& errors)
        : m_r(r),
          m_out(*evidence.out),
          m_heads(static_cast<std::size_t>(r.problem.dims.Hv)),
          m_dv(static_cast<std::size_t>(r.problem.dims.dv)),
          m_chunk(static_cast<std::size_t>(r.contract.value.chunk)),
          m_sequence(static_cast<std::size_t>(errors.sequence)),
          m_head(static_cast<std::size_t>(errors.head)) {
        for (std::size_t j = 0; j < m_dv; j += std::max<std::size_t>(1, m_dv / 16)) m_columns.push_back(j);
        while (m_first < errors.chunks.size() && errors.chunks[m_first] <= k_ok_band) ++m_first;
        m_state_wrong = errors.final_state && !(*errors.final_state <= k_ok_band);
    }

    std::optional<Diagnosis> run() {
        load(m_first, 1);
        if (auto d = terms()) return d;
        for (const Family& family : k_families) {
            if (auto d = factor(family, m_first)) return d;
        }
        if (m_first == 0) return std::nullopt;
        load(m_first - 1, 2);
        for (const Family& family : k_families) {
            if (auto d = factor(family, m_first - 1)) return d;
        }
        return std::nullopt;
    }

private:
    // Loads the head's chunks [first, first + count), and the dump's values for them.
    void load(std::size_t first, std::size_t count) {
        const GdnSequence s = m_r.problem.sequences[m_sequence];
        const auto length = static_cast<std::size_t>(s.end - s.begin);
        const HeadSlice place{
            &m_r, m_sequence, m_head, first * m_chunk, std::min(count * m_chunk, length - first * m_chunk), m_columns};
        const auto key = key_head_of(static_cast<std::int64_t>(m_head), m_r.problem.dims, m_r.contract.value.head_map);
        m_prepared = prepare_head(head_inputs(place, static_cast<std::size_t>(key), m_chunk, state_before(place)),
                                  m_r.contract.value);
        m_target.clear();
        m_before = 0;
        for (std::size_t t = 0; t < place.tokens; ++t) {
            const std::size_t row = static_cast<std::size_t>(s.begin) + place.begin + t;
            for (const std::size_t j : m_columns) {
                const std::size_t at = (row * m_heads + m_head) * m_dv + j;
                m_target.push_back((*m_out.got)[at]);
                const double error = (*m_out.got)[at] - (*m_out.want)[at];
                m_before += error * error;
            }
        }
    }

    Reals act(const ChunkEdit& edit) const { return run_head<double>(m_prepared, edit).out; }

    double distance(const Reals& computed) const {
        double sum = 0;
        for (std::size_t i = 0; i < m_target.size(); ++i)
            sum += (m_target[i] - computed[i]) * (m_target[i] - computed[i]);
        return sum;
    }

    bool explains(double after) const {
        const double budget = k_ok_band * m_out.budgets[m_sequence * m_heads + m_head].rms;
        const double honest = budget * budget * static_cast<double>(m_target.size());
        const double near = std::pow(k_wrong_band / k_ok_band, 2) * honest;
        return after <= std::max(std::min(near, m_before / 1e4), std::min(honest, m_before / 9));
    }

    static Diagnosis named(std::vector<std::string> stages, const std::string& text) {
        Diagnosis d{stages.front(), {}, {{stages.front(), "matches if " + text, 100}}};
        d.stages = std::move(stages);
        return d;
    }

    // out = f0 Q S + f1 (P below its diagonal) U + f2 (its diagonal) U; or U from f1 V - f2 K S.
    std::optional<Diagnosis> terms() const {
        const auto no_read = [](ChunkParts& c) { std::fill(c.read.begin(), c.read.end(), 0.0); };
        const auto part_of_p = [&](bool diagonal) {
            return act([&, diagonal](ChunkParts& c) {
                no_read(c);
                for (std::size_t i = 0; i < c.P.size(); ++i) {
                    if ((i / c.rows == i % c.rows) != diagonal) c.P[i] = 0;
                }
            });
        };
        const Reals inter = act([](ChunkParts& c) { std::fill(c.P.begin(), c.P.end(), 0.0); });
        const auto without = [&](std::vector<double> ChunkParts::* rows) {
            return act([&, rows](ChunkParts& c) {
                no_read(c);
                std::fill((c.*rows).begin(), (c.*rows).end(), 0.0);
            });
        };
        const auto moved = [](double factor) { return std::fabs(factor - 1) > 1e-3; };
        const std::vector<Reals> by_read = {inter, part_of_p(false), part_of_p(true)};
        Reals f = least_squares(by_read, m_target);
        if (explains(distance(combined(by_read, f)))) {
            const std::string text = fmt::format(
                "out is {:.4g} Q S + {:.4g} (P below its diagonal) U + {:.4g} (diagonal of P) U", f[0], f[1], f[2]);
            const auto [least, most] = std::minmax_element(f.begin(), f.end());
            if (*most - *least < 1e-3 * std::fabs(*most)) {
                return named({"scale", "output", "intra"}, fmt::format("out is {:.4g} times the truth", f[0]));
            }
            if (moved(f[0]) && moved(f[1]) && moved(f[2])) return named({"scale", "output", "intra"}, text);
            if (moved(f[0]) && !moved(f[1]) && !moved(f[2])) return named({"output", "carry"}, text);
            if (m_state_wrong && moved(f[1]) && moved(f[2])) return named({"wu", "intra", "beta"}, text);
            return named({"intra", "output", "wu"}, text);
        }
        const std::vector<Reals> by_source = {inter, without(&ChunkParts::forget), without(&ChunkParts::write)};
        f = least_squares(by_source, m_target);
        if (!explains(distance(combined(by_source, f)))) return std::nullopt;
        const std::string text = fmt::format("U is solved from {:.4g} V - {:.4g} K S", f[1], f[2]);
        // A state that is scaled throughout looks the same: both of its readers have the same factor. So do sums of
        // gates that are all too large.
        if (moved(f[0]) && std::fabs(f[0] - f[2]) < 1e-3) {
            return named({"carry", "wu", "gate"},
                         text + fmt::format(", and the state is {:.4g} times the truth", f[0]));
        }
        return named({"wu", "beta", "solve"}, text);
    }

    std::optional<Diagnosis> factor(const Family& family, std::size_t chunk) const {
        const auto with = [&](double f) {
            return act([&, f](ChunkParts& c) {
                if (c.index == chunk) family.apply(c, f);
            });
        };
        double f = 1;
        Reals now = with(f);
        for (int step = 0; step < 6; ++step) {
            const Reals near = with(f + 1e-6);
            Reals slope(now.size());
            Reals rest(now.size());
            for (std::size_t i = 0; i < now.size(); ++i) {
                slope[i] = (near[i] - now[i]) / 1e-6;
                rest[i] = m_target[i] - now[i];
            }
            const double size = dot(slope, slope);
            if (size == 0) return std::nullopt;
            f += std::clamp(dot(slope, rest) / size, -1.0, 1.0);
            now = with(f);
        }
        if (!explains(distance(now))) return std::nullopt;
        return named({family.stage, family.other}, fmt::format("{} is {:.4g} times what it should be", family.what, f));
    }

    const GdnReference& m_r;
    const Evidence& m_out;
    std::size_t m_heads, m_dv, m_chunk, m_sequence, m_head;
    std::size_t m_first = 0;  // wrong chunk
    bool m_state_wrong = false;
    std::vector<std::size_t> m_columns;
    PreparedHead m_prepared;
    Reals m_target;
    double m_before = 0;
};

}  // namespace

std::optional<Diagnosis> match_coefficients(const GdnReference& reference, const ForwardEvidence& evidence,
                                            const HeadErrors& errors) {
    const bool wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    if (!evidence.out || !wrong) return std::nullopt;
    return Coefficients(reference, evidence, errors).run();
}

// Another initial state than the given one. Its effect is linear: the errors of a column of v are those of a state with
// dk unknown values, which decays, forgets and is read like any other.

namespace {

constexpr std::size_t k_most_tokens = 256;
constexpr std::size_t k_fitted_columns = 8;
constexpr std::size_t k_most_heads = 3;
// How many more values than unknowns a fit needs.
constexpr std::size_t k_spare_values = 8;
// A state that differs in a single direction may as well come from the first token's write.
constexpr double k_one_direction = 0.98;

// Errors of a head in units of their budgets, by column, and what each value of the state before it does to them.
struct HeadResponse {
    std::vector<std::vector<double>> terms;   // [dk][values]
    std::vector<std::vector<double>> errors;  // [columns][values]
};

std::optional<HeadResponse> response_of(const GdnReference& r, const ForwardEvidence& evidence, const WrongHead& head) {
    const GdnProblem& p = r.problem;
    const GdnSequence s = p.sequences[head.sequence];
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    const auto length = static_cast<std::size_t>(s.end - s.begin);
    const std::size_t tokens = std::min(length, k_most_tokens);
    const bool ends = evidence.state && tokens == length;
    const std::size_t group = head.sequence * Hv + head.head;
    const std::size_t values = (evidence.out ? tokens : 0) + (ends ? dk : 0);
    if (values < dk + k_spare_values) return std::nullopt;

    const auto key = key_head_of(static_cast<std::int64_t>(head.head), p.dims, r.contract.value.head_map);
    HeadInputs unit = head_inputs({&r, head.sequence, head.head, 0, tokens, {}}, static_cast<std::size_t>(key),
                                  static_cast<std::size_t>(r.contract.value.chunk), {});
    unit.columns = dk;
    unit.v.assign(tokens * dk, 0);
    unit.state.assign(dk * dk, 0);
    for (std::size_t x = 0; x < dk; ++x) unit.state[x * dk + x] = 1;
    unit.initial = unit.state;
    const HeadResult effect = run_head<double>(prepare_head(unit, r.contract.value), {});

    HeadResponse response;
    const double out_budget = evidence.out ? evidence.out->budgets[group].rms : 1;
    const double state_budget = ends ? evidence.state->budgets[group].rms : 1;
    for (std::size_t x = 0; x < dk; ++x) {
        std::vector<double>& term = response.terms.emplace_back();
        for (std::size_t t = 0; t < tokens && evidence.out; ++t) term.push_back(effect.out[t * dk + x] / out_budget);
        for (std::size_t row = 0; row < dk && ends; ++row) term.push_back(effect.state[row * dk + x] / state_budget);
    }
    const std::size_t step = std::max<std::size_t>(1, dv / k_fitted_columns);
    for (std::size_t j = 0; j < dv; j += step) {
        std::vector<double>& error = response.errors.emplace_back();
        const auto add = [&](const Evidence& e, std::size_t at, double budget) {
            error.push_back(((*e.got)[at] - (*e.want)[at]) / budget);
        };
        for (std::size_t t = 0; t < tokens && evidence.out; ++t) {
            const std::size_t row = static_cast<std::size_t>(s.begin) + t;
            add(*evidence.out, (row * Hv + head.head) * dv + j, out_budget);
        }
        for (std::size_t row = 0; row < dk && ends; ++row) {
            add(*evidence.state, (group * dk + row) * dv + j, state_budget);
        }
        if (!std::all_of(error.begin(), error.end(), [](double x) { return std::isfinite(x); })) return std::nullopt;
    }
    return response;
}

double squares_of(const std::vector<double>& x) { return std::inner_product(x.begin(), x.end(), x.begin(), 0.0); }

// The part of the states' squares that lies in one direction.
double in_one_direction(const std::vector<std::vector<double>>& states) {
    double all = 0;
    for (const auto& s : states) all += squares_of(s);
    std::vector<double> direction = *std::max_element(
        states.begin(), states.end(), [](const auto& a, const auto& b) { return squares_of(a) < squares_of(b); });
    double along = 0;
    for (int step = 0; step < 20; ++step) {
        const double length = std::sqrt(squares_of(direction));
        std::vector<double> next(direction.size(), 0);
        along = 0;
        for (const auto& s : states) {
            const double part = std::inner_product(s.begin(), s.end(), direction.begin(), 0.0) / length;
            along += part * part;
            for (std::size_t x = 0; x < next.size(); ++x) next[x] += part * s[x];
        }
        direction = std::move(next);
    }
    return all > 0 ? along / all : 1;
}

// How many times smaller the head's error is with another initial state; 0: that does not explain it.
double gain_of(const GdnReference& r, const ForwardEvidence& evidence, const WrongHead& head) {
    auto response = response_of(r, evidence, head);
    if (!response) return 0;
    // Values that nothing depends on stay near 0.
    double largest = 0;
    for (const auto& term : response->terms) largest = std::max(largest, squares_of(term));
    const std::size_t unknown = response->terms.size();
    const double least = 1e-7 * std::sqrt(largest);
    for (std::size_t x = 0; x < unknown; ++x) {
        for (std::size_t i = 0; i < unknown; ++i) response->terms[x].push_back(i == x ? least : 0);
    }
    double before = 0, after = 0;
    std::size_t count = 0;
    std::vector<std::vector<double>> states;
    for (std::vector<double>& error : response->errors) {
        count += error.size();
        before += squares_of(error);
        error.resize(error.size() + unknown, 0);
        states.push_back(least_squares(response->terms, error));
        const std::vector<double> fitted = combined(response->terms, states.back());
        for (std::size_t i = 0; i < error.size(); ++i) after += (error[i] - fitted[i]) * (error[i] - fitted[i]);
    }
    const double left = std::sqrt(after / static_cast<double>(count));
    const double gain = std::sqrt(before / std::max(after, 1e-30));
    if (!(left <= k_ok_band) || gain < 10 || in_one_direction(states) > k_one_direction) return 0;
    return std::min(gain, 1e12);
}

}  // namespace

std::optional<Diagnosis> match_initial_state(const GdnReference& r, const ForwardEvidence& evidence,
                                             const std::vector<HeadErrors>& errors) {
    double gain = HUGE_VAL;
    std::size_t fitted = 0;
    for (const WrongHead& head : wrong_heads(r, errors)) {
        if (head.first_chunk > 0) return std::nullopt;
        const GdnSequence s = r.problem.sequences[head.sequence];
        if (s.begin == s.end) continue;  // its final state is its initial one
        gain = std::min(gain, gain_of(r, evidence, head));
        if (gain == 0) return std::nullopt;
        if (++fitted == k_most_heads) break;
    }
    if (fitted == 0) return std::nullopt;
    const std::string text = r.problem.initial_state.empty()
                                 ? "matches if the initial state is not 0, as it should be without a given one"
                                 : "matches if the initial state is not the given one";
    return Diagnosis{"carry", {"carry"}, {{"carry", text, gain}}};
}

}  // namespace gdnctl::oracle
