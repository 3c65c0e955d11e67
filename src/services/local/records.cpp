#include <cmath>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "services/local/store.h"

namespace gdnctl::local {

namespace {

tl::unexpected<Error> malformed(std::string_view what) {
    return fail(ErrorKind::bad_input, std::string(what) + " is damaged");
}

Resources resources_at(const Json& object, const char* key) {
    Resources out;
    const Json* it = json::object(object, key);
    if (it == nullptr) return out;
    for (const auto& [name, amount] : it->items()) {
        if (amount.is_number()) out.emplace(name, amount.get<double>());
    }
    return out;
}

Json identity_json(const ProcessIdentity& identity) {
    Json out;
    out["pid"] = identity.id.pid;
    out["start_ticks"] = identity.id.start_ticks;
    out["boot_id"] = identity.boot_id;
    out["pid_namespace"] = identity.pid_namespace;
    return out;
}

std::optional<ProcessIdentity> identity_at(const Json& object, const char* key) {
    const Json* it = json::object(object, key);
    if (it == nullptr) return std::nullopt;
    const auto pid = it->find("pid");
    const auto ticks = it->find("start_ticks");
    if (pid == it->end() || !pid->is_number_integer() || ticks == it->end() || !ticks->is_number_unsigned()) {
        return std::nullopt;
    }
    const auto number = pid->get<std::int64_t>();
    if (number <= 0 || number > (std::int64_t{1} << 30)) return std::nullopt;
    return ProcessIdentity{{static_cast<pid_t>(number), ticks->get<std::uint64_t>()},
                           json::text(*it, "boot_id"),
                           json::text(*it, "pid_namespace")};
}

}  // namespace

std::string to_json_text(const LocalRequest& request) {
    Json out;
    out["schema"] = "gdnctl.local-request/1";
    out["submission_id"] = request.submission_id;
    out["entrypoint"] = request.entrypoint;
    out["env_names"] = request.env_names;
    out["resources"] = request.resources;
    out["capacity"] = request.capacity;
    out["start_timeout_s"] = request.start_timeout_s;
    out["keep_workdir"] = request.keep_workdir;
    return to_text(out, 1) + "\n";
}

Result<LocalRequest> parse_request(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json in, parse_json(text, "request.json"));
    if (!in.is_object()) return malformed("request.json");
    LocalRequest request;
    request.submission_id = json::text(in, "submission_id");
    request.entrypoint = json::text(in, "entrypoint");
    request.env_names = json::texts(in, "env_names");
    request.resources = resources_at(in, "resources");
    request.capacity = resources_at(in, "capacity");
    request.start_timeout_s = json::number(in, "start_timeout_s").value_or(request.start_timeout_s);
    request.keep_workdir = json::boolean(in, "keep_workdir").value_or(request.keep_workdir);
    if (request.submission_id.empty()) return malformed("request.json");
    return request;
}

std::string to_json_text(const SupervisorRecord& record) {
    Json out;
    out["supervisor"] = identity_json(record.supervisor);
    out["child"] = record.child ? identity_json(*record.child) : Json(nullptr);
    return to_text(out, 1) + "\n";
}

Result<SupervisorRecord> parse_supervisor(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json in, parse_json(text, "supervisor.json"));
    if (!in.is_object()) return malformed("supervisor.json");
    const auto supervisor = identity_at(in, "supervisor");
    if (!supervisor) return malformed("supervisor.json");
    return SupervisorRecord{*supervisor, identity_at(in, "child")};
}

std::string to_json_text(const std::vector<QueueEntry>& queue) {
    Json list = Json::array();
    for (const QueueEntry& entry : queue) {
        Json item;
        item["id"] = entry.id;
        item["resources"] = entry.resources;
        item["holds"] = entry.holds;
        list.push_back(std::move(item));
    }
    Json out;
    out["queue"] = std::move(list);
    return to_text(out, 1) + "\n";
}

Result<std::vector<QueueEntry>> parse_queue(std::string_view text) {
    GDNCTL_TRY_ASSIGN(const Json in, parse_json(text, "queue.json"));
    if (!in.is_object()) return malformed("queue.json");
    const Json* list = json::array(in, "queue");
    if (list == nullptr) return malformed("queue.json");
    std::vector<QueueEntry> out;
    for (const Json& item : *list) {
        if (!item.is_object()) return malformed("queue.json");
        QueueEntry entry{json::text(item, "id"), resources_at(item, "resources"),
                         json::boolean(item, "holds").value_or(false)};
        // Ids are used as file names.
        if (!check_submission_id(entry.id)) return malformed("queue.json");
        out.push_back(std::move(entry));
    }
    return out;
}

bool can_ever_fit(const Resources& wanted, const Resources& capacity) {
    for (const auto& [name, amount] : wanted) {
        const auto it = capacity.find(name);
        if (amount > 0 && (it == capacity.end() || it->second < amount)) return false;
    }
    return true;
}

bool may_start(const std::vector<QueueEntry>& queue, std::string_view id, const Resources& capacity) {
    constexpr double k_rounding = 1e-9;  // fractions such as 0.001 do not add up exactly
    Resources left = capacity;
    Resources wanted_earlier;
    for (const QueueEntry& entry : queue) {
        if (entry.id == id || !entry.holds) continue;
        for (const auto& [name, amount] : entry.resources) left[name] -= amount;
    }
    for (const QueueEntry& entry : queue) {
        if (entry.id == id) {
            for (const auto& [name, amount] : entry.resources) {
                if (amount <= 0) continue;
                if (wanted_earlier.contains(name) || left[name] + k_rounding < amount) return false;
            }
            return true;
        }
        // A job that can never start here must not block others forever.
        if (entry.holds || !can_ever_fit(entry.resources, capacity)) continue;
        for (const auto& [name, amount] : entry.resources) {
            if (amount > 0) wanted_earlier[name] += amount;
        }
    }
    return true;
}

}  // namespace gdnctl::local
