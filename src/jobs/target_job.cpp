#include "jobs/target_job.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/machine.h"

namespace gdnctl {

namespace {

Result<std::string> resolve(const std::string& wanted, const JobDestination& place, const Target& target,
                            std::string_view option) {
    if (wanted != "auto") return wanted;
    if (place.is_local()) return std::string();
    const bool as_written = target.style == TargetStyle::argv;
    if (!place.file) {
        if (as_written) return std::string();
        return fail(ErrorKind::usage, "TPU auto-detection requires --cluster to be set.",
                    fmt::format("name the accelerator, for example {} v5p-8", option));
    }
    auto type = infer_tpu(*place.file);
    if (!type && as_written) return std::string();
    if (type) log::info("--tpu auto: {} on {}", *type, place.cluster);
    return type;
}

struct LocalTpu {
    std::string type;
    std::map<std::string, double> resources;  // empty: none is declared
};

// What GDNCTL_LOCAL_RESOURCES declares about a TPU of this machine; the local backend reports errors in it.
LocalTpu declared_tpu(const std::string& wanted, const Env& env) {
    LocalTpu tpu{wanted, {}};
    const auto json = parse_json(env.get("GDNCTL_LOCAL_RESOURCES").value_or("{}"), "GDNCTL_LOCAL_RESOURCES");
    if (!json || !json->is_object()) return tpu;
    const auto chips = json->find("TPU");
    if (chips == json->end() || !chips->is_number() || chips->get<double>() <= 0) return tpu;
    for (const auto& [name, amount] : json->items()) {
        const bool head = name.starts_with("TPU-") && name.ends_with("-head") && name.size() > 9;
        if (head && tpu.type.empty()) tpu.type = name.substr(4, name.size() - 9);
    }
    tpu.resources = {{"TPU", chips->get<double>()}};
    return tpu;
}

// Why the example would stand in for the user's own target; "": it may be judged.
std::string lack_of_target(bool here, const Context& context) {
    if (const auto root = find_repository_root(context.cwd)) {
        std::error_code ignored;
        for (auto at = context.cwd.lexically_normal();; at = at.parent_path()) {
            if (std::filesystem::exists(at / "gdnctl.toml", ignored)) {
                return (at / "gdnctl.toml").string() + " does not name a target";
            }
            if (at == *root || !at.has_relative_path()) return "no target is named for " + root->string();
        }
    }
    if (const ConfigValue* own = context.config.find("targets"); own != nullptr && own->as_table() != nullptr) {
        const auto known = target_names(Config());
        for (const auto& [name, value] : *own->as_table()) {
            if (std::find(known.begin(), known.end(), name) != known.end()) continue;
            return fmt::format("{} defines the target {}, but no target is named", value.origin.text(), name);
        }
    }
    return here ? "" : "no target is named for a job on a cluster";
}

std::string counts_text(const PytestCounts& c) {
    std::string s = fmt::format("{} passed, {} skipped, {} failed", c.passed, c.skipped, c.failed);
    if (c.errors > 0) s += fmt::format(", {} errors", c.errors);
    return s;
}

// What a successful run lacks; "": nothing.
std::string shortfall(const TestNeeds& needs, const Target& target, const JobRun& run) {
    const JobOutput& output = run.output;
    if (needs.oracle && run.data.empty()) return "the log has no verdict of the oracle";
    const auto& device = output.device();
    if (target.style == TargetStyle::levanter && !needs.allow_cpu && (!device || device->backend != "tpu")) {
        return device ? "the tests ran on " + device->backend + ", not on a TPU (--allow-cpu accepts that)"
                      : std::string("the log has no GDNCTL_DEVICE line: no sign of a TPU (--allow-cpu accepts that)");
    }
    const auto& counts = output.pytest();
    if (!needs.require_passed && !needs.max_skipped) return {};
    if (!counts) return "the log has no pytest summary";
    if (needs.require_passed && counts->passed < *needs.require_passed) {
        return fmt::format("{} passed, but --require-passed needs {}", counts->passed, *needs.require_passed);
    }
    if (needs.max_skipped && counts->skipped > *needs.max_skipped) {
        return fmt::format("{} skipped, but --max-skipped allows {}", counts->skipped, *needs.max_skipped);
    }
    return {};
}

void show_test_results(const Target& target, const JobOutput& output) {
    if (const auto& device = output.device()) log::info("device: {} x{}", device->backend, device->count);
    const bool pytest = target.style == TargetStyle::levanter;
    if (const auto& counts = output.pytest(); pytest && counts) {
        log::info("tests: {}", counts_text(*counts));
        const std::int64_t allowed = target.test->evidence.skipped_max.value_or(0);
        if (counts->skipped > allowed) {
            log::warning("{} tests were skipped: a missing package (torch, transformers) can look like a pass",
                         counts->skipped);
        }
    }
    if (const OracleVerdicts& v = output.verdicts(); !v.overall.empty()) {
        std::string counted;
        for (const auto& [word, n] : v.counts) counted += fmt::format(", {} {}", n, word);
        std::string kernel = v.kernel.empty() ? "" : " for " + text::visible(v.kernel);
        if (uses_files(target)) kernel += ", the example kernel of gdnctl";
        log::info("verdict: {} ({} cases, {} recorded vectors{}){}", v.overall, v.cases, v.vectors, counted, kernel);
    }
}

std::string shown_value(double value, std::string_view unit, bool exact) {
    return exact ? fmt::format("{}{}{}", value, unit.empty() ? "" : " ", unit) : quantity(value, unit);
}

void show_metric(const TargetMetric& metric, const MetricReader& read, bool exact) {
    if (const auto value = read.value()) {
        log::info("metric {}: {}", metric.name, shown_value(*value, metric.unit, exact));
    } else {
        log::warning("metric {}: {} ({})", metric.name, read.lack(), metric.from);
    }
}

void show_profile_results(const ProfileReport& p, bool exact) {
    if (p.mfu) log::info("throughput/mfu: {}", shown_value(*p.mfu, "", exact));
    if (p.tokens_per_second) {
        log::info("throughput/tokens_per_second: {}", shown_value(*p.tokens_per_second, "", exact));
    }
    if (p.duration) log::info("throughput/duration: {}", shown_value(*p.duration, "s", exact));
    if (p.ce_implementation) log::info("fused cross-entropy: {}", *p.ce_implementation);
    if (p.run_url) log::info("run: {}", *p.run_url);
}

// The target and its TPU at the selected place.
Result<PlannedJob> begin_plan(Target target, const std::string& tpu, const DestinationOptions& options,
                              TpuChoice& choice, Context& context) {
    GDNCTL_TRY(check_target_is_named(target, options, context));
    PlannedJob job;
    GDNCTL_TRY_ASSIGN(job.place, choose_destination(options, context));
    GDNCTL_TRY_ASSIGN(job.target, target_at(job.place, std::move(target), context));
    GDNCTL_TRY_ASSIGN(choice, choose_tpu(tpu, job.place, job.target));
    job.tpu = choice.type;
    return job;
}

}  // namespace

Result<TpuChoice> choose_tpu(const std::string& wanted, const JobDestination& place, const Target& target,
                             std::string_view option) {
    TpuChoice choice;
    GDNCTL_TRY_ASSIGN(choice.type, resolve(wanted, place, target, option));
    if (choice.type.empty()) return choice;
    GDNCTL_TRY_ASSIGN(choice.resources, tpu_resources(choice.type));
    if (place.is_local()) return choice;
    const double chips = choice.resources.at("TPU");
    if (chips != 1 && chips != 2 && chips != 4 && chips != 8) {
        return fail(ErrorKind::usage,
                    fmt::format("{} has {:g} chips per host: {} gives a job 1, 2, 4 or 8", choice.type, chips,
                                place.kind == PlaceKind::iris ? "Iris" : "Ray"),
                    "one host of a v5p-8 has 4, of a v6e-8 has 8");
    }
    if (place.file && !place.file->node_types.empty() && !offers_tpu(*place.file, choice.type)) {
        const auto types = tpu_types(*place.file);
        log::warning("no node type of {} offers {}{}{}", place.cluster, choice.type,
                     place.kind == PlaceKind::iris ? "" : ": the job may wait forever",
                     types.empty() ? std::string() : "; it has " + text::join(types, ", "));
    }
    return choice;
}

Result<TpuChoice> choose_hold_tpu(const JobDestination& place, const std::string& wanted, const Env& env) {
    if (!place.is_local()) {
        Target any;
        any.style = TargetStyle::levanter;  // the type must be known
        return choose_tpu(wanted.empty() ? "auto" : wanted, place, any, "--tpu-type");
    }
    LocalTpu tpu = declared_tpu(wanted, env);
    TpuChoice choice{tpu.type, {}};
    if (tpu.resources.empty()) {
        log::info("local hold: no TPU on this host, the hold is pretended");
        return choice;
    }
    choice.resources = tpu.resources;
    if (!tpu.type.empty()) {
        GDNCTL_TRY_ASSIGN(choice.resources, tpu_resources(tpu.type));
    }
    return choice;
}

Status check_target_is_named(const Target& target, bool here, const Context& context) {
    if (target_is_named(context.config) || !uses_files(target)) return {};
    const std::string reason = lack_of_target(here, context);
    if (reason.empty()) return {};
    return fail(ErrorKind::usage, reason + ": gdnctl's example kernel would be judged, not yours",
                fmt::format("add `target = \"NAME\"` and [targets.NAME] to gdnctl.toml (`gdnctl config init` writes "
                            "one), or pass `--target {}` to judge the example",
                            target.name));
}

Status check_target_is_named(const Target& target, const DestinationOptions& options, Context& context) {
    GDNCTL_TRY(check_target_is_named(target, true, context));
    if (target_is_named(context.config) || !uses_files(target)) return {};
    GDNCTL_TRY_ASSIGN(const JobDestination place, choose_destination(options, context));
    return check_target_is_named(target, place.is_local(), context);
}

Result<Target> target_at(const JobDestination& place, Target target, const Context& context) {
    target.here = place.is_local();
    if (!place.is_local() || !uses_files(target)) return target;
    if (!has_c_compiler(context.env)) {
        log::warning("no C compiler found: the job uses a built-in kernel instead of {}", target.files.front().first);
        return target;
    }
    const auto folder = context.state_dir / "targets" / target.name;
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", folder, problem.value()));
    for (const auto& [name, content] : target.files) {
        const auto path = folder / name;
        if (!std::filesystem::exists(path, problem)) GDNCTL_TRY(atomic_replace(path, content));
        log::info("kernel: {} (edit it as you like)", path.string());
    }
    return with_files_in(std::move(target), folder);
}

bool needs_log(const Target& target) {
    return target.style == TargetStyle::levanter || (target.test && !target.test->evidence.empty());
}

std::string program_there(bool here, JobPlan& plan, const Context& context) {
    constexpr std::string_view k_packed = ".gdnctl/gdnctl";
    if (here) return text::shell_quote(context.program);
    plan.added.emplace(k_packed, context.program);
    return std::string(k_packed);
}

Result<PlannedJob> plan_test(Target target, const TestSelection& selection, const std::string& tpu,
                             const DestinationOptions& options, Context& context) {
    TpuChoice choice;
    GDNCTL_TRY_ASSIGN(PlannedJob job, begin_plan(std::move(target), tpu, options, choice, context));
    job.plan = {"test", job.target.name, {}, cluster_env(job.target, job.place.kind), {}};
    job.plan.log_decides = needs_log(job.target);
    std::string there;
    if (selection.oracle != TestSelection::Oracle::off) {
        there = program_there(job.place.is_local(), job.plan, context);
        job.plan.data_prefix = k_oracle_data;
    }
    GDNCTL_TRY_ASSIGN(job.plan.command, test_command(job.target, selection, context.program, there));
    job.plan.command.resources.insert(choice.resources.begin(), choice.resources.end());
    return job;
}

Status check_settings(const ProfileSettings& s) {
    for (const std::int64_t n :
         {s.num_steps, s.profile_num_steps, s.batch_size.value_or(1), s.chunk_size.value_or(1),
          s.segment_size.value_or(1), s.gdn_layers_per_block.value_or(1), s.gdn_block_size.value_or(1)}) {
        if (n < 1) return fail(ErrorKind::usage, "steps, batch and block sizes must be at least 1");
    }
    if (s.profile_start_step < 0) return fail(ErrorKind::usage, "--profile-start-step: expected 0 or more");
    return {};
}

Status add_profile_env(ProfileSettings& settings, const std::vector<std::string>& items) {
    GDNCTL_TRY_ASSIGN(const auto extra, parse_env_items(items, "--profile-env"));
    for (const JobEnv& item : extra) settings.extra_env.emplace_back(item.name, item.value);
    return {};
}

Result<PlannedJob> plan_profile(Target target, ProfileSettings settings, bool driver_on_tpu,
                                const DestinationOptions& options, Context& context) {
    TpuChoice choice;
    GDNCTL_TRY_ASSIGN(PlannedJob job, begin_plan(std::move(target), settings.tpu, options, choice, context));
    // The run itself needs the type, so it must be known here even if the job requests nothing. This machine has no
    // type of its own.
    if (job.tpu.empty() && job.target.style == TargetStyle::levanter && !job.place.is_local()) {
        return fail(ErrorKind::usage, "TPU auto-detection requires --cluster to be set.",
                    "name the accelerator, for example --tpu v5p-8");
    }
    settings.tpu = job.tpu;
    GDNCTL_TRY(check_trace_place(job.target, job.place.kind != PlaceKind::ray, "a job on a Ray cluster"));
    job.plan = {"profile", job.target.name, {}, cluster_env(job.target, job.place.kind), job.target.metric};
    if (job.target.profile && job.target.profile->trace_is_file()) {
        job.plan.bring_back = job.target.profile->trace_path();
    }
    GDNCTL_TRY_ASSIGN(job.plan.command, profile_command(job.target, settings, context.program));
    if (driver_on_tpu) job.plan.command.resources.insert(choice.resources.begin(), choice.resources.end());
    job.settings = std::move(settings);
    return job;
}

Status check_trace_place(const Target& target, bool brings_files_back, std::string_view place) {
    if (brings_files_back || !target.profile || !target.profile->trace_is_file()) return {};
    return fail(ErrorKind::config,
                fmt::format("target '{}': the trace {} of its profile cannot be copied back from {}", target.name,
                            target.profile->trace, place),
                fmt::format("set `trace` of [targets.{}.profile] to \"wandb\" or \"hf:NAMESPACE/NAME/PREFIX\", or run "
                            "the profile with --cluster local or over ssh on a held dev TPU",
                            target.name));
}

ExitCode conclude_test(JobRun& run, const Target& target, const TestNeeds& needs) {
    if (!run.waited) return ExitCode::ok;
    if (run.cut_short) return run.verdict.exit;
    show_test_results(target, run.output);
    report_end(run);
    if (run.verdict.exit != ExitCode::ok) return run.verdict.exit;
    if (const std::string missing = shortfall(needs, target, run); !missing.empty()) {
        log::error("{}", missing);
        run.verdict = {FailureClass::user, ExitCode::check_failed};
    }
    return run.verdict.exit;
}

ExitCode conclude_profile(const JobRun& run, const Target& target, bool exact) {
    if (!run.waited) return ExitCode::ok;
    if (!run.cut_short) {
        show_profile_results(run.output.profile(), exact);
        if (target.metric && run.metric) show_metric(*target.metric, *run.metric, exact);
        report_end(run);
    }
    return run.verdict.exit;
}

}  // namespace gdnctl
