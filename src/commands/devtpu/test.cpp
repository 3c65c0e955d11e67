// gdnctl dev-tpu-test: run the target's correctness test on a held TPU.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"
#include "commands/jobs/ray_test.h"
#include "commands/rows.h"
#include "commands/target.h"
#include "jobs/held_job.h"
#include "jobs/target.h"

namespace gdnctl::commands::dev_tpu_test {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
    devtpu_options::Run run;
    ray_test::Options test;  // the test's options; its place and submission are not used
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Syncs the working tree to a held TPU, runs the target's correctness test there as ray-test would, and exits "
        "with its status.");
    ray_test::describe_tests(args, options.test);
    devtpu_options::describe_sync(args, options.sync);
    devtpu_options::describe_run(args, options.run);
    devtpu_options::describe_name(args, options.name);
    args.exit_code(1, "the tests failed");
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-test --cluster us-central1 --tpu-name \"$USER-gdn\" --tests both");
    args.see_also("dev-tpu-allocate");
    args.see_also("ray-test");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY(ray_test::check_counts(target, options.test));
    GDNCTL_TRY(check_target_is_named(target, options.name.place, context));
    GDNCTL_TRY_ASSIGN(const FoundHold found, find_hold(options.name.tpu_name, options.name.place, context));
    GDNCTL_TRY(check_target_is_named(target, found.record.cluster == "local", context));
    Via via = options.run.via;
    GDNCTL_TRY_ASSIGN(const FoundHold hold,
                      ready_hold(options.name.tpu_name, options.name.place, options.sync, via, context));
    const TestSelection selection{options.test.tests, options.test.pytest_args, options.test.allow_cpu};
    GDNCTL_TRY_ASSIGN(const PlannedJob job, plan_held_test(std::move(target), selection, hold, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_held(hold, via, job.plan, {options.sync, options.run}, context));
    return ray_test::finish("gdnctl.dev-tpu-test/1", options.test, job.target, job.tpu, std::move(run), context);
}

}  // namespace gdnctl::commands::dev_tpu_test

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_test_row = cli::make<&dev_tpu_test::describe, &dev_tpu_test::run>(
    "dev-tpu-test", "Dev TPUs", "run the target's test on a held TPU", Tier::http);

}  // namespace gdnctl::commands
