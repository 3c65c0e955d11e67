// The smallest operator of the oracle: y[r] = scale * sum_i x[r,i]. It shows what an operator has to say for itself.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "commands/oracle/plain.h"
#include "core/text.h"
#include "harness/plain/operator.h"
#include "oracle/tensor/random.h"

namespace gdnctl::test {

using oracle::TensorFile;

class ScaledSum final : public harness::Problem {
public:
    ScaledSum(const TensorFile& inputs, double scale)
        : m_inputs(inputs), m_shape(inputs.find("x")->shape), m_x(oracle::to_f64(*inputs.find("x"))), m_scale(scale) {}

    // `scale`: another one, of a kernel that is wrong.
    TensorFile sums(double scale) const {
        std::vector<double> y(static_cast<std::size_t>(m_shape[0]));
        for (std::size_t i = 0; i < m_x.size(); ++i) y[i / width()] += scale * m_x[i];
        return {{{"y", oracle::from_f64(y, {m_shape[0]}, oracle::DType::f32)}}, {}, {}, {}};
    }
    double scale() const { return m_scale; }
    double flop(std::size_t /*pass*/) const override { return static_cast<double>(m_x.size()); }
    TensorFile file() const override { return m_inputs; }

    // A sum of n terms in fp32 is within n eps of the sum of their sizes.
    Result<harness::Judgement> judge(const TensorFile& outputs, const harness::Judging& /*how*/) override {
        const oracle::Tensor* y = outputs.find("y");
        if (y == nullptr) return harness::Judgement{.reason = "y is not in the dump"};
        if (y->shape != oracle::Shape{m_shape[0]}) return fail(ErrorKind::bad_input, "y has another shape");
        harness::Judgement j{.verdict = oracle::Verdict::ok};
        for (std::size_t row = 0; row < y->count(); ++row) {
            double want = 0, size = 0;
            for (std::size_t i = 0; i < width(); ++i) {
                want += m_scale * m_x[row * width() + i];
                size += std::abs(m_scale * m_x[row * width() + i]);
            }
            const double got = oracle::element(*y, row);
            const double error = std::abs(got - want) / (static_cast<double>(width()) * size * 0x1p-24);
            if (error <= j.error) continue;
            j.error = error;
            j.worst = oracle::Worst{"y", "r", {static_cast<std::int64_t>(row)}, got, want};
        }
        if (j.error > 1) {
            j.verdict = oracle::Verdict::wrong;
            j.reason = fmt::format("y is off by {:.2g} times what rounding explains", j.error);
        }
        return j;
    }

private:
    std::size_t width() const { return static_cast<std::size_t>(m_shape[1]); }

    const TensorFile& m_inputs;
    oracle::Shape m_shape;
    std::vector<double> m_x;
    double m_scale;
};

class ToyOperator final : public harness::PlainOperator {
public:
    std::string_view name() const override { return "scaled-sum"; }

    harness::CaseList cases() const override {
        return {"R,N",
                8,
                {{"short", "sizes", "three terms", "2,3", {}, {}}, {"long", "sizes", "many terms", "5,1000", {}, {}}}};
    }

    TensorFile inputs(std::string_view case_name, std::optional<std::uint64_t> seed, bool bf16) const override {
        const oracle::Shape shape = case_name == "short" ? oracle::Shape{2, 3} : oracle::Shape{5, 1000};
        oracle::Random random(seed.value_or(1), 1);
        std::vector<double> x(oracle::element_count(shape).value_or(0));
        for (double& value : x) value = random.normal();
        const auto dtype = bf16 ? oracle::DType::bf16 : oracle::DType::f32;
        return {{{"x", oracle::from_f64(x, shape, dtype)}}, {}, {{"op", "scaled-sum"}, {"scale", "0.5"}}, {}};
    }

    Result<std::unique_ptr<harness::Problem>> read(const TensorFile& inputs) const override {
        const oracle::Tensor* x = inputs.find("x");
        const auto scale = inputs.metadata.find("scale");
        if (x == nullptr || x->shape.size() != 2 || scale == inputs.metadata.end()) {
            return fail(ErrorKind::bad_input, "scaled-sum needs x [R,N], and its scale as metadata");
        }
        return std::make_unique<ScaledSum>(inputs, std::stod(scale->second));
    }

    std::span<const std::string_view> passes() const override {
        static constexpr std::string_view k_passes[] = {"forward"};
        return k_passes;
    }

    Result<std::unique_ptr<harness::Kernel>> open(const std::string& spelling, const harness::Opening& how,
                                                  const Context& context) const override {
        if (spelling.starts_with("cmd:")) return harness::open_foreign(spelling, {}, how.limits, context);
        if (spelling != "builtin:fused" && spelling != "builtin:unscaled") {
            return fail(ErrorKind::usage, fmt::format("unknown kernel '{}'", spelling));
        }
        return std::make_unique<harness::OwnKernel>([scaled = spelling == "builtin:fused"](const harness::Asked& a) {
            const auto& problem = static_cast<const ScaledSum&>(a.inputs);
            return problem.sums(scaled ? problem.scale() : 1);
        });
    }
};

inline const harness::PlainOperator& toy() {
    static const ToyOperator k_toy;
    return k_toy;
}

inline constexpr commands::Operator k_toy_row = {.name = "scaled-sum",
                                                 .what = "a toy",
                                                 .plain = &toy,
                                                 .cases = {&commands::oracle_plain::cases},
                                                 .read = &commands::oracle_plain::read,
                                                 .compare = {&commands::oracle_plain::compare},
                                                 .verify = {&commands::oracle_plain::verify},
                                                 .bench = {&commands::oracle_plain::bench}};

}  // namespace gdnctl::test
