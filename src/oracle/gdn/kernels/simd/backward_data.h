// What the backward stores for a chunk, and how it gets there. Rows are packed, transposed and padded with zeros, so
// that the products need no special cases. Values (out, u, v) are in panels two vectors wide, tokens in rows of 32.
#pragma once

#include "oracle/gdn/kernels/simd/backward_task.h"
#include "oracle/gdn/kernels/simd/chunk_task.h"
#include "oracle/simd/stored.h"
#include "oracle/simd/tile.h"

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

}  // namespace
}  // namespace gdnctl::oracle
