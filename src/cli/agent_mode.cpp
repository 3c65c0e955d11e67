#include "cli/agent_mode.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"

namespace gdnctl::cli {

namespace {

// Options that choose a format, follow what happens, or run the command as a job.
constexpr std::array<std::string_view, 10> k_choosing = {"--json",     "--format",  "--html",           "--digest",
                                                         "--watch",    "--cluster", "--cluster-config", "--ray-address",
                                                         "--iris-url", "--tpu-name"};

// Up to `limit` bytes from the start of `text`, or from its end, in whole lines.
std::string_view first_lines(std::string_view text, std::size_t limit) {
    const auto newline = text.substr(0, limit).rfind('\n');
    return newline == std::string_view::npos ? std::string_view() : text.substr(0, newline + 1);
}

std::string_view last_lines(std::string_view text, std::size_t limit) {
    const auto newline = text.find('\n', text.size() - std::min(limit, text.size()));
    return newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
}

// At most `limit` bytes. The start says what it is about, and the end has the verdict.
std::string shortened(std::string_view text, std::size_t limit) {
    if (text.size() <= limit) return std::string(text);
    constexpr std::size_t k_note = 100;
    const std::string_view start = first_lines(text, (limit - k_note) * 2 / 3);
    const std::string_view end = last_lines(text, limit - k_note - start.size());
    const std::string_view middle = text.substr(start.size(), text.size() - start.size() - end.size());
    return fmt::format("{}... {} lines are left out; --json prints everything ...\n{}", start,
                       std::count(middle.begin(), middle.end(), '\n'), end);
}

// A fence that is longer than any in the text.
std::string fence_for(std::string_view text) {
    std::string fence = "```";
    while (text.find(fence) != std::string_view::npos) fence += '`';
    return fence;
}

}  // namespace

std::string_view agent_mode(const AgentCase& it, const Variables& variables) {
    if (!it.report || it.out_is_tty || it.chosen) return {};
    const auto is_set = [&](std::string_view name) { return !variables(name).value_or("").empty(); };
    const std::string wish = variables("GDNCTL_AGENT").value_or("");
    // What a job prints is its log, which gdnctl reads.
    if (wish == "0" || is_set("GDNCTL_SUBMISSION_ID") || is_set("GDNCTL_VERDICT_LINE")) return {};
    if (wish == "1") return "GDNCTL_AGENT";
    for (const std::string_view name : {"CODEX_THREAD_ID", "CLAUDECODE", "GDNCTL_LOOP_ID"}) {
        if (is_set(name)) return name;
    }
    return {};
}

bool chooses_output(const std::vector<std::string>& words) {
    const auto end = std::find(words.begin(), words.end(), "--");
    return std::any_of(words.begin(), end, [](const std::string& word) {
        const std::string_view name = std::string_view(word).substr(0, word.find('='));
        return std::find(k_choosing.begin(), k_choosing.end(), name) != k_choosing.end();
    });
}

std::string agent_markdown(std::string_view command, std::string_view text) {
    if (text.starts_with("# ")) return shortened(text, k_agent_bytes);
    const std::string body = text::visible(text), fence = fence_for(body);
    const std::string head = fmt::format("# gdnctl {}\n\n{}\n", command, fence);
    const std::string tail = (body.ends_with('\n') ? "" : "\n") + fence + "\n";
    return head + shortened(body, k_agent_bytes - head.size() - tail.size()) + tail;
}

std::string agent_error(const Error& error) {
    return to_text({{"schema", "gdnctl.error/1"},
                    {"error", text::visible_line(error.text())},
                    {"exit_code", static_cast<int>(exit_code_of(error.kind))},
                    {"hint", error.hint.empty() ? Json() : Json(text::visible_line(error.hint))}}) +
           "\n";
}

void AgentTerminal::finish() {
    if (!m_text.empty()) m_real.out(agent_markdown(m_command, m_text));
    m_text.clear();
}

}  // namespace gdnctl::cli
