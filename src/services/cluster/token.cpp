// Finds the token for a dashboard.
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/cluster/cluster.h"
#include "services/cluster/gcloud.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_token_limit = std::size_t{64} << 10;
constexpr std::string_view k_ways =
    "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, write it to ~/.ray/auth_token, or `make get_ray_auth_token` in a Marin "
    "checkout";

// Trims what Ray itself trims.
std::string trimmed(std::string_view text) {
    constexpr std::string_view k_blank = " \t\n\r\f\v";
    const std::size_t first = text.find_first_not_of(k_blank);
    if (first == std::string_view::npos) return {};
    return std::string(text.substr(first, text.find_last_not_of(k_blank) - first + 1));
}

// A token must fit into a header: one line of plain characters.
Status check_token(const std::string& token, const std::string& origin) {
    for (const char c : token) {
        if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
            return fail(ErrorKind::authentication,
                        "the token of " + origin + " contains characters that are not valid in a token",
                        std::string(k_ways));
        }
    }
    return {};
}

Result<RayToken> accept(RayToken found, std::string value, std::string origin) {
    GDNCTL_TRY(check_token(value, origin));
    register_secret(value);
    found.value = std::move(value);
    found.looked.push_back(origin + ": found");
    found.origin = std::move(origin);
    return found;
}

Result<std::string> read_named_file(const fs::path& path) {
    auto bytes = read_file(path, {k_token_limit, ErrorKind::authentication});
    if (!bytes) {
        return fail(ErrorKind::authentication, "RAY_AUTH_TOKEN_PATH: " + bytes.error().text(), std::string(k_ways));
    }
    std::string token = trimmed(*bytes);
    if (token.empty()) {
        return fail(ErrorKind::authentication, "RAY_AUTH_TOKEN_PATH: " + path.string() + " is empty",
                    std::string(k_ways));
    }
    return token;
}

// Readable only by the user, from the moment it is created.
Status save(const fs::path& path, const std::string& token) {
    std::error_code problem;
    if (!fs::exists(path.parent_path(), problem)) GDNCTL_TRY(make_private_directory(path.parent_path()));
    if (fs::exists(path, problem)) {
        fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, problem);
    }
    return atomic_replace(path, token + "\n", 0600);
}

}  // namespace

Result<RayToken> find_ray_token(const Env& env, const ClusterFile* cluster, const GcloudAccess& gcloud) {
    RayToken found;
    if (std::string token = trimmed(env.get("RAY_AUTH_TOKEN").value_or("")); !token.empty()) {
        return accept(std::move(found), std::move(token), "environment RAY_AUTH_TOKEN");
    }
    found.looked.emplace_back("RAY_AUTH_TOKEN: not set");
    if (const std::string named = env.get("RAY_AUTH_TOKEN_PATH").value_or(""); !named.empty()) {
        GDNCTL_TRY_ASSIGN(std::string token, read_named_file(named));
        return accept(std::move(found), std::move(token), "file " + named + " (RAY_AUTH_TOKEN_PATH)");
    }
    found.looked.emplace_back("RAY_AUTH_TOKEN_PATH: not set");

    const std::string home = env.get("HOME").value_or("");
    const fs::path usual = fs::path(home) / ".ray" / "auth_token";
    if (!home.empty()) {
        const auto bytes = read_file_if_exists(usual, k_token_limit);
        if (!bytes) return fail(ErrorKind::authentication, bytes.error().text(), std::string(k_ways));
        std::string token = trimmed(bytes->value_or(""));
        if (!token.empty()) return accept(std::move(found), std::move(token), "file " + usual.string());
        found.looked.push_back(usual.string() + (*bytes ? ": empty" : ": not found"));
    }

    if (cluster == nullptr || cluster->project.empty()) return found;
    const std::string place = "secret RAY_AUTH_TOKEN of project " + cluster->project;
    auto secret = cluster::run_gcloud(
        gcloud, {"secrets", "versions", "access", "latest", "--secret=RAY_AUTH_TOKEN", "--project=" + cluster->project},
        "get the " + place);
    if (!secret && secret.error().kind == ErrorKind::remote_missing) {
        found.looked.push_back(place + ": not found");
        return found;
    }
    if (!secret) return tl::unexpected(std::move(secret).error());
    std::string token = trimmed(*secret);
    if (token.empty()) {
        return fail(ErrorKind::authentication, "Secret RAY_AUTH_TOKEN returned empty token", std::string(k_ways));
    }
    GDNCTL_TRY_ASSIGN(found, accept(std::move(found), std::move(token), place));
    if (home.empty()) return found;
    if (const Status saved = save(usual, found.value); !saved) {
        log::warning("the token could not be saved: {}", saved.error().text());
    } else {
        log::info("saved the cluster's token in {}", usual.string());
    }
    return found;
}

std::string token_hint(const RayToken& token, bool withheld) {
    if (withheld) {
        return fmt::format(
            "there is a token ({}), but it is not sent in clear text to another machine: use https or a "
            "tunnel, or allow it with --allow-plaintext-token",
            token.origin);
    }
    if (!token.value.empty()) return fmt::format("the token is that of {}; {}", token.origin, k_ways);
    return fmt::format("no token found ({}); {}", text::join(token.looked, ", "), k_ways);
}

}  // namespace gdnctl
