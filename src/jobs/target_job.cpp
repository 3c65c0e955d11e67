#include "jobs/target_job.h"

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/target.h"
#include "jobs/tpu.h"

namespace gdnctl {

namespace {

std::string counts_text(const PytestCounts& c) {
    std::string s = fmt::format("{} passed, {} skipped, {} failed", c.passed, c.skipped, c.failed);
    if (c.errors > 0) s += fmt::format(", {} errors", c.errors);
    return s;
}

// What a successful run lacks; "": nothing.
std::string shortfall(const TestNeeds& needs, const Target& target, const JobOutput& output) {
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
Result<PlannedJob> begin_plan(Target target, const std::string& tpu, const PlaceOptions& options, TpuChoice& choice,
                              Context& context) {
    GDNCTL_TRY(check_target_is_named(target, options, context));
    PlannedJob job;
    GDNCTL_TRY_ASSIGN(job.place, choose_place(options, context));
    GDNCTL_TRY_ASSIGN(job.target, target_at(job.place, std::move(target), context));
    GDNCTL_TRY_ASSIGN(choice, choose_tpu(tpu, job.place, job.target));
    job.tpu = choice.type;
    return job;
}

}  // namespace

bool needs_log(const Target& target) {
    return target.style == TargetStyle::levanter || (target.test && !target.test->evidence.empty());
}

Result<PlannedJob> plan_test(Target target, const TestSelection& selection, const std::string& tpu,
                             const PlaceOptions& options, Context& context) {
    TpuChoice choice;
    GDNCTL_TRY_ASSIGN(PlannedJob job, begin_plan(std::move(target), tpu, options, choice, context));
    job.plan = {"test", job.target.name, {}, cluster_env(job.target), {}};
    job.plan.log_decides = needs_log(job.target);
    GDNCTL_TRY_ASSIGN(job.plan.command, test_command(job.target, selection, context.program));
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
                                const PlaceOptions& options, Context& context) {
    TpuChoice choice;
    GDNCTL_TRY_ASSIGN(PlannedJob job, begin_plan(std::move(target), settings.tpu, options, choice, context));
    // The run itself needs the type, so it must be known here even if the job requests nothing. This machine has no
    // type of its own.
    if (job.tpu.empty() && job.target.style == TargetStyle::levanter && !job.place.local) {
        return fail(ErrorKind::usage, "TPU auto-detection requires --cluster to be set.",
                    "name the accelerator, for example --tpu v5p-8");
    }
    settings.tpu = job.tpu;
    job.plan = {"profile", job.target.name, {}, cluster_env(job.target), job.target.metric};
    GDNCTL_TRY_ASSIGN(job.plan.command, profile_command(job.target, settings, context.program));
    if (driver_on_tpu) job.plan.command.resources.insert(choice.resources.begin(), choice.resources.end());
    job.settings = std::move(settings);
    return job;
}

ExitCode conclude_test(JobRun& run, const Target& target, const TestNeeds& needs) {
    if (!run.waited) return ExitCode::ok;
    if (run.cut_short) return run.verdict.exit;
    show_test_results(target, run.output);
    report_end(run);
    if (run.verdict.exit != ExitCode::ok) return run.verdict.exit;
    if (const std::string missing = shortfall(needs, target, run.output); !missing.empty()) {
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
