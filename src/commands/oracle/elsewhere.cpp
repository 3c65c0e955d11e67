#include "commands/oracle/elsewhere.h"

#include <algorithm>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/jobs/job_options.h"
#include "core/base64.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "jobs/held_job.h"
#include "jobs/run.h"
#include "jobs/target_job.h"
#include "platform/machine.h"
#include "platform/process.h"

namespace gdnctl::commands {

namespace {

struct Planned {
    JobRun run;
    std::string tpu;       // that was asked for; empty: none
    bool at_home = false;  // its files are here
};

// In the tree there, where the program writes them.
std::string failures_folder() { return fmt::format(".gdnctl/failures-{}", random_hex(8)); }

// --save-failures where it runs on this machine, too.
void add_folder(const Elsewhere& options, std::vector<std::string>& words, const Context& context) {
    if (!options.save_failures) return;
    words.insert(words.end(), {"--save-failures", (context.cwd / *options.save_failures).lexically_normal().string()});
}

// The folder's files as a tar archive; empty: it is not there. It is removed there.
Result<std::string> take_folder(const FoundHold& hold, Via via, const std::string& folder, Context& context) {
    const std::string line =
        fmt::format("{{ [ -z \"$(ls -A {0} 2>/dev/null)\" ] || tar -C {0} -cf - .; }} && rm -rf {0}", folder);
    if (via != Via::ray) {
        std::string archive;
        HostRun run;
        run.line = line;
        run.on_out = [&archive](std::string_view bytes) { archive.append(bytes); };
        GDNCTL_TRY_ASSIGN(const int code, run_on_host(hold, run, context));
        if (code == 0) return archive;
        return fail(ErrorKind::infrastructure, fmt::format("cannot fetch the failures (exit code {})", code));
    }
    constexpr std::string_view k_mark = "failures:", k_large = "failures:large";
    constexpr int k_most_kib = 40 << 10;  // as base64 less than the longest line of data
    JobPlan plan{"execute", "", {}, {}, {}};
    plan.data_prefix = k_mark;
    plan.command.entrypoint = fmt::format(
        "if [ -d {0} ] && [ \"$(du -sk {0} | cut -f1)\" -gt {1} ]; then echo {2}; else printf {3}; {{ {4}; }} | base64 "
        "-w 0; echo; fi",
        folder, k_most_kib, k_large, k_mark, line);
    HeldRunOptions again;
    again.sync.no_sync = true;  // in the tree of the run that made them
    Context quiet = context;    // that this is a run, too, is of no interest
    quiet.global.quiet = true;
    const log::Diverted silent([](std::string_view) {});
    GDNCTL_TRY_ASSIGN(const JobRun run, run_held(hold, via, plan, again, quiet));
    if (run.cut_short) return tl::unexpected(*run.cut_short);
    const std::string_view data = text::trim(run.data);
    if (data == k_large) {
        return fail(ErrorKind::bad_input, fmt::format("the failures are larger than {} MiB", k_most_kib >> 10),
                    fmt::format("`gdnctl dev-tpu-execute --tpu-name {} --no-sync -- tar -cf - {} >failures.tar`",
                                hold.record.tpu_name, folder));
    }
    const auto archive = from_base64(data.substr(std::min(k_mark.size(), data.size())));
    if (archive && data.starts_with(k_mark)) return *archive;
    return fail(ErrorKind::infrastructure, "cannot fetch the failures: their archive is incomplete");
}

// Brings `there`, a folder in the tree on the host, home.
Status fetch_failures(const FoundHold& hold, Via via, const std::string& there, const std::string& here,
                      Context& context) {
    GDNCTL_TRY_ASSIGN(std::string archive, take_folder(hold, via, there, context));
    if (archive.empty()) return {};
    std::error_code problem;
    std::filesystem::create_directories(context.cwd / here, problem);
    ProcessSpec spec;
    spec.argv = {"tar", "-C", (context.cwd / here).string(), "--no-same-owner", "-xf", "-"};
    spec.stdin_bytes = std::move(archive);
    GDNCTL_TRY_ASSIGN(const ProcessResult end, context.process.run(spec));
    if (!end.ok()) {
        return fail(ErrorKind::local_io, fmt::format("cannot write the failures to {}: {}", here, text::trim(end.err)));
    }
    log::info("the failures are in {}", here);
    return {};
}

// Has the job store the folder's files as its outputs, and end as before.
void store_folder(const std::string& folder, JobCommand& command) {
    command.entrypoint = fmt::format(
        "( {0} ); s=$?; [ ! -d {1} ] || [ -z \"$GDNCTL_OUTPUT_DIR\" ] || cp -R {1}/. \"$GDNCTL_OUTPUT_DIR\"; exit $s",
        command.entrypoint, folder);
}

// For a backend that gives back nothing but the log.
void show_how_to_reproduce(const Json& verdict) {
    for (const Json& group : json::field(verdict, "groups")) {
        const std::string name = json::text(group, "case");
        log::info("its inputs: gdnctl oracle run {} --case {} --out {}.safetensors", json::text(verdict, "op"), name,
                  name);
    }
}

Result<Planned> run_as_job(const Elsewhere& options, const RemoteCommand& command, Context& context) {
    std::vector<std::string> words = command.words();
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const JobDestination place, choose_destination(options.place, context));
    target.here = place.is_local();
    GDNCTL_TRY_ASSIGN(const TpuChoice tpu, choose_tpu(options.tpu, place, target));
    JobPlan plan{"oracle", target.name, {}, cluster_env(target, place.kind), {}};
    plan.data_prefix = k_oracle_data;
    if (place.is_local()) add_folder(options, words, context);
    SubmitOptions submit = options.submit;
    const std::string folder = failures_folder();
    const bool store = options.save_failures && place.kind == PlaceKind::iris;
    if (store) {
        words.insert(words.end(), {"--save-failures", folder});
        submit.outputs = options.save_failures;
    }
    const std::string there = program_there(place.is_local(), plan, context);
    plan.command = oracle_command(target, there, words, command.needs_python());
    plan.command.resources.insert(tpu.resources.begin(), tpu.resources.end());
    if (store) store_folder(folder, plan.command);
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(place, options.place, context));
    GDNCTL_TRY_ASSIGN(JobRun run, run_job(plan, submit, *backend, context));
    const bool at_home = place.is_local() || (store && !run.outputs.empty() && !run.not_fetched);
    return Planned{std::move(run), place.is_local() ? std::string() : tpu.type, at_home};
}

Result<Planned> run_on_hold(const Elsewhere& options, const RemoteCommand& command, Context& context) {
    std::vector<std::string> words = command.words();
    GDNCTL_TRY_ASSIGN(Target target, target_in_use(context));
    Via via = Via::automatic;
    HeldRunOptions held;
    held.run.env = options.submit.env;
    held.run.timeout_s = options.submit.timeout_s;
    GDNCTL_TRY_ASSIGN(const FoundHold hold, ready_hold(*options.tpu_name, options.place, held.sync, via, context));
    const bool here = hold.record.cluster == "local";
    target.here = here;
    JobPlan plan{"oracle", target.name, {}, cluster_env(target, hold.record.kind), {}};
    plan.data_prefix = k_oracle_data;
    GDNCTL_TRY_ASSIGN(const std::string there, program_there(hold, via, plan, context));
    const bool fetch = options.save_failures && !here && (via != Via::ray || hold.record.kind == PlaceKind::iris);
    const std::string folder = failures_folder();
    if (fetch) words.insert(words.end(), {"--save-failures", folder});
    if (here) add_folder(options, words, context);
    plan.command = oracle_command(target, there, words, command.needs_python());
    GDNCTL_TRY_ASSIGN(JobRun run, run_held(hold, via, plan, held, context));
    bool fetched = false;
    if (fetch && !run.cut_short) {
        const Status brought = fetch_failures(hold, via, folder, *options.save_failures, context);
        if (!brought && is_interruption(brought.error())) return tl::unexpected(brought.error());
        if (!brought) log::error("{}", brought.error().text());  // the verdict stands
        fetched = brought.has_value();
    }
    return Planned{std::move(run), here ? std::string() : hold.record.tpu_type, here || fetched};
}

// The verdict there is the verdict here.
Result<ExitCode> judged(const Elsewhere& options, const Planned& planned, Context& context) {
    const JobRun& run = planned.run;
    if (!run.waited) return ExitCode::ok;
    const auto verdict = run.data.empty() ? Result<Json>(Json()) : parse_json(run.data, "the job's result");
    const bool found = verdict && verdict->is_object();
    if (context.global.json && found) {
        Json object = *verdict;
        Json job = Json::object();
        put_run(job, run);
        object["job"] = std::move(job);
        print_json(object, context);
    }
    if (run.cut_short) return tl::unexpected(*run.cut_short);
    if (!found) {
        report_end(run);
        if (run.verdict.exit != ExitCode::ok) return run.verdict.exit;
        return fail(ErrorKind::bad_input, "the job succeeded, but its log has no result");
    }
    if (options.save_failures && !planned.at_home) show_how_to_reproduce(*verdict);
    const std::string platform = json::text(json::field(*verdict, "environment"), "platform");
    if (!planned.tpu.empty() && !options.allow_cpu && platform != "tpu") {
        return fail(
            ErrorKind::bad_input,
            fmt::format("no TPU was seen: the kernel ran on {}", platform.empty() ? "the host's processor" : platform),
            "--allow-cpu accepts that");
    }
    const int succeeded = run.details.state == JobState::succeeded ? 0 : 1;
    return static_cast<ExitCode>(run.details.driver_exit_code.value_or(succeeded));
}

}  // namespace

void describe_elsewhere(cli::Args& args, Elsewhere& o) {
    constexpr const char* k_group = "Where";
    args.option(o.place.cluster, "--cluster NAME", "run as a job on this cluster; `local`: a job on this machine",
                {.group = k_group, .default_text = "here, not as a job", .complete = cli::Complete::cluster});
    args.option(o.place.cluster_config, "--cluster-config FILE", "cluster file (YAML) to use instead of a name",
                {.group = k_group, .complete = cli::Complete::file});
    args.option(o.place.ray_address, "--ray-address URL", "Ray dashboard to use directly", {.group = k_group});
    args.option(o.place.iris_url, "--iris-url URL", "Iris controller to use directly, or a tunnel to one",
                {.group = k_group});
    args.flag(o.place.allow_plaintext_token, "--allow-plaintext-token",
              "allow sending the token to another machine over plain http", {.group = k_group});
    args.option(o.tpu, "--tpu TYPE", "accelerator of the job, such as v5p-8; auto: the cluster's own, none on local",
                {.group = k_group});
    args.option(o.tpu_name, "--tpu-name NAME", "run on this held TPU (dev-tpu-allocate)", {.group = k_group});
    args.flag(o.allow_cpu, "--allow-cpu", "accept that a job sees no TPU", {.group = k_group});
    args.flag(o.submit.no_wait, "--no-wait", "print the job's id and return without waiting", {.group = k_group});
    args.option(o.submit.submission_id, "--submission-id ID", "id of the job; must be new", {.group = k_group});
    args.option(o.submit.env, "-e KEY=VALUE", "environment variable of the job", {.group = k_group});
    args.flag(o.submit.no_secrets, "--no-secrets", "keep HF_TOKEN, WANDB_API_KEY and other secrets off the cluster",
              {.group = k_group});
    args.option(o.submit.timeout_s, "--timeout SECONDS", "give up on the job after this time; it keeps running",
                {.group = k_group});
    args.check([&o]() -> Status {
        const bool job_only = o.submit.no_wait || o.submit.submission_id;
        if (!o.wanted() &&
            (job_only || !o.submit.env.empty() || o.submit.timeout_s || o.allow_cpu || o.tpu != "auto")) {
            return fail(ErrorKind::usage,
                        "--tpu, --no-wait, -e, --timeout and --allow-cpu need --cluster or --tpu-name");
        }
        if (o.tpu_name && job_only) {
            return fail(ErrorKind::usage, "--no-wait and --submission-id are for a job: drop --tpu-name");
        }
        return check_addresses(o.place);
    });
}

void RemoteCommand::kernel(std::string_view name, std::string spelling) {
    const auto from_root = [&, root = project_root(m_context)](const std::string& path) {
        auto relative = (m_context.cwd / path).lexically_normal().lexically_relative(root);
        if (!relative.empty() && *relative.begin() == "..") {
            m_status = fail(ErrorKind::usage,
                            fmt::format("{} is outside {}, and only that folder is sent", spelling, root.string()));
        }
        return relative.string();
    };
    if (spelling.starts_with("src:") || spelling.starts_with("lib:")) {
        spelling = spelling.substr(0, 4) + from_root(spelling.substr(4));
    } else if (spelling.starts_with("py:")) {
        m_python = true;
        const auto end = std::min(spelling.find(':', 3), spelling.size());
        const std::string adapter = spelling.substr(3, end - 3);
        if (adapter.find('/') != std::string::npos || adapter.ends_with(".py")) {
            spelling = "py:./" + from_root(adapter) + spelling.substr(end);
        }
    }
    add(name, spelling);
}

void RemoteCommand::limits(const LimitOptions& limits) {
    add("--time-limit", limits.time_limit_s);
    add("--memory-limit", limits.memory_limit_mib);
}

void RemoteCommand::python(const PythonChoice& choice) {
    m_python_named = choice.command.has_value();
    add("--python", choice.command);
    for (const std::string& entry : choice.env) {
        const std::string variable = entry.substr(0, entry.find('='));
        if (names_a_secret(variable)) {
            m_status = fail(ErrorKind::usage,
                            fmt::format("--env {}: a secret would be readable on the command line", variable));
        }
        add("--env", entry);
    }
    flag("--no-network", choice.no_network);
    add("--chained", choice.chained);
}

Result<ExitCode> run_elsewhere(const Elsewhere& options, const RemoteCommand& words, Context& context) {
    GDNCTL_TRY(words.status());
    GDNCTL_TRY_ASSIGN(const Planned planned,
                      options.tpu_name ? run_on_hold(options, words, context) : run_as_job(options, words, context));
    return judged(options, planned, context);
}

}  // namespace gdnctl::commands
