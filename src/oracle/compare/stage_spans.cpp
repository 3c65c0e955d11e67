// The last resort for a chunk that no class of changes makes right: which of its products the errors are made of.
#include "oracle/compare/stage_spans.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "oracle/compare/sums.h"

namespace gdnctl::oracle {

namespace {

using Index = std::size_t;

// Directions at right angles, and what is left of a vector outside of them.
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

// Whether each row of the errors is a sum of those rows of `terms` up to it. Of rows that could be any such sum by
// chance nothing is asked.
bool made_of(const Reals& errors, const Reals& terms, Index rows, Index width) {
    Span span;
    Reals asked;
    Reals left;
    for (Index i = 0; i < rows && 2 * (i + 1) <= width; ++i) {
        span.add(row_of(terms, i, width));
        Reals error = row_of(errors, i, width);
        asked.insert(asked.end(), error.begin(), error.end());
        span.leave(error);
        left.insert(left.end(), error.begin(), error.end());
    }
    return rms_of(asked) > k_ok_band && explains(rms_of(asked), rms_of(left));
}

// What the chunks from `index` on make of a state that is off by the unit matrix, appended row by row.
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

// Errors of all chunks from `index` on when everything before them is right.
Reals errors_from(const Section& s, Index index) {
    Reals errors;
    for (; index < s.parts.size(); ++index) {
        const Reals more = honest_errors(s, index, s.truths[index]);
        errors.insert(errors.end(), more.begin(), more.end());
    }
    return errors;
}

// Whether the errors are `map` [rows, numbers] times anything.
bool image_of(const Reals& map, Index numbers, const Reals& errors, Index width) {
    const Index rows = errors.size() / width;
    if (rows < numbers + numbers / 4) return false;
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
    const double chance = std::sqrt(static_cast<double>(rows) / static_cast<double>(rows - numbers));
    return explains(rms_of(errors), chance * rms_of(left));
}

}  // namespace

ErrorSpans spans_of(const Section& s) {
    ErrorSpans found;
    if (s.out.empty() || s.wrong >= s.parts.size()) return found;
    const OpenChunk& c = s.honest[s.wrong];
    const Reals errors = errors_from(s, s.wrong);
    const Reals U = solved(c, right_hand_side(c));
    const Reals own = row_of(errors, 0, c.rows * c.columns);
    found.sums_of_u = made_of(own, U, c.rows, c.columns);
    found.sums_of_v = made_of(own, c.v, c.rows, c.columns);
    found.sums_of_ks = made_of(own, c.KS, c.rows, c.columns);
    found.alone = rms_of(errors_from(s, s.wrong + 1)) <= k_ok_band;
    Reals map;
    if (s.wrong > 0) {
        Reals unit(c.dk * c.dk, 0);
        for (Index x = 0; x < c.dk; ++x) unit[x * c.dk + x] = 1;
        add_followers(s, s.wrong, std::move(unit), c.dk, map);
        found.state_before = image_of(map, c.dk, errors, c.columns);
    }
    OpenChunk writes = c;
    writes.columns = c.rows;
    writes.state.assign(c.dk * c.rows, 0);
    Reals unit(c.rows * c.rows, 0);
    for (Index i = 0; i < c.rows; ++i) unit[i * c.rows + i] = 1;
    map.clear();
    for (const double x : times_p(writes, unit)) map.push_back(x / s.out_unit);
    Reals after = state_after(writes, unit);
    if (s.knows_state_after(s.wrong)) {
        for (const double x : after) map.push_back(x / s.state_unit);
    }
    add_followers(s, s.wrong + 1, std::move(after), c.rows, map);
    found.writes = image_of(map, c.rows, errors, c.columns);
    return found;
}

}  // namespace gdnctl::oracle
