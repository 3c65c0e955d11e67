// One sweep over a panel of S per block of tokens. Each row of the panel is loaded once, receives the previous block's
// write, is stored, and feeds S^T k and S^T q of this block. Sums stay in registers, and S stays in the first-level
// cache during a segment. Segments are the outer loop, so that rows of v, out, k and q on the same pages are used
// together.
#include "oracle/gdn/kernels/simd/fused_task.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {
namespace {

// Lanes: Bytes / 4. Tokens per block and Vectors per panel are chosen for the number of registers.
template <int Bytes, std::size_t Tokens, std::size_t Vectors>
class FusedSweep {
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    static constexpr std::size_t k_blocks = k_fused_segment / Tokens;
    static constexpr std::size_t k_line = 64;  // bytes
    static constexpr std::size_t k_ahead = 4;  // tokens between a prefetch of v and its use

public:
    static constexpr std::size_t k_columns = Vectors * k_lanes;

    // In floats. Every part starts at a multiple of 64 bytes.
    static std::size_t scratch(std::size_t dk, std::size_t units) {
        return packed_size(dk) + rows_size(dk) + units * unit_size(dk);
    }

    explicit FusedSweep(const FusedTask& task)
        : m_t(task),
          m_packed(task.scratch + rounded(2 * Tokens * task.dk)),
          m_rows(task.scratch + packed_size(task.dk)),
          m_units(m_rows + rows_size(task.dk)) {}

    void run() {
        for (std::size_t u = 0; u < m_t.unit_count; ++u) begin(u);
        for (std::size_t first = 0; first < m_t.tokens; first += k_fused_segment) {
            const std::size_t left = m_t.tokens - first;
            segment(first, left < k_fused_segment ? left : k_fused_segment);
        }
        for (std::size_t u = 0; u < m_t.unit_count; ++u) end(u);
        if (m_t.stream_out) end_of_stream();
    }

private:
    // For one unit, after its panel: what the next block must still write to it.
    struct alignas(64) Pending {
        Vector d[Tokens][Vectors];
        FusedHead head;
        float keep;
    };
    static std::size_t rounded(std::size_t floats) { return (floats + 15) / 16 * 16; }
    // One block: for each row i, the Tokens elements of k, then those of q.
    std::size_t block_size() const { return 2 * Tokens * m_t.dk; }
    // Plus one block in front: the last of the previous segment.
    static std::size_t packed_size(std::size_t dk) {
        return rounded(2 * Tokens * dk) + rounded(k_blocks * 2 * Tokens * dk);
    }
    // Rows of k and q of one block, if those are not fp32.
    static std::size_t rows_size(std::size_t dk) { return 2 * Tokens * rounded(dk); }
    // The panel, pending writes, and the key head's last block (in the first unit of each key head).
    static std::size_t unit_size(std::size_t dk) {
        return rounded(dk * k_columns) + sizeof(Pending) / sizeof(float) + rounded(2 * Tokens * dk);
    }

    float* panel(std::size_t u) const { return m_units + u * unit_size(m_t.dk); }
    Pending& pending(std::size_t u) const {
        return *reinterpret_cast<Pending*>(panel(u) + rounded(m_t.dk * k_columns));
    }
    float* last_block(std::size_t u) const {
        return panel(u) + rounded(m_t.dk * k_columns) + sizeof(Pending) / sizeof(float);
    }

    std::size_t columns_of(const FusedUnit& unit) const {
        return m_t.dv - unit.column < k_columns ? m_t.dv - unit.column : k_columns;
    }

    void begin(std::size_t u) {
        const FusedUnit& unit = m_t.units[u];
        const std::size_t columns = columns_of(unit);
        const std::size_t from = unit.value_head * m_t.dk * m_t.dv + unit.column;
        float* S = panel(u);
        for (std::size_t i = 0; i < m_t.dk; ++i) {
            for (std::size_t j = 0; j < k_columns; ++j) {
                S[i * k_columns + j] =
                    j < columns && m_t.initial_state != nullptr ? m_t.initial_state[from + i * m_t.dv + j] : 0;
            }
        }
        pending(u) = Pending{{}, {}, 1};
        for (std::size_t i = 0; i < block_size(); ++i) last_block(u)[i] = 0;
    }

    // Writes what is pending and multiplies sigma into the state.
    void end(std::size_t u) {
        const FusedUnit& unit = m_t.units[u];
        const Pending& p = pending(u);
        const std::size_t columns = columns_of(unit);
        const std::size_t to = unit.value_head * m_t.dk * m_t.dv + unit.column;
        const float* keys = last_block(first_of_key_head(u));
        const auto sigma = static_cast<float>(p.head.sigma);
        for (std::size_t i = 0; i < m_t.dk; ++i) {
            for (std::size_t x = 0; x < Vectors; ++x) {
                Vector s = load<float, Bytes>(panel(u) + i * k_columns + x * k_lanes) * p.keep;
                for (std::size_t y = 0; y < Tokens; ++y) s += keys[i * 2 * Tokens + y] * p.d[y][x];
                s *= sigma;
                for (std::size_t lane = 0; lane < k_lanes && x * k_lanes + lane < columns; ++lane) {
                    m_t.final_state[to + i * m_t.dv + x * k_lanes + lane] = s[lane];
                }
            }
        }
    }

    std::size_t first_of_key_head(std::size_t u) const {
        while (u > 0 && m_t.units[u - 1].key_head == m_t.units[u].key_head) --u;
        return u;
    }

    void segment(std::size_t first, std::size_t count) {
        for (std::size_t u = 0; u < m_t.unit_count; ++u) {
            const FusedUnit& unit = m_t.units[u];
            const bool new_key = u == 0 || m_t.units[u - 1].key_head != unit.key_head;
            if (new_key) {
                float* before = m_packed - block_size();
                for (std::size_t i = 0; i < block_size(); ++i) before[i] = last_block(u)[i];
                pack(unit.key_head, first, count);
                expect(u, first, count);
                const float* last = m_packed + (count - 1) / Tokens * block_size();
                for (std::size_t i = 0; i < block_size(); ++i) last_block(u)[i] = last[i];
            }
            Pending& own = pending(u);
            if (new_key || m_t.units[u - 1].value_head != unit.value_head) {
                fused_factors(m_t, unit.value_head, first, count, Tokens, m_dots, own.head, m_factors);
            } else {
                own.head = pending(u - 1).head;
            }
            sweep(u, first, count);
        }
    }

    // Prefetches the rows of K and Q that are packed next, of the next key head or the next segment, a little at a time
    // during the sweeps of unit u and its neighbours.
    void expect(std::size_t u, std::size_t first, std::size_t count) {
        std::size_t next = u;
        while (next < m_t.unit_count && m_t.units[next].key_head == m_t.units[u].key_head) ++next;
        const std::size_t blocks = (next - u) * ((count + Tokens - 1) / Tokens);
        std::size_t rows = count;
        std::size_t key_head = next < m_t.unit_count ? m_t.units[next].key_head : m_t.units[0].key_head;
        if (next == m_t.unit_count) {
            first += count;
            rows = m_t.tokens - first < k_fused_segment ? m_t.tokens - first : k_fused_segment;
        }
        m_next.offset = (first * m_t.Hk + key_head) * m_t.dk;
        m_next.rows = rows;
        m_next.line = 0;
        m_next.step = k_line / element_size(m_t.k.storage);
        m_next.lines = (2 * rows * ((m_t.dk + m_next.step - 1) / m_next.step) + blocks - 1) / blocks;
    }

    void prefetch_next() {
        for (std::size_t n = 0; n < m_next.lines && m_next.rows > 0; n += 2) {
            __builtin_prefetch(address_of(m_t.k, m_next.offset + m_next.line), 0, 2);
            __builtin_prefetch(address_of(m_t.q, m_next.offset + m_next.line), 0, 2);
            m_next.line += m_next.step;
            if (m_next.line >= m_t.dk) {
                m_next.line = 0;
                m_next.offset += m_t.Hk * m_t.dk;
                --m_next.rows;
            }
        }
    }

    void pack(std::size_t key_head, std::size_t first, std::size_t count) {
        const std::size_t stride = m_t.Hk * m_t.dk;
        for (std::size_t t = 0; t < count; t += Tokens) {
            const float* rows[2 * Tokens];
            float factors[2 * Tokens];
            for (std::size_t y = 0; y < Tokens; ++y) {
                const bool there = t + y < count;
                const std::size_t at = (first + t + y) * stride + key_head * m_t.dk;
                float* room = m_rows + 2 * y * rounded(m_t.dk);
                rows[y] = there ? row_of<Bytes>(m_t.k, at, m_t.dk, room) : nullptr;
                rows[Tokens + y] = there ? row_of<Bytes>(m_t.q, at, m_t.dk, room + rounded(m_t.dk)) : nullptr;
                factors[y] = there ? factor_of(rows[y]) : 0;
                factors[Tokens + y] = there ? factor_of(rows[Tokens + y]) : 0;
            }
            pack_block(rows, factors, m_packed + t / Tokens * block_size(), m_dots + t / Tokens * 4);
        }
    }

    // 1, or 1 / |row|.
    float factor_of(const float* row) const {
        if (!m_t.normalise) return 1;
        return 1 / __builtin_sqrtf(dot(row, row) + m_t.eps);
    }

    float dot(const float* a, const float* b) const {
        Vector sums = {};
        std::size_t i = 0;
        for (; i + k_lanes <= m_t.dk; i += k_lanes) sums += load<float, Bytes>(a + i) * load<float, Bytes>(b + i);
        float sum = 0;
        for (std::size_t lane = 0; lane < k_lanes; ++lane) sum += sums[lane];
        for (; i < m_t.dk; ++i) sum += a[i] * b[i];
        return sum;
    }

    void pack_block(const float* const* rows, const float* factors, float* to, float* dots) const {
        const std::size_t dk = m_t.dk;
        if constexpr (Tokens == 1) {
            for (std::size_t i = 0; i < dk; ++i) {
                to[2 * i] = rows[0][i] * factors[0];
                to[2 * i + 1] = rows[1][i] * factors[1];
            }
            dots[0] = dots[2] = dots[3] = 0;
            dots[1] = dot(rows[0], rows[1]) * factors[0] * factors[1];
        } else {
            const float *k0 = rows[0], *q0 = rows[2];
            if (rows[1] == nullptr) {
                for (std::size_t i = 0; i < dk; ++i) {
                    to[4 * i] = k0[i] * factors[0];
                    to[4 * i + 1] = to[4 * i + 3] = 0;
                    to[4 * i + 2] = q0[i] * factors[2];
                }
                dots[0] = dots[2] = dots[3] = 0;
                dots[1] = dot(k0, q0) * factors[0] * factors[2];
                return;
            }
            const float *k1 = rows[1], *q1 = rows[3];
            for (std::size_t i = 0; i < dk; ++i) {
                to[4 * i] = k0[i] * factors[0];
                to[4 * i + 1] = k1[i] * factors[1];
                to[4 * i + 2] = q0[i] * factors[2];
                to[4 * i + 3] = q1[i] * factors[3];
            }
            dots[0] = dot(k0, k1) * factors[0] * factors[1];
            dots[1] = dot(k0, q0) * factors[0] * factors[2];
            dots[2] = dot(k0, q1) * factors[0] * factors[3];
            dots[3] = dot(k1, q1) * factors[1] * factors[3];
        }
    }

    void sweep(std::size_t u, std::size_t first, std::size_t count) {
        const FusedUnit& unit = m_t.units[u];
        const std::size_t stride = m_t.Hv * m_t.dv;
        const std::size_t at = first * stride + unit.value_head * m_t.dv + unit.column;
        const std::size_t columns = columns_of(unit);
        const std::size_t whole = columns == k_columns ? count / Tokens * Tokens : 0;
        const std::size_t width = k_columns * element_size(m_t.v.storage);  // bytes
        float* S = panel(u);
        Pending p = pending(u);
        const float* packed = m_packed;
        const FusedBlock* factors = m_factors;
        std::size_t t = 0;
        for (; t < whole; t += Tokens, packed += block_size(), ++factors) {
            for (std::size_t y = 0; y < Tokens; ++y) {
                const char* ahead = address_of(m_t.v, at + (t + k_ahead + y) * stride);
                for (std::size_t j = 0; j < width; j += k_line) __builtin_prefetch(ahead + j);
            }
            prefetch_next();
            block(S, packed, *factors, WholeRows{m_t, at + t * stride, stride}, p);
        }
        for (; t < count; t += Tokens, packed += block_size(), ++factors) {
            // Part of a panel or of a block: goes through rows of full width.
            float v[Tokens * k_columns] = {};
            float out[Tokens * k_columns];
            for (std::size_t y = 0; y < Tokens && t + y < count; ++y) {
                for (std::size_t j = 0; j < columns; ++j)
                    v[y * k_columns + j] = value_at(m_t.v, at + (t + y) * stride + j);
            }
            block(S, packed, *factors, PartRows{v, out}, p);
            for (std::size_t y = 0; y < Tokens && t + y < count; ++y) {
                for (std::size_t j = 0; j < columns; ++j)
                    set_value(m_t.out, at + (t + y) * stride + j, out[y * k_columns + j]);
            }
        }
        pending(u) = p;
    }

    // Rows of v and out of one block: the caller's, or copies of full width.
    struct WholeRows {
        const FusedTask& task;
        std::size_t at, stride;

        Vector value(std::size_t y, std::size_t x) const { return load<Bytes>(task.v, at + y * stride + x * k_lanes); }
        void put(std::size_t y, std::size_t x, Vector o) const {
            if (task.stream_out) {
                stream<Bytes>(task.out, at + y * stride + x * k_lanes, o);
            } else {
                store<Bytes>(task.out, at + y * stride + x * k_lanes, o);
            }
        }
    };
    struct PartRows {
        const float* v;
        float* out;

        Vector value(std::size_t y, std::size_t x) const { return load<float, Bytes>(v + y * k_columns + x * k_lanes); }
        void put(std::size_t y, std::size_t x, Vector o) const {
            store<float, Bytes>(out + y * k_columns + x * k_lanes, o);
        }
    };

    template <class RowsOfBlock>
    void block(float* S, const float* packed, const FusedBlock& f, const RowsOfBlock& own, Pending& p) const {
        Vector with_k[Tokens][Vectors], with_q[Tokens][Vectors];
        if (p.keep == 1) {
            rows<false>(S, packed, p, with_k, with_q);
        } else {
            rows<true>(S, packed, p, with_k, with_q);
        }
        for (std::size_t x = 0; x < Vectors; ++x) {
            Vector d[Tokens];
            for (std::size_t y = 0; y < Tokens; ++y) {
                d[y] = f.beta[y] * own.value(y, x) + f.from_state[y] * with_k[y][x];
                if (y == 1) d[y] += f.d0_in_d1 * d[0];
                Vector o = f.out_state[y] * with_q[y][x] + f.out_d0[y] * d[0];
                if (y == 1) o += f.out_d1 * d[y];
                own.put(y, x, o);
                p.d[y][x] = f.write[y] * d[y];
            }
        }
        p.keep = f.keep;
    }

    template <bool Keep>
    void rows(float* S, const float* packed, const Pending& p, Vector (&with_k)[Tokens][Vectors],
              Vector (&with_q)[Tokens][Vectors]) const {
        const float* before = packed - block_size();
        const std::size_t dk = m_t.dk;
        const float keep = p.keep;
        Vector d[Tokens][Vectors], sk[Tokens][Vectors], sq[Tokens][Vectors];
        for (std::size_t y = 0; y < Tokens; ++y) {
            for (std::size_t x = 0; x < Vectors; ++x) {
                d[y][x] = p.d[y][x];
                sk[y][x] = Vector{};
                sq[y][x] = Vector{};
            }
        }
#pragma GCC unroll 2
        for (std::size_t i = 0; i < dk; ++i) {
            float* row = S + i * k_columns;
            // Read before the row is stored, because the compiler must assume that a store changes them.
            Vector k_before[Tokens], k[Tokens], q[Tokens];
            for (std::size_t y = 0; y < Tokens; ++y) {
                k_before[y] = broadcast<Bytes>(before + i * 2 * Tokens + y);
                k[y] = broadcast<Bytes>(packed + i * 2 * Tokens + y);
                q[y] = broadcast<Bytes>(packed + i * 2 * Tokens + Tokens + y);
            }
            for (std::size_t x = 0; x < Vectors; ++x) {
                Vector s = load<float, Bytes>(row + x * k_lanes);
                if constexpr (Keep) s *= keep;
                for (std::size_t y = 0; y < Tokens; ++y) s += k_before[y] * d[y][x];
                store<float, Bytes>(row + x * k_lanes, s);
                for (std::size_t y = 0; y < Tokens; ++y) {
                    sk[y][x] += k[y] * s;
                    sq[y][x] += q[y] * s;
                }
            }
        }
        for (std::size_t y = 0; y < Tokens; ++y) {
            for (std::size_t x = 0; x < Vectors; ++x) {
                with_k[y][x] = sk[y][x];
                with_q[y][x] = sq[y][x];
            }
        }
    }

    const FusedTask& m_t;
    float* m_packed;  // block -1 is the last of the previous segment
    float* m_rows;
    float* m_units;
    struct Expected {
        std::size_t offset = 0, rows = 0, line = 0, lines = 0, step = 0;  // in elements
    };
    Expected m_next;
    float m_dots[k_blocks * 4];
    FusedBlock m_factors[k_blocks];
};

}  // namespace

FusedKernel GDNCTL_KERNEL(fused)() {
    constexpr bool k_many_registers = GDNCTL_BYTES == 64;
    using Sweep = FusedSweep<GDNCTL_BYTES, k_many_registers ? 2 : 1, k_many_registers ? 2 : 4>;
    return {Sweep::k_columns, Sweep::scratch, [](const FusedTask& task) { Sweep(task).run(); }};
}

}  // namespace gdnctl::oracle
