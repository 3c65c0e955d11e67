// oracle bench for a Operator: times its kernels in turn with the matrix product and bare multiply-adds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/engine/operator.h"

namespace gdnctl::harness {

// What kernels are timed on.
struct BenchCase {
    oracle::TensorFile inputs;
    // Inputs of the same shape and dtypes from another seed: third-party kernels get new ones for every run.
    std::function<oracle::TensorFile(std::uint64_t seed)> fresh;
    std::string title;                        // "B 512, H 512, V 128256"
    std::function<void(Json& report)> shape;  // sets `shape`; may be empty
};

struct BenchRequest {
    std::string kernel = "builtin:fused";
    std::vector<std::string> peers;
    bool bf16 = false;  // as the case is
    int threads = 1;
    std::int64_t rounds = 8, runs = 5;
    oracle::Isa isa = oracle::best_isa();
    Limits limits;
};

struct BenchDone {
    std::string text, json;  // gdnctl.oracle-bench/1
    bool right = false;      // but for peers
};

// For an instruction set that this processor has.
Result<BenchDone> bench_case(const Operator& op, BenchCase timed, const BenchRequest& request, Context& context);

}  // namespace gdnctl::harness
