// The chunked backward. Rows of a chunk are packed, transposed and padded with zeros, so that
// the products need no special cases. Values (out, u, v) are in panels two vectors wide, tokens in rows of 32.
#include "oracle/gdn/kernels/simd/backward_task.h"
#include "oracle/gdn/kernels/simd/chunk_task.h"
#include "oracle/simd/vector.h"

namespace gdnctl::oracle {

namespace {

template <int Bytes>
class BackwardData {
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;

public:
    static constexpr std::size_t k_rows = k_backward_chunk;
    static constexpr std::size_t k_columns = 2 * k_lanes;

    static std::size_t scratch(std::size_t dk, std::size_t dv, std::size_t heads, std::size_t segment) {
        BackwardData data;
        return data.lay_out(nullptr, dk, dv, heads, segment);
    }

    explicit BackwardData(const BackwardTask& task) {
        lay_out(task.scratch, task.dk, task.dv, task.value_head_count, task.segment);
    }

    static std::size_t rounded(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }

    // Per chunk and key head. [token][dk], [dk][token], [token][token]
    float *k, *q, *kt, *qt, *kk, *qk;
    float *dqt, *dkt;            // [dk][token], summed over the value heads
    float* turned;               // [token][dk]
    float *k_factor, *q_factor;  // per row: 1 or 1 / |x|
    // Per chunk and value head. Panels [dv / columns][token][columns]
    float *d_out, *d_out_scaled, *u, *y, *y_scaled;
    float *d_out_t, *u_t, *y_t;  // [dv][token]
    float *gamma, *p, *m, *dp, *dm, *sdp, *sdp_t, *n,
        *w;                                    // [token][token]: row i, column j; sdp = s dP o Gam, w = N + N'
    float *scale_out, *scale_beta;             // per token: s e^c, beta e^c
    float *q_out, *k_y, *k_u;                  // <Q, dO S^T>, <K, Y S^T>, <K, U D^T>
    float *parts_yv, *parts_dbeta, *parts_dg;  // [token][lanes], summed at the end
    float *sum_yv, *sum_dbeta, *sum_dg;
    ChunkDecay decay;
    float* gradient;             // per value head, panels [dv / columns][dk][columns]: D
    float* states;               // per value head and chunk of a segment, [dk][dv]
    std::size_t dk = 0, dv = 0;  // padded

    // Rows [0, count) of one head of q or k, normalised if requested; `factors` are the factors used for that.
    void pack_keys(const BackwardTask& task, const ConstValues& from, std::size_t count, float* rows,
                   float* factors) const {
        for (std::size_t i = 0; i < k_rows; ++i) {
            const std::size_t width = i < count ? task.dk : 0;
            const std::size_t row = i * task.Hk * task.dk;
            float* to = rows + i * dk;
            std::size_t x = 0;
            Vector sums = {};
            for (; x + k_lanes <= width; x += k_lanes) {
                const Vector part = load<Bytes>(from, row + x);
                sums += part * part;
                store<float, Bytes>(to + x, part);
            }
            float sum = 0;
            for (; x < width; ++x) {
                to[x] = value_at(from, row + x);
                sum += to[x] * to[x];
            }
            for (; x < dk; ++x) to[x] = 0;
            factors[i] = 1;
            if (width == 0 || !task.normalise) continue;
            for (std::size_t lane = 0; lane < k_lanes; ++lane) sum += sums[lane];
            factors[i] = 1 / __builtin_sqrtf(sum + task.eps);
            for (x = 0; x < dk; x += k_lanes) store<float, Bytes>(to + x, load<float, Bytes>(to + x) * factors[i]);
        }
    }

    // Rows [0, count) of one head of out or u as panels, and again with each row multiplied by its factor. Either may
    // be nullptr.
    void pack_values(const BackwardTask& task, const ConstValues& from, std::size_t count, float* panels,
                     const float* factors, float* scaled) const {
        for (std::size_t i = 0; i < k_rows; ++i) {
            const std::size_t row = i * task.Hv * task.dv;
            float padded[k_columns];
            for (std::size_t j = 0; j < dv; j += k_columns) {
                const bool whole = i < count && j + k_columns <= task.dv;
                for (std::size_t x = 0; !whole && x < k_columns; ++x) {
                    padded[x] = i < count && j + x < task.dv ? value_at(from, row + j + x) : 0;
                }
                for (std::size_t v = 0; v < k_columns; v += k_lanes) {
                    const Vector x = whole ? load<Bytes>(from, row + j + v) : load<float, Bytes>(padded + v);
                    const std::size_t at = j * k_rows + i * k_columns + v;
                    if (panels != nullptr) store<float, Bytes>(panels + at, x);
                    if (scaled != nullptr) store<float, Bytes>(scaled + at, x * factors[i]);
                }
            }
        }
    }

    // Rows of a gradient stored in columns, taken through x / sqrt(|x|^2 + eps), where `rows` has the normalised x.
    void write_keys(const BackwardTask& task, const float* columns, const float* rows, const float* factors,
                    const Values& to, std::size_t count) const {
        transpose<Bytes>(columns, k_rows, turned, dk, dk, k_rows);
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t row = i * task.Hk * task.dk;
            const float* from = turned + i * dk;
            const float* normal = rows + i * dk;
            float dot = 0;
            if (task.normalise) {
                Vector sums = {};
                for (std::size_t x = 0; x < dk; x += k_lanes) {
                    sums += load<float, Bytes>(normal + x) * load<float, Bytes>(from + x);
                }
                for (std::size_t lane = 0; lane < k_lanes; ++lane) dot += sums[lane];
            }
            std::size_t x = 0;
            for (; x + k_lanes <= task.dk; x += k_lanes) {
                put(task, to, row + x,
                    (load<float, Bytes>(from + x) - load<float, Bytes>(normal + x) * dot) * factors[i]);
            }
            for (; x < task.dk; ++x) set_value(to, row + x, (from[x] - normal[x] * dot) * factors[i]);
        }
    }

    // Uses streaming stores if the task says so.
    static void put(const BackwardTask& task, const Values& to, std::size_t at, Vector x) {
        if (task.stream_out) {
            stream<Bytes>(to, at, x);
        } else {
            store<Bytes>(to, at, x);
        }
    }

    void transpose_values(const float* panels, float* to) const {
        for (std::size_t column = 0; column < dv; column += k_columns) {
            transpose<Bytes>(panels + column * k_rows, k_columns, to + column * k_rows, k_rows, k_rows, k_columns);
        }
    }

    // Copies a state [dk][dv] of the caller to a padded one.
    void pack_state(const BackwardTask& task, const float* from, float* to) const {
        for (std::size_t x = 0; x < dk; ++x) {
            for (std::size_t j = 0; j < dv; ++j) {
                to[x * dv + j] = x < task.dk && j < task.dv ? from[x * task.dv + j] : 0;
            }
        }
    }

    // Converts between D in panels and a state of the caller; `from` may be nullptr for zeros.
    void load_gradient(const BackwardTask& task, const float* from, float* to) const {
        for (std::size_t x = 0; x < dk; ++x) {
            for (std::size_t j = 0; j < dv; ++j) {
                const bool there = from != nullptr && x < task.dk && j < task.dv;
                to[gradient_at(x, j)] = there ? from[x * task.dv + j] : 0;
            }
        }
    }
    void store_gradient(const BackwardTask& task, const float* from, float* to) const {
        for (std::size_t x = 0; x < task.dk; ++x) {
            for (std::size_t j = 0; j < task.dv; ++j) to[x * task.dv + j] = from[gradient_at(x, j)];
        }
    }

private:
    BackwardData() = default;

    std::size_t gradient_at(std::size_t x, std::size_t j) const {
        return j / k_columns * dk * k_columns + x * k_columns + j % k_columns;
    }

    // Assigns every array its place, starting at `room`. `room` may be nullptr to get the number of floats.
    std::size_t lay_out(float* room, std::size_t key_size, std::size_t value_size, std::size_t heads,
                        std::size_t segment) {
        dk = rounded(key_size, 16);
        dv = rounded(value_size, 32);
        std::size_t used = 0;
        const auto take = [room, &used](float** const* arrays, std::size_t count, std::size_t size) {
            for (std::size_t i = 0; i < count; ++i, used += size) *arrays[i] = room == nullptr ? nullptr : room + used;
        };
        float** const keys[] = {&k, &q, &kt, &qt, &dqt, &dkt, &turned};
        take(keys, 7, k_rows * dk);
        float** const values[] = {&d_out, &d_out_scaled, &u, &y, &y_scaled, &d_out_t, &u_t, &y_t};
        take(values, 8, k_rows * dv);
        float** const pairs[] = {&kk, &qk, &gamma, &p, &m, &dp, &dm, &sdp, &sdp_t, &n, &w};
        take(pairs, 11, k_rows * k_rows);
        float** const tokens[] = {&k_factor,      &q_factor,   &scale_out,        &scale_beta,  &q_out,      &k_y,
                                  &k_u,           &sum_yv,     &sum_dbeta,        &sum_dg,      &decay.high, &decay.low,
                                  &decay.stretch, &decay.beta, &decay.from_start, &decay.to_end};
        take(tokens, 16, k_rows);
        float** const parts[] = {&parts_yv, &parts_dbeta, &parts_dg};
        take(parts, 3, k_rows * k_lanes);
        float** const gradients[] = {&gradient};
        take(gradients, 1, heads * dk * dv);
        float** const segments[] = {&states};
        take(segments, 1, heads * segment * dk * dv);
        return used;
    }
};

// Matrices over pairs of a chunk's tokens: 32 x 32, of which only the part on and below the diagonal counts.

template <int Bytes, std::size_t Height>
class BackwardPairs {
    using Data = BackwardData<Bytes>;
    using Vector = typename VectorOf<float, Bytes>::type;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    static constexpr std::size_t k_rows = Data::k_rows;
    static constexpr std::size_t k_columns = Data::k_columns;

public:
    BackwardPairs(const BackwardTask& task, const Data& data) : m_t(task), m_(data) {}

    // kk[i][j] = K_i . K_j and qk[i][j] = Q_i . K_j, for tiles that contain some i >= j.
    void gram() {
        for (std::size_t i = 0; i < k_rows; i += Height) {
            for (std::size_t j = 0; j < i + Height; j += k_columns) {
                Tile<Bytes, Height, 2> sums;
                sums.clear();
                sums.add({m_.kt + i, k_rows, 1}, {m_.kt + j, k_rows}, m_t.dk);
                sums.keep(m_.kk + i * k_rows + j, k_rows);
                sums.clear();
                sums.add({m_.qt + i, k_rows, 1}, {m_.kt + j, k_rows}, m_t.dk);
                sums.keep(m_.qk + i * k_rows + j, k_rows);
            }
        }
    }

    // gamma, m and p; 0 above the diagonal, whatever kk and qk contain there.
    void decayed() {
        const ChunkDecay& d = m_.decay;
        const Vector none = {};
        for (std::size_t i = 0; i < k_rows; ++i) {
            for (std::size_t j = 0; j < k_rows; j += k_lanes) {
                const std::size_t at = i * k_rows + j;
                if (j > i) {
                    store<float, Bytes>(m_.gamma + at, none);
                    store<float, Bytes>(m_.m + at, none);
                    store<float, Bytes>(m_.p + at, none);
                    continue;
                }
                const Vector difference =
                    (d.high[i] - load<float, Bytes>(d.high + j)) + (d.low[i] - load<float, Bytes>(d.low + j));
                const Vector below = below_diagonal(i, j);
                const auto same = load<float, Bytes>(d.stretch + j) == d.stretch[i];
                const Vector gamma = (below >= 0) & same ? exponential<Bytes>(difference) : none;
                const Vector key = d.beta[i] * load<float, Bytes>(m_.kk + at) * gamma;
                const Vector query = m_t.scale * load<float, Bytes>(m_.qk + at) * gamma;
                store<float, Bytes>(m_.gamma + at, gamma);
                store<float, Bytes>(m_.m + at, (below > 0) & same ? key : none);
                store<float, Bytes>(m_.p + at, (below >= 0) & same ? query : none);
            }
        }
    }

    // dp = dO U^T and dm = -Y U^T, on and below the diagonal. Processes a few columns of v at a time, so that the parts
    // of all three factors fit in the first-level cache.
    void scores() {
        constexpr std::size_t k_part = 64;
        for (std::size_t first = 0; first < m_t.dv; first += k_part) {
            const std::size_t count = m_t.dv - first < k_part ? m_t.dv - first : k_part;
            for (std::size_t i = 0; i < k_rows; i += Height) {
                std::size_t j = 0;
                for (; j + k_lanes < i + Height; j += k_columns) score<2>(i, j, first, count);
                if (j < i + Height) score<1>(i, j, first, count);
            }
        }
    }

    // s dP o Gam, N, their transposes, and the contributions of H and dM to dg and dbeta. Rows from last to first: dg_t
    // sums the columns j < t of the running sum of H over rows i >= t.
    void weights() {
        Vector running[k_rows / k_lanes] = {};
        const Vector none = {};
        for (std::size_t i = k_rows; i-- > 0;) {
            Vector dbeta = {};
            Vector dg = {};
            for (std::size_t j = 0; j < k_rows; j += k_lanes) {
                const std::size_t at = i * k_rows + j;
                if (j > i) {
                    store<float, Bytes>(m_.sdp + at, none);
                    store<float, Bytes>(m_.n + at, none);
                    continue;
                }
                const Vector below = below_diagonal(i, j);
                const Vector gamma = load<float, Bytes>(m_.gamma + at);
                const Vector dp = below >= 0 ? load<float, Bytes>(m_.dp + at) : none;
                const Vector dm = below > 0 ? load<float, Bytes>(m_.dm + at) : none;
                Vector& sum = running[j / k_lanes];
                sum += dp * load<float, Bytes>(m_.p + at) + dm * load<float, Bytes>(m_.m + at);
                dg += below > 0 ? sum : none;
                const Vector dm_gamma = dm * gamma;
                dbeta += dm_gamma * (below > 0 ? load<float, Bytes>(m_.kk + at) : none);
                store<float, Bytes>(m_.sdp + at, m_t.scale * dp * gamma);
                store<float, Bytes>(m_.n + at, m_.decay.beta[i] * dm_gamma);
            }
            store<float, Bytes>(m_.parts_dbeta + i * k_lanes, dbeta);
            store<float, Bytes>(m_.parts_dg + i * k_lanes, dg);
        }
        transpose<Bytes>(m_.sdp, k_rows, m_.sdp_t, k_rows, k_rows, k_rows);
        transpose<Bytes>(m_.n, k_rows, m_.w, k_rows, k_rows, k_rows);
        for (std::size_t at = 0; at < k_rows * k_rows; at += k_lanes) {
            store<float, Bytes>(m_.w + at, load<float, Bytes>(m_.w + at) + load<float, Bytes>(m_.n + at));
        }
    }

private:
    static Vector below_diagonal(std::size_t i, std::size_t j) {
        return (static_cast<float>(i) - static_cast<float>(j)) - counting<Vector>(typename LanesOf<k_lanes>::type{});
    }

    template <std::size_t Vectors>
    void score(std::size_t i, std::size_t j, std::size_t first, std::size_t count) {
        const Rows u{m_.u_t + first * k_rows + j, k_rows};
        float* dp = m_.dp + i * k_rows + j;
        float* dm = m_.dm + i * k_rows + j;
        Tile<Bytes, Height, Vectors> sums;
        first == 0 ? sums.clear() : sums.take(dp, k_rows);
        sums.add({m_.d_out_t + first * k_rows + i, k_rows, 1}, u, count);
        sums.keep(dp, k_rows);
        first == 0 ? sums.clear() : sums.take(dm, k_rows);
        sums.template add<-1>({m_.y_t + first * k_rows + i, k_rows, 1}, u, count);
        sums.keep(dm, k_rows);
    }

    const BackwardTask& m_t;
    const Data& m_;
};

// Every product is computed in tiles of Height x 2 vectors whose sums stay in registers. There are two kinds. One has
// columns of v in the lanes (dU and the substitution, the state's gradient). The other has tokens in the lanes
// (everything that ends in dQ and dK). For these, neither S nor D needs to be transposed: their elements are the
// factors, and sums over tokens are lane by lane.

template <int Bytes, std::size_t Height>
class BackwardSweep {
    using Data = BackwardData<Bytes>;
    using Vector = typename VectorOf<float, Bytes>::type;
    using Sums = Tile<Bytes, Height, 2>;
    static constexpr std::size_t k_lanes = VectorOf<float, Bytes>::k_lanes;
    static constexpr std::size_t k_rows = Data::k_rows;
    static constexpr std::size_t k_columns = Data::k_columns;

public:
    explicit BackwardSweep(const BackwardTask& task) : m_t(task), m_(task), m_pairs(m_t, m_) {
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
        m_pairs.gram();
        for (std::size_t i = 0; i < k_rows * m_.dk; ++i) m_.dqt[i] = m_.dkt[i] = 0;
        for (std::size_t h = m_t.keys[k].begin; h < m_t.keys[k].end; ++h) {
            const std::size_t at = gate_at(c, h);
            decays(c, h);
            m_pairs.decayed();
            expect(c, h, index, k);
            m_.pack_values(m_t, m_t.d_out + at * m_t.dv, count, m_.d_out, m_.scale_out, m_.d_out_scaled);
            m_.transpose_values(m_.d_out, m_.d_out_t);
            m_.pack_values(m_t, m_t.u + at * m_t.dv, count, m_.u, nullptr, nullptr);
            m_.transpose_values(m_.u, m_.u_t);
            for (std::size_t i = 0; i < k_rows; ++i) m_.q_out[i] = m_.k_y[i] = m_.k_u[i] = 0;
            const float* S = state_at(c - index, h, index);
            solve(gradient(h), at, count);
            m_.transpose_values(m_.y, m_.y_t);
            m_pairs.scores();
            m_pairs.weights();
            queries(S);
            keys_from_state(S);
            keys_from_gradient(gradient(h));
            const float dot = state(gradient(h), S);
            gates(at, count, dot);
        }
        m_.write_keys(m_t, m_.dqt, m_.q, m_.q_factor, m_t.dq + keys, count);
        m_.write_keys(m_t, m_.dkt, m_.k, m_.k_factor, m_t.dk_out + keys, count);
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
    bool m_direct = false;  // saved states are used in place
};

}  // namespace

BackwardKernel GDNCTL_KERNEL(backward)() {
    using Data = BackwardData<GDNCTL_BYTES>;
    return {Data::k_columns, Data::scratch,
            [](const BackwardTask& task) { BackwardSweep<GDNCTL_BYTES, GDNCTL_BYTES == 64 ? 8 : 4>(task).run(); }};
}

}  // namespace gdnctl::oracle
