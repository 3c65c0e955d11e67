#include "core/redact.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>

#include "core/text.h"

namespace gdnctl {

namespace {

constexpr std::size_t k_shortest_secret = 6;
constexpr std::size_t k_shown_characters = 4;
constexpr std::string_view k_mask = "***";

struct Registry {
    std::mutex mutex;
    std::vector<std::string> values;
};

Registry& registry() {
    static Registry instance;
    return instance;
}

std::string masked(std::string_view secret) {
    // Four characters of a short secret would be most of it.
    const std::size_t shown = secret.size() >= 4 * k_shown_characters ? k_shown_characters : 0;
    return std::string(secret.substr(0, shown)) + std::string(k_mask);
}

std::string mask_registered(std::string text) {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    for (const std::string& value : known.values) {
        for (std::size_t at = text.find(value); at != std::string::npos; at = text.find(value, at)) {
            const std::string mask = masked(value);
            text.replace(at, value.size(), mask);
            at += mask.size();
        }
    }
    return text;
}

}  // namespace

void register_secret(std::string_view value) {
    if (value.size() < k_shortest_secret) return;
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    if (std::find(known.values.begin(), known.values.end(), value) != known.values.end()) return;
    known.values.emplace_back(value);
    // Longest first, so that a secret that contains another is masked whole.
    std::sort(known.values.begin(), known.values.end(),
              [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string redact(std::string_view text) {
    const std::string once = mask_registered(std::string(text));
    const std::vector<SecretShape> shapes = find_secret_shapes(once);
    if (shapes.empty()) return once;
    std::string safe;
    std::size_t copied = 0;
    for (const SecretShape& shape : shapes) {
        safe.append(once, copied, shape.offset - copied);
        safe += masked(std::string_view(once).substr(shape.offset, shape.length));
        copied = shape.offset + shape.length;
    }
    safe.append(once, copied);
    return safe;
}

// Finds strings that look like credentials in one pass: wherever a shape may begin, its own reader returns its length.
// These are heuristics; register_secret() covers what they miss where the value is known.

namespace {

constexpr bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
constexpr bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
constexpr bool is_token(char c) { return is_alnum(c) || c == '_' || c == '-'; }
constexpr bool is_upper_alnum(char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
constexpr bool is_word_token(char c) { return is_alnum(c) || c == '_'; }
constexpr bool is_bearer(char c) { return is_token(c) || c == '.' || c == '~' || c == '+' || c == '/' || c == '='; }
constexpr bool is_query_value(char c) { return is_bearer(c) || c == '%'; }

// A prefix that only tokens have, and the characters that follow it.
struct TokenShape {
    std::string_view prefix;
    bool (*accepts)(char);
    std::size_t shortest_rest;
    std::string_view kind;
};

constexpr std::array k_tokens = {
    TokenShape{"hf_", is_alnum, 16, "Hugging Face token"},
    TokenShape{"github_pat_", is_word_token, 20, "GitHub token"},
    TokenShape{"ghp_", is_alnum, 20, "GitHub token"},
    TokenShape{"gho_", is_alnum, 20, "GitHub token"},
    TokenShape{"ghu_", is_alnum, 20, "GitHub token"},
    TokenShape{"ghs_", is_alnum, 20, "GitHub token"},
    TokenShape{"ghr_", is_alnum, 20, "GitHub token"},
    TokenShape{"sk-", is_token, 20, "API key"},
    TokenShape{"AKIA", is_upper_alnum, 16, "AWS access key"},
    TokenShape{"ya29.", is_token, 16, "Google access token"},
};

constexpr std::size_t k_longest_word = 19;

// Whether a value is not an English word: it has a digit or is longer than words are. ("a Bearer authentication header"
// contains no secret.)
bool is_no_word(std::string_view value) {
    return value.size() > k_longest_word ||
           std::any_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// A name, a separator, then the secret. Only the value is the secret.
struct NamedShape {
    std::string_view name;
    bool (*accepts)(char);
    std::size_t shortest;
    std::string_view kind;
    bool in_prose = false;  // the name occurs in prose too, so the value must not be an English word
};

constexpr std::array k_named = {
    NamedShape{"WANDB_API_KEY", is_hex, 40, "Weights & Biases key"},
    NamedShape{"HF_TOKEN", is_token, 16, "Hugging Face token"},
    NamedShape{"RAY_AUTH_TOKEN", is_token, 16, "Ray token"},
    NamedShape{"OPENAI_API_KEY", is_token, 16, "API key"},
    NamedShape{"Bearer", is_bearer, 8, "bearer token", true},
    NamedShape{"bearer", is_bearer, 8, "bearer token", true},
};

constexpr std::array k_query_names = {
    std::string_view("X-Amz-Signature"),
    std::string_view("X-Amz-Credential"),
    std::string_view("X-Amz-Security-Token"),
    std::string_view("X-Goog-Signature"),
    std::string_view("X-Goog-Credential"),
    std::string_view("Signature"),
    std::string_view("Key-Pair-Id"),
    std::string_view("sig"),
    std::string_view("access_token"),
    std::string_view("token"),
    std::string_view("api_key"),
};

std::size_t run_length(std::string_view text, std::size_t from, bool (*accepts)(char)) {
    std::size_t end = from;
    while (end < text.size() && accepts(text[end])) ++end;
    return end - from;
}

std::optional<SecretShape> token_at(std::string_view text, std::size_t at) {
    for (const TokenShape& shape : k_tokens) {
        if (text.compare(at, shape.prefix.size(), shape.prefix) != 0) continue;
        const std::size_t rest = run_length(text, at + shape.prefix.size(), shape.accepts);
        if (rest >= shape.shortest_rest) return SecretShape{at, shape.prefix.size() + rest, shape.kind};
    }
    return std::nullopt;
}

std::optional<SecretShape> named_at(std::string_view text, std::size_t at) {
    for (const NamedShape& shape : k_named) {
        if (text.compare(at, shape.name.size(), shape.name) != 0) continue;
        std::size_t value = at + shape.name.size();
        const std::size_t separator_begin = value;
        while (value < text.size() && std::string_view("=: \t\"'`").find(text[value]) != std::string_view::npos)
            ++value;
        if (value == separator_begin || value - separator_begin > 4) continue;
        const std::size_t length = run_length(text, value, shape.accepts);
        if (length < shape.shortest || (shape.in_prose && !is_no_word(text.substr(value, length)))) continue;
        return SecretShape{value, length, shape.kind};
    }
    return std::nullopt;
}

// `at` points to a '?' or '&'. Finds the value of a signing parameter.
std::optional<SecretShape> query_at(std::string_view text, std::size_t at) {
    for (std::string_view name : k_query_names) {
        const std::size_t equals = at + 1 + name.size();
        if (text.compare(at + 1, name.size(), name) != 0 || equals >= text.size() || text[equals] != '=') continue;
        const std::size_t length = run_length(text, equals + 1, is_query_value);
        if (length >= 8) return SecretShape{equals + 1, length, "signed URL"};
    }
    return std::nullopt;
}

// `at` points to the ':' of "://". Finds the user information before the '@' of the authority.
std::optional<SecretShape> userinfo_at(std::string_view text, std::size_t at) {
    if (text.compare(at, 3, "://") != 0) return std::nullopt;
    const std::size_t begin = at + 3;
    const std::size_t end = text.find_first_of("@/?# \t\r\n\"'`<>", begin);
    if (end == std::string_view::npos || text[end] != '@' || end == begin) return std::nullopt;
    return SecretShape{begin, end - begin, "credentials in a URL"};
}

std::optional<SecretShape> pem_at(std::string_view text, std::size_t at) {
    constexpr std::string_view k_begin = "-----BEGIN ";
    constexpr std::string_view k_label = "PRIVATE KEY-----";
    if (text.compare(at, k_begin.size(), k_begin) != 0) return std::nullopt;
    const std::size_t label = text.substr(0, std::min(text.size(), at + 64)).find(k_label, at);
    if (label == std::string_view::npos) return std::nullopt;
    const std::size_t last = text.find("-----END ", label);
    const std::size_t dashes = last == std::string_view::npos ? last : text.find("-----", last + 9);
    const std::size_t end = dashes == std::string_view::npos ? text.size() : dashes + 5;
    return SecretShape{at, end - at, "private key"};
}

constexpr std::array<bool, 256> k_starts = [] {
    std::array<bool, 256> starts{};
    for (const TokenShape& shape : k_tokens) starts[static_cast<unsigned char>(shape.prefix[0])] = true;
    for (const NamedShape& shape : k_named) starts[static_cast<unsigned char>(shape.name[0])] = true;
    for (char c : std::string_view("?&:-")) starts[static_cast<unsigned char>(c)] = true;
    return starts;
}();

std::optional<SecretShape> shape_at(std::string_view text, std::size_t at) {
    switch (text[at]) {
        case '?':
        case '&': return query_at(text, at);
        case ':': return userinfo_at(text, at);
        case '-': return pem_at(text, at);
        default: break;
    }
    const bool inside_word = at > 0 && is_word_token(text[at - 1]);
    if (inside_word) return std::nullopt;
    if (auto token = token_at(text, at)) return token;
    return named_at(text, at);
}

}  // namespace

bool names_a_secret(std::string_view name) {
    constexpr std::string_view k_words[] = {"token", "key", "secret", "passw", "credential", "auth"};
    const std::string lower = text::to_lower(name);
    return std::any_of(std::begin(k_words), std::end(k_words),
                       [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

std::vector<SecretShape> find_secret_shapes(std::string_view text) {
    std::vector<SecretShape> found;
    for (std::size_t at = 0; at < text.size();) {
        if (k_starts[static_cast<unsigned char>(text[at])]) {
            if (auto shape = shape_at(text, at)) {
                at = shape->offset + shape->length;
                found.push_back(*shape);
                continue;
            }
        }
        ++at;
    }
    return found;
}

}  // namespace gdnctl
