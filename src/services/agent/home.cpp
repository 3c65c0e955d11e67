#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/fs.h"
#include "services/agent/codex.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

// The state that a run keeps separate. Everything else in a user's home is configuration, credentials or instructions.
bool is_state(const std::string& name) {
    constexpr std::array<std::string_view, 9> k_own = {
        "sessions",  "archived_sessions", "history.jsonl", "session_index.jsonl", "log", "tmp",
        "worktrees", "shell_snapshots",   "cache"};
    if (std::find(k_own.begin(), k_own.end(), name) != k_own.end()) return true;
    return name.find(".sqlite") != std::string::npos || name.ends_with(".lock");
}

// "a.b.c" of `a . "b".c`
std::string plain_key(std::string_view words) {
    std::string key;
    for (const auto part : text::split(words, '.')) {
        auto name = text::trim(part);
        if (name.size() >= 2 && (name.front() == '"' || name.front() == '\'')) name = name.substr(1, name.size() - 2);
        key += (key.empty() ? "" : ".") + std::string(name);
    }
    return key;
}

// The string at a key such as "a.b.c" of a TOML file, read line by line; empty: none found.
std::string setting_in(const fs::path& file, std::string_view key) {
    const auto toml = read_file_if_exists(file);
    if (!toml || !*toml) return {};
    std::string section;
    for (const auto raw : text::split(**toml, '\n')) {
        const auto line = text::trim(raw);
        if (line.starts_with('[')) {
            section = plain_key(line.substr(1, line.find(']') - 1)) + ".";
            continue;
        }
        const auto equals = line.find('=');
        if (equals == std::string_view::npos || section + plain_key(line.substr(0, equals)) != key) continue;
        const auto value = text::trim(line.substr(equals + 1));
        if (value.empty() || (value.front() != '"' && value.front() != '\'')) return {};
        const auto end = value.find(value.front(), 1);
        return end == std::string_view::npos ? std::string() : std::string(value.substr(1, end - 1));
    }
    return {};
}

}  // namespace

fs::path codex_home_of(const std::map<std::string, std::string>& environment) {
    const auto value = [&](const char* name) {
        const auto found = environment.find(name);
        return found == environment.end() ? std::string() : found->second;
    };
    return value("CODEX_HOME").empty() ? fs::path(value("HOME")) / ".codex" : fs::path(value("CODEX_HOME"));
}

bool codex_login_needs_home(const fs::path& user_home) {
    const std::string store = setting_in(user_home / "config.toml", "cli_auth_credentials_store");
    std::error_code ec;
    return store == "keyring" || (store == "auto" && !fs::exists(user_home / "auth.json", ec));
}

std::string codex_provider_variable(const fs::path& user_home, const std::string& profile) {
    std::vector<fs::path> layers = {user_home / "config.toml"};  // later ones override earlier ones
    if (!profile.empty()) layers.push_back(user_home / (profile + ".config.toml"));
    const auto last = [&](const std::string& key) {
        std::string value;
        for (const auto& layer : layers) {
            if (auto found = setting_in(layer, key); !found.empty()) value = std::move(found);
        }
        return value;
    };
    const std::string provider = last("model_provider");
    return provider.empty() ? std::string() : last(fmt::format("model_providers.{}.env_key", provider));
}

Status make_codex_home(const fs::path& folder, const fs::path& user_home) {
    std::error_code ec;
    if (!fs::is_directory(user_home, ec)) {
        return fail(ErrorKind::config, fmt::format("codex has no home: {}", user_home.string()),
                    "run `codex login` once, or set CODEX_HOME");
    }
    GDNCTL_TRY(make_private_directory(folder));
    const fs::path from = fs::absolute(user_home, ec);
    for (fs::directory_iterator it(from, ec), end; !ec && it != end; it.increment(ec)) {
        const std::string name = it->path().filename().string();
        if (is_state(name)) continue;
        const fs::path link = folder / name;
        std::error_code of_link;
        if (fs::is_symlink(link, of_link) && fs::read_symlink(link, of_link) == it->path()) continue;
        if (fs::exists(fs::symlink_status(link, of_link))) continue;  // codex has already created its own
        of_link.clear();
        fs::create_symlink(it->path(), link, of_link);
        if (of_link) return tl::unexpected(file_error(ErrorKind::local_io, "make", link, of_link.value()));
    }
    if (ec) return tl::unexpected(file_error(ErrorKind::local_io, "read", from, ec.value()));
    return {};
}

}  // namespace gdnctl
