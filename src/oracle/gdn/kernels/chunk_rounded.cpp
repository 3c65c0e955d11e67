// The chunked form in fp32 with the roundings that a device may make: operands of products, sums of gates.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

struct Matrix {
    const float* data = nullptr;  // contiguous rows
    std::size_t rows = 0, columns = 0;
};

// f32: plain products. bf16, f16, tf32: both operands are rounded to that. bf16x3: each operand is split into hi + lo
// in bf16, products hi*hi + hi*lo + lo*hi. Sums are fp32 in ascending order of the inner index.
class Multiplier {
public:
    explicit Multiplier(Matmul how) : m_how(how) {}

    void set(Matrix a, Matrix b, float* c);       // c = a b
    void add(Matrix a, Matrix b, float* c);       // c += a b
    void subtract(Matrix a, Matrix b, float* c);  // c -= a b

private:
    void accumulate(Matrix a, Matrix b, float* c, float sign);

    Matmul m_how;
    std::vector<float> m_a_high, m_a_low, m_b_high, m_b_low;
};

// To nearest even; keeps NaN and infinity.
float to_bf16(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7F800000U) == 0x7F800000U) return x;
    return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) & 0xFFFF0000U);
}

// To the 11 significant bits of tf32 and fp16; below fp16's normal range, to multiples of its smallest number.
float to_11_bits(float x, bool f16) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7F800000U) == 0x7F800000U) return x;
    if (f16 && std::fabs(x) < 0x1p-14F) return std::nearbyint(x * 0x1p24F) * 0x1p-24F;
    return std::bit_cast<float>((bits + 0xFFFU + ((bits >> 13U) & 1U)) & 0xFFFFE000U);
}

float to_operand(float x, Matmul how) {
    return how == Matmul::tf32 || how == Matmul::f16 ? to_11_bits(x, how == Matmul::f16) : to_bf16(x);
}

void product(const float* a, Matrix shape_a, const float* b, std::size_t columns, float* c, float sign) {
    for (std::size_t i = 0; i < shape_a.rows; ++i) {
        float* row = c + i * columns;
        for (std::size_t x = 0; x < shape_a.columns; ++x) {
            const float factor = sign * a[i * shape_a.columns + x];
            const float* from = b + x * columns;
            for (std::size_t j = 0; j < columns; ++j) row[j] += factor * from[j];
        }
    }
}

void split(Matrix m, Matmul how, std::vector<float>& high, std::vector<float>& low) {
    const std::size_t n = m.rows * m.columns;
    high.resize(std::max(high.size(), n));
    low.resize(std::max(low.size(), n));
    for (std::size_t i = 0; i < n; ++i) {
        high[i] = to_operand(m.data[i], how);
        low[i] = to_operand(m.data[i] - high[i], how);
    }
}

void Multiplier::set(Matrix a, Matrix b, float* c) {
    std::fill_n(c, a.rows * b.columns, 0.0F);
    accumulate(a, b, c, 1);
}

void Multiplier::add(Matrix a, Matrix b, float* c) { accumulate(a, b, c, 1); }

void Multiplier::subtract(Matrix a, Matrix b, float* c) { accumulate(a, b, c, -1); }

void Multiplier::accumulate(Matrix a, Matrix b, float* c, float sign) {
    if (m_how == Matmul::f32) {
        product(a.data, a, b.data, b.columns, c, sign);
        return;
    }
    split(a, m_how, m_a_high, m_a_low);
    split(b, m_how, m_b_high, m_b_low);
    if (m_how == Matmul::bf16x3) {
        product(m_a_low.data(), a, m_b_high.data(), b.columns, c, sign);
        product(m_a_high.data(), a, m_b_low.data(), b.columns, c, sign);
    }
    product(m_a_high.data(), a, m_b_high.data(), b.columns, c, sign);
}

// The chunked form with operands rounded as in a matrix unit. Each stage is one function, named as in
// docs/reference/oracle-methods.md. If the contract says so, the state is rounded to bf16 after each chunk. Slow; the
// fast one for plain fp32 is in simd/chunk.cpp.
//
// Rows i, j = 0..C-1 of one chunk, S = state at its start, c_i = g_0 + ... + g_i:
//   Gam_ij = exp(c_i - c_j) for i >= j      the difference first, then exp
//   M = strict lower part of diag(beta) K K^T o Gam,   P = s * lower part of Q K^T o Gam
//   (I + M) U = diag(beta) (V - diag(e^c) K S)          forward substitution, row by row
//   O = s diag(e^c) Q S + P U,   S' = e^(c_last) S + (diag(e^(c_last - c)) K)^T U

// Cumulative log decay of the rows of one chunk. Where exp(g) is 0, a sum would be -inf (and -inf - -inf is NaN) or
// lose every digit. Instead `stretch` counts such rows, and decay across two stretches is exactly 0.
struct DecaySums {
    std::vector<double> sum;
    std::vector<int> stretch;

    float from_start(std::size_t i) const { return stretch[i] == 0 ? static_cast<float>(std::exp(sum[i])) : 0.0F; }
    // exp(c_i - c_j), fp64 difference and fp32 exp
    float between(std::size_t i, std::size_t j) const {
        return stretch[i] == stretch[j] ? std::exp(static_cast<float>(sum[i] - sum[j])) : 0.0F;
    }
};

void sum_gates(const float* g, std::size_t stride, std::size_t rows, GateSum how, DecaySums& decay) {
    const float lowest = how == GateSum::fp32 ? -2e4F : -110.0F;
    double sum = 0;
    int stretch = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        const float gate = g[i * stride];
        if (gate <= lowest) {
            ++stretch;
            sum = 0;
        } else {
            sum += static_cast<double>(gate);
            if (how == GateSum::fp32) sum = static_cast<double>(static_cast<float>(sum));
        }
        decay.sum[i] = sum;
        decay.stretch[i] = stretch;
    }
}

class ChunkHead {
public:
    ChunkHead(Prepared<float>& inputs, std::vector<float>& out, const ChunkOptions& options, StateDType state)
        : m_in(inputs), m_out(out), m_options(options), m_state(state), m_multiply(options.matmul) {
        const GdnDims& d = inputs.problem->dims;
        m_dk = static_cast<std::size_t>(d.dk);
        m_dv = static_cast<std::size_t>(d.dv);
        m_Hk = static_cast<std::size_t>(d.Hk);
        m_Hv = static_cast<std::size_t>(d.Hv);
        // A chunk longer than every sequence needs no more memory than the longest.
        const std::size_t C = std::min(static_cast<std::size_t>(options.chunk), static_cast<std::size_t>(d.T));
        for (auto* x : {&m_q, &m_k}) x->resize(C * m_dk);
        for (auto* x : {&m_u, &m_o}) x->resize(C * m_dv);
        for (auto* x : {&m_m, &m_p}) x->resize(C * C);
        m_k_transposed.resize(C * m_dk);
        m_decay.sum.resize(C);
        m_decay.stretch.resize(C);
    }

    void operator()(std::size_t task) {
        const std::size_t head = task % m_Hv;
        const GdnSequence sequence = m_in.problem->sequences[task / m_Hv];
        float* S = m_in.state.data() + task * m_dk * m_dv;
        const auto C = static_cast<std::size_t>(m_options.chunk);
        const auto end = static_cast<std::size_t>(sequence.end);
        for (auto row = static_cast<std::size_t>(sequence.begin); row < end; row += C) {
            run_chunk(row, std::min(C, end - row), head, S);
        }
    }

private:
    void run_chunk(std::size_t row, std::size_t rows, std::size_t head, float* S) {
        const float* g = m_in.g.data() + row * m_Hv + head;
        const float* beta = m_in.beta.data() + row * m_Hv + head;
        load_keys(row, rows, head);
        sum_gates(g, m_Hv, rows, m_options.gate_sum, m_decay);
        gram(beta, rows);
        right_hand_side(m_in.v.data() + (row * m_Hv + head) * m_dv, beta, rows, S);
        solve(rows);
        outputs(m_out.data() + (row * m_Hv + head) * m_dv, rows, S);
        carry(rows, S);
    }

    // Copies rows of K and Q of this head to contiguous memory, and K transposed.
    void load_keys(std::size_t row, std::size_t rows, std::size_t head) {
        for (std::size_t i = 0; i < rows; ++i) {
            const std::size_t from = ((row + i) * m_Hk + m_in.key_head[head]) * m_dk;
            std::copy_n(m_in.q.data() + from, m_dk, m_q.data() + i * m_dk);
            std::copy_n(m_in.k.data() + from, m_dk, m_k.data() + i * m_dk);
            for (std::size_t x = 0; x < m_dk; ++x) m_k_transposed[x * rows + i] = m_in.k[from + x];
        }
    }

    // M and P. Entries above the diagonal are set to 0, not multiplied by 0.
    void gram(const float* beta, std::size_t rows) {
        m_multiply.set({m_k.data(), rows, m_dk}, {m_k_transposed.data(), m_dk, rows}, m_m.data());
        m_multiply.set({m_q.data(), rows, m_dk}, {m_k_transposed.data(), m_dk, rows}, m_p.data());
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < rows; ++j) {
                float& M = m_m[i * rows + j];
                float& P = m_p[i * rows + j];
                const float gamma = j <= i ? m_decay.between(i, j) : 0.0F;
                M = j < i ? beta[i * m_Hv] * M * gamma : 0.0F;
                P = j <= i ? m_in.scale * P * gamma : 0.0F;
            }
        }
    }

    // U = diag(beta) (V - diag(e^c) K S)
    void right_hand_side(const float* v, const float* beta, std::size_t rows, const float* S) {
        m_multiply.set({m_k.data(), rows, m_dk}, {S, m_dk, m_dv}, m_u.data());
        for (std::size_t i = 0; i < rows; ++i) {
            const float decay = m_decay.from_start(i);
            float* u = m_u.data() + i * m_dv;
            for (std::size_t j = 0; j < m_dv; ++j) u[j] = beta[i * m_Hv] * (v[i * m_Hv * m_dv + j] - decay * u[j]);
        }
    }

    // (I + M) U = R in place: row i needs the finished rows above it.
    void solve(std::size_t rows) {
        for (std::size_t i = 1; i < rows; ++i) {
            m_multiply.subtract({m_m.data() + i * rows, 1, i}, {m_u.data(), i, m_dv}, m_u.data() + i * m_dv);
        }
    }

    void outputs(float* out, std::size_t rows, const float* S) {
        m_multiply.set({m_q.data(), rows, m_dk}, {S, m_dk, m_dv}, m_o.data());
        for (std::size_t i = 0; i < rows; ++i) {
            const float factor = m_in.scale * m_decay.from_start(i);
            for (std::size_t j = 0; j < m_dv; ++j) m_o[i * m_dv + j] *= factor;
        }
        m_multiply.add({m_p.data(), rows, rows}, {m_u.data(), rows, m_dv}, m_o.data());
        for (std::size_t i = 0; i < rows; ++i) std::copy_n(m_o.data() + i * m_dv, m_dv, out + i * m_Hv * m_dv);
    }

    void carry(std::size_t rows, float* S) {
        const float whole = m_decay.from_start(rows - 1);
        for (std::size_t x = 0; x < m_dk * m_dv; ++x) S[x] *= whole;
        for (std::size_t i = 0; i < rows; ++i) {
            const float rest = m_decay.between(rows - 1, i);
            for (std::size_t x = 0; x < m_dk; ++x) m_k_transposed[x * rows + i] *= rest;
        }
        m_multiply.add({m_k_transposed.data(), m_dk, rows}, {m_u.data(), rows, m_dv}, S);
        if (m_state == StateDType::f32) return;
        for (std::size_t x = 0; x < m_dk * m_dv; ++x)
            S[x] = static_cast<float>(rounded_to(static_cast<double>(S[x]), DType::bf16));
    }

    Prepared<float>& m_in;
    std::vector<float>& m_out;
    ChunkOptions m_options;
    StateDType m_state;
    Multiplier m_multiply;
    std::size_t m_dk = 0, m_dv = 0, m_Hk = 0, m_Hv = 0;
    std::vector<float> m_q, m_k, m_k_transposed, m_u, m_o, m_m, m_p;
    DecaySums m_decay;
};

}  // namespace

GdnOutputs run_chunk_rounded(const GdnProblem& p, const GdnContract& c, const ChunkOptions& options, int threads) {
    Prepared<float> inputs = prepare<float>(p, c, threads);
    std::vector<float> out(p.v.size());
    const std::size_t tasks = p.sequences.size() * static_cast<std::size_t>(p.dims.Hv);
    run_tasks(tasks, threads, [&] { return ChunkHead(inputs, out, options, c.state_dtype); });
    apply_empty_policy(p, c.empty, inputs.state);
    return {{out.begin(), out.end()}, {inputs.state.begin(), inputs.state.end()}, 0};
}

}  // namespace gdnctl::oracle
