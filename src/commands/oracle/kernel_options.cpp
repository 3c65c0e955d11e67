#include "commands/oracle/kernel_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "commands/common.h"
#include "core/json.h"
#include "core/text.h"
#include "harness/child/python_kernel.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::commands {

namespace {

constexpr int k_buffers = 3;  // what a cache may keep of a call's inputs is not found there by the next one
constexpr int k_chained = 8;

}  // namespace

void describe_limits(cli::Args& args, LimitOptions& options) {
    args.option(options.time_limit_s, "--time-limit SECONDS",
                "time limit for one call of a kernel (py: with its compilation), or one run of a cmd: kernel",
                {.group = "Limits", .default_text = "60; py: 300"});
    args.option(options.memory_limit_mib, "--memory-limit MIB",
                "memory that the kernel may use in addition to its tensors",
                {.group = "Limits", .default_text = "4096; py: none"});
    args.check([&options]() -> Status {
        constexpr double k_longest_s = 1e6;
        const double seconds = options.time_limit_s.value_or(1);
        if (!(seconds > 0 && seconds <= k_longest_s)) {
            return fail(ErrorKind::usage, "--time-limit: expected more than 0 and at most 1e6 seconds");
        }
        const std::int64_t mib = options.memory_limit_mib.value_or(1);
        if (mib < 1 || mib > (std::int64_t{1} << 30U)) {
            return fail(ErrorKind::usage, "--memory-limit: expected 1 MiB or more");
        }
        return {};
    });
}

harness::Limits limits_of(const LimitOptions& options) {
    harness::Limits limits;
    if (options.time_limit_s) {
        limits.wall = std::chrono::milliseconds(static_cast<std::int64_t>(*options.time_limit_s * 1000));
    }
    if (options.memory_limit_mib) limits.memory = static_cast<std::size_t>(*options.memory_limit_mib) << 20U;
    return limits;
}

void describe_python(cli::Args& args, PythonChoice& options) {
    args.option(options.command, "--python COMMAND", "interpreter for py: kernels, as words for a shell",
                {.group = "Python", .default_text = "the virtual environment's, .venv/bin/python or python3"});
    args.option(options.env, "--env NAME=VALUE", "variable for py: kernels, for example XLA_FLAGS",
                {.group = "Python"});
    args.flag(options.no_network, "--no-network", "block the network for py: kernels, too", {.group = "Python"});
    args.check([&options]() -> Status {
        for (const std::string& entry : options.env) {
            if (const auto at = entry.find('='); at == std::string::npos || at == 0) {
                return fail(ErrorKind::usage, fmt::format("--env {}: expected NAME=VALUE", entry));
            }
        }
        return {};
    });
}

void describe_chained(cli::Args& args, PythonChoice& options) {
    args.option(options.chained, "--chained N",
                "also time N JAX calls in one program, to measure the time on the device without dispatch; 1: do not",
                {.group = "Python", .default_text = fmt::format("{} on TPUs, else 1", k_chained)});
    args.check([&options]() -> Status {
        constexpr std::int64_t k_most = 1'000'000;
        const std::int64_t calls = options.chained.value_or(1);
        if (calls >= 1 && calls <= k_most) return {};
        return fail(ErrorKind::usage, fmt::format("--chained: expected 1 to {}", k_most));
    });
}

Result<harness::Limits> limits_of(const LimitOptions& options, const PythonChoice& python,
                                  const std::vector<std::string>& kernels, const Context& context) {
    harness::Limits limits = limits_of(options);
    const auto in_python = [](const std::string& kernel) { return kernel.starts_with("py:"); };
    if (std::none_of(kernels.begin(), kernels.end(), in_python)) {
        if (!python.command && python.env.empty() && !python.no_network && !python.chained) return limits;
        return fail(ErrorKind::usage, "--python, --env, --no-network and --chained are for py: kernels");
    }
    harness::PythonOptions chosen;
    if (python.command) {
        chosen.command = *python.command;
    } else {
        GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
        if (target.oracle) chosen.command = text::shell_join(target.oracle->python);
    }
    for (const std::string& entry : python.env) {
        const auto at = entry.find('=');
        chosen.env.emplace_back(entry.substr(0, at), entry.substr(at + 1));
    }
    chosen.no_network = python.no_network;
    if (options.time_limit_s) chosen.wall = limits.wall;
    if (options.memory_limit_mib) chosen.memory = limits.memory;
    if (python.timed) {
        chosen.buffers = k_buffers;
        chosen.chained = static_cast<int>(python.chained.value_or(k_chained));
        chosen.chained_anywhere = python.chained.has_value();
    }
    limits.python = std::make_shared<harness::PythonHost>(std::move(chosen), context);
    return limits;
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
        "py:ADAPTER[:FUNCTION] (Python function), "
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
