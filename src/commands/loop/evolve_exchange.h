// gdnctl evolve import and export: candidates from and for other programs.
#pragma once

#include "commands/loop/evolve_common.h"
#include "core/exit_code.h"

namespace gdnctl::commands {

namespace evolve_import {
struct Options {
    std::string from;
    std::optional<std::string> map;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_import

namespace evolve_export {
struct Options {
    evolve::RunChoice run;
    std::optional<std::string> id;
    bool contest = true;
    std::string to;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_export

}  // namespace gdnctl::commands
