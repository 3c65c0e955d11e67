// gdnctl cluster list: the clusters that --cluster can name here.
#pragma once

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::cluster_list {

struct Options {};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::cluster_list
