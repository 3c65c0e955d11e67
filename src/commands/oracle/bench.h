// gdnctl oracle bench
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "commands/oracle/hidden.h"
#include "commands/oracle/kernel_options.h"
#include "commands/oracle/linear_ce.h"
#include "commands/oracle/operators.h"
#include "oracle/simd/isa.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_bench {

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
    bool phases = false;
    DTypeChoice dtype = DTypeChoice::f32;
    LimitOptions limits;
    Hidden hidden;
    harness::linear_ce::BenchSizes ce;
    Operators operators = commands::operators();
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_bench
