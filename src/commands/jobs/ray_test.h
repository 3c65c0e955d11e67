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

// The test's options: --tests, --pytest-args and the required counts.
void describe_tests(cli::Args& args, Options& options);
// Error usage: counts are required of a target that has none.
Status check_counts(const Target& target, const Options& options);
// Reports and judges a run, as JSON with this schema if requested.
Result<ExitCode> finish(std::string_view schema, const Options& options, const Target& target,
                        const std::string& tpu_type, JobRun run, Context& context);

}  // namespace gdnctl::commands::ray_test
