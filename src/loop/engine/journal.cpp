#include "loop/engine/journal.h"

#include <array>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/log.h"
#include "platform/fs.h"
#include "platform/hash.h"

namespace gdnctl::loop {

namespace {

constexpr int k_version = 1;
constexpr std::array<std::string_view, 20> k_types = {
    "run",     "resume",      "iteration", "stash_intent", "stashed",       "merge_intent", "base",
    "attempt", "attempt_end", "candidate", "job",          "stage",         "decision",     "settle_intent",
    "settled", "log_intent",  "logged",    "restored",     "iteration_end", "stop"};

Result<std::string> hash_of(std::string_view line) {
    if (line.empty()) return std::string(64, '0');
    return hash_hex(HashKind::sha256, line);
}

bool is_envelope(std::string_view key) {
    return key == "v" || key == "seq" || key == "ts" || key == "type" || key == "prev" || key == "iteration";
}

tl::unexpected<Error> unknown(std::string_view name, std::size_t line, std::string_view what) {
    return fail(ErrorKind::config, fmt::format("{}:{}: this gdnctl does not know {}", name, line, what),
                "it was written by a newer gdnctl: use that one, or another --log-dir");
}

tl::unexpected<Error> damaged(std::string_view name, std::size_t line, std::string_view why) {
    return fail(ErrorKind::conflict, fmt::format("{}:{}: the journal is damaged: {}", name, line, why),
                "restore the file, or start a new run with another --log-dir");
}

std::int64_t integer_in(const Json& json, const char* key) {
    const auto at = json.find(key);
    return at != json.end() && at->is_number_integer() ? at->get<std::int64_t>() : -1;
}

Result<Record> record_of(const Json& json, std::string_view name, std::size_t number) {
    Record record;
    record.seq = static_cast<std::uint64_t>(integer_in(json, "seq"));
    if (json.contains("iteration")) record.iteration = static_cast<int>(integer_in(json, "iteration"));
    for (const auto& [key, value] : json.items()) {
        if (value.is_string()) record.text[key] = value.get<std::string>();
        if (value.is_number_integer() && !is_envelope(key)) record.number[key] = value.get<std::int64_t>();
    }
    const auto type = record.text.extract("type");
    const auto time = record.text.extract("ts");
    record.text.erase("prev");
    std::size_t index = 0;
    while (index < k_types.size() && (!type || k_types[index] != type.mapped())) ++index;
    if (index == k_types.size()) return unknown(name, number, "a record of this type");
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
    const JournalContents contents = parse_journal(text);
    std::vector<Record> records;
    std::string_view previous;
    std::optional<Error> not_known;
    for (std::size_t i = 0; i < contents.records.size(); ++i) {
        const std::string& line = contents.records[i];
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_object()) return damaged(name, i + 1, "not a JSON object");
        // How a newer one tells lines apart is not known.
        if (integer_in(json, "v") != k_version) return unknown(name, i + 1, "its version");
        const auto seq = integer_in(json, "seq");
        if (seq != static_cast<std::int64_t>(i + 1)) {
            return damaged(name, i + 1, fmt::format("number {} instead of {}", seq, i + 1));
        }
        GDNCTL_TRY_ASSIGN(const std::string wanted, hash_of(previous));
        const auto prev = json.find("prev");
        if (prev == json.end() || *prev != wanted) return damaged(name, i + 1, "the line before it was changed");
        previous = line;
        // Whether that word is a newer gdnctl's or was changed is told by the line after it.
        if (not_known) continue;
        auto record = record_of(json, name, i + 1);
        if (record) {
            records.push_back(std::move(*record));
        } else {
            not_known = std::move(record.error());
        }
    }
    if (not_known) return tl::unexpected(std::move(*not_known));
    return records;
}

Result<std::string> line_of(const Record& record, std::string_view previous_line) {
    GDNCTL_TRY_ASSIGN(const std::string prev, hash_of(previous_line));
    Json json = {
        {"v", k_version}, {"seq", record.seq}, {"ts", record.time}, {"type", to_text(record.type)}, {"prev", prev}};
    if (record.iteration > 0) json["iteration"] = record.iteration;
    for (const auto& [key, value] : record.text) {
        if (!is_envelope(key)) json[key] = value;
    }
    for (const auto& [key, value] : record.number) {
        if (!is_envelope(key)) json[key] = value;
    }
    return gdnctl::to_text(json);
}

Result<LoopJournal> LoopJournal::open(const std::filesystem::path& path) {
    // Read first: a journal that cannot be understood is not repaired either.
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, std::size_t{256} << 20));
    GDNCTL_TRY_ASSIGN(auto records, parse_records(text ? std::string_view(*text) : std::string_view(), path.string()));
    GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(path));
    std::string last;
    if (text) {
        auto lines = parse_journal(*text).records;
        if (!lines.empty()) last = std::move(lines.back());
    }
    return LoopJournal(path, std::move(journal), std::move(records), std::move(last));
}

Status LoopJournal::write_again() {
    std::error_code problem;
    if (std::filesystem::exists(m_path, problem)) {
        return fail(ErrorKind::conflict, fmt::format("{} was replaced while in use", m_path.string()));
    }
    std::string text, last;
    for (const Record& record : m_records) {
        GDNCTL_TRY_ASSIGN(last, line_of(record, last));
        text += last + "\n";
    }
    GDNCTL_TRY(make_private_directory(m_path.parent_path()));
    GDNCTL_TRY(atomic_replace(m_path, text, 0600));
    m_journal.reset();  // its lock would keep us out
    GDNCTL_TRY_ASSIGN(m_journal, Journal::open(m_path));
    m_last = std::move(last);
    log::warning("{} was removed while in use: rewrote it", m_path.string());
    return {};
}

Status LoopJournal::append(Record record, WallTime now) {
    record.seq = m_records.size() + 1;
    record.time = format_iso8601(now);
    GDNCTL_TRY_ASSIGN(std::string line, line_of(record, m_last));
    if (!m_journal) return fail(ErrorKind::local_io, fmt::format("{} could not be rewritten", m_path.string()));
    Status appended = m_journal->append(line);
    if (!appended && appended.error().kind == ErrorKind::conflict) {
        GDNCTL_TRY(write_again());
        GDNCTL_TRY_ASSIGN(line, line_of(record, m_last));
        appended = m_journal->append(line);
    }
    GDNCTL_TRY(appended);
    m_last = std::move(line);
    m_records.push_back(std::move(record));
    return {};
}

}  // namespace gdnctl::loop
