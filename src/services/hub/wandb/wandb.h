// Weights & Biases: what a run has measured, asked of the service's GraphQL API. It only reads.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "platform/env.h"
#include "platform/http.h"

namespace gdnctl {

// Where it is asked, and with which key.
struct WandbAccess {
    std::string url;         // "https://api.wandb.ai": no slash at the end
    std::string key;         // registered as a secret
    std::string key_source;  // for people: "WANDB_API_KEY", "/home/x/.netrc"
};
// WANDB_BASE_URL, else https://api.wandb.ai; WANDB_API_KEY, else `api_key` of W&B's settings file, else what the netrc
// file (NETRC, ~/.netrc, ~/_netrc) has for that host. Errors: config (no such URL, or one over which a key would be
// readable to others), authentication (no key, a netrc file that cannot be read).
Result<WandbAccess> find_wandb(const Env& env);

// The password of a netrc file for this very host (its `default` is for nobody in particular). Pure.
std::optional<std::string> netrc_password(std::string_view text, std::string_view host);

struct WandbPath {
    std::string entity, project, run;
};
// Of https://HOST/<entity>/<project>/runs/<id>.
std::optional<WandbPath> parse_wandb_url(std::string_view url);

// Values of these keys at the steps first..last, both included; no keys: none are asked for.
struct WandbWindow {
    std::vector<std::string> keys;
    std::int64_t first = 0, last = 0;
};

struct WandbRun {
    std::string id, name, state;  // name: the one that people see; state: "running", "finished", "failed", "crashed"
    std::optional<WallTime> created;
    std::map<std::string, double> summary;              // the last value of each key; finite numbers only
    std::map<std::string, std::vector<double>> window;  // by key, in the order of their steps; finite numbers only

    // All that it will ever have is there.
    bool ended() const { return state == "finished" || state == "failed"; }
};

class Wandb {
public:
    // `http` must outlive it.
    Wandb(WandbAccess access, Http& http, std::stop_token stop = {})
        : m_access(std::move(access)), m_http(http), m_stop(std::move(stop)) {}

    // Errors: authentication (the key, named by its source, is rejected, or may not see it), remote_missing (no such
    // run, or not for this key), infrastructure, interrupted, terminated.
    Result<WandbRun> run(const WandbPath& path, const WandbWindow& window);
    // The newest first, at most `count`, without summary and window. With `in_name` those whose name contains it.
    Result<std::vector<WandbRun>> newest_runs(const std::string& entity, const std::string& project,
                                              std::string_view in_name, int count);

    // The server's clock less ours, as its last answer showed: nullopt before the first, and where it said nothing.
    std::optional<std::chrono::milliseconds> clock_difference(WallTime now) const;

private:
    Result<std::string> ask(const std::string& body);
    WandbAccess m_access;
    Http& m_http;
    std::stop_token m_stop;
    std::optional<std::string> m_date;  // of the last answer
};

}  // namespace gdnctl
