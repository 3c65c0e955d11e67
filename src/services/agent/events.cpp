#include "services/agent/events.h"

#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "services/agent/json_fields.h"

namespace gdnctl::codex {

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

}  // namespace gdnctl::codex
