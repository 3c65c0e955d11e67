// Matrices over pairs of a chunk's tokens: 32 x 32, of which only the part on and below the diagonal counts.
#pragma once

#include "oracle/gdn/kernels/simd/backward_data.h"

namespace gdnctl::oracle {
namespace {

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

}  // namespace
}  // namespace gdnctl::oracle
