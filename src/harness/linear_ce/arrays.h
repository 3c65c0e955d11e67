// What `oracle bench linear-ce` times on: random matrices, and arrays of our own kernel.
#pragma once

#include <cstdint>

#include "oracle/linear_ce/judge/problem.h"

namespace gdnctl::harness::linear_ce {

struct RandomMatrix {
    std::int64_t rows = 0, columns = 0;
    double scale = 1;
    bool bf16 = false;
    std::uint64_t seed = 1, stream = 0;
};
// N(0,1) times `scale`, without a copy in fp64.
oracle::Tensor random_matrix(const RandomMatrix& m);

// Our kernel on arrays of its own, so that nothing but the pass is timed.
class OwnArrays {
public:
    OwnArrays(const oracle::linear_ce::Problem& problem, const oracle::linear_ce::Run& run) : m_p(problem), m_run(run) {
        // Moved in one by one: a list of them would be copied.
        const auto add = [this](const char* name, oracle::Tensor tensor) {
            m_out.tensors.push_back({name, std::move(tensor)});
        };
        add("loss", floats({batch()}));
        add("lse", floats({batch()}));
        add("gx", {problem.x.dtype, problem.x.shape, std::vector<std::uint8_t>(problem.x.bytes.size())});
        add("gw", {problem.w.dtype, problem.w.shape, std::vector<std::uint8_t>(problem.w.bytes.size())});
    }

    void run(bool gradients) {
        const oracle::linear_ce::Operands o = m_p.operands();
        oracle::linear_ce::forward<float>(o, {as_floats(0), as_floats(1), nullptr, nullptr}, m_run,
                                          gradients ? gradient(3) : oracle::linear_ce::Gradient<float>{});
        if (!gradients) return;
        const float* lse = as_floats(1);
        const std::vector<double> d_lse = m_p.lse_cotangents({lse, lse + m_p.batch});
        oracle::linear_ce::gradients<float>(o, {lse, m_p.d_loss.data(), d_lse.data()}, gradient(2), gradient(3),
                                            {.kept = true}, m_run);
    }

    oracle::TensorFile outputs(bool gradients) const {
        oracle::TensorFile file = m_out;
        if (!gradients) file.tensors.resize(2);
        return file;
    }

private:
    std::int64_t batch() const { return static_cast<std::int64_t>(m_p.batch); }
    static oracle::Tensor floats(oracle::Shape shape) {
        oracle::Tensor t{oracle::DType::f32, std::move(shape), {}};
        t.bytes.resize(oracle::element_count(t.shape).value_or(0) * sizeof(float));
        return t;
    }
    float* as_floats(std::size_t i) { return reinterpret_cast<float*>(m_out.tensors[i].tensor.bytes.data()); }
    oracle::linear_ce::Gradient<float> gradient(std::size_t i) {
        oracle::Tensor& t = m_out.tensors[i].tensor;
        if (t.dtype == oracle::DType::bf16) return {nullptr, reinterpret_cast<oracle::Bf16*>(t.bytes.data())};
        return {as_floats(i), nullptr};
    }

    const oracle::linear_ce::Problem& m_p;
    oracle::linear_ce::Run m_run;
    oracle::TensorFile m_out;
};

}  // namespace gdnctl::harness::linear_ce
