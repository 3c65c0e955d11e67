#include "services/agent/codex_events.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"

namespace gdnctl::codex {

std::optional<std::int64_t> integer_field(const Json& object, std::string_view name) {
    constexpr double k_largest = 9e15;  // exact in a double; larger numbers are nonsense here
    const auto number = json::number(object, name);
    if (!number || std::abs(*number) > k_largest) return std::nullopt;
    return static_cast<std::int64_t>(*number);
}

std::optional<AgentTokens> tokens_of(const Json& usage) {
    if (!usage.is_object()) return std::nullopt;
    const auto count = [&](std::string_view name) {
        return std::max<std::int64_t>(0, integer_field(usage, name).value_or(0));
    };
    return AgentTokens{count("input_tokens"), count("cached_input_tokens"), count("output_tokens"),
                       count("reasoning_output_tokens")};
}

namespace {

constexpr std::array<std::pair<std::string_view, Event::Type>, 8> k_types = {{
    {"thread.started", Event::Type::thread_started},
    {"turn.started", Event::Type::turn_started},
    {"turn.completed", Event::Type::turn_completed},
    {"turn.failed", Event::Type::turn_failed},
    {"item.started", Event::Type::item_started},
    {"item.updated", Event::Type::item_updated},
    {"item.completed", Event::Type::item_completed},
    {"error", Event::Type::error},
}};

Event::Type type_of(std::string_view word) {
    for (const auto& [name, type] : k_types) {
        if (name == word) return type;
    }
    return Event::Type::unknown;
}

std::string item_text(const Json& item, std::string_view type) {
    if (type == "command_execution") return json::text(item, "command");
    if (type == "web_search") return json::text(item, "query");
    if (type == "error") return json::text(item, "message");
    return json::text(item, "text");
}

Item parse_item(const Json& json) {
    Item item;
    item.id = json::text(json, "id");
    item.type = json::text(json, "type");
    item.text = item_text(json, item.type);
    item.output = json::text(json, "aggregated_output");
    item.status = json::text(json, "status");
    if (const auto code = integer_field(json, "exit_code")) item.exit_code = static_cast<int>(*code);
    if (const Json& changes = json::field(json, "changes"); changes.is_array()) {
        for (const Json& change : changes) {
            if (auto path = json::text(change, "path"); !path.empty()) item.files.emplace_back(std::move(path));
        }
    }
    return item;
}

}  // namespace

Event parse_event(std::string_view line) {
    line = text::trim(line);
    Event event;
    if (!line.starts_with('{')) return event;
    auto parsed = parse_json(line, "event");
    if (!parsed && !text::is_valid_utf8(line)) parsed = parse_json(text::repair_utf8(line), "event");
    if (!parsed || !parsed->is_object()) return event;
    const Json& json = *parsed;
    event.type = type_of(json::text(json, "type"));
    event.thread_id = json::text(json, "thread_id");
    event.message = json::text(json, "message");
    if (event.type == Event::Type::turn_failed) event.message = json::text(json::field(json, "error"), "message");
    if (event.type == Event::Type::turn_completed) event.usage = tokens_of(json::field(json, "usage"));
    if (const Json& item = json::field(json, "item"); item.is_object()) event.item = parse_item(item);
    return event;
}

std::string shown_command(std::string_view command) {
    const auto words = text::shell_split(command);
    const bool wrapped = words && words->size() == 3 && ((*words)[1] == "-lc" || (*words)[1] == "-c");
    return wrapped ? (*words)[2] : std::string(command);
}

bool is_progress(const Event& event) {
    return event.type != Event::Type::text &&
           !(event.type == Event::Type::error && event.message.starts_with("Reconnecting..."));
}

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

namespace {

std::string_view after(std::string_view line, std::string_view lead) {
    return line.starts_with(lead) ? text::trim(line.substr(lead.size())) : std::string_view();
}

}  // namespace

void HumanReader::take(std::string_view line, Stream& stream) {
    if (line == "--------") ++m_rules;
    if (m_rules == 1) {
        if (const auto id = after(line, "session id:"); !id.empty()) stream.thread_id = std::string(id);
        if (const auto name = after(line, "model:"); !name.empty()) model = std::string(name);
    }
    if (const auto error = after(line, "ERROR:"); !error.empty() && !error.starts_with("Reconnecting...")) {
        stream.failure = std::string(error);
    }
    if (m_tokens_follow) {
        std::string digits(text::trim(line));
        std::erase(digits, ',');
        // Uncached input and output in one number; it reports nothing else.
        if (const auto count = text::parse_int(digits)) stream.usage = AgentTokens{*count, 0, 0, 0};
    }
    m_tokens_follow = line == "tokens used";
}

bool is_complaint(std::string_view line) {
    line = text::trim(line);
    const std::string lower = text::to_lower(line.substr(0, 8));
    return !line.empty() && !lower.starts_with("warning") && !line.starts_with("Reading additional input") &&
           !line.starts_with("Reading prompt from stdin");
}

}  // namespace gdnctl::codex
