#include "services/hub/hf/answers.h"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/text.h"
#include "services/hub/transfer/rate_limit.h"
#include "services/hub/transfer/url.h"

namespace gdnctl::hub {

namespace {

constexpr int k_unauthorized = 401;
constexpr int k_forbidden = 403;
constexpr int k_not_found = 404;
constexpr int k_bad_range = 416;
constexpr int k_rate_limited = 429;
constexpr std::string_view k_disabled = "Access to this resource is disabled.";
constexpr std::string_view k_bad_credentials = "Invalid credentials in Authorization header";
constexpr std::size_t k_longest_text = 500;

bool is_html(const HttpHeaders& headers, std::string_view body) {
    const std::string type = text::to_lower(find_header(headers, "content-type").value_or(""));
    return type.find("html") != std::string::npos || text::trim(body).starts_with('<');
}

void add_strings(const Json& value, std::vector<std::string>& texts) {
    if (value.is_string()) texts.push_back(value.get<std::string>());
    if (!value.is_array()) return;
    for (const Json& item : value) {
        if (item.is_string()) texts.push_back(item.get<std::string>());
        if (item.is_object() && item.contains("message")) add_strings(item["message"], texts);
    }
}

// The Hub deliberately gives the same answer for a private and a missing repository.
Failure repo_missing(const Asked& asked) {
    const std::string_view other = asked.type == RepoType::dataset ? "model" : "dataset";
    Failure failure;
    failure.kind = ErrorKind::remote_missing;
    failure.message = fmt::format(
        "{} '{}' not found. If the repo is private, make sure you are authenticated and your token has the required "
        "permissions.",
        title_of(asked.type), asked.id);
    failure.hint = fmt::format("searched as {}; try --repo-type {}", name_of(asked.type), other);
    if (asked.token_source.empty()) failure.hint += "; no token was sent: set HF_TOKEN for a private repository";
    return failure;
}

Failure token_rejected(const Asked& asked) {
    Failure failure;
    failure.kind = ErrorKind::authentication;
    const std::string source = asked.token_source.empty() ? "the request" : asked.token_source;
    failure.message = fmt::format("token from {} was rejected; check https://huggingface.co/settings/tokens", source);
    return failure;
}

Failure by_code(const Asked& asked, std::string_view code) {
    const auto failed = [](ErrorKind kind, std::string message, std::string hint) {
        return Failure{kind, std::move(message), std::move(hint), 0, {}};
    };
    const std::string_view type = name_of(asked.type);
    if (code == "RevisionNotFound") {
        return failed(ErrorKind::remote_missing,
                      fmt::format("Revision not found in {} '{}': {}", type, asked.id, shown(asked.revision)),
                      "check --revision: a branch, a tag or a commit of 40 digits");
    }
    if (code == "EntryNotFound") {
        return failed(ErrorKind::remote_missing,
                      fmt::format("File not found in {} '{}'. URL: {}", type, asked.id, shown(asked.url)), {});
    }
    return failed(
        ErrorKind::authentication,
        fmt::format("Access denied. {} '{}' requires approval.", title_of(asked.type), asked.id),
        fmt::format("ask for access at {}/{}{}, and use a token of that account", asked.endpoint,
                    asked.type == RepoType::model ? "" : fmt::format("{}/", plural_of(asked.type)), asked.id));
}

bool asks_for_repo(std::string_view url) {
    return url.find("/api/") != std::string_view::npos || url.find("/resolve/") != std::string_view::npos;
}

Failure by_status(const Asked& asked, int status, const HttpHeaders& headers, const std::string& said) {
    Failure failure;
    failure.kind = status == k_unauthorized || status == k_forbidden ? ErrorKind::authentication
                   : status == k_not_found                           ? ErrorKind::remote_missing
                                                                     : ErrorKind::infrastructure;
    failure.message = fmt::format("{} answered {}", shown(asked.url), status);
    if (!said.empty()) failure.message += ": " + said;
    if (status == k_rate_limited) {
        const std::string limit = shown_limit(headers);
        failure.message = fmt::format("rate limit reached at {}{}", shown(asked.url), said.empty() ? "" : ": " + said);
        if (!limit.empty()) failure.message += fmt::format(" (limit: {})", limit);
        failure.hint = asked.token_source.empty() ? "wait, or set HF_TOKEN: limits are higher with a token"
                                                  : "wait, or lower --jobs";
    } else if (status == k_bad_range) {
        const auto range = find_header(headers, "content-range");
        failure.message = fmt::format("{} cannot serve the requested range; it has {}", shown(asked.url),
                                      range ? shown(*range) : "not reported a size");
    } else if (status == k_forbidden) {
        failure.hint = asked.token_source.empty() ? "set HF_TOKEN to a token that may read this repository"
                                                  : "check that the token may read this repository";
    } else if (status == k_not_found) {
        failure.hint = "check the address, and that HF_ENDPOINT is a Hugging Face Hub";
    }
    return failure;
}

}  // namespace

std::string request_id_of(const HttpHeaders& headers) {
    for (const char* name : {"x-request-id", "x-amzn-trace-id", "x-amz-cf-id"}) {
        if (auto id = find_header(headers, name); id && !id->empty()) return shown(*id);
    }
    return {};
}

std::string server_text(const HttpHeaders& headers, std::string_view body) {
    std::vector<std::string> texts;
    if (const auto message = find_header(headers, "x-error-message")) texts.push_back(*message);
    const Json json = Json::parse(body, nullptr, false);
    if (json.is_object()) {
        for (const char* key : {"error", "error_description", "errors"}) {
            if (json.contains(key)) add_strings(json[key], texts);
        }
    } else if (json.is_discarded() && !is_html(headers, body)) {
        texts.emplace_back(body);
    }
    std::string joined;
    for (const std::string& text : texts) {
        const std::string one = shown(text::trim(text::repair_utf8(std::string_view(text).substr(0, k_longest_text))));
        if (one.empty() || joined.find(one) != std::string::npos) continue;
        joined += (joined.empty() ? "" : "; ") + one;
    }
    return joined;
}

Failure no_hub(const Asked& asked, std::string_view why) {
    const auto url = parse_url(asked.url);
    Failure failure;
    failure.message = fmt::format("{} does not look like a Hugging Face Hub (captive portal or proxy?): {}",
                                  url ? url->origin().substr(url->scheme.size() + 3) : asked.endpoint, why);
    failure.hint = "check HF_ENDPOINT or --endpoint; a proxy or a login page may be in between";
    return failure;
}

Failure explain_answer(const Asked& asked, int status, const HttpHeaders& headers, std::string_view body) {
    const std::string code = find_header(headers, "x-error-code").value_or("");
    const std::string message = find_header(headers, "x-error-message").value_or("");
    const std::string said = server_text(headers, body);
    const bool rejected = said.find(k_bad_credentials) != std::string::npos;
    Failure failure;
    if (code == "RevisionNotFound" || code == "EntryNotFound" || code == "GatedRepo") {
        failure = by_code(asked, code);
    } else if (message == k_disabled) {
        failure = {ErrorKind::authentication, std::string(k_disabled), "ask the Hub why it was disabled", 0, {}};
    } else if (code == "RepoNotFound" || (status == k_unauthorized && !rejected && asks_for_repo(asked.url))) {
        failure = repo_missing(asked);
    } else if (status == k_unauthorized && rejected) {
        failure = token_rejected(asked);
    } else {
        failure = by_status(asked, status, headers, said);
    }
    const bool adds = (code == "GatedRepo") && !said.empty();
    if (adds) failure.message += " " + said;
    failure.http_status = status;
    failure.request_id = request_id_of(headers);
    if (!failure.request_id.empty()) failure.message += fmt::format(" (request id {})", failure.request_id);
    return failure;
}

}  // namespace gdnctl::hub
