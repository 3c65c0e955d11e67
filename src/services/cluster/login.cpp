#include "services/cluster/login.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base64.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/http_policy.h"
#include "platform/signals.h"
#include "services/cluster/tunnel.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view k_google = "https://oauth2.googleapis.com/token";
constexpr std::string_view k_metadata = "http://metadata.google.internal/computeMetadata/v1";
constexpr std::string_view k_client_source = "lib/rigging/src/rigging/auth.py";
constexpr std::size_t k_credentials_limit = std::size_t{1} << 20;
constexpr seconds k_margin{300};    // a token is replaced this long before it expires
constexpr seconds k_unknown{3000};  // time of use of a token that does not say when it expires
constexpr seconds k_longest_use{86'400};
// For a token that seems to have expired when it was made: our clock is wrong, or an old one came from a cache.
constexpr seconds k_shortest_use{60};

bool is_token(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string form(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
    std::string body;
    for (const auto& [name, value] : fields) {
        body += fmt::format("{}{}={}", body.empty() ? "" : "&", name, text::percent_encode(value));
    }
    return body;
}

// Google's endpoint, or the one that a test names.
Result<std::string> token_url(const Env& env) {
    std::string url = env.get("GDNCTL_GOOGLE_TOKEN_URL").value_or("");
    if (url.empty()) return std::string(k_google);
    if (is_confidential(url)) return url;
    return fail(ErrorKind::config, "GDNCTL_GOOGLE_TOKEN_URL must use https, or http on this machine");
}

// nullopt: not base64 in the alphabet for URLs.
std::optional<std::string> from_base64url(std::string_view text) {
    std::string standard(text);
    std::replace(standard.begin(), standard.end(), '-', '+');
    std::replace(standard.begin(), standard.end(), '_', '/');
    while (standard.size() % 4 != 0) standard += '=';
    return from_base64(standard);
}

}  // namespace

namespace cluster {

seconds time_of_use(std::string_view token, seconds now) {
    const auto parts = text::split(token, '.');
    const auto claims = parts.size() == 3 ? from_base64url(parts[1]) : std::nullopt;
    const auto json = claims ? parse_json(*claims, "token") : Result<Json>(Json());
    const auto expiry = json ? json::integer(*json, "exp") : std::nullopt;
    if (!expiry) return k_unknown;
    const seconds left = std::min(seconds(*expiry) - now - k_margin, k_longest_use);
    if (left > seconds(0)) return left;
    const auto issued = json::integer(*json, "iat");
    return issued && seconds(*expiry - *issued) > k_margin ? k_shortest_use : seconds(0);
}

std::optional<OAuthClient> client_in_source(std::string_view text) {
    constexpr std::string_view k_name = "MARIN_DESKTOP_OAUTH_CLIENT";
    std::size_t at = text.find(k_name);
    if (at == std::string_view::npos) return std::nullopt;
    OAuthClient client;
    for (std::string* value : {&client.id, &client.secret}) {
        at = text.find_first_of("\"'", at);
        const std::size_t end = at == std::string_view::npos ? at : text.find(text[at], at + 1);
        if (end == std::string_view::npos) return std::nullopt;
        *value = text.substr(at + 1, end - at - 1);
        if (!is_token(*value)) return std::nullopt;
        at = end + 1;
    }
    return client;
}

}  // namespace cluster

std::string Login::origin() const {
    const std::lock_guard lock(m_mutex);
    return m_origin;
}

Result<std::string> Login::token(bool refused) {
    const std::lock_guard lock(m_mutex);
    if (!refused && !m_token.empty() && m_config.clock->monotonic() < m_until) return m_token;
    GDNCTL_TRY_ASSIGN(std::string fresh, mint());
    if (!is_token(fresh)) {
        return fail(ErrorKind::authentication, fmt::format("{} returned no valid ID token", m_origin),
                    m_config.command);
    }
    register_secret(fresh);
    m_token = std::move(fresh);
    const auto now = std::chrono::floor<seconds>(m_config.clock->wall().time_since_epoch());
    m_until = m_config.clock->monotonic() + cluster::time_of_use(m_token, now);
    return m_token;
}

Result<std::string> Login::mint() {
    m_looked.clear();
    const fs::path& file = m_config.credentials;
    if (!file.empty()) {
        const auto text = read_file_if_exists(file, k_credentials_limit);
        if (!text) return fail(ErrorKind::authentication, text.error().text(), m_config.command);
        if (*text) return from_credentials(**text);
        m_looked.push_back(file.string() + ": not found");
    }
    GDNCTL_TRY_ASSIGN(auto found, from_machine());
    if (found) return std::move(*found);
    return fail(ErrorKind::authentication, "not logged in to cluster " + m_config.cluster,
                fmt::format("{} ({})", m_config.command, text::join(m_looked, "; ")));
}

HttpRequest Login::request(std::string url) const {
    HttpRequest request;
    request.url = std::move(url);
    request.first_byte_timeout = request.total_timeout = milliseconds(15'000);
    request.retry.attempts = 3;
    request.retry.statuses = {429, 500, 502, 503, 504};
    request.stop = m_config.stop;
    return request;
}

Result<OAuthClient> Login::client() const {
    if (!m_config.client.id.empty() && !m_config.client.secret.empty()) return m_config.client;
    const auto source = read_file_if_exists(m_config.root / k_client_source, k_credentials_limit);
    if (source && *source) {
        if (auto found = cluster::client_in_source(**source)) return std::move(*found);
    }
    return fail(ErrorKind::authentication,
                fmt::format("no OAuth client for cluster {0}: set oauth_client_id and oauth_client_secret in "
                            "[clusters.{0}]",
                            m_config.cluster));
}

Result<std::string> Login::from_credentials(const std::string& text) {
    const fs::path& file = m_config.credentials;
    const auto json = parse_json(text, file.string());
    const std::string refresh = json ? json::text(*json, "edge_refresh_token") : std::string();
    if (refresh.empty()) {
        return fail(ErrorKind::authentication, file.string() + " holds no edge_refresh_token", m_config.command);
    }
    register_secret(refresh);
    GDNCTL_TRY_ASSIGN(const OAuthClient client, this->client());
    register_secret(client.secret);
    GDNCTL_TRY_ASSIGN(std::string url, token_url(*m_config.env));
    HttpRequest post = request(std::move(url));
    post.method = "POST";
    post.headers.emplace_back("Content-Type", "application/x-www-form-urlencoded");
    post.body = form({{"grant_type", "refresh_token"},
                      {"client_id", client.id},
                      {"client_secret", client.secret},
                      {"refresh_token", refresh}});
    m_origin = file.string();
    auto answer = m_config.http->send(post);
    if (!answer && answer.error().kind == ErrorKind::interrupted) return tl::unexpected(stopped_error());
    if (!answer) return fail(ErrorKind::infrastructure, "cannot renew the login: " + answer.error().text());
    const auto said = parse_json(answer->body, "the answer");
    if (answer->status == 200 && said) return json::text(*said, "id_token");
    const std::string error = said ? json::text(*said, "error") : std::string();
    if (error == "invalid_grant") {
        return fail(ErrorKind::authentication, fmt::format("the login to cluster {} has expired", m_config.cluster),
                    m_config.command);
    }
    const bool refused = answer->status >= 400 && answer->status < 500 && answer->status != 429;
    return fail(refused ? ErrorKind::authentication : ErrorKind::infrastructure,
                fmt::format("cannot renew the login to cluster {}: status {}{}", m_config.cluster, answer->status,
                            error.empty() ? "" : ": " + text::visible(error)),
                refused ? m_config.command : std::string());
}

// As the service account of a Google machine, or as one that gcloud may act for. A person's own gcloud login cannot do
// this.
Result<std::optional<std::string>> Login::from_machine() {
    std::string audience = m_config.audience;
    if (audience.empty()) audience = m_config.client.id;
    if (audience.empty()) {
        m_looked.emplace_back("Google machine, gcloud: no audience is known");
        return std::optional<std::string>();
    }
    std::string base = m_config.env->get("GDNCTL_METADATA_BASE").value_or("");
    if (base.empty()) base = k_metadata;
    HttpRequest get = request(fmt::format("{}/instance/service-accounts/default/identity?audience={}&format=full", base,
                                          text::percent_encode(audience)));
    get.headers.emplace_back("Metadata-Flavor", "Google");
    get.connect_timeout = milliseconds(1000);
    get.first_byte_timeout = get.total_timeout = milliseconds(5000);
    get.retry.attempts = 1;
    const auto answer = m_config.http->send(get);
    if (!answer && answer.error().kind == ErrorKind::interrupted) return tl::unexpected(stopped_error());
    // Other machines' networks may answer any name with a page of their own.
    if (answer && answer->status == 200 && answer->header("metadata-flavor") == "Google") {
        m_origin = "metadata server of this machine";
        return std::optional(std::string(text::trim(answer->body)));
    }
    m_looked.emplace_back("metadata server: none answers");
    std::vector<std::string> words = {"auth", "print-identity-token", "--audiences=" + audience};
    if (!m_config.impersonate.empty()) words.push_back("--impersonate-service-account=" + m_config.impersonate);
    const auto printed = cluster::run_gcloud({m_config.process, m_config.stop}, std::move(words), "get an id token");
    if (printed) {
        m_origin = "gcloud auth print-identity-token";
        return std::optional(std::string(text::trim(*printed)));
    }
    const ErrorKind kind = printed.error().kind;
    if (kind == ErrorKind::interrupted || kind == ErrorKind::terminated) return tl::unexpected(printed.error());
    m_looked.push_back("gcloud: " + printed.error().message);
    return std::optional<std::string>();
}

namespace {

class IrisRoute final : public JobRoute {
public:
    IrisRoute(std::string url, std::shared_ptr<Login> login, std::string token)
        : m_url(std::move(url)), m_login(std::move(login)), m_token(std::move(token)) {
        if (is_confidential(m_url)) return;
        m_login.reset();
        m_token.clear();
    }

    Result<std::string> url() override { return m_url; }

    Result<HttpHeaders> headers(bool refused) override {
        HttpHeaders headers;
        if (m_login) {
            GDNCTL_TRY_ASSIGN(const std::string token, m_login->token(refused));
            headers.emplace_back("Proxy-Authorization", "Bearer " + token);
        }
        if (!m_token.empty()) headers.emplace_back("Authorization", "Bearer " + m_token);
        return headers;
    }

private:
    std::string m_url;
    std::shared_ptr<Login> m_login;
    std::string m_token;
};

}  // namespace

std::shared_ptr<JobRoute> make_iris_route(std::string url, std::shared_ptr<Login> login, std::string token) {
    return std::make_shared<IrisRoute>(std::move(url), std::move(login), std::move(token));
}

}  // namespace gdnctl
