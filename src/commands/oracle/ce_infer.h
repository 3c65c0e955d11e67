// gdnctl ce-infer
#pragma once

#include <optional>
#include <string>

#include "cli/args.h"
#include "oracle/linear_ce/blocks/infer.h"
#include "platform/context.h"

namespace gdnctl::commands::ce_infer {

struct Options {
    std::string device;
    std::optional<std::int64_t> batch, hidden, vocab;
    std::string dtype = "f32";
    std::optional<std::string> x_dtype, w_dtype;
    oracle::linear_ce::TableDate table = oracle::linear_ce::TableDate::latest;
    std::optional<std::int64_t> scoped_vmem_kib;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::ce_infer
