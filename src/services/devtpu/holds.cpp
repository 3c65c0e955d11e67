#include "services/devtpu/holds.h"

#include <algorithm>

#include "core/json.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/lock.h"

namespace gdnctl::devtpu {

namespace {

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

constexpr std::size_t k_longest = 63;

}  // namespace

Status check_tpu_name(std::string_view name) {
    const bool fits =
        !name.empty() && name.size() <= k_longest && is_word(name.front()) &&
        std::all_of(name.begin(), name.end(), [](char c) { return is_word(c) || c == '_' || c == '.' || c == '-'; });
    if (fits) return {};
    std::string shown = text::visible(name.substr(0, k_longest)) + (name.size() > k_longest ? "..." : "");
    std::replace(shown.begin(), shown.end(), '\n', ' ');
    return fail(ErrorKind::usage, "--tpu-name '" + shown + "' cannot be the name of a dev TPU",
                "use up to 63 letters, digits, '_', '.' and '-', beginning with a letter or a digit");
}

std::string ssh_alias(std::string_view name) { return "dev-tpu-" + std::string(name); }

Error not_held(std::string_view name) {
    return {ErrorKind::infrastructure,
            "SSH configuration for " + ssh_alias(name) + " not found; run dev-tpu-allocate --tpu-name " +
                std::string(name) + " first",
            "`gdnctl dev-tpu-list` shows what is held",
            {}};
}

std::string lease_path(std::string_view submission_id) {
    // An id may be a whole name, with slashes; the holder uses the last part of it.
    return "/tmp/gdnctl-hold/" + std::string(submission_id.substr(submission_id.rfind('/') + 1));
}

std::string marin_prefix(std::string_view cluster_or_zone) {
    if (cluster_or_zone.starts_with("marin-")) cluster_or_zone.remove_prefix(6);
    // "us-east5-a", "us-east5", "europe-west4-b": two words, then a letter for the zone.
    auto parts = text::split(cluster_or_zone, '-');
    if (parts.size() < 2 || parts[0].empty() || parts[1].empty()) return {};
    const char last = parts[1].back();
    if (last < '0' || last > '9') return {};
    return "gs://marin-" + std::string(parts[0]) + "-" + std::string(parts[1]);
}

namespace {

constexpr std::chrono::seconds k_lock_wait{20};
constexpr std::size_t k_limit = std::size_t{8} << 20;

Json maybe(const std::optional<bool>& value) { return value ? Json(*value) : Json(nullptr); }

}  // namespace

std::string holds_text(const std::vector<HoldRecord>& holds) {
    Json list = Json::array();
    for (const HoldRecord& hold : holds) {
        Json item;
        item["tpu_name"] = hold.tpu_name;
        item["cluster"] = hold.cluster;
        item["address"] = hold.address;
        item["ray_address"] = hold.ray_address;
        item["kind"] = gdnctl::to_text(hold.kind);
        item["iris_url"] = hold.iris_url;
        item["submission_id"] = hold.submission_id;
        item["nonce"] = hold.nonce;
        item["user"] = hold.user;
        item["tpu_type"] = hold.tpu_type;
        item["alias"] = hold.alias;
        item["state"] = hold.state;
        item["host_info"] = host_info_json(hold.host);
        item["lease_s"] = hold.terms.lease_s;
        item["grace_s"] = hold.terms.grace_s;
        item["max_hold_s"] = hold.terms.max_hold_s;
        item["created"] = hold.created.time_since_epoch().count();
        item["renewed"] = hold.renewed ? Json(hold.renewed->time_since_epoch().count()) : Json(nullptr);
        item["ssh_ok"] = maybe(hold.ssh_ok);
        item["setup_ok"] = maybe(hold.setup_ok);
        list.push_back(std::move(item));
    }
    Json out;
    out["schema"] = "gdnctl.holds/1";
    out["holds"] = std::move(list);
    return gdnctl::to_text(out, 1) + "\n";
}

std::vector<HoldRecord> parse_holds(std::string_view text) {
    std::vector<HoldRecord> holds;
    const auto json = parse_json(text, "holds.json");
    if (!json || !json->is_object()) return holds;
    const auto list = json->find("holds");
    if (list == json->end() || !list->is_array()) return holds;
    for (const Json& item : *list) {
        if (!item.is_object() || json::text(item, "tpu_name").empty() || json::text(item, "submission_id").empty())
            continue;
        HoldRecord hold;
        hold.tpu_name = json::text(item, "tpu_name");
        hold.cluster = json::text(item, "cluster");
        hold.address = json::text(item, "address");
        hold.ray_address = json::text(item, "ray_address");
        hold.iris_url = json::text(item, "iris_url");
        // Records of earlier versions have no kind.
        hold.kind = parse_place_kind(json::text(item, "kind"))
                        .value_or(hold.cluster == "local" ? PlaceKind::local : PlaceKind::ray);
        hold.submission_id = json::text(item, "submission_id");
        hold.nonce = json::text(item, "nonce");
        hold.user = json::text(item, "user");
        hold.tpu_type = json::text(item, "tpu_type");
        hold.alias = json::text(item, "alias");
        hold.state = json::text(item, "state");
        if (const auto host = item.find("host_info"); host != item.end()) hold.host = host_info_of(*host);
        std::map<std::string, std::string> terms;
        for (const char* key : {"lease_s", "grace_s", "max_hold_s"}) {
            if (const auto value = json::integer(item, key)) terms[key] = std::to_string(*value);
        }
        hold.terms = terms_of(terms);
        hold.created = json::time_ms(item, "created").value_or(WallTime{});
        hold.renewed = json::time_ms(item, "renewed");
        hold.ssh_ok = json::boolean(item, "ssh_ok");
        hold.setup_ok = json::boolean(item, "setup_ok");
        holds.push_back(std::move(hold));
    }
    return holds;
}

Result<std::vector<HoldRecord>> HoldStore::all() const {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(m_state / "holds.json", k_limit));
    return text ? parse_holds(*text) : std::vector<HoldRecord>();
}

Result<std::optional<HoldRecord>> HoldStore::find(std::string_view name, const std::optional<std::string>& cluster,
                                                  const std::optional<std::string>& url) const {
    GDNCTL_TRY_ASSIGN(std::vector<HoldRecord> holds, all());
    std::optional<HoldRecord> found;
    for (HoldRecord& hold : holds) {
        if (hold.tpu_name != name || (cluster && hold.cluster != *cluster)) continue;
        if (url && hold.ray_address != *url && hold.iris_url != *url) continue;
        if (!found || hold.created >= found->created) found = std::move(hold);
    }
    return found;
}

Status HoldStore::change(const std::function<void(std::vector<HoldRecord>&)>& edit) const {
    GDNCTL_TRY(make_private_directory(m_state));
    GDNCTL_TRY_ASSIGN(const FileLock lock,
                      FileLock::acquire(m_state / "holds.lock", {std::chrono::milliseconds(k_lock_wait)}));
    GDNCTL_TRY_ASSIGN(std::vector<HoldRecord> holds, all());
    edit(holds);
    return atomic_replace(m_state / "holds.json", holds_text(holds), 0600);
}

Status HoldStore::put(const HoldRecord& hold) const {
    return change([&](std::vector<HoldRecord>& holds) {
        std::erase_if(holds, [&](const HoldRecord& one) { return one.submission_id == hold.submission_id; });
        holds.push_back(hold);
    });
}

Status HoldStore::forget(std::string_view submission_id) const {
    return change([&](std::vector<HoldRecord>& holds) {
        std::erase_if(holds, [&](const HoldRecord& one) { return one.submission_id == submission_id; });
    });
}

Status HoldStore::renewed(std::string_view submission_id, WallTime at) const {
    return change([&](std::vector<HoldRecord>& holds) {
        for (HoldRecord& one : holds) {
            if (one.submission_id == submission_id) one.renewed = at;
        }
    });
}

}  // namespace gdnctl::devtpu
