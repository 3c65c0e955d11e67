#include "services/hub/hf/access.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "services/hub/transfer/names.h"

namespace gdnctl::hub {

namespace {

namespace fs = std::filesystem;

// Expands "~" and "$NAME" like a shell. A value is not expanded again.
std::string expanded(const Env& env, std::string_view path) {
    std::string text;
    const std::size_t first = std::min(path.size(), path.find('/'));
    if (path.starts_with('~')) {
        text = expand_home(path.substr(0, first), env.get("HOME").value_or(""));
        path.remove_prefix(first);
    }
    for (std::size_t at = path.find('$'); at != std::string_view::npos; at = path.find('$')) {
        const bool braced = path.substr(at + 1).starts_with('{');
        const std::size_t from = at + (braced ? 2 : 1);
        std::size_t end = from;
        while (end < path.size() && (std::isalnum(static_cast<unsigned char>(path[end])) != 0 || path[end] == '_'))
            ++end;
        const bool closed = !braced || path.substr(end).starts_with('}');
        const auto value = closed ? env.get(path.substr(from, end - from)) : std::nullopt;
        const std::size_t past = value ? end + (braced ? 1 : 0) : at + 1;
        text += value ? std::string(path.substr(0, at)) + *value : std::string(path.substr(0, past));
        path.remove_prefix(past);
    }
    return text + std::string(path);
}

std::string value_of(const Env& env, std::string_view name) { return expanded(env, env.get(name).value_or("")); }

fs::path home_of(const Env& env) {
    if (std::string home = value_of(env, "HF_HOME"); !home.empty()) return home;
    if (std::string cache = value_of(env, "XDG_CACHE_HOME"); !cache.empty()) return fs::path(cache) / "huggingface";
    return fs::path(env.get("HOME").value_or("")) / ".cache/huggingface";
}

Result<HfToken> checked(std::string_view raw, std::string source) {
    HfToken token{std::string(text::trim(raw)), std::move(source)};
    if (token.value.empty()) return HfToken{};
    register_secret(token.value);
    const bool clean = std::all_of(token.value.begin(), token.value.end(),
                                   [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; });
    if (clean) return token;
    return fail(ErrorKind::authentication,
                fmt::format("the token from {} contains a blank or a control character", token.source),
                "check it for a line break or a second line");
}

}  // namespace

bool env_is_true(const Env& env, std::string_view name) {
    const std::string value = text::to_lower(env.get(name).value_or(""));
    return value == "1" || value == "on" || value == "yes" || value == "true";
}

std::optional<std::chrono::milliseconds> env_seconds(const Env& env, std::string_view name) {
    const auto seconds = text::parse_double(env.get(name).value_or(""));
    constexpr double k_longest = 1e6;
    if (!seconds || *seconds <= 0 || *seconds > k_longest) return std::nullopt;
    return std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1000));
}

Result<HfToken> find_hf_token(const Env& env, const TokenOptions& options) {
    if (options.no_token) return HfToken{};
    if (options.token) {
        log::warning("other users can see --token in the process list; use HF_TOKEN or --token-file instead");
        return checked(*options.token, "--token");
    }
    if (options.token_file) {
        GDNCTL_TRY_ASSIGN(const std::string text, read_file(*options.token_file, {.limit = 1U << 16U}));
        auto token = checked(text, options.token_file->string());
        if (token && token->value.empty()) log::warning("{} is empty: no token is sent", options.token_file->string());
        return token;
    }
    if (env_is_true(env, "HF_HUB_DISABLE_IMPLICIT_TOKEN")) return HfToken{};
    if (!env.get("HF_OIDC_RESOURCE").value_or("").empty()) {
        log::warning("HF_OIDC_RESOURCE is not supported: the other sources of a token are used");
    }
    for (const std::string_view name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
        GDNCTL_TRY_ASSIGN(HfToken token, checked(env.get(name).value_or(""), fmt::format("${}", name)));
        if (!token.value.empty()) return token;
    }
    const std::string named = value_of(env, "HF_TOKEN_PATH");
    const fs::path file = named.empty() ? home_of(env) / "token" : fs::path(named);
    const auto text = read_file_if_exists(file, 1U << 16U);
    if (!text) return fail(ErrorKind::authentication, text.error().text(), text.error().hint);
    return checked(text->value_or(""), file.string());
}

Result<HfPlaces> find_hf_places(const Env& env, const std::optional<std::string>& endpoint) {
    HfPlaces places;
    places.endpoint = endpoint.value_or(env.get("HF_ENDPOINT").value_or(""));
    if (text::trim(places.endpoint).empty()) places.endpoint = "https://huggingface.co";
    places.endpoint = text::trim(places.endpoint);
    while (places.endpoint.ends_with('/')) places.endpoint.pop_back();
    const auto url = parse_url(places.endpoint);
    if (!url || !url->query.empty()) {
        return fail(ErrorKind::usage,
                    fmt::format("the endpoint '{}' is not the address of a Hub", shown(places.endpoint)),
                    "use the form https://HOST[/PREFIX] in --endpoint or HF_ENDPOINT");
    }
    places.home = home_of(env);
    for (const std::string_view name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
        if (places.cache.empty()) places.cache = value_of(env, name);
    }
    if (places.cache.empty()) places.cache = places.home / "hub";
    places.offline = env_is_true(env, "HF_HUB_OFFLINE") || env_is_true(env, "TRANSFORMERS_OFFLINE");
    return places;
}

}  // namespace gdnctl::hub
