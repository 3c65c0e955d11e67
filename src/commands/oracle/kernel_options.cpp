#include "commands/oracle/kernel_options.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::commands {

void describe_limits(cli::Args& args, LimitOptions& options) {
    args.option(options.time_limit_s,
                {.names = "--time-limit",
                 .value = "SECONDS",
                 .help = "time limit for one call of a lib: or src: kernel, or one run of a cmd: kernel",
                 .group = "Limits"});
    args.option(options.memory_limit_mib, {.names = "--memory-limit",
                                           .value = "MIB",
                                           .help = "memory that the kernel may use in addition to its tensors",
                                           .group = "Limits"});
    args.check([&options]() -> Status {
        constexpr double k_longest_s = 1e6;
        if (!(options.time_limit_s > 0 && options.time_limit_s <= k_longest_s)) {
            return fail(ErrorKind::usage, "--time-limit: expected more than 0 and at most 1e6 seconds");
        }
        if (options.memory_limit_mib < 1 || options.memory_limit_mib > (std::int64_t{1} << 30U)) {
            return fail(ErrorKind::usage, "--memory-limit: expected 1 MiB or more");
        }
        return {};
    });
}

harness::Limits limits_of(const LimitOptions& options) {
    return {std::chrono::milliseconds(static_cast<std::int64_t>(options.time_limit_s * 1000)),
            static_cast<std::size_t>(options.memory_limit_mib) << 20U};
}

Status check_seed(const std::optional<std::string>& given) {
    if (!given || *given == "random") return {};
    const auto number = text::parse_int(*given);
    if (number && *number >= 0) return {};
    return fail(ErrorKind::usage, fmt::format("--seed {}: expected a non-negative integer or `random`", *given));
}

std::optional<std::uint64_t> seed_of(const std::optional<std::string>& given) {
    if (!given) return std::nullopt;
    constexpr unsigned k_unused = 11;  // printed numbers must be exact in any JSON reader
    if (*given == "random") return harness::secret_seed() >> k_unused;
    return static_cast<std::uint64_t>(text::parse_int(*given).value_or(0));
}

const std::string& kernel_help() {
    static const std::string k_help =
        "kernel under test: lib:PATH (shared object), src:FILE.c (compiled first), cmd:COMMAND (program over files), "
        "builtin:" +
        text::join(oracle::builtin_kernel_names(), ", builtin:");
    return k_help;
}

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
