#include "commands/jobs/ray_test.h"

#include <array>

#include <nlohmann/json.hpp>

#include "commands/jobs/job_options.h"
#include "commands/jobs/job_preview.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "commands/target.h"
#include "core/json.h"
#include "jobs/results.h"
#include "jobs/run.h"
#include "jobs/target_job.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ray_test {

namespace {

using Suite = TestSelection::Suite;
constexpr std::array<cli::Choice<Suite>, 3> k_suites = {
    {{"kernels", Suite::kernels}, {"layer", Suite::layer}, {"both", Suite::both}}};

Json settings_json(const Options& options, const Target& target) {
    if (target.style != TargetStyle::levanter) return nullptr;
    Json out;
    for (const auto& suite : k_suites) {
        if (suite.value == options.tests) out["tests"] = suite.name;
    }
    out["pytest_args"] = options.pytest_args;
    out["allow_cpu"] = options.allow_cpu;
    return out;
}

}  // namespace

Result<ExitCode> finish(std::string_view schema, const Options& options, const Target& target,
                        const std::string& tpu_type, JobRun run, Context& context) {
    const bool pytest = target.style == TargetStyle::levanter;
    const TestNeeds needs{options.allow_cpu, options.require_passed, options.max_skipped};
    const ExitCode exit = conclude_test(run, target, needs);
    if (context.global.json) {
        Json out;
        out["schema"] = schema;
        put_run(out, run);
        out["target"] = target.name;
        out["tests"] = pytest ? tests_json(run.output.pytest()) : Json(nullptr);
        out["device"] = device_json(run.output.device());
        out["verdict"] = verdict_json(run.output.verdicts());
        out["tpu_evidence"] = is_tpu_evidence(run.place, run.verdict, run.details, run.output);
        out["tpu"] = tpu_type.empty() ? Json(nullptr) : Json(tpu_type);
        put_command(out, run.request);
        out["settings"] = settings_json(options, target);
        print_json(out, context, -1);
    }
    if (run.cut_short) return tl::unexpected(std::move(*run.cut_short));
    return exit;
}

void describe_tests(cli::Args& args, Options& options) {
    args.option(options.tests, k_suites, {.names = "--tests", .value = "SUITE", .help = "pytest suites to run"});
    args.option(options.pytest_args,
                {.names = "--pytest-args", .value = "WORDS", .help = "extra pytest arguments, quoted as for a shell"});
    args.flag(options.allow_cpu, {.names = "--allow-cpu", .help = "accept a run in which JAX finds no TPU"});
    args.option(options.require_passed,
                {.names = "--require-passed", .value = "N", .help = "fail unless at least N tests passed"});
    args.option(options.max_skipped,
                {.names = "--max-skipped", .value = "N", .help = "fail if more than N tests were skipped"});
    args.check([&options]() -> Status {
        if (options.require_passed.value_or(0) < 0 || options.max_skipped.value_or(0) < 0) {
            return fail(ErrorKind::usage, "--require-passed and --max-skipped: expected 0 or more");
        }
        return {};
    });
}

Status check_counts(const Target& target, const Options& options) {
    if (target.style == TargetStyle::levanter || (!options.require_passed && !options.max_skipped)) return {};
    return fail(ErrorKind::usage, "target '" + target.name + "' has no pytest counts",
                "drop --require-passed and --max-skipped: the test is judged by its exit status");
}

void describe(cli::Args& args, Options& options) {
    args.about(
        "Submits the target's correctness test as a job, follows its log, and exits with the job's status. A local job "
        "keeps running if you press Ctrl-C or close the terminal. It does not survive a reboot, or a login manager "
        "that kills your processes when you log out.");
    args.option(options.tpu, {.names = "--tpu",
                              .value = "TYPE",
                              .help = "accelerator to request, such as v5p-8; auto: the cluster's own, none on local"});
    describe_tests(args, options);
    args.flag(options.dry_run,
              {.names = "--dry-run",
               .help = "show the package, the environment (names only) and the request; submit nothing"});
    describe_submit(args, options.submit);
    describe_place(args, options.place);
    args.exit_code(8, "the state directory or a file cannot be used, or a link leads out of the tree");
    args.example("gdnctl ray-test --cluster local", "test the target on this machine");
    args.example("gdnctl ray-test --cluster us-central1 --tpu auto --tests both", "both suites on a cluster's TPU");
    args.example("gdnctl ray-test --cluster local --no-wait", "submit only");
    args.see_also("ray-wait");
    args.see_also("ray-logs");
    args.see_also("ray-stop");
    args.check([&options]() -> Status {
        if (options.submit.no_wait && (options.require_passed || options.max_skipped)) {
            return fail(ErrorKind::usage, "--require-passed and --max-skipped wait for the job's end: drop --no-wait");
        }
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY(check_counts(target, options));
    const TestSelection selection{options.tests, options.pytest_args, options.allow_cpu};
    GDNCTL_TRY_ASSIGN(const PlannedJob job,
                      plan_test(std::move(target), selection, options.tpu, options.place, context));
    if (options.dry_run) {
        return show_preview(job.plan, options.submit, job.place, "gdnctl.ray-test-preview/1", context);
    }
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(job.place, options.place, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_job(job.plan, options.submit, *backend, context));
    return finish("gdnctl.ray-test/1", options, job.target, job.tpu, std::move(run), context);
}

}  // namespace gdnctl::commands::ray_test

namespace gdnctl::commands {

constinit const cli::Command k_ray_test_row = cli::make<&ray_test::describe, &ray_test::run>(
    "ray-test", "Jobs", "run the target's correctness test as a job", Tier::http);

}  // namespace gdnctl::commands
