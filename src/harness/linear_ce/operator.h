// The operator linear-ce for code that runs kernels: reading problems from files, cases, kernels, and inputs to time
// them on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "harness/engine/bench.h"
#include "harness/engine/operator.h"
#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/problem.h"
#include "oracle/linear_ce/judge/truth.h"

namespace gdnctl::harness::linear_ce {

inline constexpr std::string_view k_op = "linear-ce";

const Operator& plain();

// Refuses what this machine has no memory for. `exact`: gradients of all rows and columns in fp64.
Status check_memory(std::size_t batch, std::size_t hidden, std::size_t vocab, bool exact);

// What the inputs file says counts where `overrides` say nothing.
Result<oracle::linear_ce::Problem> read_problem(const oracle::TensorFile& file,
                                                const oracle::linear_ce::Overrides& overrides);

struct BenchSizes {
    std::int64_t batch = 512, hidden = 512, vocab = 128256;
    double soft_cap = 0, logsumexp_weight = 0;
};
Result<BenchCase> bench_inputs(const BenchSizes& sizes, std::uint64_t seed, bool bf16);

// builtin:fused, lib:PATH, src:FILE.c or cmd:COMMAND; see Operator::open().
Result<std::unique_ptr<Kernel>> open_kernel(const std::string& spelling, const Opening& how, const Context& context);

// The problem that plain() reads.
class ReadProblem : public Problem {
public:
    // `how`: how outputs are judged, instead of as verify and bench do.
    ReadProblem(oracle::linear_ce::Problem problem, const oracle::TensorFile& inputs,
                std::optional<oracle::linear_ce::CompareOptions> how = std::nullopt)
        : m_problem(std::move(problem)), m_inputs(inputs), m_how(std::move(how)) {}

    const oracle::linear_ce::Problem& value() const { return m_problem; }
    Result<Judgement> judge(const oracle::TensorFile& outputs, const Judging& how) override;
    Result<std::optional<Disguised>> disguised(std::uint64_t seed) override;
    Result<Call> call(std::size_t pass, std::uint32_t dtypes, int threads) override;
    oracle::TensorFile file() const override;
    double flop(std::size_t pass) const override;
    std::size_t gradient_bytes() const override { return m_problem.x.bytes.size() + m_problem.w.bytes.size(); }

private:
    oracle::linear_ce::Problem m_problem;
    const oracle::TensorFile& m_inputs;
    std::optional<oracle::linear_ce::CompareOptions> m_how;
};

// oracle run for linear-ce: inputs of a case or of sizes, and the exact results.

// A case, or all three sizes.
struct Generated {
    std::optional<std::string> case_name;
    std::optional<std::int64_t> batch, hidden, vocab;
    std::optional<std::string> weights;  // "zero-every=K"
    std::optional<std::string> layout;   // that w is written in
    std::optional<std::int64_t> seed;
    bool bf16 = false;
};
// Usage errors: no such case, sizes that are missing or too large.
Result<oracle::TensorFile> generate(const Generated& from);

// Adds loss, lse, gx, gw, argmax and what the contract reduces to, in place of those of an earlier run.
void add_results(const oracle::linear_ce::Problem& p, const oracle::linear_ce::Work& work, oracle::TensorFile& file);

}  // namespace gdnctl::harness::linear_ce
