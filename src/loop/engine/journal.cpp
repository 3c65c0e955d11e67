#include "loop/engine/journal.h"

#include <array>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"

namespace gdnctl::loop {

namespace {

constexpr std::array<std::string_view, 20> k_types = {
    "run",     "resume",      "iteration", "stash_intent", "stashed",       "merge_intent", "base",
    "attempt", "attempt_end", "candidate", "job",          "stage",         "decision",     "settle_intent",
    "settled", "log_intent",  "logged",    "restored",     "iteration_end", "stop"};

// The payload of a line: iteration number, words, numbers.
Json facts_of_record(const Record& record) {
    Json facts = Json::object();
    if (record.iteration > 0) facts["iteration"] = record.iteration;
    for (const auto& [key, value] : record.text) {
        if (key != "iteration") facts[key] = value;
    }
    for (const auto& [key, value] : record.number) {
        if (key != "iteration") facts[key] = value;
    }
    return facts;
}

Result<Record> record_of(const Json& json, std::string_view name, std::size_t number) {
    Record record;
    record.seq = static_cast<std::uint64_t>(json::integer(json, "seq").value_or(-1));
    if (json.contains("iteration")) record.iteration = static_cast<int>(json::integer(json, "iteration").value_or(-1));
    for (const auto& [key, value] : json.items()) {
        if (value.is_string()) record.text[key] = value.get<std::string>();
        if (value.is_number_integer() && !is_envelope(key) && key != "iteration")
            record.number[key] = value.get<std::int64_t>();
    }
    const auto type = record.text.extract("type");
    const auto time = record.text.extract("ts");
    record.text.erase("prev");
    std::size_t index = 0;
    while (index < k_types.size() && (!type || k_types[index] != type.mapped())) ++index;
    if (index == k_types.size()) return unknown_record(name, number, "a record of this type");
    record.type = static_cast<RecordType>(index);
    if (time) record.time = time.mapped();
    return record;
}

}  // namespace

std::string_view to_text(RecordType type) { return k_types[static_cast<std::size_t>(type)]; }

const std::string& Record::word(const std::string& key) const {
    static const std::string k_none;
    const auto at = text.find(key);
    return at == text.end() ? k_none : at->second;
}

std::int64_t Record::count(const std::string& key) const {
    const auto at = number.find(key);
    return at == number.end() ? 0 : at->second;
}

Result<std::vector<Record>> parse_records(std::string_view text, std::string_view name) {
    std::vector<Record> records;
    GDNCTL_TRY(read_chain(text, name, [&](const Json& json, std::size_t line) -> Status {
        GDNCTL_TRY_ASSIGN(Record record, record_of(json, name, line));
        records.push_back(std::move(record));
        return {};
    }));
    return records;
}

Result<std::string> line_of(const Record& record, std::string_view previous_line) {
    return chain_line(record.seq, record.time, to_text(record.type), facts_of_record(record), previous_line);
}

Result<LoopJournal> LoopJournal::open(const std::filesystem::path& path) {
    std::vector<Record> records;
    const std::string name = path.string();
    GDNCTL_TRY_ASSIGN(ChainJournal chain, ChainJournal::open(path, [&](const Json& json, std::size_t line) -> Status {
                          GDNCTL_TRY_ASSIGN(Record record, record_of(json, name, line));
                          records.push_back(std::move(record));
                          return {};
                      }));
    return LoopJournal(std::move(chain), std::move(records));
}

Status LoopJournal::write_again() {
    std::string text, last;
    for (const Record& record : m_records) {
        GDNCTL_TRY_ASSIGN(last, line_of(record, last));
        text += last + "\n";
    }
    return m_chain.write_again(text);
}

Status LoopJournal::append(Record record, WallTime now) {
    record.seq = m_records.size() + 1;
    record.time = format_iso8601(now);
    const Json facts = facts_of_record(record);
    Status appended = m_chain.append(to_text(record.type), facts, record.time);
    if (!appended && appended.error().kind == ErrorKind::conflict) {
        GDNCTL_TRY(write_again());
        appended = m_chain.append(to_text(record.type), facts, record.time);
    }
    GDNCTL_TRY(appended);
    m_records.push_back(std::move(record));
    return {};
}

}  // namespace gdnctl::loop
