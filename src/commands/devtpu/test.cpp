#include "commands/devtpu/test.h"

#include "commands/devtpu/run_job.h"
#include "core/log.h"
#include "jobs/target.h"

namespace gdnctl::commands::dev_tpu_test {

void describe(cli::Args& args, Options& options) {
    args.about(
        "Syncs the working tree to a held TPU, runs the target's correctness test there as ray-test would, and ends "
        "with its verdict.");
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
    GDNCTL_TRY(check_embedded_kernel(target, context));
    Via via = options.run.via;
    GDNCTL_TRY_ASSIGN(const FoundHold hold, devtpu_options::ready_hold(options.name, options.sync, via, context));
    GDNCTL_TRY_ASSIGN(const Place place, choose_place(hold.place, context));
    GDNCTL_TRY_ASSIGN(target, target_at(place, std::move(target), context));
    const TestSelection selection{options.test.tests, options.test.pytest_args, options.test.allow_cpu};
    JobPlan plan{"test", target.name, {}, cluster_env(target), {}};
    GDNCTL_TRY_ASSIGN(plan.command, test_command(target, selection, context.program));
    GDNCTL_TRY_ASSIGN(JobRun run, run_held(hold, via, plan, {options.sync, options.run}, context));
    return ray_test::finish("gdnctl.dev-tpu-test/1", options.test, target, hold.record.tpu_type, std::move(run),
                            context);
}

}  // namespace gdnctl::commands::dev_tpu_test
