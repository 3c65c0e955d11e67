// gdnctl dev-tpu-release: release a held TPU, by name, from anywhere.
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
#include "core/log.h"
#include "core/text.h"
#include "jobs/given_up.h"
#include "jobs/hold_host.h"
#include "platform/env.h"
#include "platform/terminal.h"
#include "services/devtpu/names.h"

namespace gdnctl::commands::dev_tpu_release {

struct Options {
    PlaceOptions place;
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
std::vector<PlaceOptions> places_of(const Options& options, const std::vector<HoldRecord>& remembered) {
    const PlaceOptions& named = options.place;
    std::vector<PlaceOptions> places;
    if (named.cluster || named.cluster_config || named.ray_address) return {named};
    std::vector<std::string> names;
    for (const HoldRecord& record : remembered) {
        const std::string name = hold_place_words(record);
        if (!is_meant(options, record) || std::find(names.begin(), names.end(), name) != names.end()) continue;
        names.push_back(name);
        places.push_back(place_of_hold(record, named));
    }
    if (places.empty()) places.push_back(named);
    return places;
}

// The running holds at the place that the options select. Error usage: the name belongs to another user.
Result<std::vector<HoldRecord>> meant_at(const Options& options, JobBackend& backend,
                                         const std::vector<HoldRecord>& remembered, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto jobs, backend.list());
    const std::string user = user_name(context.env);
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
    args.option(options.tpu_name, {.names = "--tpu-name", .value = "NAME", .help = "release your hold of this name"});
    args.option(options.submission_id,
                {.names = "--submission-id", .value = "ID", .help = "release the hold with this id, whoever owns it"});
    args.flag(options.all_mine, {.names = "--all-mine", .help = "release everything that you hold"});
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
    for (const PlaceOptions& place : places_of(options, remembered)) {
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
        see_to_given_up(*backend, context);
    }
    if (released.empty()) log::info("nothing to release");
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.dev-tpu-release/1";
        out["released"] = std::move(released);
        print_json(out, context, -1);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::dev_tpu_release

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_release_row = cli::make<&dev_tpu_release::describe, &dev_tpu_release::run>(
    "dev-tpu-release", "Dev TPUs", "release a held TPU", Tier::http);

}  // namespace gdnctl::commands
