// The stage search: which stages of a head's first wrong chunk can have produced its errors.
#include "oracle/gdn/compare/stage_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "oracle/gdn/compare/localise.h"
#include "oracle/judge/linear_algebra.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

enum class Answer { no, yes, unknown };

struct ErrorSpans {
    // Whether each token's error is a combination of rows up to its own. Unknown if that could be by chance.
    Answer sums_of_u = Answer::unknown, sums_of_v = Answer::unknown, sums_of_ks = Answer::unknown;
    bool alone = false;  // everything after the chunk is right
    // Whether a wrong state before the chunk explains these errors and the following ones, or a wrong U in this chunk
    // only.
    Answer state_before = Answer::unknown, writes = Answer::unknown;
};

// How much the entries of M, of P, or of both equally, must change to make out right, if its errors are combinations of
// rows of U.
struct EntryPrices {
    double m = 0, p = 0, both = 0;
};

// The last resort for a chunk that no class of changes makes right: which of its products the errors consist of.

namespace {

using Index = std::size_t;

// Orthogonal directions, and the remainder of a vector outside of them.
class Span {
public:
    void add(Reals direction) {
        const double before = std::sqrt(inner(direction, direction));
        leave(direction);
        leave(direction);
        const double size = std::sqrt(inner(direction, direction));
        if (!(size > 1e-9 * before)) return;
        for (double& x : direction) x /= size;
        m_basis.push_back(std::move(direction));
    }
    void leave(Reals& x) const {
        for (const Reals& b : m_basis) {
            const double factor = inner(b, x);
            add_rows<double>(std::span(x), -1, std::span(&factor, 1), std::span<const double>(b));
        }
    }

private:
    std::vector<Reals> m_basis;
};

Reals row_of(const Reals& rows, Index i, Index width) {
    const auto at = rows.begin() + static_cast<std::ptrdiff_t>(i * width);
    return {at, at + static_cast<std::ptrdiff_t>(width)};
}

// Whether each row of the errors is a combination of the rows of `terms` up to it. Skips rows for which any such
// combination would do.
Answer made_of(const Reals& errors, const Reals& terms, Index rows, Index width) {
    constexpr Index k_spare = 4;
    Span span;
    Reals asked;
    Reals left;
    for (Index i = 0; i < rows && i + 1 + k_spare <= width; ++i) {
        span.add(row_of(terms, i, width));
        Reals error = row_of(errors, i, width);
        asked.insert(asked.end(), error.begin(), error.end());
        span.leave(error);
        left.insert(left.end(), error.begin(), error.end());
    }
    if (!(rms_of(asked) > k_ok_band)) return Answer::unknown;
    return explains(rms_of(asked), rms_of(left)) ? Answer::yes : Answer::no;
}

// How the chunks from `index` on react to a state that is off by the unit matrix; appended row by row.
void add_followers(const Section& s, Index index, Reals state, Index columns, Reals& rows) {
    for (; index < s.parts.size(); ++index) {
        OpenChunk c = s.honest[index];
        const KeyUses uses = key_uses(s.head, s.parts[index].first, c.rows);
        c.columns = columns;
        c.v.assign(c.rows * columns, 0);
        c.KS = product(uses.key_state, state, c.dk, columns);
        c.QS = product(uses.query_state, state, c.dk, columns);
        c.state = std::move(state);
        const Reals U = solved(c, right_hand_side(c));
        for (const double x : out_of(c, U)) rows.push_back(x / s.out_unit);
        state = state_after(c, U);
        if (!s.knows_state_after(index)) continue;
        for (const double x : state) rows.push_back(x / s.state_unit);
    }
}

// Errors of all chunks from `index` on if everything before them is right.
Reals errors_from(const Section& s, Index index) {
    Reals errors;
    for (; index < s.parts.size(); ++index) {
        const Reals more = honest_errors(s, index, s.truths[index]);
        errors.insert(errors.end(), more.begin(), more.end());
    }
    return errors;
}

// The remainder of the errors if they are `map` [rows, numbers] times anything; infinite: more than an explanation may
// leave; NaN: too few errors to decide.
double left_of(const Reals& map, Index numbers, const Reals& errors, Index width) {
    const Index rows = errors.size() / width;
    if (rows < numbers + numbers / 4) return std::nan("");
    Span span;
    for (Index x = 0; x < numbers; ++x) {
        Reals column(rows);
        for (Index i = 0; i < rows; ++i) column[i] = map[i * numbers + x];
        span.add(std::move(column));
    }
    Reals left;
    for (Index j = 0; j < width; ++j) {
        Reals column(rows);
        for (Index i = 0; i < rows; ++i) column[i] = errors[i * width + j];
        span.leave(column);
        left.insert(left.end(), column.begin(), column.end());
    }
    const double rest = std::sqrt(static_cast<double>(rows) / static_cast<double>(rows - numbers)) * rms_of(left);
    return explains(rms_of(errors), rest) ? rest : HUGE_VAL;
}

Answer answer_of(double left, double other) {
    if (std::isnan(left)) return Answer::unknown;
    return std::isfinite(left) && !(other < left / 3) ? Answer::yes : Answer::no;
}

double left_by_state(const Section& s, const Reals& errors) {
    const OpenChunk& c = s.honest[s.wrong];
    Reals unit(c.dk * c.dk, 0);
    for (Index x = 0; x < c.dk; ++x) unit[x * c.dk + x] = 1;
    Reals map;
    add_followers(s, s.wrong, std::move(unit), c.dk, map);
    return left_of(map, c.dk, errors, c.columns);
}

double left_by_writes(const Section& s, const Reals& errors) {
    OpenChunk c = s.honest[s.wrong];
    c.columns = c.rows;
    c.state.assign(c.dk * c.rows, 0);
    Reals unit(c.rows * c.rows, 0);
    for (Index i = 0; i < c.rows; ++i) unit[i * c.rows + i] = 1;
    Reals map;
    for (const double x : times_p(c, unit)) map.push_back(x / s.out_unit);
    Reals after = state_after(c, unit);
    if (s.knows_state_after(s.wrong)) {
        for (const double x : after) map.push_back(x / s.state_unit);
    }
    add_followers(s, s.wrong + 1, std::move(after), c.rows, map);
    return left_of(map, c.rows, errors, s.head.columns);
}

}  // namespace

// `s` must have all columns, and a chunk in which out is wrong.
ErrorSpans spans_of(const Section& s) {
    ErrorSpans found;
    const OpenChunk& c = s.honest[s.wrong];
    const Reals errors = errors_from(s, s.wrong);
    const Reals U = solved(c, right_hand_side(c));
    const Reals own = row_of(errors, 0, c.rows * c.columns);
    found.sums_of_u = made_of(own, U, c.rows, c.columns);
    found.sums_of_v = made_of(own, c.v, c.rows, c.columns);
    found.sums_of_ks = made_of(own, c.KS, c.rows, c.columns);
    found.alone = rms_of(errors_from(s, s.wrong + 1)) <= k_ok_band;
    const double state = left_by_state(s, errors);
    const double writes = left_by_writes(s, errors);
    found.state_before = answer_of(state, writes);
    found.writes = answer_of(writes, state);
    return found;
}

// Irregularly wrong entries of M, of its inverse, of P, or of Gamma: finds which of these makes the observed errors
// most likely, assuming relative changes of one size.
//
// The errors are L U with L lower triangular. With A = P (I + M)^-1 and relative changes D of the entries,
// to first order:
//   M: L = -A (M o D)    the inverse: L (I + M)^-1 = P (T o D)    P: L = P o D    Gamma: L = P o D - A (M o D)
// So each column of L is normally distributed, with a covariance that shows which of them it was.

namespace {

class Entries {
public:
    explicit Entries(const Section& s) : m_c(s.honest[s.wrong]), m_n(m_c.rows) {
        Reals unit(m_n * m_n, 0);
        for (Index i = 0; i < m_n; ++i) unit[i * m_n + i] = 1;
        OpenChunk square = m_c;
        square.columns = m_n;
        m_inverse = solved(square, std::move(unit));
        m_a = times_p(square, m_inverse);
        m_rows = std::min(m_n, m_c.columns > 4 ? m_c.columns - 4 : 0);
        find_sums(s);
    }

    EntryPrices prices() const {
        // Column j of the map from changes of column j to column j of L.
        const auto of_m = [this](Index i, Index k, Index j) { return -m_a[i * m_n + k] * m_c.M[k * m_n + j]; };
        const auto of_p = [this](Index i, Index k, Index j) { return i == k ? m_c.P[i * m_n + j] : 0; };
        const auto of_inverse = [this](Index i, Index k, Index j) {
            return m_c.P[i * m_n + k] * m_inverse[k * m_n + j];
        };
        const auto of_both = [&](Index i, Index k, Index j) { return of_p(i, k, j) + of_m(i, k, j); };
        const Reals through = product(m_sums, m_inverse, m_n, m_n);
        return {std::min(price(m_sums, of_m), price(through, of_inverse)), price(m_sums, of_p), price(m_sums, of_both)};
    }

private:
    // Finds L, and the noise of its entries.
    void find_sums(const Section& s) {
        const Index width = m_c.columns;
        const Reals errors = honest_errors(s, s.wrong, s.truths[s.wrong]);
        const Reals U = solved(m_c, right_hand_side(m_c));
        const auto row = [&](const Reals& x, Index i) { return std::span(x).subspan(i * width, width); };
        m_sums.assign(m_n * m_n, 0);
        m_first = m_rows;
        for (Index i = 0; i < m_rows; ++i) {
            if (m_first == m_rows && rms_of({row(errors, i).begin(), row(errors, i).end()}) > k_ok_band) m_first = i;
            std::vector<Reals> a(i + 1, Reals(i + 1));
            Reals b(i + 1);
            for (Index j = 0; j <= i; ++j) {
                b[j] = -s.out_unit * inner(row(U, j), row(errors, i));  // the dump minus the truth
                for (Index k = 0; k <= j; ++k) a[j][k] = a[k][j] = inner(row(U, j), row(U, k));
            }
            const Reals x = damped_solution(a, b, 0);
            for (Index j = 0; j < x.size(); ++j) m_sums[i * m_n + j] = x[j];
        }
        m_noise = 4 * s.out_unit / std::max(rms_of(U) * std::sqrt(static_cast<double>(width)), 1e-300);
    }

    // Minus twice the log likelihood, for the size of the changes that maximises it.
    template <class Map>
    double price(const Reals& sums, const Map& map) const {
        constexpr std::array k_sizes = {1e-3, 4e-3, 0.015, 0.06, 0.25, 1.0, 4.0};
        std::array<double, k_sizes.size()> prices{};
        for (Index j = 0; j < m_rows; ++j) {
            const Index begin = std::max(j, m_first);
            const Index count = m_rows - begin;
            std::vector<Reals> rows(count, Reals(count, 0));
            Reals target(count);
            for (Index i = 0; i < count; ++i) {
                for (Index k = 0; k <= i; ++k) rows[i][k] = map(begin + i, begin + k, j);
                target[i] = sums[(begin + i) * m_n + j];
            }
            std::vector<Reals> squares(count, Reals(count));
            for (Index i = 0; i < count; ++i) {
                for (Index k = 0; k <= i; ++k) squares[i][k] = squares[k][i] = inner(rows[i], rows[k]);
            }
            for (Index size = 0; size < k_sizes.size(); ++size)
                prices[size] += column_price(squares, target, k_sizes[size]);
        }
        return *std::min_element(prices.begin(), prices.end());
    }

    double column_price(std::vector<Reals> covariance, const Reals& target, double size) const {
        // In units of the noise.
        const double scale = size * size / (m_noise * m_noise);
        for (Index i = 0; i < covariance.size(); ++i) {
            for (double& x : covariance[i]) x *= scale;
            covariance[i][i] += 1;
        }
        double log_determinant = 0;
        const Reals x = damped_solution(covariance, target, 0, &log_determinant);
        if (x.size() != target.size()) return 1e30;
        return log_determinant + inner(x, target) / (m_noise * m_noise);
    }

    const OpenChunk& m_c;
    Index m_n, m_rows = 0, m_first = 0;
    Reals m_inverse, m_a, m_sums;
    double m_noise = 1;
};

}  // namespace

EntryPrices entry_prices(const Section& s) { return Entries(s).prices(); }

std::unique_ptr<Section> make_section(const HeadSearch& search, const GdnReference& r, const ForwardEvidence& evidence,
                                      const WrongHead& head, bool out_wrong, std::size_t columns) {
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    const std::size_t start = head.first_chunk == 0 || !out_wrong ? head.first_chunk : head.first_chunk - 1;
    const Window w = search.window(head.sequence, head.head, chunk, start, 3, std::nullopt, columns);
    if (w.place.tokens == 0) return nullptr;
    auto owner = std::make_unique<Section>();
    Section& s = *owner;
    s.chunk = chunk;
    s.head = prepare_head(w.inputs, r.contract.value);
    if (evidence.out) {
        for (const std::size_t at : search.out_at(w)) s.out.push_back((*evidence.out->got)[at]);
        s.out_unit = evidence.out->budgets[search.group(w)].rms;
    }
    if (w.ends) {
        for (const std::size_t at : search.state_at(w)) s.state.push_back((*evidence.state->got)[at]);
        s.state_unit = evidence.state->budgets[search.group(w)].rms;
    }
    s.truths.push_back(s.head.state);
    for (std::size_t first = 0; first < s.head.tokens; first += chunk) s.parts.push_back(chunk_parts(s.head, first));
    for (ChunkParts& parts : s.parts) {
        s.honest.push_back(open_chunk(parts, key_uses(s.head, parts.first, parts.rows), s.truths.back()));
        const OpenChunk& c = s.honest.back();
        s.truths.push_back(state_after(c, solved(c, right_hand_side(c))));
    }
    s.wrong = out_wrong ? head.first_chunk - start : s.parts.size();
    if (s.wrong >= s.parts.size() && (out_wrong || s.state.empty())) return nullptr;
    return owner;
}

void add_out_errors(const Section& s, std::size_t index, const Reals& out, Reals& errors) {
    const std::size_t begin = errors.size();
    errors.insert(errors.end(), out.begin(), out.end());
    scale_difference(std::span(errors).subspan(begin),
                     std::span(s.out).subspan(s.parts[index].first * s.head.columns, out.size()), 1 / s.out_unit);
}

void add_state_errors(const Section& s, const Reals& state, Reals& errors) {
    const std::size_t begin = errors.size();
    errors.insert(errors.end(), state.begin(), state.end());
    scale_difference(std::span(errors).subspan(begin), s.state, 1 / s.state_unit);
}

double rms_of(const Reals& errors) {
    return errors.empty() ? 0 : std::sqrt(inner(errors, errors) / static_cast<double>(errors.size()));
}

Reals honest_errors(const Section& s, std::size_t index, const Reals& state, Reals* after) {
    OpenChunk c = s.honest[index];
    const KeyUses uses = key_uses(s.head, s.parts[index].first, c.rows);
    c.KS = product(uses.key_state, state, c.dk, c.columns);
    c.QS = product(uses.query_state, state, c.dk, c.columns);
    c.state = state;
    const Reals U = solved(c, right_hand_side(c));
    Reals errors;
    if (!s.out.empty()) add_out_errors(s, index, out_of(c, U), errors);
    const bool known = s.knows_state_after(index);
    if (known || after != nullptr) {
        const Reals next = state_after(c, U);
        if (known) add_state_errors(s, next, errors);
        if (after != nullptr) *after = next;
    }
    return errors;
}

bool explains(double before, double after) {
    return (after <= before / 100 && after <= k_wrong_band) || (after <= k_ok_band && after <= before / 9);
}

namespace {

struct Suspect {
    const Suspicion* suspicion = nullptr;
    Explanation explanation;
};

bool right_enough(const Section& s, std::size_t index, const Reals& errors) {
    const double left = rms_of(errors);
    if (left <= 2 * k_ok_band) return true;
    return explains(rms_of(honest_errors(s, index, s.truths[index])), 4 * left);
}

// Whether the chunk after an explained one is right from there, or wrong in the same way.
bool holds_on(const Section& s, std::size_t next, const Suspicion& suspicion, const Explanation& e) {
    if (next >= s.parts.size()) return true;
    if (suspicion.carries) return true;
    if (right_enough(s, next, honest_errors(s, next, e.state))) return true;
    return suspicion.attempt(s, next, e.state).has_value();
}

std::optional<Explanation> asked(const Section& s, const Suspicion& suspicion) {
    if (suspicion.carries && s.wrong == 0) return std::nullopt;
    if (!suspicion.carries && s.wrong == s.parts.size()) return std::nullopt;
    const std::size_t index = suspicion.carries ? s.wrong - 1 : s.wrong;
    auto e = suspicion.attempt(s, index, s.truths[index]);
    if (e && !holds_on(s, s.wrong + 1, suspicion, *e)) e.reset();
    return e;
}

Diagnosis named(std::vector<Suspect> found) {
    double best = HUGE_VAL;
    for (const Suspect& f : found) best = std::min(best, f.explanation.after);
    std::erase_if(found, [&](const Suspect& f) { return f.explanation.after > std::max(10 * best, 2.0); });
    std::stable_sort(found.begin(), found.end(),
                     [](const Suspect& a, const Suspect& b) { return a.explanation.numbers < b.explanation.numbers; });
    const std::size_t fewest = found.front().explanation.numbers;
    Diagnosis d;
    for (const Suspect& f : found) {
        for (const std::string& stage : f.suspicion->stages) {
            if (std::find(d.stages.begin(), d.stages.end(), stage) == d.stages.end()) d.stages.push_back(stage);
        }
        if (f.explanation.numbers > fewest + fewest / 4) continue;
        const Explanation& e = f.explanation;
        d.hints.push_back(
            {f.suspicion->stages.front(), fmt::format("matches if {}", e.text), e.before / std::max(e.after, 0.25)});
    }
    d.stage = d.stages.front();
    return d;
}

Diagnosis likely(std::vector<std::string> stages, std::string text) {
    Diagnosis d{stages.front(), {}, {{stages.front(), std::move(text), 1}}};
    d.stages = std::move(stages);
    return d;
}

// M, P or Gamma, all of which leave combinations of rows of U.
Diagnosis by_entries(const Section& s, const HeadErrors& errors, const ErrorSpans& spans) {
    const std::string what = "the errors of each token are sums of the rows of U up to it";
    const bool state_right = errors.final_state && *errors.final_state <= k_ok_band;
    // A final state may have recovered from something written long before it.
    if (spans.writes == Answer::yes)
        return likely({"solve", "wu", "decay"}, what + ", and U alone is wrong: consistent with a wrong M");
    if (state_right || spans.alone) {
        const bool follows = s.wrong + 1 < s.parts.size();
        return likely(
            {"intra", "decay", "output"},
            what + (errors.final_state ? ", and the final state is right: consistent with a wrong P"
                    : follows          ? ", and later chunks are right: consistent with a wrong P"
                              : ": consistent with a wrong P, or M (without a state, they cannot be told apart)"));
    }
    const EntryPrices prices = entry_prices(s);
    if (!errors.final_state && prices.p < std::min(prices.m, prices.both)) {
        return likely({"intra", "decay", "solve"},
                      what + ": consistent with a wrong P, or M (without a state, they cannot be told apart)");
    }
    if (prices.both < prices.m) {
        return likely({"decay", "solve", "gate"},
                      what + ", and the state is wrong too: consistent with a wrong Gamma, or M");
    }
    return likely({"solve", "decay", "wu"}, what + ", and the state is wrong too: consistent with a wrong M");
}

// Finds which product the errors consist of, if no class of changes explains them.
std::optional<Diagnosis> by_spans(const Section& s, const HeadErrors& errors, const ErrorSpans& spans) {
    if (spans.sums_of_u == Answer::yes) return by_entries(s, errors, spans);
    const bool right_after = errors.final_state ? *errors.final_state <= k_ok_band : spans.alone;
    if (spans.sums_of_v == Answer::yes && !right_after) {
        return likely({"wu", "layout"},
                      "the errors of each token are sums of the rows of V up to it: consistent with a wrong v");
    }
    if (spans.sums_of_ks == Answer::yes && !right_after) {
        return likely({"wu", "gate"},
                      "the errors of each token are sums of the rows of K S up to it: consistent with a wrong K S");
    }
    if (spans.state_before == Answer::yes && !spans.alone) {
        return likely({"carry", "layout"},
                      "the errors are consistent with a wrong state handed to the chunk, and no more");
    }
    return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> match_stages(const GdnReference& r, const ForwardEvidence& evidence, const HeadErrors& errors,
                                      int threads, const std::function<std::optional<Diagnosis>()>& even) {
    const auto heads = wrong_heads(r, {errors});
    if (heads.empty()) return std::nullopt;
    const bool out_wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    const HeadSearch search(r, evidence);
    const auto few = make_section(search, r, evidence, heads.front(), out_wrong, k_columns);
    const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
    const auto all = make_section(search, r, evidence, heads.front(), out_wrong, dv);
    if (!few || !all) return std::nullopt;
    static const std::vector<Suspicion> k_suspicions = [] {
        auto list = move_suspicions();
        for (Suspicion& s : factor_suspicions()) list.push_back(std::move(s));
        return list;
    }();
    std::vector<std::optional<Explanation>> found(k_suspicions.size());
    run_tasks(found.size(), threads, [&] {
        return [&](std::size_t i) { found[i] = asked(k_suspicions[i].all_columns ? *all : *few, k_suspicions[i]); };
    });
    std::vector<Suspect> suspects;
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (found[i]) suspects.push_back({&k_suspicions[i], std::move(*found[i])});
    }
    if (!suspects.empty()) return named(std::move(suspects));
    if (auto d = match_finished(r, evidence, errors)) return d;
    if (auto d = even()) return d;
    if (all->out.empty() || all->wrong >= all->parts.size()) return std::nullopt;
    return by_spans(*all, errors, spans_of(*all));
}

std::optional<Diagnosis> exclude_stages(const GdnReference& r, const ForwardEvidence& evidence,
                                        const HeadErrors& errors) {
    const auto heads = wrong_heads(r, {errors});
    const bool out_wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    if (heads.empty() || !out_wrong) return std::nullopt;
    const HeadSearch search(r, evidence);
    const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
    const auto s = make_section(search, r, evidence, heads.front(), out_wrong, dv);
    if (!s || s->out.empty()) return std::nullopt;
    const ErrorSpans spans = spans_of(*s);
    if (spans.writes == Answer::yes && !spans.alone) {
        return likely({"wu", "solve", "beta"},
                      "the errors are consistent with a mistake in what the chunk writes, and no more");
    }
    if (errors.final_state ? *errors.final_state <= k_ok_band : spans.alone) {
        if (spans.sums_of_u != Answer::no) return std::nullopt;
        return likely(
            {"output", "intra", "layout", "l2norm", "scale", "tile"},
            std::string(errors.final_state ? "the final state is right" : "no later chunk is wrong") +
                ", and the errors of out are not sums of rows of U: consistent with a mistake in what is read from the "
                "state, in q, or in out itself");
    }
    if (s->wrong != 0 || spans.sums_of_u != Answer::no || spans.state_before == Answer::yes) return std::nullopt;
    return likely(
        {"wu", "layout", "l2norm", "beta"},
        "the state is wrong too, and the errors are not sums of rows of U: consistent with a wrong k, v, or write, "
        "and not with a wrong M or P");
}

}  // namespace gdnctl::oracle
