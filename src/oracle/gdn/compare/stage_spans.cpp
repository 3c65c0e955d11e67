// The last resort for a chunk that no class of changes makes right: which of its products the errors consist of.
#include "oracle/gdn/compare/stage_spans.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "oracle/judge/sums.h"

namespace gdnctl::oracle {

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
        const KeyUses uses = key_uses(s.lane, s.parts[index].first, c.rows);
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
    return left_of(map, c.rows, errors, s.lane.columns);
}

}  // namespace

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

}  // namespace gdnctl::oracle
