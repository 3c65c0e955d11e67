#include "loop/engine/loop_agent.h"

#include "core/log.h"
#include "core/text.h"
#include "platform/env.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

AgentLimits limits_of(const LoopOptions& options) {
    AgentLimits limits;
    limits.wall = std::chrono::seconds(options.codex_timeout_s);
    limits.idle = std::chrono::seconds(options.codex_idle_timeout_s);
    limits.idle_while_busy = std::chrono::seconds(options.codex_busy_timeout_s);
    limits.tokens = options.codex_max_tokens;
    limits.compactions = static_cast<int>(std::min<std::int64_t>(options.codex_max_compactions, 1'000'000));
    limits.requests = static_cast<int>(std::min<std::int64_t>(options.codex_max_requests, 1'000'000'000));
    return limits;
}

Status use_own_home(LoopAgent& made, const fs::path& home, bool dry) {
    const fs::path users = codex_home_of(made.environment);
    if (codex_login_needs_home(users)) {
        log::info("codex keeps its log-in in a keyring, so it uses {} and your own threads", users.string());
        return {};
    }
    if (dry) return {};
    GDNCTL_TRY(make_codex_home(home, users));
    made.codex_home = home;
    made.environment["CODEX_HOME"] = home.string();
    return {};
}

// Without the program nothing else matters, so it is looked for before its home is created.
Status make_codex(const LoopOptions& options, LoopAgent& made, const fs::path& own_home, bool dry, Context& context) {
    CodexWanted wanted;
    wanted.program = options.codex_bin;
    wanted.effort = options.reasoning_effort;
    const auto home = made.environment.find("HOME");
    if (home != made.environment.end()) wanted.home = home->second;
    wanted.environment = made.environment;
    const auto temporary = context.env.get("TMPDIR").value_or("");
    GDNCTL_TRY_ASSIGN(const TempFolder nowhere,
                      TempFolder::make(context.cwd / (temporary.empty() ? "/tmp" : temporary), "gdnctl-codex"));
    wanted.nowhere = nowhere.path();
    CodexSettings settings;
    GDNCTL_TRY_ASSIGN(settings.program, find_codex(wanted, context.process));
    log::write_as_it_is(log::Level::info, "using codex binary: " + settings.program.path.string());
    const auto efforts = codex_efforts(settings.program);
    log::write_as_it_is(log::Level::info, "supported model_reasoning_effort values: " +
                                              (efforts.empty() ? std::string("unknown") : text::join(efforts, ", ")));
    if (!options.codex_ephemeral) GDNCTL_TRY(use_own_home(made, own_home, dry));
    settings.model = options.model;
    settings.model_given = options.model_given;
    settings.strict_model = options.strict_preflight;
    settings.effort = options.reasoning_effort;
    settings.profile = options.codex_profile;
    settings.search = options.search;
    settings.ephemeral = options.codex_ephemeral;
    GDNCTL_TRY_ASSIGN(CodexChecked checked,
                      check_codex(std::move(settings), nowhere.path(), made.environment, context.process));
    for (const auto& warning : checked.warnings) log::warning("{}", warning);
    made.codex = checked.settings;
    made.agent = make_codex_agent(std::move(checked.settings), context.process, context.clock);
    return {};
}

}  // namespace

std::vector<std::string> LoopAgent::words(const AgentRequest& request) const {
    return codex ? codex_argv(*codex, request.worktree, request.files.last_message, request.resume_thread) : argv;
}

Result<LoopAgent> make_loop_agent(const LoopOptions& options, const std::string& loop_id, const fs::path& home,
                                  bool dry, Context& context) {
    LoopAgent made;
    made.limits = limits_of(options);
    GDNCTL_TRY_ASSIGN(made.environment, agent_environment(context.env, options.agent_env, loop_id));
    if (options.agent == AgentKind::command) {
        made.argv = {"bash", "-c", options.agent_command};
        made.agent = make_command_agent(made.argv, context.process, context.clock);
        return made;
    }
    const std::string key = codex_provider_variable(codex_home_of(made.environment), options.codex_profile);
    if (!key.empty() && !made.environment.contains(key)) {
        std::vector<std::string> also = options.agent_env;
        also.push_back(key);
        GDNCTL_TRY_ASSIGN(made.environment, agent_environment(context.env, also, loop_id));
    }
    GDNCTL_TRY(make_codex(options, made, home, dry, context));
    return made;
}

}  // namespace gdnctl::loop
