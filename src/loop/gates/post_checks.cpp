#include "loop/gates/post_checks.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "core/log.h"
#include "core/log_timed.h"
#include "core/redact.h"
#include "core/text.h"
#include "loop/engine/messages.h"
#include "loop/measure/first_case.h"
#include "platform/env.h"
#include "platform/signals.h"

namespace gdnctl::loop {

namespace {

constexpr std::size_t k_tail = std::size_t{64} << 10;
// Output lines of a check that are shown immediately. A failing check also shows its first failing case.
constexpr std::size_t k_shown_lines = 20;

// A login shell resets PATH; the caller's PATH is appended to it, then the folder of this program.
constexpr const char* k_more_path = "GDNCTL_CALLERS_PATH";

std::string callers_path(const std::filesystem::path& program) {
    std::string path = process_env().get("PATH").value_or("");
    const std::string own = program.parent_path().string();
    // An empty part of PATH would mean the command's working directory, which is the agent's tree.
    if (!path.empty() && !own.empty()) path += ':';
    return path + own;
}

class PostCheckStage final : public Stage {
public:
    PostCheckStage(PostChecks checks, Process& process, Clock& clock)
        : m_checks(std::move(checks)), m_process(process), m_clock(clock) {}

    std::string_view name() const override { return m_checks.name; }
    Policy policy() const override { return m_checks.policy; }
    bool wants(DiffClass diff) const override {
        return !m_checks.commands.empty() && (!m_checks.only_changes || diff == DiffClass::change);
    }

    Result<StageResult> run(const StageContext& context) override {
        StageResult result;
        for (std::size_t i = 0; i < m_checks.commands.size(); ++i) {
            GDNCTL_TRY_ASSIGN(result, run_command(i, context));
            if (result.verdict == StageVerdict::fail) {
                const bool post_check = m_checks.name == "post-check";
                const std::string on = message::going_on(m_checks.policy);
                if (post_check) {
                    log::write_as_it_is(log::Level::error, std::string(message::k_post_check_failed) + on);
                } else {
                    log::error("A command of the target's `validate` failed.{}", on);
                }
                return result;
            }
        }
        return result;
    }

private:
    Result<StageResult> run_command(std::size_t index, const StageContext& context) {
        const std::string& command = m_checks.commands[index];
        const auto attempts = static_cast<int>(m_checks.retries) + 1;
        StageResult result;
        for (int attempt = 1;; ++attempt) {
            GDNCTL_TRY_ASSIGN(result, try_command(index, context));
            if (result.verdict != StageVerdict::fail || attempt >= attempts) return result;
            log::write_as_it_is(log::Level::warning, message::post_check_retry(attempt, attempts, command));
            if (!m_clock.sleep_for(std::chrono::seconds(m_checks.retry_sleep_s), context.stop)) {
                return tl::unexpected(stopped_error());
            }
        }
    }

    Result<StageResult> try_command(std::size_t index, const StageContext& context) {
        ProcessSpec spec;
        const std::string& command = m_checks.commands[index];
        spec.argv = {"bash", "-lc", fmt::format("PATH=$PATH:${}; {}", k_more_path, command)};
        spec.cwd = context.tree / m_checks.subfolder;
        if (m_checks.private_tree) {
            for (const std::string_view name : active_python_variables()) spec.env[std::string(name)] = std::nullopt;
        }
        for (const auto& [name, value] : m_checks.environment) spec.env[name] = value;
        spec.env[k_more_path] = callers_path(m_checks.program);
        spec.merge_stderr = true;
        spec.takes_strays = true;
        spec.stop = context.stop;
        if (m_checks.timeout_s > 0) spec.wall_limit = std::chrono::seconds(m_checks.timeout_s);
        const auto output =
            context.artefacts.unused(context.iteration, fmt::format("{}-{}", m_checks.name, index + 1), ".log");
        std::ofstream file(output);
        std::string tail;
        std::size_t lines = 0;
        spec.on_stdout_line = [&](std::string_view line) {
            (file << redact(line) << '\n').flush();  // people follow this file
            if (++lines <= k_shown_lines && m_checks.show) m_checks.show(line);
            if (lines == k_shown_lines + 1) log::info("more output of this check: {}", output.string());
            tail.append(line).append("\n");
            if (tail.size() > 2 * k_tail) tail.erase(0, tail.size() - k_tail);
        };
        log::write_as_it_is(log::Level::info, fmt::format("$ bash -lc {}", text::shell_quote(command)));
        GDNCTL_TRY_ASSIGN(const ProcessResult ended, m_process.run(spec));
        if (ended.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
        StageResult result;
        result.facts["command"] = m_checks.commands[index];
        result.facts["log"] = output.filename().string();
        if (ended.ok()) return result;
        constexpr int k_by_signal = 128;
        result.verdict = StageVerdict::fail;
        result.exit_status = ended.exit_code < 0 ? k_by_signal - ended.exit_code : ended.exit_code;
        result.reason = fmt::format("{} {}", command, describe_end(ended, spec));
        if (ended.end == ProcessResult::End::wall_limit) {
            result.exit_status = static_cast<int>(ExitCode::timeout);
            result.outcome = Outcome::timeout;
            result.sign = command;
            return result;
        }
        log::warning("{}", failing_case_text(result.reason, first_failing_case(tail), output.string()));
        const auto failure = failure_of(tail, Place::anywhere);
        result.outcome = failure ? failure->outcome : Outcome::test_fail;
        result.sign = failure ? failure->sign : command;
        return result;
    }

    PostChecks m_checks;
    Process& m_process;
    Clock& m_clock;
};

}  // namespace

std::unique_ptr<Stage> make_post_checks(PostChecks checks, Process& process, Clock& clock) {
    return std::make_unique<PostCheckStage>(std::move(checks), process, clock);
}

}  // namespace gdnctl::loop
