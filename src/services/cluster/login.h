// The login to an Iris cluster behind Google's Identity-Aware Proxy (IAP): where a Google id token comes from, and for
// how long it is used. Tokens stay in memory.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/http.h"
#include "platform/process.h"
#include "services/cluster/cluster.h"

namespace gdnctl {

struct LoginConfig {
    std::string cluster;         // for people, and the stem of the file that `iris login` writes
    std::string command;         // the command that logs in, for hints
    OAuthClient client;          // of the configuration or the cluster file; empty: of the checkout
    std::string audience;        // for tokens that are not a person's; empty: the client's id
    std::string impersonate;     // service account that gcloud acts as; empty: none
    std::filesystem::path root;  // the checkout
    const Env* env = nullptr;
    Process* process = nullptr;
    Http* http = nullptr;
    Clock* clock = nullptr;
    std::stop_token stop;
};

// Gets id tokens from the first of: the credentials that `iris login` left, the metadata server of a Google machine,
// gcloud. Every secret is registered for redaction. Thread-safe.
class Login {
public:
    explicit Login(LoginConfig config) : m_config(std::move(config)) {}

    // An id token that is valid for some minutes. `refused`: the server did not accept the previous one, so a new one
    // is made. Errors: authentication (no login, an expired one, no OAuth client), infrastructure (no answer from
    // Google), config (GDNCTL_GOOGLE_TOKEN_URL), interrupted, terminated.
    Result<std::string> token(bool refused);
    // Where the last token came from; empty: there is none yet.
    std::string origin() const;

private:
    Result<std::string> mint();
    Result<std::string> from_credentials(const std::filesystem::path& file, const std::string& text);
    Result<std::optional<std::string>> from_machine();
    Result<OAuthClient> client() const;
    HttpRequest request(std::string url) const;

    LoginConfig m_config;
    mutable std::mutex m_mutex;
    std::string m_token, m_origin;
    Clock::Monotonic m_until{};
    std::vector<std::string> m_looked;  // the places searched, each with the result
};

namespace cluster {

// Seconds since 1970 at which this JSON web token expires; nullopt: it does not say. Pure.
std::optional<std::int64_t> expiry_of(std::string_view token);

// The OAuth client in the text of a checkout's auth.py: the two quoted values after MARIN_DESKTOP_OAUTH_CLIENT. Pure.
std::optional<OAuthClient> client_in_source(std::string_view text);

}  // namespace cluster

}  // namespace gdnctl
