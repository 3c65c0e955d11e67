// Every product is computed in tiles of Rows x 2 vectors whose sums stay in registers. The factors of a tile's rows are
// contiguous, because K, Q, M and P are kept transposed. The substitution happens inside the tile: a tile of U starts
// as K S, receives the finished rows above it, then its own triangle, and is stored once.
#include "oracle/gdn/kernels/simd/chunk_task.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {

namespace {

// Narrow: some of q, k, v and out are bf16. A separate instance, because it would slow down the fp32 tiles by 5 %.
template <int Bytes, std::size_t Rows, bool Narrow>
class ChunkSweep {
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    static constexpr std::size_t k_vectors = 2;
    using Sums = Tile<Bytes, Rows, k_vectors>;

public:
    static constexpr std::size_t k_columns = k_vectors * k_lanes;

    static std::size_t scratch(std::size_t dk, std::size_t chunk, std::size_t units) {
        const Sizes s(dk, chunk);
        return s.total() + units * s.rows * k_columns;
    }

    explicit ChunkSweep(const ChunkTask& task) : m_task(task), m_t(task.what), m_s(m_t.dk, task.chunk) {
        float* next = m_t.scratch;
        const auto take = [&next](std::size_t count) {
            float* begin = next;
            next += count;
            return begin;
        };
        m_k = take(m_s.chunk * m_s.rows);
        m_q = take(m_s.chunk * m_s.rows);
        m_kt = take(m_s.chunk * m_s.rows);
        m_qt = take(m_s.chunk * m_s.rows);
        m_kk = take(m_s.chunk * m_s.chunk);
        m_qk = take(m_s.chunk * m_s.chunk);
        m_m = take(m_s.chunk * m_s.chunk);
        m_p = take(m_s.chunk * m_s.chunk);
        m_u = take(m_s.chunk * k_columns);
        m_decay.high = take(m_s.chunk);
        m_decay.low = take(m_s.chunk);
        m_decay.stretch = take(m_s.chunk);
        m_decay.beta = take(m_s.chunk);
        m_decay.from_start = take(m_s.chunk);
        m_decay.to_end = take(m_s.chunk);
        m_panels = next;
    }

    void run() {
        for (std::size_t u = 0; u < m_t.unit_count; ++u) begin(u);
        for (std::size_t first = 0; first < m_t.tokens; first += m_task.chunk) {
            const std::size_t left = m_t.tokens - first;
            chunk(first, left < m_task.chunk ? left : m_task.chunk);
        }
        for (std::size_t u = 0; u < m_t.unit_count; ++u) end(u);
        if (m_t.stream_out || m_task.stream_saves) end_of_stream();
    }

private:
    static std::size_t rounded(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }

    struct Sizes {
        std::size_t chunk;  // rows of a chunk, and
        std::size_t rows;   // of a panel: padded to whole tiles and vectors
        Sizes(std::size_t dk, std::size_t c) : chunk(rounded(c, 32)), rows(rounded(dk, 16)) {}
        std::size_t total() const { return 4 * chunk * rows + 4 * chunk * chunk + chunk * k_columns + 6 * chunk; }
    };

    float* panel(std::size_t u) const { return m_panels + u * m_s.rows * k_columns; }

    std::size_t columns_of(const FusedUnit& unit) const {
        return m_t.dv - unit.column < k_columns ? m_t.dv - unit.column : k_columns;
    }

    void begin(std::size_t u) {
        const FusedUnit& unit = m_t.units[u];
        const std::size_t columns = columns_of(unit);
        const std::size_t from = unit.value_head * m_t.dk * m_t.dv + unit.column;
        const bool given = m_t.initial_state != nullptr;
        float* S = panel(u);
        for (std::size_t i = 0; i < m_s.rows; ++i) {
            for (std::size_t j = 0; j < k_columns; ++j) {
                const bool inside = given && i < m_t.dk && j < columns;
                S[i * k_columns + j] = inside ? m_t.initial_state[from + i * m_t.dv + j] : 0;
            }
        }
    }

    void end(std::size_t u) {
        const FusedUnit& unit = m_t.units[u];
        const std::size_t to = unit.value_head * m_t.dk * m_t.dv + unit.column;
        for (std::size_t i = 0; i < m_t.dk; ++i) {
            for (std::size_t j = 0; j < columns_of(unit); ++j) {
                m_t.final_state[to + i * m_t.dv + j] = panel(u)[i * k_columns + j];
            }
        }
    }

    void save_state(std::size_t u, std::size_t first) const {
        const FusedUnit& unit = m_t.units[u];
        const std::size_t segment = first / m_task.chunk / m_task.segment;
        float* to = m_task.states + (segment * m_t.Hv + unit.value_head) * m_t.dk * m_t.dv + unit.column;
        const std::size_t columns = columns_of(unit);
        for (std::size_t i = 0; i < m_t.dk; ++i, to += m_t.dv) {
            const float* row = panel(u) + i * k_columns;
            for (std::size_t v = 0; v < k_vectors && columns == k_columns; ++v) {
                const Vector x = load<float, Bytes>(row + v * k_lanes);
                m_task.stream_saves ? stream<Bytes>(to + v * k_lanes, x) : store<float, Bytes>(to + v * k_lanes, x);
            }
            for (std::size_t j = 0; j < columns && columns < k_columns; ++j) to[j] = row[j];
        }
    }

    std::size_t count_at(std::size_t first) const {
        const std::size_t left = first < m_t.tokens ? m_t.tokens - first : 0;
        return left < m_task.chunk ? left : m_task.chunk;
    }

    // Prefetches what is read next, a little at a time during the tiles of unit u, because rows are pages apart: the
    // values of the next unit, and this unit's share of the keys that are packed after this key head's units.
    void expect(std::size_t u, std::size_t first) {
        std::size_t begin = u;
        std::size_t end = u + 1;
        while (begin > 0 && m_t.units[begin - 1].key_head == m_t.units[u].key_head) --begin;
        while (end < m_t.unit_count && m_t.units[end].key_head == m_t.units[u].key_head) ++end;
        m_next.clear();
        const std::size_t value_row = u + 1 < m_t.unit_count ? first : first + m_task.chunk;
        const FusedUnit& unit = m_t.units[u + 1 < m_t.unit_count ? u + 1 : 0];
        m_next.add(address_of(m_t.v, (value_row * m_t.Hv + unit.value_head) * m_t.dv + unit.column),
                   element_size(m_t.v.storage), m_t.Hv * m_t.dv, count_at(value_row), columns_of(unit));
        const std::size_t key_row = end < m_t.unit_count ? first : first + m_task.chunk;
        const std::size_t rows = count_at(key_row);
        const std::size_t from = rows * (u - begin) / (end - begin);
        const std::size_t to = rows * (u - begin + 1) / (end - begin);
        const std::size_t at =
            ((key_row + from) * m_t.Hk + m_t.units[end < m_t.unit_count ? end : 0].key_head) * m_t.dk;
        m_next.add(address_of(m_t.k, at), element_size(m_t.k.storage), m_t.Hk * m_t.dk, to - from, m_t.dk);
        m_next.add(address_of(m_t.q, at), element_size(m_t.q.storage), m_t.Hk * m_t.dk, to - from, m_t.dk);
        m_next.spread(2 * (m_rows / Rows) + (m_t.dk + Rows - 1) / Rows);
    }

    void chunk(std::size_t first, std::size_t count) {
        const std::size_t padded = rounded(count, k_columns > Rows ? k_columns : Rows);
        m_padded = padded < m_s.chunk ? padded : m_s.chunk;
        m_rows = rounded(count, Rows);
        for (std::size_t u = 0; u < m_t.unit_count; ++u) {
            const FusedUnit& unit = m_t.units[u];
            const bool new_key = u == 0 || m_t.units[u - 1].key_head != unit.key_head;
            if (new_key) {
                pack(unit.key_head, first, count);
                gram();
            }
            if (new_key || m_t.units[u - 1].value_head != unit.value_head) {
                const std::size_t at = first * m_t.Hv + unit.value_head;
                chunk_decay({m_t.g + at, m_t.beta + at, m_t.Hv}, m_task.fp32_sums, count, m_padded, m_decay);
                decayed();
            }
            panel_of(u, first, count);
        }
    }

    // K by rows, and K and Q by columns; 0 in rows from `count` on and columns from dk on.
    void pack(std::size_t key_head, std::size_t first, std::size_t count) {
        for (std::size_t i = 0; i < m_padded; ++i) {
            const std::size_t at = ((first + i) * m_t.Hk + key_head) * m_t.dk;
            pack_row(m_t.k, at, i < count ? m_t.dk : 0, m_k + i * m_s.rows);
            pack_row(m_t.q, at, i < count ? m_t.dk : 0, m_q + i * m_s.rows);
        }
        transpose<Bytes>(m_k, m_s.rows, m_kt, m_s.chunk, m_padded, m_s.rows);
        transpose<Bytes>(m_q, m_s.rows, m_qt, m_s.chunk, m_padded, m_s.rows);
    }

    // The first `width` elements of a row, normalised if requested.
    void pack_row(const ConstValues& values, std::size_t at, std::size_t width, float* to) const {
        // If widened, they are already in place.
        const float* from = row(values, at, width, to);
        std::size_t x = 0;
        Vector sums = {};
        for (; x + k_lanes <= width; x += k_lanes) {
            const Vector part = load<float, Bytes>(from + x);
            sums += part * part;
            store<float, Bytes>(to + x, part);
        }
        float sum = 0;
        for (; x < width; ++x) {
            to[x] = from[x];
            sum += from[x] * from[x];
        }
        for (; x < m_s.rows; ++x) to[x] = 0;
        if (width == 0 || !m_t.normalise) return;
        for (std::size_t lane = 0; lane < k_lanes; ++lane) sum += sums[lane];
        const float factor = 1 / __builtin_sqrtf(sum + m_t.eps);
        for (x = 0; x < m_s.rows; x += k_lanes) store<float, Bytes>(to + x, load<float, Bytes>(to + x) * factor);
    }

    static const float* row(const ConstValues& x, std::size_t at, std::size_t count, float* room) {
        if constexpr (Narrow) return row_of<Bytes>(x, at, count, room);
        return static_cast<const float*>(x.data) + at;
    }

    // kk[j][i] = K_j . K_i and qk[j][i] = K_j . Q_i, for tiles that contain some i >= j.
    void gram() {
        for (std::size_t j = 0; j < m_rows; j += Rows) {
            for (std::size_t i = j / k_columns * k_columns; i < m_padded; i += k_columns) {
                Sums acc;
                acc.clear();
                acc.add({m_kt + j, m_s.chunk, 1}, {m_kt + i, m_s.chunk}, m_t.dk);
                acc.keep(m_kk + j * m_s.chunk + i, m_s.chunk);
                acc.clear();
                acc.add({m_kt + j, m_s.chunk, 1}, {m_qt + i, m_s.chunk}, m_t.dk);
                acc.keep(m_qk + j * m_s.chunk + i, m_s.chunk);
            }
        }
    }

    // m[j][i] = beta_i kk Gam_ij for i > j, p[j][i] = s qk Gam_ij for i >= j; elsewhere a true 0, not a product with 0.
    void decayed() {
        for (std::size_t j = 0; j < m_rows; ++j) {
            for (std::size_t i = j / k_columns * k_columns; i < m_padded; i += k_lanes) {
                const std::size_t at = j * m_s.chunk + i;
                const Vector difference = (load<float, Bytes>(m_decay.high + i) - m_decay.high[j]) +
                                          (load<float, Bytes>(m_decay.low + i) - m_decay.low[j]);
                Vector row = {};
                for (std::size_t lane = 0; lane < k_lanes; ++lane) row[lane] = static_cast<float>(lane);
                const Vector below = row + (static_cast<float>(i) - static_cast<float>(j));
                const auto same = load<float, Bytes>(m_decay.stretch + i) == m_decay.stretch[j];
                const Vector gamma = exponential<Bytes>(difference);
                const Vector none = {};
                store<float, Bytes>(m_m + at, (below > 0) & same ? load<float, Bytes>(m_decay.beta + i) *
                                                                       load<float, Bytes>(m_kk + at) * gamma
                                                                 : none);
                store<float, Bytes>(m_p + at,
                                    (below >= 0) & same ? m_t.scale * load<float, Bytes>(m_qk + at) * gamma : none);
            }
        }
    }

    void panel_of(std::size_t u, std::size_t first, std::size_t count) {
        const FusedUnit& unit = m_t.units[u];
        const std::size_t stride = m_t.Hv * m_t.dv;
        const std::size_t at = first * stride + unit.value_head * m_t.dv + unit.column;
        const std::size_t columns = columns_of(unit);
        float* S = panel(u);
        expect(u, first);
        if (m_task.states != nullptr && first / m_task.chunk % m_task.segment == 0) {
            save_state(u, first);
        }
        for (std::size_t i = 0; i < m_rows; i += Rows) {
            Sums acc;
            acc.clear();
            m_next.fetch();
            acc.add({m_kt + i, m_s.chunk, 1}, {S, k_columns}, m_t.dk);
            right_hand_side(acc, i, count, at, columns);
            solve(acc, i);
            acc.keep(m_u + i * k_columns, k_columns);
            if (m_task.u != nullptr) write(acc, i, count, m_task.u + at, m_task.stream_saves, columns);
            acc.clear();
            m_next.fetch();
            acc.add({m_qt + i, m_s.chunk, 1}, {S, k_columns}, m_t.dk);
            for (std::size_t y = 0; y < Rows; ++y) {
                for (std::size_t v = 0; v < k_vectors; ++v) acc.at[y][v] *= m_t.scale * m_decay.from_start[i + y];
            }
            acc.add({m_p + i, m_s.chunk, 1}, {m_u, k_columns}, i + Rows);
            write_out(acc, i, count, at, columns);
        }
        carry(S, count);
    }

    // beta (v - e^c K S), with K S in acc; v of the chunk begins at `at`.
    void right_hand_side(Sums& acc, std::size_t i, std::size_t count, std::size_t at, std::size_t columns) const {
        for (std::size_t y = 0; y < Rows; ++y) {
            float padded[k_columns] = {};
            const bool there = i + y < count;
            const float* values = row(m_t.v, at + (i + y) * m_t.Hv * m_t.dv, there ? columns : 0, padded);
            if (!there || columns < k_columns) {
                for (std::size_t j = 0; there && j < columns; ++j) padded[j] = values[j];
                values = padded;
            }
            for (std::size_t x = 0; x < k_vectors; ++x) {
                acc.at[y][x] = m_decay.beta[i + y] *
                               (load<float, Bytes>(values + x * k_lanes) - m_decay.from_start[i + y] * acc.at[y][x]);
            }
        }
    }

    void solve(Sums& acc, std::size_t i) const {
        acc.template add<-1>({m_m + i, m_s.chunk, 1}, {m_u, k_columns}, i);
        for (std::size_t y = 0; y < Rows; ++y) {
            for (std::size_t v = 0; v < k_vectors; ++v) {
                Vector x = acc.at[y][v];
                for (std::size_t z = 0; z < y; ++z) x -= m_m[(i + z) * m_s.chunk + i + y] * acc.at[z][v];
                acc.at[y][v] = x;
            }
        }
    }

    // Rows of U or, in fp32, of `out`.
    void write(const Sums& acc, std::size_t i, std::size_t count, float* to, bool streamed, std::size_t columns) const {
        for (std::size_t y = 0; y < Rows && i + y < count; ++y) {
            float* at = to + (i + y) * m_t.Hv * m_t.dv;
            for (std::size_t v = 0; v < k_vectors; ++v) {
                if (columns < k_columns) {
                    for (std::size_t lane = 0; lane < k_lanes && v * k_lanes + lane < columns; ++lane) {
                        at[v * k_lanes + lane] = acc.at[y][v][lane];
                    }
                } else if (streamed) {
                    stream<Bytes>(at + v * k_lanes, acc.at[y][v]);
                } else {
                    store<float, Bytes>(at + v * k_lanes, acc.at[y][v]);
                }
            }
        }
    }

    void write_out(const Sums& acc, std::size_t i, std::size_t count, std::size_t at, std::size_t columns) const {
        if (!Narrow || m_t.out.storage == Storage::f32) {
            return write(acc, i, count, static_cast<float*>(m_t.out.data) + at, m_t.stream_out, columns);
        }
        for (std::size_t y = 0; y < Rows && i + y < count; ++y, at += m_t.Hv * m_t.dv) {
            const std::size_t first = at + i * m_t.Hv * m_t.dv;
            for (std::size_t v = 0; v < k_vectors; ++v) {
                if (columns < k_columns) {
                    for (std::size_t lane = 0; lane < k_lanes && v * k_lanes + lane < columns; ++lane) {
                        set_value(m_t.out, first + v * k_lanes + lane, acc.at[y][v][lane]);
                    }
                } else if (m_t.stream_out) {
                    stream<Bytes>(m_t.out, first + v * k_lanes, acc.at[y][v]);
                } else {
                    store<Bytes>(m_t.out, first + v * k_lanes, acc.at[y][v]);
                }
            }
        }
    }

    void carry(float* S, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t v = 0; v < k_vectors; ++v) {
                float* at = m_u + i * k_columns + v * k_lanes;
                store<float, Bytes>(at, load<float, Bytes>(at) * m_decay.to_end[i]);
            }
        }
        for (std::size_t x = 0; x < m_t.dk; x += Rows) {
            Sums acc;
            m_next.fetch();
            for (std::size_t y = 0; y < Rows; ++y) {
                for (std::size_t v = 0; v < k_vectors; ++v) {
                    acc.at[y][v] = load<float, Bytes>(S + (x + y) * k_columns + v * k_lanes) * m_decay.whole;
                }
            }
            acc.add({m_k + x, m_s.rows, 1}, {m_u, k_columns}, count);
            acc.keep(S + x * k_columns, k_columns);
        }
    }

    const ChunkTask& m_task;
    const FusedTask& m_t;
    Sizes m_s;
    std::size_t m_padded = 0;  // rows of this chunk in whole vectors
    std::size_t m_rows = 0;    // and in whole tiles
    float *m_k, *m_q, *m_kt, *m_qt, *m_kk, *m_qk, *m_m, *m_p, *m_u;
    float* m_panels;
    Prefetch m_next;
    ChunkDecay m_decay;
};

// Both forms of the chunked forward for one instruction set.

template <int Bytes, std::size_t Rows>
ChunkKernel chunk_kernel() {
    using Plain = ChunkSweep<Bytes, Rows, false>;
    using Stored = ChunkSweep<Bytes, Rows, true>;
    return {Plain::k_columns, Plain::scratch, [](const ChunkTask& task) {
                const FusedTask& t = task.what;
                const bool plain = t.q.storage == Storage::f32 && t.k.storage == Storage::f32 &&
                                   t.v.storage == Storage::f32 && t.out.storage == Storage::f32;
                plain ? Plain(task).run() : Stored(task).run();
            }};
}

}  // namespace

ChunkKernel GDNCTL_KERNEL(chunk)() { return chunk_kernel<GDNCTL_BYTES, GDNCTL_BYTES == 64 ? 8 : 4>(); }

}  // namespace gdnctl::oracle
