// FlashInfer-Bench's rule of correctness, element by element, and what it cannot see.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "oracle/flashinfer/flashinfer.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::flashinfer;

namespace {

TensorFile one(const std::vector<double>& values, DType dtype = DType::f32) {
    TensorFile file;
    file.tensors.push_back({"out", from_f64(values, {static_cast<std::int64_t>(values.size())}, dtype)});
    return file;
}

constexpr double k_nan = std::numeric_limits<double>::quiet_NaN();
constexpr double k_inf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("flashinfer: an element fails beyond both tolerances only") {
    CHECK(apply_rule(one({0.009}), one({0})).status == TraceStatus::passed);
    CHECK(apply_rule(one({100.5}), one({100})).status == TraceStatus::passed);
    const RuleResult r = apply_rule(one({102, 1}), one({100, 1}));
    CHECK(r.status == TraceStatus::incorrect_numerical);
    CHECK(r.outside == 1);
    CHECK(r.max_absolute_error == 2);
    CHECK(r.max_relative_error == doctest::Approx(0.02));
    CHECK(apply_rule(one({1}, DType::bf16), one({1})).status == TraceStatus::incorrect_dtype);
    CHECK(apply_rule(one({1, 1}), one({1})).status == TraceStatus::incorrect_shape);
    CHECK(apply_rule({}, one({1})).status == TraceStatus::incorrect_shape);
}

TEST_CASE("flashinfer: where the reference is NaN or infinite any finite result passes, and the maximum hides it") {
    const RuleResult r = apply_rule(one({5, 7, 1}), one({k_nan, 7, 1}));
    CHECK(r.status == TraceStatus::passed);
    CHECK(r.non_finite_reference == 1);
    CHECK(r.max_absolute_error == 0);
    CHECK(apply_rule(one({5}), one({k_inf})).status == TraceStatus::passed);
    const auto holes = rule_holes(r, Stage::decode, false, 0);
    REQUIRE(holes.size() == 2);
    CHECK(holes[0] == "1 values of the reference are NaN or infinite: no finite result can fail there");
    // A result that is not finite fails even where the reference is not either.
    const RuleResult nan = apply_rule(one({k_nan}), one({k_nan}));
    CHECK(nan.status == TraceStatus::incorrect_numerical);
    CHECK(std::isnan(nan.max_absolute_error));
    CHECK(std::isinf(apply_rule(one({k_nan, k_inf}), one({1, 1})).max_relative_error));
}

TEST_CASE("flashinfer: holes are named where they matter") {
    const RuleResult small = apply_rule(one({0.001, 0.002}), one({0.009, -0.004}));
    CHECK(small.status == TraceStatus::passed);
    const auto holes = rule_holes(small, Stage::mtp, false, 1e5);
    REQUIRE(holes.size() == 3);
    CHECK(holes[0] == "no value of out is beyond 0.01: a result of zeros would pass");
    CHECK(holes[1] == "the rule accepts 1e+05 times the error of a correct kernel");
    CHECK(holes[2] == "the rule checks the unchanged pool, not the states");
    CHECK(rule_holes(apply_rule(one({1}), one({1})), Stage::mtp, true, 1).empty());
    const auto strict = rule_holes(apply_rule(one({2}), one({1})), Stage::decode, true, 1);
    REQUIRE(strict.size() == 1);
    CHECK(strict[0] == "1 values exceed both tolerances, but so does a correct kernel");
}
