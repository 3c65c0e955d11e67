// The options of the commands that run a kernel under test.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "core/json.h"
#include "core/result.h"
#include "harness/child/library.h"
#include "platform/context.h"
#include "platform/env.h"

namespace gdnctl::commands {

// Limits as options.
struct LimitOptions {
    std::optional<double> time_limit_s;
    std::optional<std::int64_t> memory_limit_mib;
};
void describe_limits(cli::Args& args, LimitOptions& options);
harness::Limits limits_of(const LimitOptions& options);

// Where py: kernels run.
struct PythonChoice {
    std::optional<std::string> command;
    std::vector<std::string> env;  // "NAME=VALUE"
    bool no_network = false;
    bool timed = false;                   // not only judged
    std::optional<std::int64_t> chained;  // if so: the calls that show the time on the device; none: as suits that
};
void describe_python(cli::Args& args, PythonChoice& options);
void describe_chained(cli::Args& args, PythonChoice& options);
// The same limits, with a process for those of `kernels` that are Python functions. Usage error: options of such a
// process, but none is. `context` must outlive it.
Result<harness::Limits> limits_of(const LimitOptions& options, const PythonChoice& python,
                                  const std::vector<std::string>& kernels, const Context& context);

// The option --seed: a number, or `random` for an unpredictable one.
Status check_seed(const std::optional<std::string>& given);
std::optional<std::uint64_t> seed_of(const std::optional<std::string>& given);

// What --kernel takes, for help.
const std::string& kernel_help();

// What an evaluation of a candidate gets from its environment, unknown while the candidate is being written:
// GDNCTL_EVAL_SEED, GDNCTL_EVAL_SHAPES and GDNCTL_EVAL_NONCE (docs/evolve.md).

struct Hidden {
    std::optional<std::uint64_t> seed;
    bool unseen = false;  // shapes that are not those of the listed cases, or of the options
    std::string nonce;    // repeated in the result
};

// Takes the three out of this process's environment as well: no code that is judged finds them. Error: usage.
Result<Hidden> take_hidden(const Env& env);
// `nonce`, and `shapes` where they are unseen.
void add_hidden(Json& report, const Hidden& hidden);
// A line where shapes are unseen; else nothing.
std::string hidden_text(const Hidden& hidden);
// Another size than `size`, of the same order.
std::int64_t unseen_size(std::int64_t size, std::uint64_t seed);

}  // namespace gdnctl::commands
