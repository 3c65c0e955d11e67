#include "services/devtpu/names.h"

#include <algorithm>

#include "core/text.h"

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

std::string lease_path(std::string_view submission_id) { return "/tmp/gdnctl-hold/" + std::string(submission_id); }

std::string marin_prefix(std::string_view cluster_or_zone) {
    if (cluster_or_zone.starts_with("marin-")) cluster_or_zone.remove_prefix(6);
    // "us-east5-a", "us-east5", "europe-west4-b": two words, then a letter for the zone.
    auto parts = text::split(cluster_or_zone, '-');
    if (parts.size() < 2 || parts[0].empty() || parts[1].empty()) return {};
    const char last = parts[1].back();
    if (last < '0' || last > '9') return {};
    return "gs://marin-" + std::string(parts[0]) + "-" + std::string(parts[1]);
}

}  // namespace gdnctl::devtpu
