#include "services/devtpu/ssh_config.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/lock.h"
#include "services/devtpu/holds.h"

namespace gdnctl::devtpu {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds k_config_lock_wait{30};

std::string marker(std::string_view which, std::string_view name) {
    std::string upper(name);
    for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return fmt::format("# {}_DEV_TPU_{}", which, upper);
}

// Lines with their line ends, so that joining them gives the same bytes.
std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        const std::size_t length = end == std::string_view::npos ? text.size() : end + 1;
        lines.push_back(text.substr(0, length));
        text.remove_prefix(length);
    }
    return lines;
}

std::string_view bare(std::string_view line) {
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

// Root may write everything, but a store of configuration files is not to be changed.
Status check_writable(const fs::path& config) {
    std::error_code problem;
    fs::path real = fs::canonical(config, problem);
    if (problem) real = config;
    for (const fs::path& path : {real, real.parent_path()}) {
        const auto facts = fs::status(path, problem);
        if (!fs::exists(facts) || (facts.permissions() & fs::perms::owner_write) != fs::perms::none) continue;
        return fail(ErrorKind::local_io, path.string() + " is read-only");
    }
    return {};
}

Status edit(const fs::path& config, const std::function<std::string(std::string_view)>& change) {
    std::error_code problem;
    const bool is_new = fs::create_directories(config.parent_path(), problem);
    if (!problem && is_new) fs::permissions(config.parent_path(), fs::perms::owner_all, problem);
    if (problem)
        return tl::unexpected(file_error(ErrorKind::local_io, "create", config.parent_path(), problem.value()));
    GDNCTL_TRY(check_writable(config));
    GDNCTL_TRY_ASSIGN(const FileLock lock, FileLock::acquire(config.parent_path() / ".gdnctl-config.lock",
                                                             {std::chrono::milliseconds(k_config_lock_wait)}));
    GDNCTL_TRY_ASSIGN(const auto before, read_file_if_exists(config));
    const std::string old = before.value_or("");
    const std::string now = change(old);
    if (now == old) return {};
    const fs::path copy = config.string() + ".bak";
    if (before && !fs::exists(copy, problem)) GDNCTL_TRY(atomic_replace(copy, old, 0600));
    return atomic_replace(config, now, 0600);
}

}  // namespace

SshSettings ssh_settings(const SshHost& host) {
    SshSettings settings = {{"HostName", host.hostname}, {"HostKeyAlias", host.key_alias}};
    if (!host.user.empty()) settings.emplace_back("User", host.user);
    settings.emplace_back("CheckHostIP", "no");
    settings.emplace_back("StrictHostKeyChecking", "accept-new");
    settings.emplace_back("UserKnownHostsFile", ssh_path(host.known_hosts));
    if (!host.identity.empty()) {
        settings.emplace_back("IdentityFile", ssh_path(host.identity));
        settings.emplace_back("IdentitiesOnly", "yes");
    }
    settings.emplace_back("ConnectTimeout", "10");
    settings.emplace_back("ServerAliveInterval", "15");
    settings.emplace_back("ServerAliveCountMax", "4");
    const bool shared = !host.control.empty();
    settings.emplace_back("ControlMaster", shared ? "auto" : "no");
    settings.emplace_back("ControlPath", shared ? ssh_path(host.control, "/%C") : "none");
    settings.emplace_back("ControlPersist", shared ? "60" : "no");
    return settings;
}

std::string ssh_block(const SshHost& host) {
    std::string block = marker("BEGIN", host.name) + "\nHost " + ssh_alias(host.name) + "\n";
    for (const auto& [name, value] : ssh_settings(host)) block += fmt::format("  {} {}\n", name, value);
    return block + "Match all\n" + marker("END", host.name) + "\n";
}

std::string without_block(std::string_view config, std::string_view name) {
    const std::string begin = marker("BEGIN", name), end = marker("END", name);
    const auto lines = lines_of(config);
    std::string out;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (bare(lines[i]) != begin) {
            out += lines[i];
            continue;
        }
        std::size_t last = i + 1;
        while (last < lines.size() && bare(lines[last]) != end && !bare(lines[last]).starts_with("# BEGIN_DEV_TPU_")) {
            ++last;
        }
        // Without its end the block's extent is unknown. Ours are written whole, so this one is the user's.
        if (last == lines.size() || bare(lines[last]) != end) {
            out += lines[i];
            continue;
        }
        std::string block;
        for (; i <= last; ++i) block += lines[i];
        --i;
        // Names that differ only in case share the marker.
        if (!has_alias(block, name)) out += block;
    }
    return out;
}

std::string with_block(std::string_view config, const SshHost& host) {
    return ssh_block(host) + without_block(config, host.name);
}

bool has_alias(std::string_view config, std::string_view name) {
    const std::string alias = ssh_alias(name);
    for (std::string_view line : lines_of(config)) {
        line = text::trim(line);
        if (line.size() < 5 || text::to_lower(line.substr(0, 4)) != "host") continue;
        const char next = line[4];
        if (next != ' ' && next != '\t' && next != '=') continue;
        std::string words(line.substr(5));
        std::replace(words.begin(), words.end(), '\t', ' ');
        for (const std::string_view word : text::split(words, ' ')) {
            if (word == alias) return true;
        }
    }
    return false;
}

Status write_block(const fs::path& config, const SshHost& host) {
    return edit(config, [&](std::string_view text) { return with_block(text, host); });
}

Status remove_block(const fs::path& config, std::string_view name) {
    // A file without the block is not even locked: its folder may be read-only.
    GDNCTL_TRY_ASSIGN(const auto now, read_file_if_exists(config));
    if (!now || without_block(*now, name) == *now) return {};
    return edit(config, [&](std::string_view text) { return without_block(text, name); });
}

}  // namespace gdnctl::devtpu
