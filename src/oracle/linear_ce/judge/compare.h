// The verdict on what a linear cross-entropy kernel wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "oracle/judge/verdict.h"
#include "oracle/linear_ce/judge/truth.h"

namespace gdnctl::oracle::linear_ce {

enum class Level {
    exact,       // every row and column
    sampled,     // some rows of loss, lse, gx and argmax, some columns of gw; invariants
    invariants,  // relations between whole tensors: nothing is accepted by them alone
};

struct CompareOptions {
    Level level = Level::sampled;
    std::size_t rows = 32, columns = 64;  // of a sample
    std::uint64_t seed = 1;
    bool hints = true;  // look for the mistake that explains a wrong dump
    Work work;
};

struct CheckReport {
    std::string name;             // "rows", "columns", "I1", "I2"
    std::string verdict;          // "OK", "WRONG", "not_run"
    double value = 0, limit = 0;  // rows, columns: the largest error / its limit, and 1
};

struct TensorVerdict {
    std::string name;
    Shape shape;
    DType stored = DType::f32;
    std::string error_class;  // "f32", "bf16 inputs", "stored bf16", "default TPU precision"
    Verdict verdict = Verdict::ok;
    std::size_t compared = 0;  // elements
    double error_over_limit = 0;
    double max_abs = 0, rms_ratio = 0, relative_max = 0;  // relative_max: max |d| / max |want|
    std::size_t nonfinite = 0;
    bool loose = false;  // passes the limit of bf16, beyond 1e-2 of the largest value
    std::optional<Worst> worst;
};

// The largest error / limit of a tensor in each compared row of the batch, or column of the vocabulary.
struct LineErrors {
    std::string tensor;
    std::vector<double> errors;
};

// Which part of the dump is wrong.
struct FaultLocation {
    std::string tensor;
    std::vector<std::size_t> rows, columns;  // of the batch, of the vocabulary: all wrong ones that were compared
    std::optional<std::pair<std::size_t, std::size_t>> block;   // of the vocabulary: [begin, end)
    std::optional<std::pair<std::size_t, std::size_t>> hidden;  // of hidden dimensions
};

struct Report {
    Verdict verdict = Verdict::no_data;
    bool invariants_hold = false;  // level invariants, and they do: nothing was accepted
    std::string reason;
    std::string stage;
    std::vector<std::string> stages;
    std::vector<Hint> hints;
    std::vector<std::string> declare;  // "--set", "logits=bf16": options under which the dump is OK
    std::optional<FaultLocation> place;
    std::optional<Worst> worst;
    std::vector<TensorVerdict> tensors;
    std::vector<CheckReport> checks;
    std::vector<NotCompared> not_compared;
    std::vector<std::string> unknown;
    std::vector<UnreadTensor> unread;
    bool forward_only = false;
    bool outputs_are_truth = false;                            // set by the caller
    std::vector<std::size_t> compared_rows, compared_columns;  // what these are of:
    std::vector<LineErrors> row_errors, column_errors;
    std::vector<std::size_t> sampled_rows, sampled_columns;  // level sampled

    std::string_view verdict_name() const { return invariants_hold ? "INVARIANTS_HOLD" : name_of(verdict); }
};

std::string_view name_of(Level level);  // "sampled"

// bad_input: a tensor of the wrong shape or dtype. Interrupted work gives a report that means nothing.
Result<Report> compare(const Problem& problem, const TensorFile& file, const CompareOptions& options);

}  // namespace gdnctl::oracle::linear_ce
