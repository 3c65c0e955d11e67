#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/for_people.h"
#include "core/log.h"
#include "jobs/hold.h"
#include "jobs/hold_host.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "services/devtpu/holder.h"
#include "services/devtpu/names.h"
#include "services/devtpu/ssh_config.h"

namespace gdnctl {

using devtpu::HoldRecord;

bool is_hold(const JobDetails& job) {
    return hold_word(job, "kind") == devtpu::k_hold_kind && !is_terminal(job.state) &&
           !hold_word(job, "tpu_name").empty();
}

std::string hold_word(const JobDetails& job, const char* key) {
    const auto it = job.metadata.find(key);
    return it == job.metadata.end() ? std::string() : it->second;
}

HoldRecord hold_of(const JobDetails& job, const JobBackend& backend) {
    HoldRecord record;
    record.tpu_name = hold_word(job, "tpu_name");
    record.tpu_type = hold_word(job, "tpu_type");
    record.cluster = backend.cluster();
    record.address = backend.address();
    record.submission_id = job.submission_id;
    record.nonce = hold_word(job, "nonce");
    record.user = hold_word(job, "user");
    record.terms = devtpu::terms_of(job.metadata);
    record.created = job.start_time.value_or(WallTime{});
    record.state = job.state == JobState::running ? "running" : "pending";
    return record;
}

devtpu::HolderLog read_holder(JobBackend& backend, std::string_view id) {
    devtpu::HolderLog found;
    const auto log = backend.open_log(id, {});
    if (!log) return found;
    const auto read = (*log)->pump([&](std::string_view bytes) {
        found.feed(bytes);
        return true;
    });
    if (!read) log::debug("{}", read.error().text());
    return found;
}

Error hold_over(const HoldRecord& record, const JobDetails& job, const std::optional<devtpu::HoldEnd>& end) {
    const std::string what = fmt::format("dev TPU {} on {}", record.tpu_name, hold_place_words(record));
    if (end == devtpu::HoldEnd::preempted) {
        return {
            ErrorKind::infrastructure, what + " was preempted: its machine was taken away", "allocate it again", {}};
    }
    if (end == devtpu::HoldEnd::max_hold) {
        return {ErrorKind::timeout,
                fmt::format("{} has reached its cap of {}", what,
                            format_duration(std::chrono::seconds(record.terms.max_hold_s))),
                "`gdnctl dev-tpu-allocate --max-hold` sets a higher cap",
                {}};
    }
    if (end == devtpu::HoldEnd::lease) {
        return {ErrorKind::infrastructure,
                what + " was released: its lease was not renewed in time",
                "`gdnctl dev-tpu-allocate --lease` sets a longer lease",
                {}};
    }
    if (end == devtpu::HoldEnd::stop || job.state == JobState::stopped) {
        return {ErrorKind::nothing_done, what + " was released by another command", {}, {}};
    }
    return {ErrorKind::infrastructure,
            fmt::format("{} is lost: its holder {} ({})", what, status_of(job), job.message),
            "allocate it again",
            {}};
}

Error hold_vanished(const HoldRecord& record) {
    return {ErrorKind::infrastructure,
            fmt::format("dev TPU {} is lost: {} no longer knows its job", record.tpu_name, hold_place_words(record)),
            "allocate it again",
            {}};
}

PlaceOptions place_of_hold(const HoldRecord& record, const PlaceOptions& options) {
    if (options.cluster || options.cluster_config || options.ray_address) return options;
    PlaceOptions place = options;
    if (record.cluster.empty() || !record.ray_address.empty()) place.ray_address = record.ray_address;
    if (record.cluster.ends_with(".yaml")) {
        place.cluster_config = record.cluster;
    } else if (!record.cluster.empty()) {
        place.cluster = record.cluster;
    }
    return place;
}

Context without_stop(const Context& context) {
    return {context.env, context.clock, context.terminal,  context.config,  context.process, context.http,
            {},          context.cwd,   context.state_dir, context.program, context.global};
}

namespace {

// The cluster that the options name, as in records; nullopt: they name none.
std::optional<std::string> named_cluster(const PlaceOptions& options) {
    if (options.cluster_config) return *options.cluster_config;
    return options.cluster;
}

// Asks the place for this user's hold with this name.
Result<std::optional<HoldRecord>> ask_for_hold(const std::string& name, const PlaceOptions& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto backend, open_backend(options, true, context));
    GDNCTL_TRY_ASSIGN(const auto jobs, backend->list());
    const std::string user = user_name(context.env);
    for (const JobDetails& job : jobs) {
        if (!is_hold(job) || job.state != JobState::running || hold_word(job, "tpu_name") != name ||
            hold_word(job, "user") != user) {
            continue;
        }
        HoldRecord record = hold_of(job, *backend);
        if (options.ray_address) record.ray_address = *options.ray_address;
        const auto log = read_holder(*backend, job.submission_id);
        if (log.host()) record.host = *log.host();
        reach_host(record, "", context);
        if (Status kept = devtpu::HoldStore(context.state_dir).put(record); !kept) {
            return tl::unexpected(std::move(kept).error());
        }
        return std::optional(std::move(record));
    }
    return std::nullopt;
}

}  // namespace

Result<FoundHold> find_hold(const std::string& name, const PlaceOptions& options, Context& context) {
    GDNCTL_TRY(devtpu::check_tpu_name(name));
    const auto cluster = named_cluster(options);
    const devtpu::HoldStore store(context.state_dir);
    GDNCTL_TRY_ASSIGN(auto record, store.find(name, cluster, options.ray_address));
    if (record) {
        PlaceOptions place = place_of_hold(*record, options);
        if (record->state == "ready" && record->cluster != "local") return FoundHold{std::move(*record), place};
        // This machine answers at once.
        GDNCTL_TRY_ASSIGN(const auto backend, open_backend(place, true, context));
        const auto job = backend->poll(record->submission_id);
        if (job && job->state == JobState::running) return FoundHold{std::move(*record), place};
        if (job && is_terminal(job->state)) {
            GDNCTL_TRY(forget_hold(*record, context));
            const auto log = read_holder(*backend, record->submission_id);
            Error over = hold_over(*record, *job, log.end());
            over.kind = ErrorKind::infrastructure;
            over.hint = devtpu::not_held(name).message;
            return tl::unexpected(std::move(over));
        }
    }
    auto asked = ask_for_hold(name, options, context);
    if (asked && *asked) {
        PlaceOptions place = place_of_hold(**asked, options);
        return FoundHold{std::move(**asked), std::move(place)};
    }
    // Another program holds it and left its ssh configuration, which is enough.
    GDNCTL_TRY_ASSIGN(const auto config, read_file_if_exists(ssh_config_path(context)));
    if (config && devtpu::has_alias(*config, name)) {
        HoldRecord foreign;
        foreign.tpu_name = name;
        foreign.cluster = cluster.value_or("");
        foreign.alias = devtpu::ssh_alias(name);
        foreign.ssh_ok = true;
        return FoundHold{std::move(foreign), options};
    }
    return asked ? Result<FoundHold>(tl::unexpected(devtpu::not_held(name)))
                 : Result<FoundHold>(tl::unexpected(std::move(asked).error()));
}

Json hold_view_json(const HoldView& view) {
    const HoldRecord& r = view.record;
    const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
    Json out;
    out["tpu_name"] = r.tpu_name;
    out["cluster"] = text(r.cluster);
    out["address"] = text(r.address);
    out["submission_id"] = r.submission_id;
    out["status"] = view.status;
    out["tpu_type"] = text(r.tpu_type);
    out["host"] = text(r.host.hostname);
    out["ip"] = text(r.host.reachable_ip());
    out["user"] = text(r.user);
    out["owner"] = view.mine ? "mine" : "other";
    out["created"] = format_iso8601(r.created);
    out["lease_ends"] = view.lease_ends ? Json(format_iso8601(*view.lease_ends)) : Json(nullptr);
    out["cap_ends"] = format_iso8601(devtpu::cap_end(r.terms, r.created));
    out["ssh_ok"] = r.ssh_ok ? Json(*r.ssh_ok) : Json(nullptr);
    return out;
}

}  // namespace gdnctl
