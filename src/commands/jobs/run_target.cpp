// gdnctl ray-test, ray-profile, dev-tpu-test and dev-tpu-profile: the target's test and profile, as jobs or on a held
// TPU.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "commands/common.h"
#include "commands/jobs/job_options.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "jobs/held_job.h"
#include "jobs/job_destination.h"
#include "jobs/job_trace.h"
#include "jobs/run.h"
#include "jobs/submit.h"
#include "jobs/target_job.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "services/iris/iris_jobs.h"
#include "services/job/job.h"
#include "services/ray/ray_jobs.h"

namespace gdnctl::commands {

namespace {

namespace fs = std::filesystem;

struct Preview {
    std::size_t files = 0;
    std::uint64_t package_bytes = 0;  // size of the archive; 0: no package
    std::uint64_t package_limit = k_package_limit;
    std::string working_dir;  // source of the package: a folder, a URI, or "none"
    std::string path;         // that the request goes to
    Json request;             // with the values of variables and secrets masked
};

// Packs into a temporary file that ends with this process.
Result<std::uint64_t> packed_size(const WorkingTree& tree, std::uint64_t limit, const Context& context) {
    std::error_code problem;
    fs::path folder = fs::temp_directory_path(problem);
    if (problem) folder = "/tmp";
    std::string path = (folder / "gdnctl-preview.XXXXXX").string();
    const UniqueFd fd(mkostemp(path.data(), O_CLOEXEC));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "create", path, errno));
    auto size = pack_tree(tree, path, context.stop, limit);
    fs::remove(path, problem);
    return size;
}

std::string resources_text(const std::map<std::string, double>& resources) {
    std::string out;
    for (const auto& [name, amount] : resources) out += fmt::format("{}{} {:g}", out.empty() ? "" : ", ", name, amount);
    return out.empty() ? "none asked for" : out;
}

Result<Preview> preview_request(const JobRequest& request, PlaceKind kind, const Context& context) {
    const bool iris = kind == PlaceKind::iris;
    Preview preview;
    if (iris) preview.package_limit = k_iris_package_limit;
    preview.working_dir = request.working_dir_uri.empty() ? "none" : request.working_dir_uri;
    std::string uri;
    if (request.working_dir) {
        preview.working_dir = request.working_dir->root.string();
        preview.files = request.working_dir->files.size();
        GDNCTL_TRY_ASSIGN(preview.package_bytes, packed_size(*request.working_dir, preview.package_limit, context));
        uri = "gcs://_ray_pkg_<sha1>_<nonce>.zip";
    }
    GDNCTL_TRY_ASSIGN(const std::string body,
                      iris ? preview_launch(request, iris_user(context.env)) : preview_submission(request, uri));
    GDNCTL_TRY_ASSIGN(preview.request, parse_json(body, "the request"));
    preview.path = iris ? "/iris.cluster.ControllerService/LaunchJob" : "/api/jobs/";
    Json& entrypoint =
        iris ? preview.request["entrypoint"]["runCommand"]["argv"].back() : preview.request["entrypoint"];
    entrypoint = redact(entrypoint.get<std::string>());
    return preview;
}

void put_preview(Json& object, const JobDestination& place, const JobRequest& request, const Preview& preview) {
    object["backend"] = std::string(to_text(place.kind));
    object["cluster"] = place.cluster.empty() ? Json(nullptr) : Json(place.cluster);
    object["address"] = address_text(place);
    object["submission_id"] = request.submission_id;
    object["entrypoint"] = own_command(request.entrypoint);
    object["env_names"] = names_of(request.env);
    object["resources"] = request.resources;
    object["package"] = {{"working_dir", preview.working_dir},
                         {"files", preview.files},
                         {"size_bytes", preview.package_bytes},
                         {"limit_bytes", preview.package_limit}};
    object["request"] = preview.request;
}

std::string preview_text(const JobDestination& place, const JobRequest& request, const Preview& preview) {
    std::string out;
    const auto line = [&](std::string_view name, std::string_view value) {
        out += fmt::format("{:<12} {}\n", name, value);
    };
    line("place", fmt::format("{} ({})", place.cluster.empty() ? std::string(to_text(place.kind)) : place.cluster,
                              address_text(place)));
    line("job", request.submission_id);
    line("command", own_command(request.entrypoint));
    line("resources", resources_text(request.resources));
    const std::string names = text::join(names_of(request.env), " ");
    line("environment", names.empty() ? "nothing of its own" : names);
    line("package", request.working_dir
                        ? fmt::format("{} files of {}, {:.1f} MB of at most {:.1f} MB", preview.files,
                                      preview.working_dir, static_cast<double>(preview.package_bytes) / 1e6,
                                      static_cast<double>(preview.package_limit) / 1e6)
                        : preview.working_dir);
    out += "POST " + preview.path + "\n" + to_text(preview.request, 2) + "\n";
    return out;
}

// Prints place, command, resources, variable names, package and the body of the submission with the values of all
// variables masked; with --json as one object of this schema. Packs the working tree to determine its size. Contacts no
// server. Errors: usage (too large, or not accepted by a cluster), config, local_io.
Result<ExitCode> show_preview(const JobPlan& plan, const SubmitOptions& options, const JobDestination& place,
                              std::string_view schema, Context& context) {
    GDNCTL_TRY_ASSIGN(const JobRequest request, request_for(plan, options, !place.is_local(), context));
    GDNCTL_TRY_ASSIGN(const Preview preview, preview_request(request, place.kind, context));
    if (context.global.json) {
        Json out;
        out["schema"] = std::string(schema);
        put_preview(out, place, request, preview);
        print_json(out, context);
    } else {
        context.terminal.out(preview_text(place, request, preview));
    }
    return ExitCode::ok;
}

}  // namespace

}  // namespace gdnctl::commands

namespace gdnctl::commands::ray_test {

// gdnctl ray-test: run the target's correctness test as a job.

struct Options {
    DestinationOptions place;
    SubmitOptions submit;
    std::string tpu = "auto";
    TestSelection::Suite tests = TestSelection::Suite::both;
    std::string pytest_args;
    bool allow_cpu = false;
    bool oracle = false;
    bool dry_run = false;
    std::optional<std::int64_t> require_passed;
    std::optional<std::int64_t> max_skipped;
};

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

TestSelection selection_of(const Options& options) {
    return {options.tests, options.pytest_args, options.allow_cpu,
            options.oracle ? TestSelection::Oracle::first : TestSelection::Oracle::off};
}

// Reports and judges a run, as JSON with this schema if requested.
Result<ExitCode> finish(std::string_view schema, const Options& options, const Target& target,
                        const std::string& tpu_type, JobRun run, Context& context) {
    const bool pytest = target.style == TargetStyle::levanter;
    const TestNeeds needs{options.oracle, options.allow_cpu, options.require_passed, options.max_skipped};
    const ExitCode exit = conclude_test(run, target, needs);
    if (context.global.json) {
        Json out;
        out["schema"] = schema;
        put_run(out, run);
        out["target"] = target.name;
        out["tests"] = pytest ? tests_json(run.output.pytest()) : Json(nullptr);
        out["device"] = device_json(run.output.device());
        out["verdict"] = verdict_json(run.output.verdicts());
        if (options.oracle) out["oracle"] = parse_json(run.data, "the verdict").value_or(Json(nullptr));
        out["tpu_evidence"] = is_tpu_evidence(run.place, run.verdict, run.details, run.output);
        out["tpu"] = tpu_type.empty() ? Json(nullptr) : Json(tpu_type);
        put_command(out, run.request);
        out["settings"] = settings_json(options, target);
        print_json(out, context);
    }
    return exit_of(run, exit);
}

// The test's options: --tests, --pytest-args and the required counts.
void describe_tests(cli::Args& args, Options& options) {
    args.option(options.tests, k_suites, "--tests SUITE", "pytest suites to run");
    args.option(options.pytest_args, "--pytest-args WORDS", "extra pytest arguments, quoted as for a shell");
    args.flag(options.allow_cpu, "--allow-cpu", "accept a run in which JAX finds no TPU");
    args.flag(options.oracle, "--oracle", "first judge the kernel of [targets.NAME.oracle], in the same job");
    args.option(options.require_passed, "--require-passed N", "fail unless at least N tests passed");
    args.option(options.max_skipped, "--max-skipped N", "fail if more than N tests were skipped");
    args.check([&options]() -> Status {
        if (options.require_passed.value_or(0) < 0 || options.max_skipped.value_or(0) < 0) {
            return fail(ErrorKind::usage, "--require-passed and --max-skipped: expected 0 or more");
        }
        return {};
    });
}

// Error usage: counts are required of a target that has none.
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
    args.option(options.tpu, "--tpu TYPE",
                "accelerator to request, such as v5p-8; auto: the cluster's own, none on local");
    describe_tests(args, options);
    args.flag(options.dry_run, "--dry-run",
              "show the package, the environment (names only) and the request; submit nothing");
    describe_submit(args, options.submit);
    describe_place(args, options.place);
    args.exit_code(8, "the state directory or a file cannot be used, or a link leads out of the tree");
    args.example("gdnctl ray-test --cluster local", "test the target on this machine");
    args.example("gdnctl ray-test --cluster us-central1 --tpu auto --tests both", "both suites on a cluster's TPU");
    args.example("gdnctl ray-test --cluster local --no-wait", "submit only");
    args.see_also({"ray-wait", "ray-logs", "ray-stop"});
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
    GDNCTL_TRY_ASSIGN(const PlannedJob job,
                      plan_test(std::move(target), selection_of(options), options.tpu, options.place, context));
    if (options.dry_run) {
        return show_preview(job.plan, options.submit, job.place, "gdnctl.ray-test-preview/1", context);
    }
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(job.place, options.place, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_job(job.plan, options.submit, *backend, context));
    return finish("gdnctl.ray-test/1", options, job.target, job.tpu, std::move(run), context);
}

}  // namespace gdnctl::commands::ray_test

namespace gdnctl::commands::ray_profile {

// gdnctl ray-profile: run the target's profile as a job.

struct Options {
    DestinationOptions place;
    SubmitOptions submit;
    ProfileSettings settings;
    std::vector<std::string> profile_env;
    bool driver_on_tpu = false;
};

namespace {

constexpr std::array<cli::Choice<bool>, 2> k_driver = {
    {{"head", false, "reserve nothing for the driver; the run asks for the TPU itself"},
     {"tpu", true, "run the driver on the TPU host"}}};

// The files of the profile's trace: {"path", "sha256"}; null: there is none.
Json trace_json(const std::optional<JobTrace>& trace, const std::optional<TraceAnswer>& read) {
    if (!trace || trace->path.empty()) return nullptr;
    if (read) return {{"path", read->path}, {"sha256", read->sha256}};
    return {{"path", trace->path.string()}, {"sha256", nullptr}};
}

// null: the target has none. A run that was not waited for has no value.
Json metric_json(const std::optional<TargetMetric>& metric, const std::optional<MetricReader>& read, Json trace) {
    if (!metric) return nullptr;
    const auto value = read ? read->value() : std::nullopt;
    Json out;
    out["name"] = metric->name;
    out["value"] = value ? Json(*value) : Json(nullptr);
    out["unit"] = metric->unit;
    out["better"] = metric->lower_is_better ? "lower" : "higher";
    out["source"] = metric->from_trace() ? "trace" : "log";
    out["trace"] = std::move(trace);
    return out;
}

Json settings_json(const ProfileSettings& s, const Options& options) {
    const auto number = [](const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(nullptr); };
    Json out;
    out["size"] = s.size;
    out["num_steps"] = s.num_steps;
    out["profile_start_step"] = s.profile_start_step;
    out["profile_num_steps"] = s.profile_num_steps;
    out["batch_size"] = number(s.batch_size);
    out["chunk_size"] = number(s.chunk_size);
    out["segment_size"] = number(s.segment_size);
    out["gdn_layers_per_block"] = number(s.gdn_layers_per_block);
    out["gdn_block_size"] = number(s.gdn_block_size);
    out["all_transformer"] = s.all_transformer;
    out["ce_implementation"] = s.ce_implementation;
    out["ce_bwd_mode"] = s.ce_bwd_mode;
    out["run_name_prefix"] = s.run_name_prefix;
    out["wandb_mode"] = s.wandb_mode;
    out["dry_run"] = s.dry_run;
    out["driver_on"] = options.driver_on_tpu ? "tpu" : "head";
    return out;
}

}  // namespace

// The run's options: --tpu, the model's options, --profile-env.
void describe_run(cli::Args& args, Options& options) {
    args.option(options.settings.tpu, "--tpu TYPE", "accelerator for the run, such as v5p-8");
    const ProfileNames names;
    describe_model(args, options.settings, names);
    describe_cross_entropy(args, options.settings, names);
    describe_run_name(args, options.settings, names);
    args.flag(options.settings.dry_run, "--dry-run",
              "SUBMIT a run that only shows what it would do, as the target's own dry run; if the target has none, "
              "submit nothing and show the request",
              {.group = names.group});
    args.option(options.profile_env, "--profile-env KEY=VALUE", "another setting of the run", {.group = "Run"});
    args.check([&options] { return check_settings(options.settings); });
}

// Error: usage (--profile-env).
Result<ProfileSettings> settings_of(const Options& options) {
    ProfileSettings settings = options.settings;
    GDNCTL_TRY(add_profile_env(settings, options.profile_env));
    return settings;
}

// Reports a run with its metrics, as JSON with this schema if requested. A result that is cut off or not a finite
// number is a failure.
Result<ExitCode> finish(std::string_view schema, const Options& options, const ProfileSettings& settings,
                        const Target& target, JobRun run, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto trace, trace_of_job(target, run, context));
    const auto read = trace ? take_trace(target, *trace, run) : std::nullopt;
    ExitCode exit = conclude_profile(run, target, context.global.json);
    if (exit == ExitCode::ok && run.metric && run.metric->broken()) {
        // What ran over ssh is no job, and its log has been printed.
        const bool is_job = run.subject.empty();
        log::error("the profile succeeded, but its result '{}' is not a usable number; {}", target.metric->name,
                   is_job ? fmt::format("`{}{} {}` shows its log", job_command(run.place, "logs"),
                                        cluster_words(run.place), text::shell_quote(run.request.submission_id))
                          : "its log is printed above");
        exit = ExitCode::check_failed;
        run.verdict = {FailureClass::user, exit};
    }
    if (context.global.json) {
        Json out;
        out["schema"] = schema;
        put_run(out, run);
        out["target"] = target.name;
        out["profile"] = profile_json(run.output.profile());
        out["metric"] = metric_json(target.metric, run.metric, trace_json(trace, read));
        out["tpu_evidence"] = is_tpu_evidence(run.place, run.verdict, run.details, run.output);
        out["tpu"] = settings.tpu.empty() ? Json(nullptr) : Json(settings.tpu);
        put_command(out, run.request);
        out["settings"] = target.style == TargetStyle::levanter ? settings_json(settings, options) : Json(nullptr);
        print_json(out, context);
    }
    if (trace && !trace->path.empty()) show_trace_report(trace->path, target.profile->trace_device);
    return exit_of(run, exit);
}

void describe(cli::Args& args, Options& options) {
    args.about(
        "Submits the target's profile as a job, follows its log, and prints the metrics that it reports, or that are "
        "in its trace. A local job keeps running after this command, as with ray-test. Unlike elsewhere, --dry-run "
        "submits a run if the target has a dry run of its own.");
    args.option(options.driver_on_tpu, k_driver, "--driver-on NODE", "node that runs the driver");
    describe_run(args, options);
    args.option(options.submit.outputs, "--outputs DIR", "folder that gets what the run stored in $GDNCTL_OUTPUT_DIR",
                {.complete = cli::Complete::directory});
    args.exit_code(7, "--outputs: what was stored has another SHA-256 than recorded");
    args.check([&options]() -> Status {
        if (!options.submit.outputs || !options.submit.no_wait) return {};
        return fail(ErrorKind::usage, "--outputs waits for the job's end: drop --no-wait");
    });
    describe_submit(args, options.submit);
    describe_place(args, options.place);
    args.exit_code(8, "the state directory or a file cannot be used, or a link leads out of the tree");
    args.example("gdnctl ray-profile --cluster us-central1 --tpu v5p-8 --size 130m --num-steps 20 --no-wait",
                 "a short profiled run");
    args.example("gdnctl ray-profile --cluster local --target mine", "the profile of your own target");
    args.see_also({"ray-wait", "ray-logs"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(ProfileSettings settings, settings_of(options));
    GDNCTL_TRY_ASSIGN(const PlannedJob job, plan_profile(std::move(target), std::move(settings), options.driver_on_tpu,
                                                         options.place, context));
    // A run with a fixed command line has no dry run of its own.
    if (job.settings.dry_run && job.target.style == TargetStyle::argv) {
        return show_preview(job.plan, options.submit, job.place, "gdnctl.ray-profile-preview/1", context);
    }
    if (job.settings.dry_run) log::info("--dry-run: this submits a run that only shows what it would do");
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(job.place, options.place, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_job(job.plan, options.submit, *backend, context));
    return finish("gdnctl.ray-profile/1", options, job.settings, job.target, std::move(run), context);
}

}  // namespace gdnctl::commands::ray_profile

// gdnctl dev-tpu-test: run the target's correctness test on a held TPU.
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
    args.see_also({"dev-tpu-allocate", "ray-test"});
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
    GDNCTL_TRY_ASSIGN(const PlannedJob job,
                      plan_held_test(std::move(target), ray_test::selection_of(options.test), hold, via, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_held(hold, via, job.plan, {options.sync, options.run}, context));
    return ray_test::finish("gdnctl.dev-tpu-test/1", options.test, job.target, job.tpu, std::move(run), context);
}

}  // namespace gdnctl::commands::dev_tpu_test

// gdnctl dev-tpu-profile: run the target's profile on a held TPU.
namespace gdnctl::commands::dev_tpu_profile {

struct Options {
    devtpu_options::Name name;
    devtpu_options::Sync sync;
    devtpu_options::Run run;
    std::optional<std::string> marin_prefix;
    ray_profile::Options profile;  // the run's options; its place and submission are not used
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Syncs the working tree to a held TPU, runs the target's profile there as ray-profile would, and prints the "
        "metrics that it reports.");
    ray_profile::describe_run(args, options.profile);
    args.option(options.marin_prefix, "--marin-prefix URI", "storage for the run's data (MARIN_PREFIX)",
                {.group = "Run", .default_text = "$MARIN_PREFIX, or the bucket of the TPU's region"});
    devtpu_options::describe_sync(args, options.sync);
    devtpu_options::describe_run(args, options.run);
    devtpu_options::describe_name(args, options.name);
    args.exit_code(1, "the run failed");
    args.exit_code(4, "the connection or the TPU was lost, or the name is not held");
    args.example("gdnctl dev-tpu-profile --tpu-name \"$USER-gdn\" --tpu v5p-8 --size 130m --no-sync");
    args.see_also({"dev-tpu-allocate", "ray-profile"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY(check_target_is_named(target, options.name.place, context));
    GDNCTL_TRY_ASSIGN(ProfileSettings settings, ray_profile::settings_of(options.profile));
    GDNCTL_TRY_ASSIGN(const FoundHold found, find_hold(options.name.tpu_name, options.name.place, context));
    GDNCTL_TRY(check_target_is_named(target, found.record.cluster == "local", context));
    Via via = options.run.via;
    GDNCTL_TRY_ASSIGN(const FoundHold hold,
                      ready_hold(options.name.tpu_name, options.name.place, options.sync, via, context));
    GDNCTL_TRY_ASSIGN(const PlannedJob job, plan_held_profile(std::move(target), std::move(settings),
                                                              options.marin_prefix, hold, via, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_held(hold, via, job.plan, {options.sync, options.run}, context));
    return ray_profile::finish("gdnctl.dev-tpu-profile/1", options.profile, job.settings, job.target, std::move(run),
                               context);
}

}  // namespace gdnctl::commands::dev_tpu_profile

namespace gdnctl::commands {

Rows target_job_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&ray_test::describe, &ray_test::run>("ray-test", "Jobs", "run the target's correctness test as a job",
                                                       Tier::http)
            .also("job test"),
        cli::make<&ray_profile::describe, &ray_profile::run>("ray-profile", "Jobs", "run the target's profile as a job",
                                                             Tier::http)
            .also("job profile")};
    return k_rows;
}

Rows dev_tpu_job_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&dev_tpu_test::describe, &dev_tpu_test::run>("dev-tpu-test", "Dev TPUs",
                                                               "run the target's test on a held TPU", Tier::http),
        cli::make<&dev_tpu_profile::describe, &dev_tpu_profile::run>(
            "dev-tpu-profile", "Dev TPUs", "run the target's profile on a held TPU", Tier::http)};
    return k_rows;
}

}  // namespace gdnctl::commands
