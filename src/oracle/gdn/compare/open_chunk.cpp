#include "oracle/gdn/compare/open_chunk.h"

#include <span>

#include "oracle/judge/sums.h"

namespace gdnctl::oracle {

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

KeyUses key_uses(const Lane& lane, std::size_t first, std::size_t rows) {
    const Reals q = rows_of(lane.q, first, rows, lane.dk);
    const Reals k = rows_of(lane.k, first, rows, lane.dk);
    return {q, q, k, k, k, k};
}

OpenChunk open_chunk(const ChunkParts& parts, const KeyUses& uses, Reals state) {
    const Lane& lane = *parts.lane;
    const std::size_t n = parts.rows;
    OpenChunk c{n,
                lane.dk,
                lane.columns,
                Reals(n * n, 0),
                Reals(n * n, 0),
                parts.write,
                parts.forget,
                parts.read,
                parts.insert,
                rows_of(lane.v, parts.first, n, lane.columns),
                product(uses.key_state, state, lane.dk, lane.columns),
                product(uses.query_state, state, lane.dk, lane.columns),
                uses.key_write,
                {},
                parts.keep};
    c.state = std::move(state);
    const Reals keys = gram_of(uses.key_solve, uses.key_solve, n, lane.dk);
    const Reals queries = gram_of(uses.query_gram, uses.key_intra, n, lane.dk);
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
