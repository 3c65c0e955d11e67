// For faults that match no known mistake: coefficients by least squares, and the shape of the error.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/gdn/compare/localise.h"

namespace gdnctl::oracle {

namespace {

constexpr double k_bf16_step = 1.1e-3;                         // 2^-9 / sqrt(3): of one rounding
constexpr std::array<std::size_t, 4> k_walk = {0, 4, 16, 64};  // numbers of rows examined together
constexpr std::array k_all_stages = {"solve", "wu", "decay", "gate", "intra", "output", "carry", "beta"};

Diagnosis guess(std::vector<std::string> stages, std::string text) {
    Diagnosis d;
    d.stage = stages.front();
    d.hints.push_back({d.stage, std::move(text), 1});
    d.stages = std::move(stages);
    return d;
}

class PatternSearch {
public:
    PatternSearch(const GdnReference& r, const ForwardEvidence& evidence, const std::vector<HeadErrors>& errors,
                  const FaultLocation& place, int threads)
        : m_r(r),
          m_evidence(evidence),
          m_errors(errors),
          m_place(place),
          m_threads(threads),
          m_heads(static_cast<std::size_t>(r.problem.dims.Hv)),
          m_dv(static_cast<std::size_t>(r.problem.dims.dv)),
          m_chunk(static_cast<std::size_t>(r.contract.value.chunk)) {
        for (const HeadErrors& head : errors) {
            double score = head.final_state.value_or(0);
            m_state_wrong |= !(score <= k_ok_band);
            for (const double x : head.chunks) {
                m_out_wrong |= !(x <= k_ok_band);
                score = std::max(score, std::isnan(x) ? HUGE_VAL : x);
            }
            if (score > m_score) {
                m_score = score;
                m_head = &head;
            }
        }
        if (m_head != nullptr) {
            m_begin = static_cast<std::size_t>(r.problem.sequences[static_cast<std::size_t>(m_head->sequence)].begin);
            m_end = static_cast<std::size_t>(r.problem.sequences[static_cast<std::size_t>(m_head->sequence)].end);
            m_group = static_cast<std::size_t>(m_head->sequence) * m_heads + static_cast<std::size_t>(m_head->head);
        }
    }

    Diagnosis run() {
        if (m_head == nullptr)
            return guess({"rounding"}, "the error is spread thinly: consistent with an undeclared rounding");
        if (auto d = nonfinite()) return *d;
        if (auto d = outside_sequences()) return *d;
        if (auto d = match_doubling(m_r, m_evidence, *m_head)) return *d;
        if (auto d = few_places()) return *d;
        if (auto d = match_coefficients(m_r, m_evidence, *m_head)) return *d;
        if (auto d = match_initial_state(m_r, m_evidence, m_errors)) return *d;
        if (auto d = match_stages(m_r, m_evidence, *m_head, m_threads, [this] { return growing(); })) return *d;
        if (auto d = few_columns()) return *d;
        if (auto d = match_hidden_rounding(m_r, m_evidence, *m_head)) return *d;
        if (auto d = rounding()) return *d;
        if (auto d = exclude_stages(m_r, m_evidence, *m_head)) return *d;
        return by_place();
    }

private:
    double out_error(std::size_t row, std::size_t column) const {
        const std::size_t at = (row * m_heads + static_cast<std::size_t>(m_head->head)) * m_dv + column;
        return (*m_evidence.out->got)[at] - (*m_evidence.out->want)[at];
    }
    double truth(std::size_t row, std::size_t column) const {
        return (*m_evidence.out->want)[(row * m_heads + static_cast<std::size_t>(m_head->head)) * m_dv + column];
    }
    bool wrong(std::size_t row, std::size_t column) const {
        return std::fabs(out_error(row, column)) > k_ok_band * m_evidence.out->budgets[m_group].max_abs;
    }

    std::optional<Diagnosis> nonfinite() const {
        if (!m_evidence.out) return std::nullopt;
        std::size_t values = 0, rows = 0, whole = 0, first = m_end, last = m_begin;
        for (std::size_t row = m_begin; row < m_end; ++row) {
            std::size_t count = 0;
            for (std::size_t column = 0; column < m_dv; ++column) {
                count += !std::isfinite(out_error(row, column)) && std::isfinite(truth(row, column)) ? 1 : 0;
            }
            if (count == 0) continue;
            values += count;
            ++rows;
            whole += count == m_dv ? 1 : 0;
            first = std::min(first, row);
            last = row;
        }
        if (rows == 0) return std::nullopt;
        const std::size_t chunk = (first - m_begin) / m_chunk;
        // What a chunk's inverse or decays make infinite reaches the state, and with it everything later.
        const bool few = chunk == (last - m_begin) / m_chunk || values < m_dv;
        const bool later_right = (last - m_begin) / m_chunk < (m_end - 1 - m_begin) / m_chunk;
        const bool state_right = m_evidence.state && m_head->final_state.value_or(0) <= k_ok_band;
        if (!few || (!later_right && !state_right)) return nonfinite_in(chunk);
        const std::string_view right = state_right ? "the final state is right" : "later chunks are right";
        if (whole == rows && last + 1 == m_end && rows == m_end - first) {
            return guess({"padding", "tile"},
                         fmt::format("the last {} rows of out are not finite and {}: consistent with rows that are "
                                     "never written",
                                     rows, right));
        }
        return guess({"tile", "padding", "output"},
                     fmt::format("{} of {} values of out are not finite and {}: consistent with single values that are "
                                 "never written, or read before they are",
                                 values, (m_end - m_begin) * m_dv, right));
    }

    Diagnosis nonfinite_in(std::size_t chunk) const {
        HeadSlice place{&m_r,
                        static_cast<std::size_t>(m_head->sequence),
                        static_cast<std::size_t>(m_head->head),
                        chunk * m_chunk,
                        std::min(m_chunk, m_end - m_begin - chunk * m_chunk),
                        {0}};
        const PreparedHead head = prepare_head(head_inputs(place, 0, m_chunk, {}), m_r.contract.value);
        double sum = 0;
        for (const double g : head.gate) {
            if (std::isinf(g)) {
                return guess({"gate", "decay"},
                             "values are not finite where g = -inf: consistent with differences of sums, -inf - -inf");
            }
            sum += g;
        }
        if (std::fabs(sum) > 85) {
            return guess(
                {"decay", "gate", "solve"},
                fmt::format("values are not finite where the gates of a chunk sum to {:.3g}: consistent with exp(c_i) "
                            "exp(-c_j), which overflows fp32, for exp(c_i - c_j)",
                            sum));
        }
        return guess({"solve", "tile", "decay"},
                     "values are not finite on ordinary gates: consistent with an inverse that explodes (doubling), or "
                     "with memory that is read before it is written");
    }

    // Rows that belong to no sequence must stay 0.
    std::optional<Diagnosis> outside_sequences() const {
        if (!m_evidence.out || m_out_wrong || m_state_wrong) return std::nullopt;
        return guess({"padding"}, "rows outside every sequence are written");
    }

    struct WrongLocations {
        std::size_t rows = 0, columns = 0, elements = 0;
    };
    WrongLocations wrong_places() const {
        WrongLocations places;
        std::vector<bool> columns(m_dv, false);
        for (std::size_t row = m_begin; row < m_end; ++row) {
            bool any = false;
            for (std::size_t column = 0; column < m_dv; ++column) {
                if (!wrong(row, column)) continue;
                any = true;
                columns[column] = true;
                ++places.elements;
            }
            places.rows += any ? 1 : 0;
        }
        places.columns = static_cast<std::size_t>(std::count(columns.begin(), columns.end(), true));
        return places;
    }

    // A few elements, or one token.
    std::optional<Diagnosis> few_places() const {
        if (!m_evidence.out || !m_out_wrong) return state_columns();
        const WrongLocations places = wrong_places();
        const bool state_right = !m_evidence.state || m_head->final_state.value_or(0) <= k_ok_band;
        if (places.elements > 0 && places.elements <= 3 && state_right) {
            return guess({"tile"}, fmt::format("{}: consistent with one lane, or a race",
                                               places.elements == 1
                                                   ? "one element alone is wrong"
                                                   : fmt::format("{} elements alone are wrong", places.elements)));
        }
        if (places.rows == 1 && m_end - m_begin > 1 && !m_state_wrong) {
            return guess({"tile", "intra", "output"},
                         "one token alone is wrong, and nothing that comes from it: consistent with one row of a tile");
        }
        return std::nullopt;
    }

    std::optional<Diagnosis> few_columns() const {
        if (!m_evidence.out || !m_out_wrong) return std::nullopt;
        const std::size_t wide = wrong_places().columns;
        if (m_dv < 8 || wide == 0 || wide * 2 > m_dv) return std::nullopt;
        // If the final state is wrong in more columns, out has too few digits; it does not mean that a tile is wrong.
        if (m_evidence.state && wrong_in_state().columns > wide) return std::nullopt;
        return guess(
            {"tile"},
            fmt::format("{} of {} columns of v are wrong, the others right: consistent with one tile", wide, m_dv));
    }

    WrongLocations wrong_in_state() const {
        const auto dk = static_cast<std::size_t>(m_r.problem.dims.dk);
        const Evidence& e = *m_evidence.state;
        WrongLocations places;
        std::vector<bool> columns(m_dv, false);
        std::vector<bool> rows(dk, false);
        for (std::size_t x = 0; x < dk; ++x) {
            for (std::size_t j = 0; j < m_dv; ++j) {
                const std::size_t at = (m_group * dk + x) * m_dv + j;
                if (std::fabs((*e.got)[at] - (*e.want)[at]) <= k_ok_band * e.budgets[m_group].max_abs) continue;
                columns[j] = true;
                rows[x] = true;
                ++places.elements;
            }
        }
        places.columns = static_cast<std::size_t>(std::count(columns.begin(), columns.end(), true));
        places.rows = static_cast<std::size_t>(std::count(rows.begin(), rows.end(), true));
        return places;
    }

    std::optional<Diagnosis> state_columns() const {
        if (!m_evidence.state || m_dv < 8) return std::nullopt;
        const auto dk = static_cast<std::size_t>(m_r.problem.dims.dk);
        const std::size_t wide = wrong_in_state().columns;
        const std::size_t high = wrong_in_state().rows;
        if (wide * 2 <= m_dv) {
            return guess({"tile", "carry"},
                         fmt::format("{} of {} columns of final_state are wrong, the others right: consistent with "
                                     "one tile",
                                     wide, m_dv));
        }
        if (high * 2 <= dk) {
            return guess({"tile", "carry"},
                         fmt::format("{} of {} rows of final_state are wrong, the others right: consistent with one "
                                     "tile",
                                     high, dk));
        }
        return std::nullopt;
    }

    struct EvenError {
        std::vector<double> rows;
        double whole = 0;
    };
    std::optional<EvenError> even_error(double most) const;
    std::optional<Diagnosis> growing() const;
    std::optional<Diagnosis> rounding() const;
    Diagnosis by_place() const;

    const GdnReference& m_r;
    const ForwardEvidence& m_evidence;
    const std::vector<HeadErrors>& m_errors;
    const FaultLocation& m_place;
    int m_threads;
    std::size_t m_heads, m_dv, m_chunk;
    const HeadErrors* m_head = nullptr;
    double m_score = -1;
    bool m_out_wrong = false, m_state_wrong = false;
    std::size_t m_begin = 0, m_end = 0, m_group = 0;
};

// The relative error of each row, and of the whole, if it is about the same everywhere and at most `most`: rounding,
// not a mistake in a formula. nullopt: it is not.
std::optional<PatternSearch::EvenError> PatternSearch::even_error(double most) const {
    if (!m_evidence.out || !m_out_wrong) return std::nullopt;
    std::vector<double> relative;
    double error = 0;
    double size = 0;
    for (std::size_t row = m_begin; row < m_end; ++row) {
        double row_error = 0;
        double row_size = 0;
        for (std::size_t j = 0; j < m_dv; ++j) {
            row_error += out_error(row, j) * out_error(row, j);
            row_size += truth(row, j) * truth(row, j);
        }
        error += row_error;
        size += row_size;
        if (row_size > 0) relative.push_back(std::sqrt(row_error / row_size));
    }
    const double whole = size > 0 ? std::sqrt(error / size) : HUGE_VAL;
    if (relative.empty() || whole > most || whole < 1e-7) return std::nullopt;
    const auto alike =
        std::count_if(relative.begin(), relative.end(), [&](double x) { return x > whole / 6 && x < whole * 6; });
    if (static_cast<double>(alike) < 0.75 * static_cast<double>(relative.size())) return std::nullopt;
    return EvenError{std::move(relative), whole};
}

// Repeated rounding is a random walk, which grows with the square root of the number of steps.
std::optional<Diagnosis> PatternSearch::growing() const {
    const auto even = even_error(0.05);
    if (!even || even->rows.size() < k_walk.back()) return std::nullopt;
    std::array<double, k_walk.size() - 1> means{};
    for (std::size_t bin = 0; bin < means.size(); ++bin) {
        double error = 0;
        double walk = 0;
        for (std::size_t row = k_walk[bin]; row < k_walk[bin + 1]; ++row) {
            error += even->rows[row];
            walk += k_bf16_step * std::sqrt(static_cast<double>(row + 1));
        }
        if (!(error > walk / 2 && error < walk * 2)) return std::nullopt;
        means[bin] = error / static_cast<double>(k_walk[bin + 1] - k_walk[bin]);
    }
    if (means.back() < 2 * means.front()) return std::nullopt;
    return guess(
        {"rounding", "carry"},
        fmt::format("the relative error is about {:.1g} and grows along the sequence: consistent with a state that is "
                    "kept in bf16 (declare it: --set state_dtype=bf16, or bf16-token)",
                    even->whole));
}

std::optional<Diagnosis> PatternSearch::rounding() const {
    const auto even = even_error(0.01);
    if (!even) return std::nullopt;
    return guess({"rounding", "intra", "decay"},
                 fmt::format("the relative error is about {:.1g} in every row: consistent with {}", even->whole,
                             precision_of(even->whole)));
}

// Only the place of the error is left as a clue.
Diagnosis PatternSearch::by_place() const {
    if (!m_out_wrong) {
        if (!m_evidence.out) {
            return guess({"carry", "layout", "padding"},
                         "the final state is wrong; without out, the place cannot be found");
        }
        if (m_evidence.out->judged != DType::bf16 && m_evidence.out->judged != DType::f16) {
            return guess({"carry", "layout", "padding"},
                         "out is right and the final state is not: consistent with a mistake in its last update, or in "
                         "where it is stored");
        }
        return guess(
            {"carry", "rounding", "layout", "padding"},
            fmt::format("the final state is wrong, and out is right as far as its rounding to {} shows: "
                        "consistent with a wrong update of the state, or with a precision that was not declared",
                        name_of(m_evidence.out->judged)));
    }
    std::size_t first = m_end;
    for (std::size_t row = m_begin; row < m_end; ++row) {
        for (std::size_t column = 0; column < m_dv; ++column) {
            if (!wrong(row, column)) continue;
            first = std::min(first, row);
        }
    }
    const std::size_t token = first == m_end ? 0 : first - m_begin;
    const std::size_t chunk = token / m_chunk;
    const std::size_t offset = token % m_chunk;
    const std::size_t chunks = (m_end - m_begin + m_chunk - 1) / m_chunk;
    if (chunk > 0 && chunk + 1 == chunks && (m_end - m_begin) % m_chunk != 0 && chunks > 2) {
        return guess({"padding", "carry", "tile"},
                     "the incomplete last chunk alone is wrong: consistent with padding that counts");
    }
    if (m_evidence.state && !m_state_wrong) {
        return guess(
            {"intra", "output", "scale", "tile"},
            "the final state is right and out is not: consistent with a mistake in what is read from the state");
    }
    if (offset > 1) {
        return guess(
            {"solve", "intra", "decay", "wu"},
            fmt::format("the first {} tokens of a chunk are right: consistent with a mistake in the inverse or the "
                        "mask inside the chunk",
                        offset));
    }
    if (chunk > 0) {
        return guess(
            {"carry", "wu", "output", "tile"},
            fmt::format("chunk {} is wrong from its first token, those before are right: consistent with a wrong "
                        "state handed to it{}",
                        chunk, segment_note(chunk)));
    }
    if (m_errors.size() > 1 && m_place.heads.size() * m_place.sequences.size() == 1) {
        return guess({"tile", "solve", "intra", "carry"},
                     "one head alone is wrong: consistent with a mistake in where its data lie");
    }
    return guess({k_all_stages.begin(), k_all_stages.end()}, "no known mistake explains it");
}

}  // namespace

std::string segment_note(std::size_t first_wrong_chunk) {
    constexpr std::size_t k_usual_segment = 8;
    if (first_wrong_chunk == 0 || first_wrong_chunk % k_usual_segment != 0) return {};
    return fmt::format("; chunk {} is the first of a segment of {} chunks: its checkpoint, or the padding of segments",
                       first_wrong_chunk, k_usual_segment);
}

Diagnosis match_pattern(const GdnReference& r, const ForwardEvidence& evidence, const std::vector<HeadErrors>& errors,
                        const FaultLocation& place, int threads) {
    return PatternSearch(r, evidence, errors, place, threads).run();
}

}  // namespace gdnctl::oracle
