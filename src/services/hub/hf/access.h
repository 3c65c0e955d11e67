// The address of the Hub and the token for it, from the same environment variables as the official client.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "platform/env.h"

namespace gdnctl::hub {

struct TokenOptions {
    std::optional<std::string> token;
    std::optional<std::filesystem::path> token_file;
    bool no_token = false;
};

struct HfToken {
    std::string value;   // empty: none; registered as a secret
    std::string source;  // "$HF_TOKEN", a file's path
};

// Looks at --token or --token-file, HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file of HF_TOKEN_PATH. Errors: authentication
// (it contains control characters or blanks; names its source), usage (no such --token-file).
Result<HfToken> find_hf_token(const Env& env, const TokenOptions& options);

struct HfPlaces {
    std::string endpoint;         // without a trailing slash
    std::filesystem::path home;   // HF_HOME
    std::filesystem::path cache;  // HF_HUB_CACHE
    bool offline = false;
};
// Errors: usage (invalid URL).
Result<HfPlaces> find_hf_places(const Env& env, const std::optional<std::string>& endpoint);

// 1, ON, YES, TRUE in any case.
bool env_is_true(const Env& env, std::string_view name);
// A positive number of seconds; nullopt: not set, or not such a number.
std::optional<std::chrono::milliseconds> env_seconds(const Env& env, std::string_view name);

}  // namespace gdnctl::hub
