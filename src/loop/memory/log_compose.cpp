#include "loop/memory/log_compose.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "runlog/import/import.h"
#include "runlog/parse/block.h"
#include "runlog/parse/log.h"
#include "runlog/records/append.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"
#include "runlog/render/render.h"

namespace gdnctl::loop {

namespace {

using runlog::Document;
using runlog::EntryHead;

std::string with_record(const std::string& lines, const Json& record) {
    std::string out = lines;
    // Text after the last newline was never acknowledged.
    if (!out.empty() && out.back() != '\n') out.resize(out.rfind('\n') + 1);
    return out + gdnctl::to_text(record) + "\n";
}

std::vector<Json> records_in(const std::string& lines, const std::string& name) {
    auto parsed = runlog::parse_records(lines, name);
    return parsed ? std::move(parsed->records) : std::vector<Json>();
}

bool has_heading(const Document& document, std::string_view heading) {
    return std::any_of(document.entries.begin(), document.entries.end(),
                       [&](const EntryHead& one) { return one.heading == heading; });
}

// The last entry of `head` that `base` does not have. Compares headings, or numbers if only the title changed.
std::optional<EntryHead> brought_entry(const Document& base, const Document& head) {
    for (auto entry = head.entries.rbegin(); entry != head.entries.rend(); ++entry) {
        const bool old = std::any_of(base.entries.begin(), base.entries.end(), [&](const EntryHead& known) {
            const bool same_number = known.number == entry->number && known.suffix == entry->suffix;
            return known.heading == entry->heading || (same_number && !has_heading(head, known.heading));
        });
        if (!old) return *entry;
    }
    return std::nullopt;
}

// Id of the record from which an entry is rendered; empty: it is hand-written.
std::string record_behind(const Document& document, const EntryHead& entry) {
    for (const auto& block : runlog::find_blocks(document.text)) {
        const char* at = entry.heading.data();
        if (at >= block.whole.data() && at < block.whole.data() + block.whole.size()) return std::string(block.id);
    }
    return {};
}

// The current record in the chain of `id`.
const Json* standing_record(const std::vector<Json>& current, const std::vector<Json>& all, std::string id) {
    for (const Json& record : all) {
        if (runlog::replaced_id(record) == id) id = runlog::id_of(record);
    }
    const auto at =
        std::find_if(current.begin(), current.end(), [&](const Json& one) { return runlog::id_of(one) == id; });
    return at == current.end() ? nullptr : &*at;
}

bool is_of_iteration(const Json& one, const Json& record) {
    return json::text_at(one, "/loop/run_id") == json::text_at(record, "/loop/run_id") &&
           json::integer_at(one, "/loop/index") == json::integer_at(record, "/loop/index");
}

bool has_any(const Json& record, const char* field) {
    const auto at = record.find(field);
    return at != record.end() && at->is_structured() && !at->empty();
}

// The agent's record plus what the loop observed; what the agent says about its idea stays.
Json with_measured(const Json& agents, const Json& ours, WallTime at) {
    Json record = runlog::superseding(agents, at, "what the loop saw and measured");
    for (const char* field : {"loop", "base", "commits", "commit_status", "commit_reason", "outcome", "decision",
                              "decision_reasons", "gates", "infra", "cost", "files", "finished_at"}) {
        if (ours.contains(field)) record[field] = ours[field];
    }
    for (const char* list : {"checks", "profiles", "interpretation"}) {
        if (!has_any(ours, list)) continue;
        if (!has_any(record, list)) record[list] = Json::array();
        for (const Json& item : ours[list]) record[list].push_back(item);
    }
    if (has_any(ours, "metrics") || has_any(ours, "extra_metrics")) {
        if (has_any(record, "metrics")) record["raw"]["agent_metrics"] = record["metrics"];
        record["metrics"] = ours["metrics"];
        record["extra_metrics"] = ours["extra_metrics"];
        record["comparison"] = ours["comparison"];
        record["gain"] = ours["gain"];
    }
    return record;
}

// Copies what the agent wrote about its idea into fields that are still empty.
void take_words(Json& record, const Json& agents) {
    for (const char* pointer :
         {"/title", "/idea/hypothesis", "/idea/move", "/coverage_slot", "/change_class", "/next_hypothesis"}) {
        const std::string words = json::text_at(agents, pointer);
        if (!words.empty()) record[Json::json_pointer(pointer)] = words;
    }
    for (const char* list : {"changes", "interpretation"}) {
        if (has_any(agents, list) && (!has_any(record, list) || std::string_view(list) == "changes")) {
            record[list] = agents[list];
        }
    }
}

Result<std::optional<ComposedLog>> fill_in(const LogSources& sources, const std::vector<Json>& all, const Json& agents,
                                           const Json& ours, WallTime at) {
    Json record = with_measured(agents, ours, at);
    runlog::make_public(record);
    GDNCTL_TRY(runlog::check_record(record, "the iteration's record"));
    std::vector<Json> every = all;
    every.push_back(record);
    runlog::PlaceOptions place;
    place.only_missing = true;
    place.rewrite_id = runlog::id_of(record);
    GDNCTL_TRY_ASSIGN(const auto placed,
                      runlog::place_records(sources.text, runlog::current_records(every), every, place));
    for (const auto& difference : placed.differences) {
        if (difference.id == runlog::id_of(agents) && !difference.settled) return std::optional<ComposedLog>();
    }
    return std::optional(ComposedLog{placed.text, with_record(sources.records, record), runlog::id_of(record),
                                     runlog::iteration_of(record).text(), true});
}

// For a hand-written entry: replaces only the value of its commit line, and only if it is a placeholder.
std::optional<ComposedLog> stamp(const LogSources& sources, const Document& document, const EntryHead& head,
                                 const Json& ours) {
    const auto entry = runlog::parse_entry(head);
    const auto commits = json::texts(ours, "commits");
    if (entry.commit < 0 || commits.empty()) return std::nullopt;
    const std::string_view value = entry.fields[static_cast<std::size_t>(entry.commit)].value;
    const auto kind = runlog::classify_commit(value).kind;
    if (kind != runlog::CommitKind::self && kind != runlog::CommitKind::pending) return std::nullopt;
    ComposedLog out;
    out.text = sources.text;
    out.text.replace(document.offset(value), value.size(), commits.back());
    out.records = sources.records;
    out.iteration = fmt::format("{}{}", head.number, head.suffix);
    out.stamped = true;
    return out;
}

// A document to which an entry can be added.
Result<Document> open_document(const std::string& text, const std::string& name) {
    GDNCTL_TRY_ASSIGN(Document document, runlog::parse_document(text));
    GDNCTL_TRY(runlog::check_appendable(document, name));
    return document;
}

Result<std::optional<ComposedLog>> add_entry(const LogSources& sources, const Document& document, std::vector<Json> all,
                                             Json record, WallTime at) {
    auto number = runlog::next_iteration(document, all);
    number.number = std::max<std::int64_t>(number.number, 1);  // a loop counts its iterations from 1
    const auto started = parse_iso8601(json::text(record, "started_at")).value_or(at);
    record["iteration"] = number.number;
    record["suffix"] = number.suffix;
    record["id"] = runlog::make_record_id(started, number);
    if (runlog::template_of(document) == runlog::Template::experiment) record["kind"] = "experiment";
    runlog::make_public(record);
    if (runlog::is_experiment(record)) runlog::fill_sections(record);
    GDNCTL_TRY(runlog::check_record(record, "the iteration's record"));
    all.push_back(record);
    runlog::PlaceOptions place;
    place.only_missing = true;
    GDNCTL_TRY_ASSIGN(auto placed, runlog::place_records(sources.text, runlog::current_records(all), all, place));
    return std::optional(ComposedLog{std::move(placed.text), with_record(sources.records, record),
                                     runlog::id_of(record), number.text(), false});
}

}  // namespace

Status check_log(const std::string& name, const std::string& text, const std::string& records) {
    GDNCTL_TRY(open_document(text, name));
    GDNCTL_TRY(runlog::parse_records(records, runlog::records_path(name).generic_string()));
    return {};
}

Result<std::string> compose_note(Json record, int number, WallTime at) {
    const runlog::IterationNumber iteration{number, {}};
    record["iteration"] = number;
    record["suffix"] = "";
    record["id"] = runlog::make_record_id(parse_iso8601(json::text(record, "started_at")).value_or(at), iteration);
    runlog::make_public(record);
    GDNCTL_TRY(runlog::check_record(record, "the iteration's record"));
    return runlog::render_entry(record);
}

Result<std::optional<ComposedLog>> compose_log(const LogSources& sources, Json record, bool landed, WallTime at) {
    GDNCTL_TRY_ASSIGN(const Document document, open_document(sources.text, sources.name));
    GDNCTL_TRY_ASSIGN(auto lines, runlog::parse_records(sources.records, sources.name));
    const std::vector<Json>& all = lines.records;
    for (const Json& one : all) {
        if (is_of_iteration(one, record)) {  // written before by a loop that was killed
            return std::optional(ComposedLog{sources.text, sources.records, runlog::id_of(one),
                                             runlog::iteration_of(one).text(), false});
        }
    }
    GDNCTL_TRY_ASSIGN(const Document base, runlog::parse_document(sources.base_text));
    // An unreadable log did not land and contributes nothing.
    const Document head = runlog::parse_document(sources.head_text).value_or(Document{});
    const auto brought = brought_entry(base, head);
    if (!brought) return add_entry(sources, document, all, std::move(record), at);
    const auto here = std::find_if(document.entries.begin(), document.entries.end(),
                                   [&](const EntryHead& one) { return one.heading == brought->heading; });
    if (landed && here != document.entries.end()) {
        const auto current = runlog::current_records(all);
        const Json* agents = standing_record(current, all, record_behind(document, *here));
        if (agents != nullptr) return fill_in(sources, all, *agents, record, at);
        return stamp(sources, document, *here, record);
    }
    const auto theirs = records_in(sources.head_records, sources.name);
    const auto current = runlog::current_records(theirs);
    const Json* agents = standing_record(current, theirs, record_behind(head, *brought));
    take_words(record, agents != nullptr ? *agents : runlog::import_entry(*brought));
    return add_entry(sources, document, all, std::move(record), at);
}

}  // namespace gdnctl::loop
