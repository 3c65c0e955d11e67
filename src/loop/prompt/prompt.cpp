#include "loop/prompt/prompt.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::loop {

namespace {

constexpr std::string_view k_heading =
    "Session directives for this codex-loop run (must follow unless they conflict with tests/correctness):";

void replace_all(std::string& text, std::string_view what, std::string_view with) {
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
        text.replace(at, what.size(), with);
    }
}

// Also matches other cases and blanks: likely typos that would otherwise reach the agent.
bool is_placeholder_name(std::string_view name) {
    name = text::trim(name);
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
}

bool has_option(const std::vector<std::string>& words, std::string_view option, std::string_view value) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == fmt::format("{}={}", option, value)) return true;
        if (words[i] == option && i + 1 < words.size() && words[i + 1] == value) return true;
    }
    return false;
}

}  // namespace

std::string assemble_prompt(std::string_view prompt_template, const PromptFacts& facts,
                            std::span<const std::string> directives) {
    std::string prompt(prompt_template);
    replace_all(prompt, "{{ITERATION}}", std::to_string(facts.iteration));
    replace_all(prompt, "{{TOTAL_ITERATIONS}}", std::to_string(facts.total));
    replace_all(prompt, "{{HEAD_SHA}}", facts.head_sha);
    if (directives.empty()) return prompt;
    while (!prompt.empty() && text::trim(std::string_view(prompt).substr(prompt.size() - 1)).empty()) prompt.pop_back();
    prompt += fmt::format("\n\n{}\n\n", k_heading);
    for (std::size_t i = 0; i < directives.size(); ++i) {
        prompt += fmt::format("[Directive {}]\n{}\n", i + 1, directives[i]);
    }
    return prompt;
}

std::vector<std::string> unknown_placeholders(std::string_view prompt_template) {
    std::vector<std::string> found;
    for (auto at = prompt_template.find("{{"); at != std::string_view::npos; at = prompt_template.find("{{", at + 2)) {
        const auto end = prompt_template.find("}}", at);
        if (end == std::string_view::npos) break;
        const auto name = prompt_template.substr(at + 2, end - at - 2);
        if (!is_placeholder_name(name) || name == "ITERATION" || name == "TOTAL_ITERATIONS" || name == "HEAD_SHA")
            continue;
        std::string whole = fmt::format("{{{{{}}}}}", name);
        if (std::find(found.begin(), found.end(), whole) == found.end()) found.push_back(std::move(whole));
    }
    return found;
}

std::vector<std::string> trimmed_directives(std::span<const std::string> given) {
    std::vector<std::string> kept;
    for (const auto& one : given) {
        const auto trimmed = text::trim(one);
        if (!trimmed.empty()) kept.emplace_back(trimmed);
    }
    return kept;
}

std::string managed_tpu_directive(std::string_view self, std::string_view cluster, std::string_view name,
                                  std::string_view type) {
    const std::string_view tpu = type.empty() ? "v5p-8" : type;
    return fmt::format(
        "Managed dev TPU mode is active for this run.\n\n"
        "- Use only dev TPU commands for validation/profiling on `--cluster {1}` and `--tpu-name {2}`.\n"
        "- Prefer `{0} dev-tpu-test --cluster {1} --tpu-name {2} --tests both` and `{0} dev-tpu-profile --cluster {1} "
        "--tpu-name {2} --tpu {3} ...`.\n"
        "- Avoid `ray-test` and `ray-profile` while this session is active.",
        self, cluster, name, tpu);
}

std::string gates_directive(const GateFacts& facts) {
    std::string text = fmt::format(
        "The loop validates the commits of this run.\n\n"
        "- After you finish, it runs {} on what you committed, and on nothing else: commit everything that belongs to "
        "the change.\n",
        facts.tests ? "the target's tests and a profile" : "a profile");
    if (!facts.metric.empty()) {
        text += fmt::format("- It then compares `{}` ({} is better) with the champion's, in runs of both.\n",
                            facts.metric, facts.higher_is_better ? "higher" : "lower");
    }
    if (!facts.ce_implementation.empty()) {
        text +=
            fmt::format("- Profiles run with cross-entropy `{}`, backward `{}`: leave these settings as they are.\n",
                        facts.ce_implementation, facts.ce_bwd_mode);
    }
    return text +
           "- A commit that fails is removed from the branch and kept on a ref. An iteration without a code change "
           "gets no device time.";
}

std::vector<std::string> post_check_warnings(std::span<const std::string> post_checks, std::string_view cluster,
                                             std::string_view name) {
    const auto has = [](const std::string& text, std::string_view word) {
        return text.find(word) != std::string::npos;
    };
    std::vector<std::string> warnings;
    for (const auto& command : post_checks) {
        if (has(command, "ray-test") || has(command, "ray-profile")) {
            warnings.emplace_back(
                "WARNING: --hold-dev-tpu is active but --post-check contains a Ray TPU command. Prefer "
                "dev-tpu-test/dev-tpu-profile for this loop session.");
        }
        if (!has(command, "dev-tpu-test") && !has(command, "dev-tpu-profile")) continue;
        const auto words = text::shell_split(command);
        if (words && has_option(*words, "--cluster", cluster) && has_option(*words, "--tpu-name", name)) continue;
        warnings.push_back(fmt::format(
            "WARNING: --hold-dev-tpu is active but --post-check does not target --cluster {} --tpu-name {}.", cluster,
            name));
    }
    return warnings;
}

}  // namespace gdnctl::loop
