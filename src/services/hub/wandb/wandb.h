// Reads a run's metrics from the GraphQL API of Weights & Biases. Only reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "platform/env.h"
#include "platform/http.h"

namespace gdnctl {

// The address of the service, and the key for it.
struct WandbAccess {
    std::string url;         // "https://api.wandb.ai": without a trailing slash
    std::string key;         // registered as a secret
    std::string key_source;  // for people: "WANDB_API_KEY", "/home/x/.netrc"

    std::string web_pages() const;       // "https://wandb.ai"
    std::string authorize_page() const;  // where people get a key
};
// The server is WANDB_BASE_URL, else `base_url` of W&B's settings file, else https://api.wandb.ai. `address`: where the
// web address of a run leads ("https://HOST[:PORT]"); if that is neither wandb.ai nor the configured server, it is the
// server, and only keys that name it are used. The key is WANDB_API_KEY, else `api_key` of the settings file if it is
// for the same server, else the entry for that host, with or without its port, in the netrc file (NETRC, ~/.netrc,
// ~/_netrc). Errors: config (invalid URL, one that would send the key unencrypted, or a private server's key without
// that server), authentication (no key, or a file cannot be read).
Result<WandbAccess> find_wandb(const Env& env, const std::string& address = {});
// Its server alone. Errors: config, authentication (the settings file cannot be read).
Result<std::string> find_wandb_server(const Env& env, const std::string& address = {});
// The configured server, if it is not https://api.wandb.ai; else empty. Error: authentication (the settings file cannot
// be read).
Result<std::string> private_wandb_server(const Env& env);
// The same, for whoever gets `key` (of WANDB_API_KEY) from us: without that server he would send it to wandb.ai.
// Errors: also config (a private server's key, but no server is configured).
Result<std::string> server_for_key(const Env& env, std::string_view key);

// The password in a netrc file for exactly this host (its `default` entry is ignored). Pure.
std::optional<std::string> netrc_password(std::string_view text, std::string_view host);

struct WandbPath {
    std::string entity, project, run;
    std::string server = {};  // "https://HOST[:PORT]" of a web address; empty: not given
};
// Parses http[s]://HOST/<entity>/<project>/runs/<id>.
std::optional<WandbPath> parse_wandb_url(std::string_view url);

// Selects the values of these keys at steps first..last, inclusive; no keys: none.
struct WandbWindow {
    std::vector<std::string> keys;
    std::int64_t first = 0, last = 0;
};

struct WandbRun {
    std::string id, name, state;  // name: the display name; state: "running", "finished", "failed", "crashed"
    std::optional<WallTime> created;
    std::map<std::string, double> summary;              // the last value of each key; finite numbers only
    std::map<std::string, std::vector<double>> window;  // by key, in the order of their steps; finite numbers only

    // The run is complete and will not change.
    bool ended() const { return state == "finished" || state == "failed"; }
};

class Wandb {
public:
    // `http` must outlive it.
    Wandb(WandbAccess access, Http& http, std::stop_token stop = {})
        : m_access(std::move(access)), m_http(http), m_stop(std::move(stop)) {}

    // Errors: authentication (the key, named by its source, is rejected or has no access), remote_missing (no such run,
    // or not visible with this key), infrastructure, interrupted, terminated.
    Result<WandbRun> run(const WandbPath& path, const WandbWindow& window);
    // Newest first, at most `count`, without summary and window. `in_name`: only those whose name contains it.
    Result<std::vector<WandbRun>> newest_runs(const std::string& entity, const std::string& project,
                                              std::string_view in_name, int count);

    // The server's clock minus ours, from its last answer; nullopt before the first one, or if it had no time.
    std::optional<std::chrono::milliseconds> clock_difference(WallTime now) const;

private:
    Result<std::string> ask(const std::string& body);
    WandbAccess m_access;
    Http& m_http;
    std::stop_token m_stop;
    std::optional<std::string> m_date;  // of the last answer
};

}  // namespace gdnctl

namespace gdnctl::wandb {

// Queries to the GraphQL API and its answers, as values. Pure.

// Request bodies.
std::string run_question(const WandbPath& path, const WandbWindow& window);
std::string runs_question(const std::string& entity, const std::string& project, std::string_view in_name, int count);

// Parse answers with status 200. Errors: remote_missing, authentication (from their `errors`), infrastructure (no such
// API).
Result<WandbRun> parse_run(std::string_view body, const WandbPath& path, const WandbWindow& window);
Result<std::vector<WandbRun>> parse_runs(std::string_view body, const std::string& entity, const std::string& project);

// "2026-03-10T16:53:07", with or without a fraction, with or without Z: always UTC.
std::optional<WallTime> parse_created(std::string_view text);

// The error in an answer of another status, on one line of at most 300 bytes.
std::string complaint(std::string_view body);

// Helpers for all queries and answers. `data_in`: the data of an answer; errors as above.
std::string question(std::string_view query, const Json& variables);
Result<Json> data_in(std::string_view body);
// The object at a path of fields; nullptr: it, or one before it, is null or missing.
const Json* object_at(const Json& data, std::initializer_list<std::string_view> fields);

}  // namespace gdnctl::wandb
