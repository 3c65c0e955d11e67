// gdnctl dev-tpu-allocate, dev-tpu-list and dev-tpu-release: holds of a TPU.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/jobs/job_options.h"
#include "commands/table.h"
#include "core/for_people.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/hold_host.h"
#include "jobs/run.h"
#include "jobs/stop.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/terminal.h"
#include "services/devtpu/holds.h"

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
    args.option(options.lease_s, "--lease SECONDS", "release the TPU if no command has renewed the hold for this long",
                {.group = "Hold", .default_text = "600; 3600 with --detach"});
    args.option(options.grace_s, "--grace SECONDS",
                "release the TPU if no command has renewed the hold this long after its start", {.group = "Hold"});
    args.option(options.max_hold_s, "--max-hold SECONDS", "release the TPU after this time, whatever happens",
                {.group = "Hold"});
    args.flag(options.detach, "--detach", "return as soon as the TPU is ready; each use renews the hold",
              {.group = "Hold"});
    args.option(options.ready_timeout_s, "--ready-timeout SECONDS", "give up if the TPU is not ready after this time",
                {.group = "Hold"});
    args.option(options.attempts, "--attempts N", "try the cluster and its fallbacks up to N times", {.group = "Hold"});
    args.option(options.retry_sleep_s, "--retry-sleep SECONDS", "wait this long between attempts", {.group = "Hold"});
    args.option(options.fallback_clusters, "--fallback-cluster NAME",
                "try this cluster if the previous ones have no TPU",
                {.group = "Hold", .complete = cli::Complete::cluster});
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
    DestinationOptions options;
    JobDestination place;
};

// The requested cluster, then its fallbacks, without duplicates. Checks that all of them exist before any is asked.
Result<std::vector<Candidate>> candidates(const Options& options, Context& context) {
    std::vector<Candidate> all;
    GDNCTL_TRY_ASSIGN(JobDestination first, choose_destination(options.name.place, context));
    all.push_back({options.name.place, std::move(first)});
    for (const std::string& name : options.fallback_clusters) {
        DestinationOptions other = options.name.place;
        other.cluster = name;
        other.cluster_config.reset();
        other.ray_address.reset();
        other.iris_url.reset();
        GDNCTL_TRY_ASSIGN(JobDestination place, choose_destination(other, context));
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
    print_json(out, context);
    if (const Status flushed = context.terminal.flush(); !flushed) log::debug("{}", flushed.error().text());
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Holds a TPU of the cluster for development, copies the working tree to its host, and keeps the hold until "
        "Ctrl-C. If this command dies, the TPU is released when its lease expires.");
    args.option(options.tpu_type, "--tpu-type TYPE", "accelerator to hold, such as v5p-8",
                {.default_text = "the cluster's own"});
    args.option(options.username, "--username NAME", "user that ssh logs in as on the TPU's host",
                {.default_text = "$USER"});
    devtpu_options::describe_sync(args, options.sync);
    args.flag(options.no_setup, "--no-setup", "do not run `uv sync` on the host", {.group = "Sync"});
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
    args.see_also({"dev-tpu-test", "dev-tpu-release", "dev-tpu-list"});
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

// gdnctl dev-tpu-list: who holds which TPU, since when and until when.
namespace gdnctl::commands::dev_tpu_list {

struct Options {
    DestinationOptions place;
    bool all_users = false;
};

namespace {

using devtpu::HoldRecord;

std::optional<WallTime> lease_end_of(const HoldRecord& record, const Context& context) {
    auto renewed = record.renewed;
    if (record.cluster == "local") {
        const auto file = devtpu::local_lease(devtpu::HoldStore(context.state_dir).local_folder(record.tpu_name),
                                              record.submission_id);
        std::error_code problem;
        const auto time = std::filesystem::last_write_time(file, problem);
        if (!problem) {
            const auto wall = std::chrono::file_clock::to_sys(time);
            const auto seen = std::chrono::time_point_cast<std::chrono::milliseconds>(wall);
            if (!renewed || seen > *renewed) renewed = seen;
        }
    }
    // Renewals by another machine are not known here.
    if (!renewed && record.state != "pending") return std::nullopt;
    return devtpu::lease_end(record.terms, record.created, renewed);
}

// The holds of one place, with this machine's records of them. Forgets holds that have ended.
Result<std::vector<HoldView>> holds_at(const DestinationOptions& options, bool all_users,
                                       const std::vector<HoldRecord>& remembered, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options, true, context));
    GDNCTL_TRY_ASSIGN(const auto jobs, backend->list({{}, std::string(devtpu::k_hold_part)}));
    const std::string user = submitter(*backend, context.env);
    std::vector<HoldView> views;
    for (const JobDetails& job : jobs) {
        const auto known = std::find_if(remembered.begin(), remembered.end(),
                                        [&](const HoldRecord& one) { return one.submission_id == job.submission_id; });
        if (!is_hold(job)) {
            if (known != remembered.end()) GDNCTL_TRY(forget_hold(*known, context));
            continue;
        }
        HoldView view{known != remembered.end() ? *known : hold_of(job, *backend), std::string(status_of(job)),
                      hold_word(job, "user") == user, std::nullopt};
        if (!view.mine && !all_users) continue;
        if (known == remembered.end() && job.state == JobState::running) {
            const auto log = read_holder(*backend, job.submission_id);
            if (log.host()) view.record.host = *log.host();
        }
        view.lease_ends = lease_end_of(view.record, context);
        views.push_back(std::move(view));
    }
    return views;
}

// Every place where this machine has a hold, and the default place of commands without --cluster.
std::vector<DestinationOptions> all_places(const DestinationOptions& options, const std::vector<HoldRecord>& remembered,
                                           Context& context) {
    std::vector<DestinationOptions> places = {options};
    std::vector<std::string> names;
    if (const auto place = choose_destination(options, context)) {
        names.push_back(place->is_local() ? "local" : place->cluster.empty() ? place->address->url : place->cluster);
    }
    for (const HoldRecord& record : remembered) {
        const std::string name = hold_place_words(record);
        if (std::find(names.begin(), names.end(), name) != names.end()) continue;
        names.push_back(name);
        places.push_back(destination_of_hold(record, options));
    }
    return places;
}

std::string ago(WallTime t, const Clock& clock) {
    return format_duration(std::max(clock.wall() - t, std::chrono::milliseconds(0)));
}

std::string table_of(const std::vector<HoldView>& views, const Context& context) {
    std::vector<std::array<std::string, 10>> rows = {
        {"NAME", "CLUSTER", "STATUS", "TYPE", "HOST", "IP", "AGE", "LEASE", "OWNER", "ID"}};
    const auto shown = [](const std::string& word) { return word.empty() ? std::string("-") : text::visible(word); };
    for (const HoldView& view : views) {
        const HoldRecord& r = view.record;
        const auto left = view.lease_ends ? *view.lease_ends - context.clock.wall() : std::chrono::milliseconds(0);
        const std::string lease = !view.lease_ends ? "-" : left.count() < 0 ? "over" : format_duration(left);
        rows.push_back({shown(r.tpu_name), shown(hold_place_words(r)), view.status, shown(r.tpu_type),
                        shown(r.host.hostname), shown(r.host.reachable_ip()), ago(r.created, context.clock), lease,
                        view.mine ? "mine" : shown(r.user), r.submission_id});
    }
    std::array<std::size_t, 10> width{};
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
    }
    std::string table;
    for (const auto& row : rows) {
        for (std::size_t i = 0; i + 1 < row.size(); ++i) table += fmt::format("{:<{}}  ", row[i], width[i]);
        table += row.back() + "\n";
    }
    return table;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Lists held TPUs on the given cluster or, if none is given, on the default cluster and wherever this machine "
        "holds one. LEASE is the time until the TPU is released unless a command renews the hold.");
    args.flag(options.all_users, "--all-users", "list the holds of other users too");
    describe_place(args, options.place);
    args.example("gdnctl dev-tpu-list --cluster us-central1 --all-users");
    args.see_also({"dev-tpu-allocate", "dev-tpu-release"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    const DestinationOptions& named = options.place;
    const bool explicit_place = named.given();
    GDNCTL_TRY_ASSIGN(const auto remembered, devtpu::HoldStore(context.state_dir).all());
    const auto places = explicit_place ? std::vector{named} : all_places(named, remembered, context);
    std::vector<HoldView> views;
    for (const DestinationOptions& place : places) {
        auto found = holds_at(place, options.all_users, remembered, context);
        if (!found) {
            if (explicit_place || places.size() == 1) return tl::unexpected(std::move(found).error());
            log::warning("{}: {}",
                         place.cluster.value_or(place.iris_url.value_or(place.ray_address.value_or("default cluster"))),
                         found.error().text());
            for (const HoldRecord& record : remembered) {
                if (place.cluster && record.cluster == *place.cluster) {
                    views.push_back({record, "UNKNOWN", true, lease_end_of(record, context)});
                }
            }
            continue;
        }
        views.insert(views.end(), found->begin(), found->end());
    }
    if (context.global.json) {
        Json list = Json::array();
        for (const HoldView& view : views) list.push_back(hold_view_json(view));
        Json out;
        out["schema"] = "gdnctl.dev-tpu-list/1";
        out["holds"] = std::move(list);
        print_json(out, context);
        return ExitCode::ok;
    }
    if (views.empty()) {
        log::info("no dev TPU is held");
        return ExitCode::ok;
    }
    print_lines(table_of(views, context), context);
    for (const HoldView& view : views) {
        const HoldRecord& r = view.record;
        const std::string cap = local_clock(devtpu::cap_end(r.terms, r.created));
        if (view.lease_ends) {
            log::info("{} ends at {} unless a command renews it, and at {} in any case", r.tpu_name,
                      local_clock(*view.lease_ends), cap);
        } else {
            log::info("{} ends at {} in any case", r.tpu_name, cap);
        }
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::dev_tpu_list

// gdnctl dev-tpu-release: release a held TPU, by name, from anywhere.
namespace gdnctl::commands::dev_tpu_release {

struct Options {
    DestinationOptions place;
    std::optional<std::string> tpu_name;
    std::optional<std::string> submission_id;
    bool all_mine = false;
};

namespace {

using devtpu::HoldRecord;

constexpr std::chrono::seconds k_limit{60};

bool is_meant(const Options& options, const HoldRecord& record) {
    if (options.all_mine) return true;
    if (options.submission_id) return record.submission_id == *options.submission_id;
    return record.tpu_name == *options.tpu_name;
}

// The named place; else the places of recorded holds that are meant; else the default one.
std::vector<DestinationOptions> places_of(const Options& options, const std::vector<HoldRecord>& remembered) {
    const DestinationOptions& named = options.place;
    std::vector<DestinationOptions> places;
    if (named.given()) return {named};
    std::vector<std::string> names;
    for (const HoldRecord& record : remembered) {
        const std::string name = hold_place_words(record);
        if (!is_meant(options, record) || std::find(names.begin(), names.end(), name) != names.end()) continue;
        names.push_back(name);
        places.push_back(destination_of_hold(record, named));
    }
    if (places.empty()) places.push_back(named);
    return places;
}

// The running holds at the place that the options select. Error usage: the name belongs to another user.
Result<std::vector<HoldRecord>> meant_at(const Options& options, JobBackend& backend,
                                         const std::vector<HoldRecord>& remembered, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto jobs, backend.list({{}, std::string(devtpu::k_hold_part)}));
    const std::string user = submitter(backend, context.env);
    std::vector<HoldRecord> found;
    for (const JobDetails& job : jobs) {
        if (!is_hold(job)) continue;
        HoldRecord record = hold_of(job, backend);
        if (!is_meant(options, record)) continue;
        if (record.user != user && !options.submission_id) {
            if (options.all_mine) continue;
            return fail(
                ErrorKind::usage,
                fmt::format("dev TPU {} on {} is held by {}", record.tpu_name, hold_place_words(record), record.user),
                "--submission-id " + record.submission_id + " releases it anyway");
        }
        const auto known = std::find_if(remembered.begin(), remembered.end(), [&](const HoldRecord& one) {
            return one.submission_id == record.submission_id;
        });
        found.push_back(known == remembered.end() ? record : *known);
    }
    return found;
}

// Forgets records of holds that have ended by themselves.
Status forget_ended(const Options& options, const JobBackend& backend, const std::vector<HoldRecord>& remembered,
                    const std::vector<HoldRecord>& released, Context& context) {
    for (const HoldRecord& record : remembered) {
        const bool here =
            record.cluster == backend.cluster() && (!record.cluster.empty() || record.address == backend.address());
        const bool done = std::any_of(released.begin(), released.end(),
                                      [&](const HoldRecord& one) { return one.submission_id == record.submission_id; });
        if (!here || done || !is_meant(options, record)) continue;
        GDNCTL_TRY(forget_hold(record, context));
    }
    return {};
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Releases a held TPU: stops everything that runs on its host, ends the hold, and removes its ssh alias. It "
        "works from "
        "any machine, and releasing a TPU that is not held is not an error.");
    args.option(options.tpu_name, "--tpu-name NAME", "release your hold of this name");
    args.option(options.submission_id, "--submission-id ID", "release the hold with this id, whoever owns it");
    args.flag(options.all_mine, "--all-mine", "release everything that you hold");
    describe_place(args, options.place);
    args.exit_code(0, "released, or there was nothing to release");
    args.exit_code(4, "the cluster cannot be reached; the hold ends when its lease expires");
    args.example("gdnctl dev-tpu-release --cluster us-central1 --tpu-name \"$USER-gdn\"");
    args.see_also("dev-tpu-list");
    args.check([&options]() -> Status {
        const int given = (options.tpu_name ? 1 : 0) + (options.submission_id ? 1 : 0) + (options.all_mine ? 1 : 0);
        if (given != 1) {
            return fail(ErrorKind::usage, "say what to release: --tpu-name, --submission-id or --all-mine",
                        "`gdnctl dev-tpu-list` shows what is held");
        }
        return options.tpu_name ? devtpu::check_tpu_name(*options.tpu_name) : Status();
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto remembered, devtpu::HoldStore(context.state_dir).all());
    Json released = Json::array();
    for (const DestinationOptions& place : places_of(options, remembered)) {
        GDNCTL_TRY_ASSIGN(const auto backend, open_backend(place, true, context));
        GDNCTL_TRY_ASSIGN(const auto holds, meant_at(options, *backend, remembered, context));
        for (const HoldRecord& record : holds) {
            log::info("releasing dev TPU {} on {} ({})", record.tpu_name, hold_place_words(record),
                      record.submission_id);
            GDNCTL_TRY(release_hold(record, *backend, k_limit, context));
            log::info("TPU allocation released.");
            released.push_back(record.submission_id);
        }
        GDNCTL_TRY(forget_ended(options, *backend, remembered, holds, context));
        retry_pending_stops(*backend, context);
    }
    if (released.empty()) log::info("nothing to release");
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.dev-tpu-release/1";
        out["released"] = std::move(released);
        print_json(out, context);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::dev_tpu_release

namespace gdnctl::commands {

Rows dev_tpu_hold_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&dev_tpu_allocate::describe, &dev_tpu_allocate::run>("dev-tpu-allocate", "Dev TPUs",
                                                                       "hold a TPU for development", Tier::http),
        cli::make<&dev_tpu_list::describe, &dev_tpu_list::run>("dev-tpu-list", "Dev TPUs", "list held TPUs",
                                                               Tier::http),
        cli::make<&dev_tpu_release::describe, &dev_tpu_release::run>("dev-tpu-release", "Dev TPUs",
                                                                     "release a held TPU", Tier::http)};
    return k_rows;
}

}  // namespace gdnctl::commands
