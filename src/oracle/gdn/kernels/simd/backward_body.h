// Every product is computed in tiles of Height x 2 vectors whose sums stay in registers. There are two kinds. One has
// columns of v in the lanes (dU and the substitution, the state's gradient). The other has tokens in the lanes
// (everything that ends in dQ and dK). For these, neither S nor D needs to be transposed: their elements are the
// factors, and sums over tokens are lane by lane.
#pragma once

#include "oracle/gdn/kernels/simd/backward_data.h"
#include "oracle/gdn/kernels/simd/backward_pairs.h"
#include "oracle/gdn/kernels/simd/backward_work.h"
#include "oracle/simd/phase_timer.h"
#include "oracle/simd/prefetch.h"

namespace gdnctl::oracle {
namespace {

template <int Bytes, std::size_t Height>
class BackwardSweep {
    using Data = BackwardData<Bytes>;
    using Vector = typename VectorOf<float, Bytes>::type;
    using Sums = Tile<Bytes, Height, 2>;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    static constexpr std::size_t k_rows = Data::k_rows;
    static constexpr std::size_t k_columns = Data::k_columns;

public:
    explicit BackwardSweep(const BackwardTask& task) : m_t(task), m_(task), m_pairs(m_t, m_), m_timer(task.phases) {
        m_direct = m_.dk == task.dk && m_.dv == task.dv;
    }

    void run() {
        for (std::size_t h = 0; h < m_t.value_head_count; ++h) {
            const float* from = m_t.d_final_state == nullptr ? nullptr : m_t.d_final_state + head_state(h);
            m_.load_gradient(m_t, from, gradient(h));
        }
        const std::size_t chunks = (m_t.tokens + k_rows - 1) / k_rows;
        for (std::size_t end = chunks; end > 0;) {
            const std::size_t begin = (end - 1) / m_t.segment * m_t.segment;
            restore(begin, end);
            for (std::size_t c = end; c-- > begin;) {
                for (std::size_t k = 0; k < m_t.key_count; ++k) chunk(c, c - begin, k);
            }
            end = begin;
        }
        for (std::size_t h = 0; h < m_t.value_head_count; ++h) {
            m_.store_gradient(m_t, gradient(h), m_t.d_initial_state + head_state(h));
        }
        if (m_t.stream_out) end_of_stream();
        m_timer.end(Phase::packing, 0, 2 * m_t.value_head_count * m_t.dk * m_t.dv);
    }

private:
    std::size_t count_of(std::size_t chunk) const {
        const std::size_t left = m_t.tokens - chunk * k_rows;
        return left < k_rows ? left : k_rows;
    }
    std::size_t head_state(std::size_t h) const { return m_t.value_heads[h] * m_t.dk * m_t.dv; }
    std::size_t key_at(std::size_t chunk, std::size_t k) const {
        return (chunk * k_rows * m_t.Hk + m_t.keys[k].head) * m_t.dk;
    }
    std::size_t gate_at(std::size_t chunk, std::size_t h) const { return chunk * k_rows * m_t.Hv + m_t.value_heads[h]; }
    float* gradient(std::size_t h) const { return m_.gradient + h * m_.dk * m_.dv; }
    float* state_room(std::size_t h, std::size_t index) const {
        return m_.states + (h * m_t.segment + index) * m_.dk * m_.dv;
    }

    // Restores the states at the starts of the chunks [begin, end) of one segment: the first was saved, and each of the
    // others follows from the previous one and its chunk's U.
    void restore(std::size_t begin, std::size_t end) {
        for (std::size_t h = 0; h < m_t.value_head_count; ++h) {
            const float* saved = m_t.states + begin / m_t.segment * m_t.Hv * m_t.dk * m_t.dv + head_state(h);
            if (!m_direct) m_.pack_state(m_t, saved, state_room(h, 0));
        }
        for (std::size_t i = 0; i < (end - begin - 1) * m_t.key_count; ++i) {
            const std::size_t c = begin + i / m_t.key_count;
            const BackwardKey& key = m_t.keys[i % m_t.key_count];
            m_.pack_keys(m_t, m_t.k + key_at(c, i % m_t.key_count), k_rows, m_.k, m_.k_factor);
            for (std::size_t h = key.begin; h < key.end; ++h) {
                decays(c, h);
                m_.pack_values(m_t, m_t.u + gate_at(c, h) * m_t.dv, k_rows, nullptr, m_.decay.to_end, m_.u);
                carry(state_at(begin, h, c - begin), state_room(h, c - begin + 1));
            }
            m_timer.end(Phase::restoring, (key.end - key.begin) * m_work.product(),
                        k_rows * (m_t.dk + (key.end - key.begin) * m_t.dv));
        }
    }

    const float* state_at(std::size_t begin, std::size_t h, std::size_t index) const {
        if (index > 0 || !m_direct) return state_room(h, index);
        return m_t.states + begin / m_t.segment * m_t.Hv * m_t.dk * m_t.dv + head_state(h);
    }

    // to = e^(c_last) from + K^T U, U scaled
    void carry(const float* from, float* to) const {
        for (std::size_t column = 0; column < m_.dv; column += k_columns) {
            for (std::size_t x = 0; x < m_.dk; x += Height) {
                Sums sums;
                sums.take(from + x * m_.dv + column, m_.dv);
                for (auto& row : sums.at) {
                    for (Vector& v : row) v *= m_.decay.whole;
                }
                sums.add({m_.k + x, m_.dk, 1}, {m_.u + column * k_rows, k_columns}, k_rows);
                sums.keep(to + x * m_.dv + column, m_.dv);
            }
        }
    }

    // Chunk c of the task's k-th key head, with position `index` in its segment.
    void chunk(std::size_t c, std::size_t index, std::size_t k) {
        const std::size_t count = count_of(c);
        const std::size_t keys = key_at(c, k);
        m_.pack_keys(m_t, m_t.k + keys, count, m_.k, m_.k_factor);
        m_.pack_keys(m_t, m_t.q + keys, count, m_.q, m_.q_factor);
        transpose<Bytes>(m_.k, m_.dk, m_.kt, k_rows, k_rows, m_.dk);
        transpose<Bytes>(m_.q, m_.dk, m_.qt, k_rows, k_rows, m_.dk);
        m_timer.end(Phase::packing, 0, 2 * count * m_t.dk);
        m_pairs.gram();
        m_timer.end(Phase::gram, m_work.gram(), 0);
        for (std::size_t i = 0; i < k_rows * m_.dk; ++i) m_.dqt[i] = m_.dkt[i] = 0;
        for (std::size_t h = m_t.keys[k].begin; h < m_t.keys[k].end; ++h) {
            const std::size_t at = gate_at(c, h);
            decays(c, h);
            m_pairs.decayed();
            m_timer.end(Phase::decay, 0, 2 * count);
            expect(c, h, index, k);
            m_.pack_values(m_t, m_t.d_out + at * m_t.dv, count, m_.d_out, m_.scale_out, m_.d_out_scaled);
            m_.transpose_values(m_.d_out, m_.d_out_t);
            m_.pack_values(m_t, m_t.u + at * m_t.dv, count, m_.u, nullptr, nullptr);
            m_.transpose_values(m_.u, m_.u_t);
            for (std::size_t i = 0; i < k_rows; ++i) m_.q_out[i] = m_.k_y[i] = m_.k_u[i] = 0;
            const float* S = state_at(c - index, h, index);
            m_timer.end(Phase::packing, 0, 2 * count * m_t.dv);
            solve(gradient(h), at, count);
            m_timer.end(Phase::trsm, m_work.trsm(), 2 * count * m_t.dv);
            m_.transpose_values(m_.y, m_.y_t);
            m_timer.end(Phase::packing, 0, 0);
            m_pairs.scores();
            m_pairs.weights();
            m_timer.end(Phase::scores, m_work.scores(), 0);
            queries(S);
            m_timer.end(Phase::dq, m_work.dq(), index == 0 ? m_t.dk * m_t.dv : 0);
            keys_from_state(S);
            m_timer.end(Phase::dk_from_state, m_work.product(), 0);
            keys_from_gradient(gradient(h));
            m_timer.end(Phase::dk_from_gradient, m_work.dk_from_gradient(), 0);
            const float dot = state(gradient(h), S);
            m_timer.end(Phase::state, m_work.state(), 0);
            gates(at, count, dot);
            m_timer.end(Phase::decay, 0, 2 * count);
        }
        m_.write_keys(m_t, m_.dqt, m_.q, m_.q_factor, m_t.dq + keys, count);
        m_.write_keys(m_t, m_.dkt, m_.k, m_.k_factor, m_t.dk_out + keys, count);
        m_timer.end(Phase::packing, 0, 2 * count * m_t.dk);
    }

    // Prefetches what the next value head or chunk reads, a little at a time during the tiles of this one. Rows are
    // pages apart, where no processor prefetches by itself.
    void expect(std::size_t c, std::size_t h, std::size_t index, std::size_t k) {
        m_next.clear();
        const bool here = h + 1 < m_t.value_head_count;  // the next one belongs to this chunk
        if (here || c > 0) {
            const std::size_t chunk = here ? c : c - 1;
            const std::size_t head = here ? h + 1 : 0;
            if (head == 0 || head == m_t.keys[k].end) {
                const std::size_t at = key_at(chunk, head == 0 ? 0 : k + 1);
                expect_rows(m_t.k, at, m_t.Hk * m_t.dk, chunk, m_t.dk);
                expect_rows(m_t.q, at, m_t.Hk * m_t.dk, chunk, m_t.dk);
            }
            expect_values(chunk, head);
            if (here ? index == 0 : m_t.segment == 1) expect_state(chunk, head);
        }
        m_next.spread(tiles());
    }
    void expect_rows(const ConstValues& x, std::size_t at, std::size_t stride, std::size_t c, std::size_t width) {
        m_next.add(address_of(x, at), element_size(x.storage), stride, count_of(c), width);
    }
    void expect_values(std::size_t c, std::size_t h) {
        const std::size_t at = gate_at(c, h) * m_t.dv;
        expect_rows(m_t.d_out, at, m_t.Hv * m_t.dv, c, m_t.dv);
        expect_rows(m_t.u, at, m_t.Hv * m_t.dv, c, m_t.dv);
        expect_rows(m_t.v, at, m_t.Hv * m_t.dv, c, m_t.dv);
    }
    void expect_state(std::size_t c, std::size_t h) {
        const float* from = m_t.states + c / m_t.segment * m_t.Hv * m_t.dk * m_t.dv + head_state(h);
        m_next.add(from, sizeof(float), m_t.dv, m_t.dk, m_t.dv);
    }
    // Number of tiles in a value head's chunk, each of which prefetches.
    std::size_t tiles() const {
        const std::size_t columns = m_.dv / k_columns;
        return columns * (k_rows / Height) + m_.dk / Height * (3 * (k_rows / k_columns) + columns);
    }

    void decays(std::size_t c, std::size_t h) {
        const std::size_t at = gate_at(c, h);
        chunk_decay({m_t.g + at, m_t.beta + at, m_t.Hv}, false, count_of(c), k_rows, m_.decay);
        for (std::size_t i = 0; i < k_rows; ++i) {
            m_.scale_out[i] = m_t.scale * m_.decay.from_start[i];
            m_.scale_beta[i] = m_.decay.beta[i] * m_.decay.from_start[i];
        }
    }

    // Computes Y by substitution, starting from the last row, and dV; `at` is the first row's position among the gates.
    void solve(const float* D, std::size_t at, std::size_t count) {
        for (std::size_t i = 0; i < k_rows * k_lanes; ++i) m_.parts_yv[i] = 0;
        for (std::size_t column = 0; column < m_.dv; column += k_columns) {
            const float* d_out = m_.d_out + column * k_rows;
            float* y = m_.y + column * k_rows;
            for (std::size_t i = k_rows; i > 0;) {
                const std::size_t below = i;
                i -= Height;
                Sums sums;
                sums.clear();
                m_next.fetch();
                sums.add({m_.kt + i, k_rows, 1}, {D + column * m_.dk, k_columns}, m_t.dk);
                for (std::size_t r = 0; r < Height; ++r) {
                    for (Vector& v : sums.at[r]) v *= m_.decay.to_end[i + r];
                }
                sums.add({m_.p + i * k_rows + i, k_rows, 1}, {d_out + i * k_columns, k_columns}, k_rows - i);
                sums.template add<-1>({m_.m + below * k_rows + i, k_rows, 1}, {y + below * k_columns, k_columns},
                                      k_rows - below);
                substitute(sums, m_.m + i * k_rows + i);
                sums.keep(y + i * k_columns, k_columns);
                finish_values(sums, i, column, at, count);
            }
        }
    }

    static void substitute(Sums& sums, const float* m) {
        for (std::size_t r = Height; r-- > 0;) {
            for (std::size_t v = 0; v < 2; ++v) {
                Vector x = sums.at[r][v];
                for (std::size_t z = Height - 1; z > r; --z) x -= m[z * k_rows + r] * sums.at[z][v];
                sums.at[r][v] = x;
            }
        }
    }

    // For a tile of Y: -beta e^c Y, dV = beta Y and the sums of <Y, V>.
    void finish_values(const Sums& sums, std::size_t i, std::size_t column, std::size_t at, std::size_t count) {
        const std::size_t stride = m_t.Hv * m_t.dv;
        const bool whole = column + k_columns <= m_t.dv;
        for (std::size_t r = 0; r < Height; ++r) {
            const std::size_t row = at * m_t.dv + (i + r) * stride + column;
            float* scaled = m_.y_scaled + column * k_rows + (i + r) * k_columns;
            float* part = m_.parts_yv + (i + r) * k_lanes;
            Vector sum = load<float, Bytes>(part);
            for (std::size_t v = 0; v < 2; ++v) {
                const Vector y = sums.at[r][v];
                store<float, Bytes>(scaled + v * k_lanes, y * -m_.scale_beta[i + r]);
                if (i + r >= count) continue;
                const Vector dv = m_.decay.beta[i + r] * y;
                const std::size_t first = row + v * k_lanes;
                if (whole) {
                    sum += load<Bytes>(m_t.v, first) * y;
                    m_.put(m_t, m_t.dv_out, first, dv);
                    continue;
                }
                for (std::size_t lane = 0; lane < k_lanes && column + v * k_lanes + lane < m_t.dv; ++lane) {
                    sum[lane] += value_at(m_t.v, first + lane) * y[lane];
                    set_value(m_t.dv_out, first + lane, dv[lane]);
                }
            }
            store<float, Bytes>(part, sum);
        }
    }

    void queries(const float* S) {
        for (std::size_t x = 0; x < m_.dk; x += Height) {
            for (std::size_t t = 0; t < k_rows; t += k_columns) {
                Sums sums;
                sums.clear();
                m_next.fetch();
                sums.add({S + x * m_.dv, 1, m_.dv}, {m_.d_out_t + t, k_rows}, m_t.dv);
                sums.dot_columns(m_.qt + x * k_rows + t, k_rows, m_.q_out + t);
                sums.scale_columns(m_.scale_out + t);
                // Column t of row j of sdp_t is 0 where j > t.
                const std::size_t both = t + k_lanes;
                sums.add({m_.k + x, m_.dk, 1}, {m_.sdp_t + t, k_rows}, both);
                sums.template add<1, 1>({m_.k + both * m_.dk + x, m_.dk, 1}, {m_.sdp_t + both * k_rows + t, k_rows},
                                        k_lanes);
                add_to(m_.dqt + x * k_rows + t, sums);
            }
        }
    }

    void keys_from_state(const float* S) {
        for (std::size_t x = 0; x < m_.dk; x += Height) {
            for (std::size_t t = 0; t < k_rows; t += k_columns) {
                Sums sums;
                sums.clear();
                m_next.fetch();
                sums.template add<-1>({S + x * m_.dv, 1, m_.dv}, {m_.y_t + t, k_rows}, m_t.dv);
                sums.dot_columns(m_.kt + x * k_rows + t, k_rows, m_.k_y + t);
                sums.scale_columns(m_.scale_beta + t);
                add_to(m_.dkt + x * k_rows + t, sums);
            }
        }
    }

    void keys_from_gradient(const float* D) {
        for (std::size_t x = 0; x < m_.dk; x += Height) {
            for (std::size_t t = 0; t < k_rows; t += k_columns) {
                Sums sums;
                sums.clear();
                m_next.fetch();
                for (std::size_t column = 0; column < m_.dv; column += k_columns) {
                    sums.add({D + column * m_.dk + x * k_columns, 1, k_columns}, {m_.u_t + column * k_rows + t, k_rows},
                             k_columns);
                }
                sums.dot_columns(m_.kt + x * k_rows + t, k_rows, m_.k_u + t);
                sums.scale_columns(m_.decay.to_end + t);
                // Column t of row i of sdp is 0 where i < t.
                const float* q = m_.q + t * m_.dk + x;
                const float* sdp = m_.sdp + t * k_rows + t;
                sums.add({m_.k + x, m_.dk, 1}, {m_.w + t, k_rows}, k_rows);
                sums.template add<1, 0, 1>({q, m_.dk, 1}, {sdp, k_rows}, k_lanes);
                sums.add({q + k_lanes * m_.dk, m_.dk, 1}, {sdp + k_lanes * k_rows, k_rows}, k_rows - t - k_lanes);
                add_to(m_.dkt + x * k_rows + t, sums);
            }
        }
    }

    static void add_to(float* to, const Sums& sums) {
        for (std::size_t r = 0; r < Height; ++r) {
            for (std::size_t v = 0; v < 2; ++v) {
                float* at = to + r * k_rows + v * k_lanes;
                store<float, Bytes>(at, load<float, Bytes>(at) + sums.at[r][v]);
            }
        }
    }

    // Turns D into the gradient of the state before the chunk; returns <D, S> for the state after it.
    float state(float* D, const float* S) {
        Vector dot[Height] = {};
        for (std::size_t column = 0; column < m_.dv; column += k_columns) {
            for (std::size_t x = 0; x < m_.dk; x += Height) {
                float* at = D + column * m_.dk + x * k_columns;
                Sums sums;
                sums.take(at, k_columns);
                m_next.fetch();
                for (std::size_t r = 0; r < Height; ++r) {
                    for (std::size_t v = 0; v < 2; ++v) {
                        const Vector s = load<float, Bytes>(S + (x + r) * m_.dv + column + v * k_lanes);
                        dot[r] += sums.at[r][v] * s;
                        sums.at[r][v] *= m_.decay.whole;
                    }
                }
                sums.add({m_.q + x, m_.dk, 1}, {m_.d_out_scaled + column * k_rows, k_columns}, k_rows);
                sums.add({m_.k + x, m_.dk, 1}, {m_.y_scaled + column * k_rows, k_columns}, k_rows);
                sums.keep(at, k_columns);
            }
        }
        float sum = 0;
        for (const Vector& x : dot) {
            for (std::size_t lane = 0; lane < k_lanes; ++lane) sum += x[lane];
        }
        return sum;
    }

    void gates(std::size_t at, std::size_t count, float state_dot) {
        const ChunkDecay& d = m_.decay;
        sum_rows<Bytes>(m_.parts_yv, m_.sum_yv, k_rows);
        sum_rows<Bytes>(m_.parts_dbeta, m_.sum_dbeta, k_rows);
        sum_rows<Bytes>(m_.parts_dg, m_.sum_dg, k_rows);
        // k_y holds -<K, Y S^T>.
        double before = static_cast<double>(d.whole) * static_cast<double>(state_dot);
        for (std::size_t i = 0; i < count; ++i) {
            m_t.dbeta[at + i * m_t.Hv] = m_.sum_yv[i] + d.from_start[i] * m_.k_y[i] + m_.sum_dbeta[i];
            m_.sum_dg[i] += static_cast<float>(before);
            before += static_cast<double>(d.to_end[i] * m_.k_u[i]);
        }
        double after = 0;
        for (std::size_t i = count; i-- > 0;) {
            after += static_cast<double>(m_.scale_out[i] * m_.q_out[i] + m_.scale_beta[i] * m_.k_y[i]);
            m_t.dg[at + i * m_t.Hv] = static_cast<float>(static_cast<double>(m_.sum_dg[i]) + after);
        }
    }

    const BackwardTask& m_t;
    Data m_;
    BackwardPairs<Bytes, Height> m_pairs;
    Prefetch m_next;
    PhaseTimer m_timer;
    BackwardWork<Bytes, Height> m_work{m_.dk, m_.dv};
    bool m_direct = false;  // saved states are used in place
};

}  // namespace
}  // namespace gdnctl::oracle
