// Finds the address of W&B and the key for it.
#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/http_policy.h"
#include "platform/machine.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view k_usual_server = "https://api.wandb.ai";
constexpr std::string_view k_private_key = "local-";  // prefix of the keys that a private server issues
constexpr std::string_view k_name_server =
    "set WANDB_BASE_URL to the server's address, or base_url in W&B's settings file with `wandb login --host URL`";

// A server and the names by which a netrc file may call it.
struct WandbServer {
    std::string url;     // without a trailing slash
    std::string host;    // lower case, without port and brackets
    std::string netloc;  // lower case, "host" or "host:port"
    std::string origin;  // without the scheme's usual port
    bool is_official() const { return host == "wandb.ai" || host.ends_with(".wandb.ai"); }
};

// `source`: where the address was found, for messages.
Result<WandbServer> checked_server(std::string url, const std::string& source) {
    while (url.ends_with('/')) url.pop_back();
    const bool plain = url.starts_with("http://");
    const auto bad = [&](std::string_view why) {
        return fail(ErrorKind::config, fmt::format("{} {}: {}", source, why, redact(url)),
                    "set WANDB_BASE_URL to the address of the server's API, such as https://api.wandb.ai");
    };
    if (!plain && !url.starts_with("https://")) return bad("is not an http or https address");
    std::string_view netloc = std::string_view(url).substr(url.find("://") + 3);
    netloc = netloc.substr(0, netloc.find_first_of("/?#"));
    if (netloc.find('@') != std::string_view::npos)
        return bad("contains a user name: put the key into WANDB_API_KEY instead");
    std::string_view host = netloc;
    if (host.starts_with('[')) {
        host = host.substr(1, host.find(']') - 1);
    } else {
        host = host.substr(0, host.find(':'));
    }
    if (host.empty()) return bad("does not name a host");
    if (plain && !http::is_loopback(host)) return bad("uses plain HTTP; the API key would be sent unencrypted");
    const std::string lower = text::to_lower(netloc);
    const std::string_view usual_port = plain ? ":80" : ":443";
    if (netloc.ends_with(usual_port)) netloc.remove_suffix(usual_port.size());
    return WandbServer{url, text::to_lower(host), lower, (plain ? "http://" : "https://") + text::to_lower(netloc)};
}

// The [default] section of W&B's settings file, which `wandb login --host` writes.
struct Settings {
    std::string file, base_url, api_key;
};

Result<Settings> read_settings(const Env& env) {
    const std::string home = env.get("HOME").value_or("");
    std::string folder = expand_home(env.get("WANDB_CONFIG_DIR").value_or(""), home);
    if (folder.empty() && !home.empty()) folder = home + "/.config/wandb";
    Settings settings;
    if (folder.empty()) return settings;
    settings.file = (fs::path(folder) / "settings").string();
    const auto text = read_file_if_exists(settings.file, std::size_t{1} << 20);
    if (!text) {
        return fail(ErrorKind::authentication, "the server of W&B is not known: " + text.error().text(),
                    "set WANDB_BASE_URL and WANDB_API_KEY, or make W&B's settings file readable");
    }
    if (!*text) return settings;
    bool ours = false;
    for (const std::string_view raw : text::split(**text, '\n')) {
        const std::string_view line = text::trim(raw);
        if (line.starts_with('[')) ours = line == "[default]";
        const std::size_t equals = line.find_first_of("=:");
        if (!ours || equals == std::string_view::npos) continue;
        const std::string name = text::to_lower(text::trim(line.substr(0, equals)));
        if (name == "base_url") settings.base_url = text::trim(line.substr(equals + 1));
        if (name == "api_key") settings.api_key = text::trim(line.substr(equals + 1));
    }
    return settings;
}

// The server that the user has configured: the one that WANDB_API_KEY is for.
struct Configured {
    std::string url;     // empty: none
    std::string source;  // for messages
    Settings settings;
};

Result<Configured> configured(const Env& env) {
    Configured found{std::string(text::trim(env.get("WANDB_BASE_URL").value_or(""))), "WANDB_BASE_URL", {}};
    const bool complete = !found.url.empty() && !text::trim(env.get("WANDB_API_KEY").value_or("")).empty();
    if (complete) return found;  // the settings file adds nothing
    GDNCTL_TRY_ASSIGN(found.settings, read_settings(env));
    if (found.url.empty() && !found.settings.base_url.empty()) {
        found.url = found.settings.base_url;
        found.source = "base_url in " + found.settings.file;
    }
    return found;
}

// As in the official client: "https://api.wandb.ai" has its pages at https://wandb.ai.
std::string web_address(std::string url) {
    const std::size_t api = url.find("://api.");
    if (api == std::string::npos) return url;
    const bool named_so = url.compare(api, std::string_view("://api.wandb.").size(), "://api.wandb.") == 0;
    return url.replace(api, std::string_view("://api.").size(), named_so ? "://" : "://app.");
}

struct Server {
    WandbServer place;
    bool is_configured = true;  // the keys that name no host are for it
};

// The server to ask for a run whose web address is at `address` (empty: no address).
Result<Server> server_of(const Env& env, const Configured& own, const std::string& address) {
    GDNCTL_TRY_ASSIGN(WandbServer place,
                      checked_server(own.url.empty() ? std::string(k_usual_server) : own.url, own.source));
    if (address.empty()) return Server{std::move(place)};
    GDNCTL_TRY_ASSIGN(WandbServer named, checked_server(address, "the run's address"));
    std::string app(text::trim(env.get("WANDB_APP_URL").value_or("")));
    if (app.empty()) app = web_address(place.origin);
    while (app.ends_with('/')) app.pop_back();
    const bool same = named.is_official() || named.origin == place.origin || named.origin == text::to_lower(app);
    if (named.is_official() && !place.is_official()) {
        log::info("an address on wandb.ai only names a run: asking {} ({})", place.url, own.source);
    }
    if (same) return Server{std::move(place)};
    return Server{std::move(named), false};
}

Result<std::string> key_in_netrc(const Env& env, const WandbServer& place, std::string& source) {
    const std::string home = env.get("HOME").value_or("");
    std::vector<fs::path> files;
    if (const auto named = env.get("NETRC"); named && !named->empty()) {
        files.emplace_back(expand_home(*named, home));
    } else if (!home.empty()) {
        files = {fs::path(home) / ".netrc", fs::path(home) / "_netrc"};
    }
    for (const fs::path& file : files) {
        const auto text = read_file_if_exists(file, std::size_t{1} << 20);
        if (!text) return fail(ErrorKind::authentication, "no key for W&B: " + text.error().text(), text.error().hint);
        if (!*text) continue;
        // The official client writes the port; older versions left it out.
        for (const std::string& name : {place.netloc, place.host}) {
            if (auto password = netrc_password(**text, name)) {
                source = file.string();
                return std::move(*password);
            }
        }
    }
    return std::string();
}

// The key for the server. Empty: there is none. A key that may belong to another server is never taken.
Result<std::string> key_for(const Env& env, const Configured& own, const Server& server, std::string& source) {
    std::string key(text::trim(env.get("WANDB_API_KEY").value_or("")));
    source = "WANDB_API_KEY";
    if (!key.empty() && server.is_configured) return key;
    const Settings& settings = own.settings;
    bool settings_apply = server.is_configured && !settings.api_key.empty();
    if (settings_apply && !settings.base_url.empty()) {
        GDNCTL_TRY_ASSIGN(const WandbServer theirs, checked_server(settings.base_url, "base_url in " + settings.file));
        settings_apply = theirs.origin == server.place.origin;
    }
    source = settings.file;
    if (settings_apply) return settings.api_key;
    return key_in_netrc(env, server.place, source);
}

tl::unexpected<Error> no_key(const Env& env, const Configured& own, const Server& server) {
    const std::string get_one = web_address(server.place.url) + "/authorize";
    if (server.is_configured) {
        return fail(ErrorKind::authentication, "no key for W&B at " + server.place.host,
                    "export WANDB_API_KEY=..., from " + get_one);
    }
    std::string message = "no key for W&B at " + server.place.netloc + ", the server in the run's address";
    if (const auto key = env.get("WANDB_API_KEY"); key && !text::trim(*key).empty()) {
        const bool unknown = own.url.empty() && text::trim(*key).starts_with(k_private_key);
        message += unknown ? "; WANDB_API_KEY is a private server's key, and nothing says which server's"
                           : fmt::format("; WANDB_API_KEY is for {}", own.url.empty() ? k_usual_server : own.url);
    }
    return fail(ErrorKind::authentication, message,
                fmt::format("`wandb login --host {0}` stores a key for that server. If WANDB_API_KEY is for it, set "
                            "WANDB_BASE_URL={0}, or base_url in W&B's settings file",
                            server.place.url));
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

Result<WandbAccess> find_wandb(const Env& env, const std::string& address) {
    GDNCTL_TRY_ASSIGN(const Configured own, configured(env));
    GDNCTL_TRY_ASSIGN(const Server server, server_of(env, own, address));
    WandbAccess access;
    access.url = server.place.url;
    GDNCTL_TRY_ASSIGN(access.key, key_for(env, own, server, access.key_source));
    if (access.key.empty()) return no_key(env, own, server);
    register_secret(access.key);
    for (const char c : access.key) {
        if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') {
            return fail(ErrorKind::authentication, "the key for W&B of " + access.key_source + " contains a blank",
                        "export WANDB_API_KEY=..., from " + access.authorize_page());
        }
    }
    if (server.place.is_official() && access.key.starts_with(k_private_key)) {
        return fail(ErrorKind::config,
                    fmt::format("the key for W&B of {} was issued by a private server; it is not sent to {}",
                                access.key_source, server.place.netloc),
                    std::string(k_name_server));
    }
    return access;
}

Result<std::string> find_wandb_server(const Env& env, const std::string& address) {
    GDNCTL_TRY_ASSIGN(const Configured own, configured(env));
    GDNCTL_TRY_ASSIGN(const Server server, server_of(env, own, address));
    return server.place.url;
}

Result<std::string> private_wandb_server(const Env& env) {
    GDNCTL_TRY_ASSIGN(const Configured own, configured(env));
    if (own.url.empty()) return std::string();
    const auto place = checked_server(own.url, own.source);
    return place && place->url == k_usual_server ? std::string() : own.url;
}

Result<std::string> server_for_key(const Env& env, std::string_view key) {
    GDNCTL_TRY_ASSIGN(std::string server, private_wandb_server(env));
    if (server.empty() && text::trim(key).starts_with(k_private_key)) {
        return fail(ErrorKind::config, "the key for W&B was issued by a private server, and none is configured",
                    std::string(k_name_server));
    }
    return server;
}

std::string WandbAccess::web_pages() const { return web_address(url); }
std::string WandbAccess::authorize_page() const { return web_pages() + "/authorize"; }

}  // namespace gdnctl
