// FlashInfer-Bench's files: definitions (what is computed on which tensors), workloads (which shapes and values),
// solutions (who computes it) and traces (what came of it). Pure: text and tensors in, values out. The nine Gated
// DeltaNet definitions are known here by renewer; docs/flashinfer-bench.md describes formats and rules.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle::flashinfer {

struct Axis {
    std::string name;
    std::optional<std::int64_t> value;  // nullopt: each workload has its own
};

struct TensorSpec {
    std::string name;
    std::optional<std::vector<std::string>> axes;  // nullopt: a scalar
    std::string dtype;                             // "bfloat16", "float32", "int64", ...
    bool optional = false;
};

struct Definition {
    std::string name, op_type;
    std::vector<Axis> axes;
    std::vector<TensorSpec> inputs, outputs;  // in the order in which a solution gets them
};

// One JSON object. Errors, here and in every reader below: bad_input, beginning with `what`.
Result<Definition> parse_definition(std::string_view text, std::string_view what);

enum class Stage { prefill, decode, mtp };
std::string_view name_of(Stage stage);  // "prefill"

struct GdnDefinition {
    Definition definition;
    Stage stage = Stage::prefill;
    std::int64_t key_heads = 0, value_heads = 0, head_size = 0;
};

const std::vector<GdnDefinition>& gdn_definitions();
std::vector<std::string> gdn_definition_names();
const GdnDefinition* find_gdn_definition(std::string_view name);  // nullptr: none of the nine
// bad_input when a definition of this name means other tensors than we know.
Status check_definition(const Definition& read, const GdnDefinition& known, std::string_view what);

struct InputSource {
    enum class Kind { random, scalar, safetensors };
    Kind kind = Kind::random;
    double scalar = 0;
    std::string path, tensor_key;  // the path is relative to the root of the dataset
};

struct Workload {
    std::string uuid;
    std::map<std::string, std::int64_t> axes;
    std::vector<std::pair<std::string, InputSource>> inputs;
    std::string json;  // as it was read, so that a trace repeats it whole

    const InputSource* find(std::string_view input) const;  // nullptr: not named, which means random
};

enum class TraceStatus {
    passed,
    incorrect_shape,
    incorrect_numerical,
    incorrect_dtype,
    runtime_error,
    compile_error,
    timeout,
};
std::string_view name_of(TraceStatus status);  // "INCORRECT_NUMERICAL"

struct Correctness {
    double max_relative_error = 0, max_absolute_error = 0;  // may be infinite or NaN
    std::string extra;                                      // a JSON object; empty: none
};

struct Performance {
    double latency_ms = 0, reference_latency_ms = 0, speedup_factor = 0;
};

struct Evaluation {
    TraceStatus status = TraceStatus::passed;
    std::string hardware;  // not empty
    std::vector<std::pair<std::string, std::string>> libs;
    std::string timestamp;                   // not empty
    std::string log;                         // what the solution or the compiler printed, and what we have to say
    std::optional<Correctness> correctness;  // for passed and incorrect_numerical, and for no other
    std::optional<Performance> performance;  // for passed alone
};

// A line of a trace file, or, without solution and evaluation, of a workload file.
struct Trace {
    std::string definition;
    Workload workload;
    std::optional<std::string> solution;
    std::optional<Evaluation> evaluation;
};

Result<Trace> parse_trace(std::string_view line, std::string_view what);
std::string trace_line(const Trace& trace);  // without newline

struct SourceFile {
    std::string path;  // relative, without ".."
    std::string content;
};

struct Solution {
    std::string name, definition, author;
    std::string language;  // "c", "cpp", "cuda", "triton", "python", ...
    std::string binding;   // "tvm-ffi", "torch" or empty
    std::string entry_file, entry_function;
    bool destination_passing = true;
    std::vector<SourceFile> sources;
};

Result<Solution> parse_solution(std::string_view text, std::string_view what);
// bad_input, with the reason, for a solution that is not C for this machine's processor.
Status check_runnable(const Solution& solution);

// What a workload asks for, before any tensor is made.
struct WorkloadSize {
    GdnDims dims;
    std::int64_t sequences = 0;
    std::int64_t states = 0;  // rows of the state input: sequences, or the pool of mtp
};

// Binds the axes: every variable one has a value, constant ones are not contradicted, constraints hold.
Result<WorkloadSize> workload_size(const GdnDefinition& definition, const Workload& workload);
// The shape of an input or output with this workload's axes; {} for a scalar. All axes must be bound.
Shape shape_of(const GdnDefinition& definition, const Workload& workload, const TensorSpec& spec);

struct WorkloadInputs {
    TensorFile file;                      // as read_problem takes it under the contract `flashinfer`
    std::vector<std::int64_t> state_row;  // of each sequence: the row of the state input it starts from
    std::vector<std::string> warnings;
    std::vector<std::string> random;  // inputs that are our own random numbers
};

// `loaded`: the tensors of the inputs that come from safetensors files, by input name. What is random, or not named, is
// N(0,1) from a stream of this workload and input: other numbers than FlashInfer-Bench's, and the same each time.
// With a seed it is N(0,1) of that seed. Errors: a tensor of another shape or dtype, sequences that do not fit, random
// offsets or indices.
Result<WorkloadInputs> make_workload_inputs(const GdnDefinition& definition, const Workload& workload,
                                            const std::map<std::string, Tensor>& loaded,
                                            std::optional<std::uint64_t> seed = std::nullopt);

// FlashInfer-Bench's rule on the outputs of one call.
struct RuleResult {
    TraceStatus status = TraceStatus::passed;
    double max_relative_error = 0, max_absolute_error = 0;
    std::size_t outside = 0;               // elements beyond both tolerances
    std::size_t non_finite_reference = 0;  // elements that no result can fail on
    std::vector<std::string> zeros_pass;   // outputs for which a result of zeros would pass
};
inline constexpr double k_rule_tolerance = 1e-2;  // both of them

// Output by output, in the order of `reference`; `got` holds tensors of the same names.
RuleResult apply_rule(const TensorFile& got, const TensorFile& reference);

// What the rule misses on this workload, or judges differently from our verdict: one line each. `right`: our verdict is
// OK and the kernel has no fault.
std::vector<std::string> rule_holes(const RuleResult& rule, Stage stage, bool right, double error_over_budget);

}  // namespace gdnctl::oracle::flashinfer
