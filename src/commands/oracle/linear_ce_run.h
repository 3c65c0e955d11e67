// gdnctl oracle run linear-ce and oracle cases linear-ce
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/oracle/linear_ce.h"

namespace gdnctl::commands::linear_ce {

struct RunOptions {
    std::optional<std::int64_t> batch, hidden, vocab;
    std::optional<std::string> weights;  // "zero-every=K"
};

// What of `oracle run` does not depend on the operator.
struct RunFiles {
    std::optional<std::string> case_name;
    std::vector<std::string> inputs;
    std::optional<std::int64_t> seed;
    bool bf16 = false;
    bool u2_as_bf16 = false;
    std::int64_t threads = 0;
    std::string out;
};

void describe_run(cli::Args& args, RunOptions& options);
Result<ExitCode> run(const RunOptions& options, const ContractOptions& contract, const RunFiles& files,
                     Context& context);

void list_cases(Context& context);

}  // namespace gdnctl::commands::linear_ce
