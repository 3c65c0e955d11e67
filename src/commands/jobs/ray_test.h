// gdnctl ray-test: run the target's correctness test as a job.
#pragma once

#include "commands/jobs/job_options.h"
#include "jobs/run.h"
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

// What is tested: --tests, --pytest-args and what must come of them.
void describe_tests(cli::Args& args, Options& options);
// Error usage: counts are asked of a target that has none.
Status check_counts(const Target& target, const Options& options);
// Tells what came of a run, as JSON under the schema where that is asked for, and judges it.
Result<ExitCode> finish(std::string_view schema, const Options& options, const Target& target,
                        const std::string& tpu_type, JobRun run, Context& context);

}  // namespace gdnctl::commands::ray_test
