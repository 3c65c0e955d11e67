#include "commands/oracle/hidden.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gdnctl::commands {

namespace {

constexpr const char* k_seed = "GDNCTL_EVAL_SEED";
constexpr const char* k_shapes = "GDNCTL_EVAL_SHAPES";
constexpr const char* k_nonce = "GDNCTL_EVAL_NONCE";

// Also overwrites the memory, not only the inherited variable: /proc/PID/environ shows the memory that the process was
// started with.
void forget(const char* name) {
    if (char* value = std::getenv(name); value != nullptr) std::memset(value, 'x', std::strlen(value));
    ::unsetenv(name);
}

}  // namespace

Result<Hidden> take_hidden(const Env& env) {
    Hidden hidden;
    const std::string seed = env.get(k_seed).value_or(""), shapes = env.get(k_shapes).value_or("");
    hidden.nonce = env.get(k_nonce).value_or("");
    for (const char* name : {k_seed, k_shapes, k_nonce}) forget(name);
    if (!seed.empty()) {
        std::uint64_t number = 0;
        const auto [end, problem] = std::from_chars(seed.data(), seed.data() + seed.size(), number);
        if (problem != std::errc{} || end != seed.data() + seed.size()) {
            return fail(ErrorKind::usage, fmt::format("{}: expected a whole number, 0 or more", k_seed));
        }
        hidden.seed = number;
    }
    if (!shapes.empty() && shapes != "seen" && shapes != "unseen") {
        return fail(ErrorKind::usage, fmt::format("{}: expected seen or unseen", k_shapes));
    }
    hidden.unseen = shapes == "unseen";
    return hidden;
}

void add_hidden(Json& report, const Hidden& hidden) {
    if (!hidden.nonce.empty()) report["nonce"] = hidden.nonce;
    if (hidden.unseen) report["shapes"] = "unseen";
}

std::string hidden_text(const Hidden& hidden) { return hidden.unseen ? "shapes: unseen\n" : ""; }

std::int64_t unseen_size(std::int64_t size, std::uint64_t seed) {
    if (size < 16) return size + 1 + static_cast<std::int64_t>(seed % 3);
    const std::int64_t part = size / 8;
    return size - part - static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(part));
}

}  // namespace gdnctl::commands
