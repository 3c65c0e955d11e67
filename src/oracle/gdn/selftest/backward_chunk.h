// One chunk of the chunked backward in docs/reference/oracle-methods.md, term by term.
#pragma once

#include <cstddef>
#include <vector>

#include "oracle/gdn/selftest/backward_mutants.h"

namespace gdnctl::oracle {

using Row = std::size_t;

// A row-major matrix.
struct Matrix {
    std::size_t columns = 0;
    std::vector<float> values;

    Matrix() = default;
    Matrix(std::size_t rows, std::size_t width) : columns(width), values(rows * width, 0.0F) {}
    float& at(Row i, std::size_t j) { return values[i * columns + j]; }
    float at(Row i, std::size_t j) const { return values[i * columns + j]; }
    const float* row(Row i) const { return values.data() + i * columns; }
};

// Copies `width` values from each of `rows` rows with the given stride.
Matrix rows_of(const float* from, std::size_t rows, std::size_t width, std::size_t stride);

// One chunk of one lane.
struct BackwardChunk {
    std::size_t rows = 0, dk = 0, dv = 0;
    float scale = 1;
    Matrix q, k, v, d_out, S;
    std::vector<float> beta;
    std::vector<double> gate;
    Matrix Gamma, M, P, U;            // Gamma_ij for i >= j
    std::vector<float> read, insert;  // e^c, e^(c_last - c)
    float keep = 1;                   // e^c_last

    void prepare();
    Matrix next_state() const;
};

// The gradients of one chunk from D, the gradient of its end state.
class ChunkGradient {
public:
    ChunkGradient(const BackwardChunk& chunk, const BackwardFault& fault, const Matrix& D);
    void run();

    Matrix dq, dk, dv, d_state;
    std::vector<float> dg, dbeta;

private:
    // A term's coefficient, times the factors that a fault may omit.
    float coefficient(BackwardTerm term, float decay, float beta = 1, float scale = 1);
    float coefficient(BackwardTerm term) { return coefficient(term, 1); }
    float row_part(Row i);
    void solve();
    void pair_gradients();
    void rows();
    void pairs();
    void gates();
    void by_running_sums(const Matrix& H, float kept);
    void state();

    const BackwardChunk& m_c;
    const BackwardFault& m_fault;
    std::size_t m_values = 0;  // of the faulty term, so far
    Matrix m_D, m_U, m_Y, m_dP, m_dM;
    std::vector<float> m_readout, m_forgotten, m_inserted;  // <Q, dO S^T>, <K, Y S^T>, <K, U D^T>
};

}  // namespace gdnctl::oracle
