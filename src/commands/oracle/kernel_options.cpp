#include "commands/oracle/kernel_options.h"

#include <fmt/format.h>

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

}  // namespace gdnctl::commands
