// gdnctl ray-test: run the target's correctness test as a job.
#pragma once

#include "commands/jobs/job_options.h"
#include "jobs/submit.h"

namespace gdnctl::commands::ray_test {

struct Options {
    PlaceOptions place;
    SubmitOptions submit;
    std::string tpu = "auto";
    TestSelection::Suite tests = TestSelection::Suite::both;
    std::string pytest_args;
    bool allow_cpu = false;
    bool dry_run = false;
    std::optional<std::int64_t> require_passed;
    std::optional<std::int64_t> max_skipped;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::ray_test
