#include "services/agent/stream.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::codex {

namespace {

constexpr std::size_t k_kept_output = std::size_t{64} << 10;
constexpr std::size_t k_shown_lines = 12;  // of a failed command's output
constexpr std::size_t k_shown_command = 400;

void add_lines(std::vector<std::string>& lines, std::string_view text, std::string_view before = "") {
    for (const auto line : text::split(text, '\n')) lines.push_back(fmt::format("{}{}", before, line));
}

void add_failure(std::vector<std::string>& lines, const AgentEvent& event) {
    lines.push_back(fmt::format("  exited {} after {}", *event.exit_code, format_duration(event.elapsed)));
    const auto output = text::split(text::trim(event.output), '\n');
    const std::size_t first = output.size() > k_shown_lines ? output.size() - k_shown_lines : 0;
    for (std::size_t i = first; i < output.size(); ++i) lines.push_back(fmt::format("  | {}", output[i]));
}

std::optional<AgentEvent> happening(AgentEvent::Kind kind, const std::string& text) {
    AgentEvent event;
    event.kind = kind;
    event.text = text;
    return event;
}

}  // namespace

std::optional<AgentEvent> Stream::take(const Event& event, Clock::Monotonic now) {
    switch (event.type) {
        case Event::Type::text: ++text_lines; return std::nullopt;
        case Event::Type::unknown: ++unknown_events; return std::nullopt;
        case Event::Type::thread_started: thread_id = event.thread_id; return std::nullopt;
        case Event::Type::turn_started: return std::nullopt;
        case Event::Type::turn_completed:
            turn_completed = true;
            usage = event.usage;
            return std::nullopt;
        case Event::Type::turn_failed:
            turn_failed = true;
            failure = event.message;
            return std::nullopt;
        case Event::Type::error:
            if (!turn_failed && is_progress(event)) failure = event.message;
            return happening(AgentEvent::Kind::notice, event.message);
        case Event::Type::item_started:
        case Event::Type::item_updated:
        case Event::Type::item_completed: return take_item(event, now);
    }
    return std::nullopt;
}

std::optional<AgentEvent> Stream::take_item(const Event& event, Clock::Monotonic now) {
    const Item& item = event.item;
    const bool completed = event.type == Event::Type::item_completed;
    if (item.type == "command_execution") {
        if (event.type == Event::Type::item_updated) return std::nullopt;
        AgentEvent happened;
        happened.text = shown_command(item.text);
        if (!completed) {
            m_open.insert_or_assign(item.id, now);
            happened.kind = AgentEvent::Kind::command_started;
            return happened;
        }
        ++commands;
        happened.kind = AgentEvent::Kind::command_ended;
        happened.exit_code = item.exit_code;
        happened.output = item.output.substr(item.output.size() - std::min(item.output.size(), k_kept_output));
        if (const auto open = m_open.find(item.id); open != m_open.end()) {
            happened.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - open->second);
            m_open.erase(open);
        }
        return happened;
    }
    if (!completed) return std::nullopt;
    if (item.type == "agent_message") {
        final_message = item.text;
        return happening(AgentEvent::Kind::message, item.text);
    }
    if (item.type == "reasoning") return happening(AgentEvent::Kind::reasoning, item.text);
    if (item.type == "web_search") return happening(AgentEvent::Kind::web_search, item.text);
    if (item.type == "error") return happening(AgentEvent::Kind::notice, item.text);
    if (item.type == "file_change") {
        auto happened = happening(AgentEvent::Kind::files_changed, item.status);
        happened->files = item.files;
        return happened;
    }
    ++unknown_events;
    return std::nullopt;
}

std::vector<std::string> render(const AgentEvent& event, bool show_file_updates) {
    std::vector<std::string> lines;
    switch (event.kind) {
        case AgentEvent::Kind::message:
        case AgentEvent::Kind::reasoning: add_lines(lines, text::trim(event.text)); break;
        case AgentEvent::Kind::command_started: {
            const bool cut = event.text.size() > k_shown_command;
            add_lines(lines, cut ? text::repair_utf8(event.text.substr(0, k_shown_command)) + " ..." : event.text);
            lines.front().insert(0, "$ ");
            break;
        }
        case AgentEvent::Kind::command_ended:
            if (event.exit_code.value_or(0) != 0) add_failure(lines, event);
            break;
        case AgentEvent::Kind::files_changed:
            for (const auto& file : event.files) {
                if (show_file_updates) lines.push_back(fmt::format("file update: {}", file.string()));
            }
            break;
        case AgentEvent::Kind::web_search: lines.push_back(fmt::format("web search: {}", event.text)); break;
        case AgentEvent::Kind::notice: add_lines(lines, text::trim(event.text), "codex: "); break;
        case AgentEvent::Kind::other: break;
    }
    return lines;
}

}  // namespace gdnctl::codex
