#include "oracle/kernels/decode_share.h"

#include <cmath>

namespace gdnctl::oracle::decoding {

namespace {

// States that lie beyond the second-level cache are fetched ahead.
constexpr std::size_t k_fetch_from = std::size_t{1} << 20U;
// The range of sigma: far from the limits of fp32, and a step in a hundred at most leaves it.
constexpr double k_lowest_sigma = 0x1p-20;
constexpr double k_highest_sigma = 0x1p20;

// In 16 sums, which a processor adds side by side.
float dot(const float* a, const float* b, std::size_t count) {
    float sums[16] = {};
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (std::size_t x = 0; x < 16; ++x) sums[x] += a[i + x] * b[i + x];
    }
    float sum = 0;
    for (; i < count; ++i) sum += a[i] * b[i];
    for (std::size_t width = 8; width > 0; width /= 2) {
        for (std::size_t x = 0; x < width; ++x) sums[x] += sums[x + width];
    }
    return sum + sums[0];
}

void set_factors(const Forward32& f, std::size_t row, std::size_t head, std::size_t padded, const Keys& keys,
                 double* sigma, DecodeTask& task) {
    double alpha[k_decode_most];
    double product = sigma == nullptr ? 1 : *sigma;  // a_t sigma
    const auto narrow = [](double x) { return static_cast<float>(x); };
    for (std::size_t t = 0; t < padded; ++t) {
        const bool there = t < task.tokens;
        const std::size_t at = (row + t) * size(f.dims.Hv) + head;
        alpha[t] = there ? std::exp(static_cast<double>(f.g[at])) : 1;
        task.beta[t] = there ? f.beta[at] : 0;
        product *= alpha[t];
        task.from_state[t] = narrow(-static_cast<double>(task.beta[t]) * product);
        task.out_state[t] = narrow(static_cast<double>(f.scale) * product);
        double between = 1;  // A_tj
        for (std::size_t j = t + 1; j-- > 0;) {
            task.in_d[t][j] = narrow(-static_cast<double>(task.beta[t]) * between * static_cast<double>(keys.kk[j][t]));
            task.in_o[t][j] = narrow(static_cast<double>(f.scale) * between * static_cast<double>(keys.kq[j][t]));
            between *= alpha[j];
        }
    }
    double after = 1;
    task.decay = narrow(product);
    if (sigma != nullptr) {
        const bool inside = product >= k_lowest_sigma && product <= k_highest_sigma;
        *sigma = inside ? product : 1;
        if (inside) task.decay = 1;
        after = 1 / *sigma;
    }
    for (std::size_t t = padded; t-- > 0;) {
        task.later[t] = narrow(after);
        after *= alpha[t];
    }
}

}  // namespace

DecodeKernel kernel_for(Isa isa) {
    switch (isa) {
        case Isa::avx512: return decode_avx512();
        case Isa::avx2: return decode_avx2();
        case Isa::scalar: break;
    }
    return decode_scalar();
}

void pack(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t padded, std::size_t head, Keys& keys) {
    const std::size_t dk = size(f.dims.dk);
    const auto pack_one = [&](const ConstValues& from, float* rows, float* to) {
        for (std::size_t t = 0; t < padded; ++t) {
            float* y = rows + t * dk;
            if (t >= tokens) {
                std::fill_n(y, dk, 0.0F);
            } else {
                widen(from, ((row + t) * size(f.dims.Hk) + head) * dk, dk, y);
                const float factor = f.l2norm_eps ? 1 / std::sqrt(dot(y, y, dk) + *f.l2norm_eps) : 1;
                for (std::size_t i = 0; i < dk && f.l2norm_eps; ++i) y[i] *= factor;
            }
            for (std::size_t i = 0; i < dk && rows != to; ++i) to[i * padded + t] = y[i];
        }
    };
    const bool one = padded == 1;
    float* rows_k = one ? keys.k : keys.rows_k;
    float* rows_q = one ? keys.q : keys.rows_q;
    pack_one(f.k, rows_k, keys.k);
    pack_one(f.q, rows_q, keys.q);
    for (std::size_t j = 0; j < padded; ++j) {
        const float* k = rows_k + j * dk;
        for (std::size_t t = j; t < padded; ++t) {
            keys.kk[j][t] = t == j ? 0 : dot(k, rows_k + t * dk, dk);
            keys.kq[j][t] = dot(k, rows_q + t * dk, dk);
        }
    }
}

DecodeTask task_of(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t head, std::size_t padded,
                   const Keys& keys, double* sigma) {
    DecodeTask task;
    const std::size_t dv = size(f.dims.dv);
    const std::size_t at = (row * size(f.dims.Hv) + head) * dv;
    task.v = f.v + at;
    task.out = f.out + at;
    task.value_stride = size(f.dims.Hv) * dv;
    task.dk = size(f.dims.dk);
    task.columns = dv;
    task.tokens = tokens;
    task.k = keys.k;
    task.q = keys.q;
    set_factors(f, row, head, padded, keys, sigma, task);
    return task;
}

bool worth_fetching(const Forward32& f) {
    return f.sequences.size() * size(f.dims.Hv * f.dims.dk * f.dims.dv) * sizeof(float) > k_fetch_from;
}

}  // namespace gdnctl::oracle::decoding
