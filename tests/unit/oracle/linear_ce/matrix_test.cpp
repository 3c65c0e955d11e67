// Which check sees which defect, and by how much an unmasked tail is off.
#include <cmath>
#include <limits>
#include <map>

#include <doctest/doctest.h>

#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/mutants.h"
#include "oracle/linear_ce/judge/selftest.h"

namespace gdnctl::oracle::linear_ce {

namespace {

Result<Problem> problem_from(const TensorFile& inputs) {
    GDNCTL_TRY_ASSIGN(auto contract, resolve(inputs.metadata, {}));
    return read_problem(inputs, std::move(contract));
}

Report judged(const Problem& problem, const TensorFile& dump) {
    CompareOptions options;
    options.level = Level::exact;
    const auto report = compare(problem, dump, options);
    REQUIRE(report);
    return *report;
}

Tensor* tensor_in(TensorFile& file, std::string_view name) {
    for (NamedTensor& entry : file.tensors) {
        if (entry.name == name) return &entry.tensor;
    }
    return nullptr;
}

}  // namespace

TEST_CASE("linear-ce: each check sees what it can see, and is blind to the rest") {
    constexpr const char* k_sees = "WRONG";
    constexpr const char* k_blind = "OK";
    constexpr const char* k_none = "not_run";
    const struct {
        Fault fault;
        const char* on;
        const char *rows, *columns, *I1, *I2;
    } matrix[] = {
        {Fault::log_cap, "soft_cap", k_sees, k_sees, k_blind, k_none},
        {Fault::cap_derivative_missing, "soft_cap", k_sees, k_sees, k_blind, k_none},
        {Fault::log_penalty, "penalty", k_sees, k_sees, k_blind, k_sees},
        {Fault::tail_counted, "small_logits", k_sees, k_sees, k_blind, k_sees},
        {Fault::lse_in_bf16, "small_logits", k_sees, k_sees, k_blind, k_sees},
        // Rows that sum to 1 over the columns that are left hide it from I2.
        {Fault::last_block_dropped, "small_logits_blocks", k_sees, k_sees, k_blind, k_blind},
        {Fault::last_block_dropped_in_gx, "small_logits_blocks", k_sees, k_blind, k_sees, k_blind},
        {Fault::last_block_dropped_in_gw, "small_logits_blocks", k_blind, k_sees, k_sees, k_sees},
        {Fault::gx_hidden_block_lost, "unit_normal", k_sees, k_blind, k_sees, k_blind},
        {Fault::gw_half_lost, "unit_normal", k_blind, k_sees, k_sees, k_blind},
        {Fault::penalty_not_weighted, "penalty_weights", k_sees, k_sees, k_blind, k_sees},
        {Fault::penalty_without_two, "penalty_weights", k_sees, k_sees, k_blind, k_sees},
        {Fault::argmax_last_tie, "identity_136", k_sees, k_blind, k_blind, k_blind},
    };
    for (const auto& row : matrix) {
        const auto problem = problem_from(make_inputs(*find_case(row.on)));
        REQUIRE(problem);
        const Report report = judged(*problem, spoilt_outputs(*problem, row.fault, 1, {}));
        CHECK(report.verdict == Verdict::wrong);
        std::map<std::string, std::string> got;
        for (const CheckReport& c : report.checks) got[c.name] = c.verdict;
        const std::map<std::string, std::string> want = {
            {"rows", row.rows}, {"columns", row.columns}, {"I1", row.I1}, {"I2", row.I2}};
        for (const auto& [name, verdict] : want) {
            CHECK_MESSAGE(got[name] == verdict, row.on << ", fault " << static_cast<int>(row.fault) << ", " << name);
        }
    }
}

TEST_CASE("linear-ce: an unmasked tail at equal logits is off by log1p(P / V), and is named") {
    const auto problem = problem_from(make_inputs(*find_case("equal_logits")));
    REQUIRE(problem);
    const TensorFile right = kernel_outputs(*problem, {});
    CHECK(std::fabs(element(*right.find("lse"), 0) - 4.867534450455582) < 1e-6);
    TensorFile wrong = right;
    for (const char* name : {"loss", "lse"}) {
        std::vector<double> values = to_f64(*tensor_in(wrong, name));
        for (double& x : values) x += 0.677642994024;
        *tensor_in(wrong, name) = from_f64(values, {16}, DType::f32);
    }
    const Report report = judged(*problem, wrong);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "tail");
    const struct {
        double pad, off;
    } at_128256[] = {{256, 0.001994018607}, {768, 0.005970166987}, {2816, 0.021718523955}};
    for (const auto& row : at_128256) CHECK(std::fabs(std::log1p(row.pad / 128256) - row.off) < 1e-12);
}

TEST_CASE("linear-ce: a label below 0, and a weight of 0 on a row that is not finite") {
    TensorFile inputs = make_inputs(*find_case("zero_weights"));
    std::vector<std::int64_t> labels(64, 5);
    labels[17] = -1;
    *tensor_in(inputs, "labels") = from_i64(labels, {64});
    const auto refused = problem_from(inputs);
    REQUIRE(!refused);
    CHECK(refused.error().message == "labels[17] = -1 is outside [0, 130)");
    labels[17] = 5;
    *tensor_in(inputs, "labels") = from_i64(labels, {64});
    std::vector<double> x = to_f64(*tensor_in(inputs, "x"));
    x[4 * 32] = std::numeric_limits<double>::infinity();  // row 4 has weight 0
    *tensor_in(inputs, "x") = from_f64(x, {64, 32}, DType::f32);
    const auto problem = problem_from(inputs);
    REQUIRE(problem);
    CHECK(problem->weight[4] == 0);
    CHECK(problem->unstable_reason == "row 4 of x is not finite");
}

}  // namespace gdnctl::oracle::linear_ce
