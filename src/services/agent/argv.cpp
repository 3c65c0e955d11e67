#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "services/agent/codex.h"

namespace gdnctl {

namespace {

// As JSON, which for these values is also valid TOML.
std::string setting(std::string_view key, std::string_view value) {
    return std::string(key) + "=" + to_text(Json(std::string(value)));
}

}  // namespace

std::vector<std::string> codex_argv(const CodexSettings& settings, const std::filesystem::path& worktree,
                                    const std::filesystem::path& message_file, std::string_view resume_thread) {
    std::vector<std::string> words = {settings.program.path.string(), "exec", "-C", worktree.string()};
    const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
    const bool resumes = !resume_thread.empty();
    // `resume` supports fewer options than `exec`, so they go before it.
    if (resumes && !settings.profile.empty()) add({"-p", settings.profile});
    if (resumes) add({"resume", std::string(resume_thread)});
    add({"--dangerously-bypass-approvals-and-sandbox"});
    if (settings.json) add({"--json"});
    if (!message_file.empty()) add({"-o", message_file.string()});
    if (!settings.model.empty()) add({"-m", settings.model});
    if (!settings.effort.empty()) add({"-c", setting("model_reasoning_effort", settings.effort)});
    if (!settings.program.search_flag) {
        add({"-c", setting("web_search", settings.search ? "live" : "disabled")});
    } else if (settings.search) {
        add({"--search"});
    }
    for (const auto& entry : settings.config) add({"-c", entry});
    if (!resumes && !settings.profile.empty()) add({"-p", settings.profile});
    const auto& features = settings.program.features;
    const std::string endless = "unbounded_connection_retries";
    if (std::find(features.begin(), features.end(), endless) != features.end()) add({"--disable", endless});
    if (!settings.output_schema.empty()) add({"--output-schema", settings.output_schema.string()});
    if (settings.ephemeral) add({"--ephemeral"});
    add({"-"});
    return words;
}

}  // namespace gdnctl
