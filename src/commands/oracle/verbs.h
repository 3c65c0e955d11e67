// gdnctl oracle cases
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "commands/oracle/elsewhere.h"
#include "commands/oracle/gdn.h"
#include "commands/oracle/kernel_options.h"
#include "commands/oracle/linear_ce.h"
#include "commands/oracle/operators.h"
#include "core/result.h"
#include "harness/engine/operator.h"
#include "harness/flashinfer/evaluate.h"
#include "harness/gdn/read.h"
#include "harness/gdn/run.h"
#include "oracle/judge/selftest.h"
#include "oracle/simd/isa.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_verify {

enum class CaseChoice { as_suits_the_kernel, device, full };

}  // namespace gdnctl::commands::oracle_verify

namespace gdnctl::commands::oracle_cases {

struct Options {
    std::string op;
    oracle_verify::CaseChoice chosen = oracle_verify::CaseChoice::full;
    Operators operators = commands::operators();
};

// For people, or as JSON.
ExitCode print(std::string_view op, const harness::CaseList& cases, Context& context);

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_cases

namespace gdnctl::commands {

// What options say about an inputs file, in addition to its own metadata.

struct ReadOptions {
    const oracle_gdn::ContractOptions& contract;
    const linear_ce::CompareOptions& ce;
    std::optional<std::int64_t> chunk = {};
    harness::FixedRule rule = {};
};

}  // namespace gdnctl::commands

namespace gdnctl::commands::oracle_run {

// gdnctl oracle run

using harness::Method;
// What to run for gdn and gdn-layer, and the rest.
struct Options : harness::GdnRun {
    std::string op;
    std::vector<std::string> inputs;
    std::optional<std::int64_t> chunk;
    bool u2_as_bf16 = false;
    std::int64_t threads = 0;
    std::string out;
    linear_ce::RunOptions ce;
    linear_ce::Contract ce_contract;
    Operators operators = commands::operators();
};

// That inputs come from one of --shape, --case and --inputs.
Status check_sources(const Options& options);

// The file of --inputs, or what `generate` makes.
Result<oracle::TensorFile> inputs(const Options& options, const Context& context,
                                  const std::function<Result<oracle::TensorFile>()>& generate);

// Writes `file` with metadata from which it can be judged or made again, and reports it.
Status finish(const Options& options, const oracle::ResolvedContract& contract, oracle::TensorFile& file,
              Context& context);

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_run

namespace gdnctl::commands::oracle_verify {

// gdnctl oracle verify

enum class StoredAs { as_listed, f32, bf16, f16 };
std::string_view name_of(StoredAs dtype);  // as --dtype spells it

struct Options {
    std::string op;
    std::string kernel;
    std::optional<std::string> contract;  // of the kernel, as it is declared
    std::vector<std::string> sets;
    std::optional<std::string> vectors;
    std::vector<std::string> cases;
    CaseChoice chosen = CaseChoice::as_suits_the_kernel;
    StoredAs dtype = StoredAs::as_listed;
    std::optional<std::string> seed;
    bool allow_suspect = false;
    bool metamorphic = false;
    bool slow = false;
    bool fail_fast = false;
    std::optional<std::string> save_failures;
    std::int64_t threads = 0;
    LimitOptions limits;
    PythonChoice python;
    Elsewhere elsewhere;
    Hidden hidden;
    Operators operators = commands::operators();
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_verify

namespace gdnctl::commands::oracle_flashinfer {

// gdnctl oracle compare --flashinfer: the workloads of a FlashInfer-Bench dataset, one trace line for each

struct Options : harness::flashinfer::DatasetRequest {
    LimitOptions limits;
};

// Whether a dataset is to be evaluated: one is named, or a definition, which the usual one is looked through for.
bool wanted(const Options& options);

// Adds the options and the check that the others are given with one of these two only.
void describe(cli::Args& args, Options& options);
// For options that are wanted().
Result<ExitCode> run(const Options& options, int threads, bool allow_suspect, Context& context);

}  // namespace gdnctl::commands::oracle_flashinfer

namespace gdnctl::commands::oracle_compare {

// gdnctl oracle compare

struct Options {
    std::string op;
    std::vector<std::string> inputs, outputs;
    std::optional<std::string> in, out;  // the arguments, which become the only inputs and outputs
    oracle_gdn::ContractOptions contract;
    std::optional<double> rtol, atol;
    bool budget = false;
    bool allow_suspect = false;
    bool no_hints = false;
    bool heatmap = false;
    std::optional<std::string> html;
    bool u2_as_bf16 = false;
    std::int64_t threads = 0;
    oracle_flashinfer::Options flashinfer;
    linear_ce::CompareOptions ce;
    Operators operators = commands::operators();
};

struct Dump {
    oracle::TensorFile inputs, outputs;
};
Result<Dump> read(const Options& options, const Context& context);

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_compare

namespace gdnctl::commands::oracle_bench {

// gdnctl oracle bench

enum class IsaChoice { best, scalar, avx2, avx512 };
enum class DTypeChoice { f32, bf16 };

inline constexpr std::string_view k_default_shape = "1,4,8,4096,128,128";

oracle::Isa isa_of(IsaChoice choice);

struct Options {
    std::string op;
    std::optional<std::string> kernel;  // none: one of ours for each pass
    std::vector<std::string> peers;
    std::string shape{k_default_shape};
    std::int64_t seed = 1;
    std::int64_t threads = 0;
    std::int64_t rounds = 8;
    std::int64_t runs = 5;
    IsaChoice isa = IsaChoice::best;
    DTypeChoice dtype = DTypeChoice::f32;
    std::optional<double> peak_tflops;
    LimitOptions limits;
    PythonChoice python;
    Elsewhere elsewhere;
    Hidden hidden;
    harness::linear_ce::BenchSizes ce;
    Operators operators = commands::operators();
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_bench

namespace gdnctl::commands::oracle_adapter {

// gdnctl oracle adapter

struct Options {
    std::optional<std::string> name;
    bool host = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_adapter

namespace gdnctl::commands::oracle_selftest {

// gdnctl oracle selftest

struct Options {
    std::optional<std::string> op;
    std::int64_t threads = 0;
    Operators operators = commands::operators();
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
// What an operator's self-test found.
Result<ExitCode> print(const Operator& op, const oracle::SelftestReport& report, Context& context);

}  // namespace gdnctl::commands::oracle_selftest
