// gdnctl dev-tpu-allocate: hold a development TPU until Ctrl-C, the end of its lease, or its cap.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/devtpu/options.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/for_people.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/hold_host.h"
#include "jobs/run.h"
#include "platform/clock.h"
#include "platform/terminal.h"
#include "services/devtpu/names.h"

namespace gdnctl::commands::dev_tpu_allocate {

struct Options {
    devtpu_options::Name name;
    std::optional<std::string> tpu_type;
    devtpu_options::Sync sync;
    std::optional<std::string> username;
    bool no_setup = false, detach = false;
    std::optional<std::int64_t> lease_s;  // nullopt: 600, or 3600 with --detach
    std::int64_t grace_s = 1200, max_hold_s = 28800;
    std::int64_t ready_timeout_s = 900, attempts = 1, retry_sleep_s = 30;
    std::vector<std::string> fallback_clusters;
};

namespace {

using std::chrono::seconds;

constexpr std::int64_t k_longest_s = 1'000'000'000;

void describe_terms(cli::Args& args, Options& options) {
    args.option(options.lease_s, {.names = "--lease",
                                  .value = "SECONDS",
                                  .help = "release the TPU if no command has renewed the hold for this long",
                                  .group = "Hold",
                                  .default_text = "600; 3600 with --detach"});
    args.option(options.grace_s,
                {.names = "--grace",
                 .value = "SECONDS",
                 .help = "release the TPU if no command has renewed the hold this long after its start",
                 .group = "Hold"});
    args.option(options.max_hold_s, {.names = "--max-hold",
                                     .value = "SECONDS",
                                     .help = "release the TPU after this time, whatever happens",
                                     .group = "Hold"});
    args.flag(
        options.detach,
        {.names = "--detach", .help = "return as soon as the TPU is ready; each use renews the hold", .group = "Hold"});
    args.option(options.ready_timeout_s, {.names = "--ready-timeout",
                                          .value = "SECONDS",
                                          .help = "give up if the TPU is not ready after this time",
                                          .group = "Hold"});
    args.option(options.attempts, {.names = "--attempts",
                                   .value = "N",
                                   .help = "try the cluster and its fallbacks up to N times",
                                   .group = "Hold"});
    args.option(
        options.retry_sleep_s,
        {.names = "--retry-sleep", .value = "SECONDS", .help = "wait this long between attempts", .group = "Hold"});
    args.option(options.fallback_clusters, {.names = "--fallback-cluster",
                                            .value = "NAME",
                                            .help = "try this cluster if the previous ones have no TPU",
                                            .group = "Hold",
                                            .complete = cli::Complete::cluster});
}

Status check_numbers(const Options& options) {
    devtpu::Terms terms;
    terms.lease_s = options.lease_s.value_or(terms.lease_s);
    terms.grace_s = options.grace_s;
    terms.max_hold_s = options.max_hold_s;
    GDNCTL_TRY(devtpu::check_terms(terms));
    if (options.ready_timeout_s < 1 || options.ready_timeout_s > k_longest_s) {
        return fail(ErrorKind::usage, "--ready-timeout: expected 1 or more seconds");
    }
    if (options.attempts < 1) return fail(ErrorKind::usage, "--attempts: expected 1 or more");
    if (options.retry_sleep_s < 0 || options.retry_sleep_s > k_longest_s) {
        return fail(ErrorKind::usage, "--retry-sleep: expected 0 or more seconds");
    }
    return {};
}

HoldPlan plan_of(const Options& options, std::filesystem::path root, const Context& context) {
    HoldPlan plan;
    plan.tpu_name = options.name.tpu_name;
    plan.tpu_type = options.tpu_type.value_or("");
    plan.sync_path = std::move(root);
    plan.ssh_user = options.username.value_or(user_name(context.env));
    plan.sync = !options.sync.no_sync;
    plan.setup = !options.no_setup;
    plan.replaces_tree = options.sync.sync_path.has_value();
    plan.terms.lease_s =
        options.lease_s.value_or(options.detach ? devtpu::k_detached_lease_s : devtpu::Terms().lease_s);
    plan.terms.grace_s = options.grace_s;
    plan.terms.max_hold_s = options.max_hold_s;
    plan.ready_timeout = seconds(options.ready_timeout_s);
    return plan;
}

struct Candidate {
    PlaceOptions options;
    Place place;
};

// The requested cluster, then its fallbacks, without duplicates. Checks that all of them exist before any is asked.
Result<std::vector<Candidate>> candidates(const Options& options, Context& context) {
    std::vector<Candidate> all;
    GDNCTL_TRY_ASSIGN(Place first, choose_place(options.name.place, context));
    all.push_back({options.name.place, std::move(first)});
    for (const std::string& name : options.fallback_clusters) {
        PlaceOptions other = options.name.place;
        other.cluster = name;
        other.cluster_config.reset();
        other.ray_address.reset();
        GDNCTL_TRY_ASSIGN(Place place, choose_place(other, context));
        const bool known = std::any_of(all.begin(), all.end(),
                                       [&](const Candidate& one) { return one.place.cluster == place.cluster; });
        if (!known) all.push_back({std::move(other), std::move(place)});
    }
    return all;
}

bool is_worth_another(const Error& error) {
    return error.kind == ErrorKind::infrastructure || error.kind == ErrorKind::timeout ||
           error.kind == ErrorKind::authentication || error.kind == ErrorKind::nothing_done;
}

Result<std::unique_ptr<Holding>> hold_somewhere(const Options& options, const HoldPlan& plan,
                                                const std::vector<Candidate>& places, Context& context) {
    Error last;
    for (std::int64_t attempt = 1; attempt <= options.attempts; ++attempt) {
        for (const Candidate& one : places) {
            auto held = hold_tpu(one.place, one.options, plan, context);
            if (held || !is_worth_another(held.error())) return held;
            last = std::move(held).error();
            const bool final = attempt == options.attempts && &one == &places.back();
            if (!final) log::warning("{} (attempt {} of {})", last.text(), attempt, options.attempts);
        }
        if (attempt == options.attempts) break;
        if (!context.clock.sleep_for(seconds(options.retry_sleep_s), context.stop)) break;
    }
    return tl::unexpected(std::move(last));
}

void tell(const Holding& holding, Context& context) {
    const devtpu::HoldRecord& r = holding.record();
    log::info("the hold ends at {} unless a command renews it (lease {}), and at {} in any case (cap {})",
              local_clock(devtpu::lease_end(r.terms, r.created, r.renewed)), format_duration(seconds(r.terms.lease_s)),
              local_clock(devtpu::cap_end(r.terms, r.created)), format_duration(seconds(r.terms.max_hold_s)));
    if (!context.global.json) return;
    Json out;
    out["schema"] = "gdnctl.dev-tpu-allocate/1";
    out.update(hold_view_json({r, "RUNNING", true, devtpu::lease_end(r.terms, r.created, r.renewed)}));
    out["alias"] = r.alias.empty() ? Json(nullptr) : Json(r.alias);
    out["setup_ok"] = r.setup_ok ? Json(*r.setup_ok) : Json(nullptr);
    out["adopted"] = holding.adopted();
    out["host_info"] = devtpu::host_info_json(r.host);
    print_json(out, context, -1);
    if (const Status flushed = context.terminal.flush(); !flushed) log::debug("{}", flushed.error().text());
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Holds a TPU of the cluster for development, copies the working tree to its host, and keeps the hold until "
        "Ctrl-C. If this command dies, the TPU is released when its lease expires.");
    args.option(options.tpu_type, {.names = "--tpu-type",
                                   .value = "TYPE",
                                   .help = "accelerator to hold, such as v5p-8",
                                   .default_text = "the cluster's own"});
    args.option(options.username, {.names = "--username",
                                   .value = "NAME",
                                   .help = "user that ssh logs in as on the TPU's host",
                                   .default_text = "$USER"});
    devtpu_options::describe_sync(args, options.sync);
    args.flag(options.no_setup, {.names = "--no-setup", .help = "do not run `uv sync` on the host", .group = "Sync"});
    describe_terms(args, options);
    devtpu_options::describe_name(args, options.name);
    args.exit_code(2, "usage or configuration error, or the name is already taken");
    args.exit_code(3, "another command released the TPU");
    args.exit_code(4, "the TPU was lost, or the cluster or its host cannot be reached");
    args.exit_code(124, "--ready-timeout, or the cap was reached");
    args.exit_code(130, "interrupted by SIGINT / SIGTERM; the TPU is released");
    args.example("gdnctl dev-tpu-allocate --cluster us-central1 --tpu-name \"$USER-gdn\"",
                 "hold a TPU until Ctrl-C; use it from another terminal");
    args.example("gdnctl dev-tpu-allocate --cluster local --tpu-name try --detach", "try the commands on this machine");
    args.see_also("dev-tpu-test");
    args.see_also("dev-tpu-release");
    args.see_also("dev-tpu-list");
    args.check([&options]() -> Status { return check_numbers(options); });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(auto root, sync_root(options.sync, context));
    GDNCTL_TRY_ASSIGN(const auto places, candidates(options, context));
    const HoldPlan plan = plan_of(options, std::move(root), context);
    GDNCTL_TRY_ASSIGN(const auto holding, hold_somewhere(options, plan, places, context));
    tell(*holding, context);
    const std::string words = cluster_words(holding->backend()) + " --tpu-name " + text::shell_quote(plan.tpu_name);
    if (options.detach) {
        log::info("TPU allocation is active. Release it with:\n  gdnctl dev-tpu-release{}", words);
        return ExitCode::ok;
    }
    log::info("TPU allocation is active. Press Ctrl-C to release...");
    Error end = holding->wait();
    const Status released = holding->release(plan.stop_timeout);
    if (!is_interruption(end)) return tl::unexpected(std::move(end));
    if (!released) {
        return released.error().kind == ErrorKind::infrastructure ? tl::unexpected(released.error())
                                                                  : tl::unexpected(std::move(end));
    }
    log::info("TPU allocation released.");
    return tl::unexpected(std::move(end));
}

}  // namespace gdnctl::commands::dev_tpu_allocate

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_allocate_row = cli::make<&dev_tpu_allocate::describe, &dev_tpu_allocate::run>(
    "dev-tpu-allocate", "Dev TPUs", "hold a TPU for development", Tier::http);

}  // namespace gdnctl::commands
