#include "loop/evolve/synthetic.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "loop/evolve/selection.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "services/git/git.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view k_speed = "int speed = ";

// 0: the kernel has no such line.
std::int64_t speed_of(std::string_view kernel) {
    const auto at = kernel.find(k_speed);
    if (at == std::string_view::npos) return 0;
    const auto digits = kernel.substr(at + k_speed.size());
    return text::parse_int(digits.substr(0, digits.find(';'))).value_or(0);
}

std::string kernel_of(std::int64_t speed, std::string_view remark) {
    return fmt::format("/* {} */\n{}{};\n", remark, k_speed, speed);
}

// N of "# Attempt N of ...".
std::int64_t attempt_in(std::string_view prompt) {
    constexpr std::string_view k_title = "# Attempt ";
    if (!prompt.starts_with(k_title)) return 0;
    const auto rest = prompt.substr(k_title.size());
    return text::parse_int(rest.substr(0, rest.find(' '))).value_or(0);
}

}  // namespace

Status make_synthetic_repository(const fs::path& folder, Process& process) {
    GDNCTL_TRY(make_private_directory(folder / "tests"));
    GDNCTL_TRY(atomic_replace(folder / "kernel.c", kernel_of(10'000, "base")));
    GDNCTL_TRY(atomic_replace(folder / "tests" / "cases.txt", "cases\n"));
    GDNCTL_TRY(atomic_replace(folder / "gdnctl.toml", "# of a dry run\n"));
    const std::array<std::vector<std::string>, 3> calls = {
        {{"init", "-q", "-b", "main", "."},
         {"add", "-A"},
         {"-c", "user.name=gdnctl", "-c", "user.email=gdnctl@localhost", "commit", "-q", "-m", "base"}}};
    for (const auto& words : calls) {
        ProcessSpec spec;
        spec.argv = git_command(words);
        spec.cwd = folder;
        spec.env = git_environment();
        GDNCTL_TRY_ASSIGN(const ProcessResult result, process.run(spec));
        if (!result.ok()) {
            return fail(ErrorKind::config,
                        fmt::format("{}: {}", "git " + text::shell_join(words), text::trim(result.err)));
        }
    }
    return {};
}

Target synthetic_target() {
    Target target;
    target.name = "dry-run";
    target.kernel = {"kernel.c"};
    target.protected_paths = {"tests/**"};
    target.metric = TargetMetric{"step_ms", "ms", true, "json:/step_ms"};
    return target;
}

Result<AgentOutcome> ScriptedAgent::run(const AgentRequest& request) {
    AgentOutcome out;
    out.kind = AgentClass::ok;
    out.action = AgentAction::proceed;
    out.model = "scripted";
    out.tokens = AgentTokens{1000, 0, 100, 0};
    out.final_message = "{\"technique\": \"scripted\"}\ndone\n";
    const std::int64_t attempt = attempt_in(request.prompt);
    const double what = draw(m_seed, attempt, "script", 0), how_much = draw(m_seed, attempt, "script", 1);
    const fs::path kernel = request.worktree / "kernel.c";
    GDNCTL_TRY_ASSIGN(const std::string now, read_file(kernel));
    const auto speed = static_cast<double>(std::max<std::int64_t>(speed_of(now), 1));
    const auto set = [&](double factor) {
        constexpr double k_most = 1e15;  // of thousands of gains
        const auto to = static_cast<std::int64_t>(std::min(speed * factor, k_most));
        return atomic_replace(kernel, kernel_of(to, fmt::format("attempt {}", attempt)));
    };
    if (what < .10) {
        out.final_message = "<NO_VALID_EDIT/>\n";
    } else if (what < .20) {
        // It does nothing.
    } else if (what < .30) {
        GDNCTL_TRY(atomic_replace(kernel, fmt::format("/* attempt {} does not build */\n", attempt)));
    } else if (what < .35) {
        GDNCTL_TRY(atomic_replace(request.worktree / "tests" / "cases.txt", "fewer\n"));
    } else if (what < .50) {
        GDNCTL_TRY(set(.95));
    } else if (what < .60) {
        GDNCTL_TRY(set(1.0));
    } else {
        GDNCTL_TRY(set(1.01 + .04 * how_much));
    }
    if (!request.files.events.empty()) GDNCTL_TRY(atomic_replace(request.files.events, out.final_message, 0600));
    return out;
}

Result<std::int64_t> SyntheticScorer::speed(const std::string& commit) {
    constexpr std::size_t k_most = 64;
    if (const auto known = m_speeds.find(commit); known != m_speeds.end()) return known->second;
    const std::vector<std::string> names = {commit + ":kernel.c"};
    GDNCTL_TRY_ASSIGN(const auto text, m_repository.objects(names));
    if (m_speeds.size() >= k_most) m_speeds.clear();
    return m_speeds[commit] = speed_of(text.front().value_or(""));
}

Result<Launch> SyntheticScorer::launch(LaunchKind kind, const std::string& commit, const fs::path& log) {
    GDNCTL_TRY_ASSIGN(const std::int64_t speed, this->speed(commit));
    Launch out;
    out.device = "synthetic";
    out.ok = speed > 0;
    if (!out.ok) {
        out.reason = "the kernel does not build";
    } else if (kind == LaunchKind::profile) {
        const double noise = 0.001 * (draw(m_seed, m_launches++, "noise", 0) - .5);
        out.value = 1e6 / static_cast<double>(speed) * (1.0 + noise);
        out.device_s = out.value / 1e3;
    }
    GDNCTL_TRY_ASSIGN(const auto before, read_file_if_exists(log));
    return atomic_replace(log, before.value_or("") + fmt::format("{} {}\n", commit.substr(0, 12), out.value), 0600)
        .map([&] { return out; });
}

}  // namespace gdnctl::loop::evolve
