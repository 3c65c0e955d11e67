// gdnctl dev-tpu-list: who holds which TPU, since when and until when.
#include <algorithm>
#include <array>
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
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/terminal.h"

namespace gdnctl::commands::dev_tpu_list {

struct Options {
    PlaceOptions place;
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
Result<std::vector<HoldView>> holds_at(const PlaceOptions& options, bool all_users,
                                       const std::vector<HoldRecord>& remembered, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options, true, context));
    GDNCTL_TRY_ASSIGN(const auto jobs, backend->list());
    const std::string user = user_name(context.env);
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
std::vector<PlaceOptions> all_places(const PlaceOptions& options, const std::vector<HoldRecord>& remembered,
                                     Context& context) {
    std::vector<PlaceOptions> places = {options};
    std::vector<std::string> names;
    if (const auto place = choose_place(options, context)) {
        names.push_back(place->local ? "local" : place->cluster.empty() ? place->address->url : place->cluster);
    }
    for (const HoldRecord& record : remembered) {
        const std::string name = hold_place_words(record);
        if (std::find(names.begin(), names.end(), name) != names.end()) continue;
        names.push_back(name);
        places.push_back(place_of_hold(record, options));
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
    args.flag(options.all_users, {.names = "--all-users", .help = "list the holds of other users too"});
    describe_place(args, options.place);
    args.example("gdnctl dev-tpu-list --cluster us-central1 --all-users");
    args.see_also("dev-tpu-allocate");
    args.see_also("dev-tpu-release");
}

Result<ExitCode> run(const Options& options, Context& context) {
    const PlaceOptions& named = options.place;
    const bool explicit_place = named.cluster || named.cluster_config || named.ray_address;
    GDNCTL_TRY_ASSIGN(const auto remembered, devtpu::HoldStore(context.state_dir).all());
    const auto places = explicit_place ? std::vector{named} : all_places(named, remembered, context);
    std::vector<HoldView> views;
    for (const PlaceOptions& place : places) {
        auto found = holds_at(place, options.all_users, remembered, context);
        if (!found) {
            if (explicit_place || places.size() == 1) return tl::unexpected(std::move(found).error());
            log::warning("{}: {}", place.cluster.value_or(place.ray_address.value_or("default cluster")),
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
        print_json(out, context, -1);
        return ExitCode::ok;
    }
    if (views.empty()) {
        log::info("no dev TPU is held");
        return ExitCode::ok;
    }
    context.terminal.out(table_of(views, context));
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

namespace gdnctl::commands {

constinit const cli::Command k_dev_tpu_list_row =
    cli::make<&dev_tpu_list::describe, &dev_tpu_list::run>("dev-tpu-list", "Dev TPUs", "list held TPUs", Tier::http);

}  // namespace gdnctl::commands
