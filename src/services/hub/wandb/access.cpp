// Finds the address of W&B and the key for it.
#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view k_usual_server = "https://api.wandb.ai";
constexpr std::string_view k_no_key_hint = "export WANDB_API_KEY=..., from https://wandb.ai/authorize";

struct Place {
    std::string url, host;
};

bool is_this_machine(std::string_view host) {
    const bool address =
        host.find_first_not_of("0123456789.") == std::string_view::npos;  // not a host name that begins like one
    return host == "localhost" || host == "::1" || (address && host.starts_with("127."));
}

Result<Place> server_of(const Env& env) {
    std::string url(text::trim(env.get("WANDB_BASE_URL").value_or("")));
    if (url.empty()) url = k_usual_server;
    while (url.ends_with('/')) url.pop_back();
    const bool plain = url.starts_with("http://");
    const auto bad = [&](std::string_view why) {
        return fail(ErrorKind::config, fmt::format("WANDB_BASE_URL {}: {}", why, redact(url)),
                    "unset it, or give it the address of the server's API, such as https://api.wandb.ai");
    };
    if (!plain && !url.starts_with("https://")) return bad("is not an http or https address");
    std::string_view host = std::string_view(url).substr(url.find("://") + 3);
    host = host.substr(0, host.find_first_of("/?#"));
    if (host.find('@') != std::string_view::npos)
        return bad("contains a user name: put the key into WANDB_API_KEY instead");
    if (host.starts_with('[')) {
        host = host.substr(1, host.find(']') - 1);
    } else {
        host = host.substr(0, host.find(':'));
    }
    if (host.empty()) return bad("names no host");
    if (plain && !is_this_machine(host)) return bad("uses plain HTTP; the API key would be sent unencrypted");
    return Place{url, text::to_lower(host)};
}

// `api_key = ...` in the [default] section of W&B's settings file.
std::string key_in_settings(const Env& env, std::string& source) {
    const std::string home = env.get("HOME").value_or("");
    std::string folder = env.get("WANDB_CONFIG_DIR").value_or("");
    if (folder.empty() && !home.empty()) folder = home + "/.config/wandb";
    if (folder.empty()) return {};
    const fs::path file = fs::path(folder) / "settings";
    const auto text = read_file_if_exists(file, std::size_t{1} << 20);
    if (!text || !*text) return {};
    bool ours = false;
    for (const std::string_view raw : text::split(**text, '\n')) {
        const std::string_view line = text::trim(raw);
        if (line.starts_with('[')) ours = line == "[default]";
        const std::size_t equals = line.find_first_of("=:");
        if (!ours || equals == std::string_view::npos || text::trim(line.substr(0, equals)) != "api_key") continue;
        source = file.string();
        return std::string(text::trim(line.substr(equals + 1)));
    }
    return {};
}

Result<std::string> key_in_netrc(const Env& env, const std::string& host, std::string& source) {
    const std::string home = env.get("HOME").value_or("");
    std::vector<fs::path> files;
    if (const auto named = env.get("NETRC"); named && !named->empty()) {
        files.emplace_back(*named);
    } else if (!home.empty()) {
        files = {fs::path(home) / ".netrc", fs::path(home) / "_netrc"};
    }
    for (const fs::path& file : files) {
        const auto text = read_file_if_exists(file, std::size_t{1} << 20);
        if (!text) return fail(ErrorKind::authentication, "no key for W&B: " + text.error().text(), text.error().hint);
        if (!*text) continue;
        if (auto password = netrc_password(**text, host)) {
            source = file.string();
            return std::move(*password);
        }
    }
    return std::string();
}

// The next word of a netrc file. A quoted word may contain blanks; a comment ends with its line.
std::string_view next_word(std::string_view& text, std::string& unquoted) {
    for (;;) {
        text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t\r\n")));
        if (!text.starts_with('#')) break;
        text.remove_prefix(std::min(text.size(), text.find('\n')));
    }
    if (!text.starts_with('"')) {
        const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n"));
        text.remove_prefix(word.size());
        return word;
    }
    unquoted.clear();
    std::size_t at = 1;
    for (; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' && at + 1 < text.size()) ++at;
        unquoted += text[at];
    }
    text.remove_prefix(std::min(text.size(), at + 1));
    return unquoted;
}

}  // namespace

std::optional<std::string> netrc_password(std::string_view text, std::string_view host) {
    std::string unquoted;
    bool ours = false;
    while (!text.empty()) {
        const std::string word(next_word(text, unquoted));
        if (word == "machine") {
            ours = text::to_lower(next_word(text, unquoted)) == host;
        } else if (word == "default") {
            ours = false;
        } else if (word == "macdef") {
            const std::size_t end = text.find("\n\n");
            text.remove_prefix(end == std::string_view::npos ? text.size() : end);
        } else if (word == "login" || word == "user" || word == "account") {
            next_word(text, unquoted);
        } else if (word == "password") {
            std::string value(next_word(text, unquoted));
            if (ours && !value.empty()) return value;
        }
    }
    return std::nullopt;
}

Result<WandbAccess> find_wandb(const Env& env) {
    GDNCTL_TRY_ASSIGN(Place place, server_of(env));
    WandbAccess access;
    access.url = std::move(place.url);
    access.key = text::trim(env.get("WANDB_API_KEY").value_or(""));
    access.key_source = "WANDB_API_KEY";
    if (access.key.empty()) access.key = key_in_settings(env, access.key_source);
    if (access.key.empty()) {
        GDNCTL_TRY_ASSIGN(access.key, key_in_netrc(env, place.host, access.key_source));
    }
    if (access.key.empty()) {
        return fail(ErrorKind::authentication, "no key for W&B at " + place.host, std::string(k_no_key_hint));
    }
    register_secret(access.key);
    for (const char c : access.key) {
        if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') {
            return fail(ErrorKind::authentication, "the key for W&B of " + access.key_source + " contains a blank",
                        std::string(k_no_key_hint));
        }
    }
    return access;
}

}  // namespace gdnctl
