#include "loop/engine/journal.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <concepts>
#include <fstream>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "platform/fs.h"
#include "platform/hash.h"

namespace gdnctl::loop {

namespace {

constexpr int k_version = 1;

Result<std::string> hash_of(std::string_view line) {
    if (line.empty()) return std::string(64, '0');
    return hash_hex(HashKind::sha256, line);
}

Status check_link(const Json& json, std::string_view previous, std::string_view name, std::size_t line) {
    // It is unknown how a newer version separates lines.
    if (json::integer(json, "v").value_or(-1) != k_version) return unknown_record(name, line, "its version");
    const auto seq = json::integer(json, "seq").value_or(-1);
    if (seq != static_cast<std::int64_t>(line)) {
        return damaged_journal(name, line, fmt::format("number {} instead of {}", seq, line));
    }
    GDNCTL_TRY_ASSIGN(const std::string wanted, hash_of(previous));
    const auto prev = json.find("prev");
    if (prev == json.end() || *prev != wanted) return damaged_journal(name, line, "the line before it was changed");
    return {};
}

// Whether a key is part of the envelope.
bool is_envelope(std::string_view key) {
    return key == "v" || key == "seq" || key == "ts" || key == "type" || key == "prev";
}

// Reads the lines of a journal one after the other.
class Chain {
public:
    Chain(std::string_view name, const UseRecord& use) : m_name(name), m_use(use) {}

    // `whole`: it ends with a newline; a line without one may be torn.
    Status take(std::string_view line, bool whole) {
        if (line.empty()) return {};
        const Json json = Json::parse(line, nullptr, false);
        if (!whole && !json.is_object()) return {};
        ++m_number;
        if (!json.is_object()) return damaged_journal(m_name, m_number, "not a JSON object");
        GDNCTL_TRY(check_link(json, m_previous, m_name, m_number));
        m_previous = line;
        if (m_problem) return {};
        if (Status used = m_use(json, m_number); !used) m_problem = std::move(used.error());
        return {};
    }

    Result<std::string> end() {
        if (m_problem) return tl::unexpected(std::move(*m_problem));
        return std::move(m_previous);
    }

private:
    std::string_view m_name;
    const UseRecord& m_use;
    std::string m_previous;
    std::optional<Error> m_problem;
    std::size_t m_number = 0;
};

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

constexpr std::string_view k_schema = "gdnctl.loop-state/1";

int ended_iterations(std::span<const Record> records) {
    return static_cast<int>(std::count_if(
        records.begin(), records.end(), [](const Record& record) { return record.type == RecordType::iteration_end; }));
}

int last_number(std::span<const Record> records) {
    const Record* last = last_of(records, RecordType::iteration);
    return last == nullptr ? 0 : last->iteration;
}

// Before the candidate is known: steps for the tree and the attempts.
Step step_of_attempts(std::span<const Record> open, int iteration, bool interrupted) {
    if (last_of(open, RecordType::base) == nullptr) return {StepKind::pin_base, iteration, 0, interrupted};
    const Record* started = last_of(open, RecordType::attempt);
    const Record* ended = last_of(open, RecordType::attempt_end);
    const int last = started == nullptr ? 0 : static_cast<int>(started->count("attempt"));
    if (last == 0) return {StepKind::run_attempt, iteration, 1, interrupted};
    // Records are in order: an end belongs to the attempt before it.
    const bool over = ended != nullptr && ended > started;
    if (!over || ended->word("next") == "retry") return {StepKind::archive_attempt, iteration, last, interrupted};
    return {StepKind::collect, iteration, last, interrupted};
}

// Where the user's work is. A run that was asked to stop restores it before the iteration has ended.
struct Stash {
    const Record* intent = nullptr;   // none since it was restored
    const Record* stashed = nullptr;  // the same
};
Stash stash_of(std::span<const Record> open) {
    const Record* back = last_of(open, RecordType::restored);
    const auto since = [&](RecordType type) {
        const Record* record = last_of(open, type);
        return record != nullptr && (back == nullptr || record > back) ? record : nullptr;
    };
    return {since(RecordType::stash_intent), since(RecordType::stashed)};
}

// The fields of state.json, in order.
template <class State, class Use>
void each_field(State& state, const Use& use) {
    use("run", state.run);
    use("isolation", state.isolation);
    use("iterations_total", state.total);
    use("iterations_ended", state.ended);
    use("iteration_open", state.open);
    use("next_step", state.next);
    use("failures", state.failures);
    use("promotions", state.promotions);
    use("since_promotion", state.since_promotion);
    use("outcomes", state.outcomes);
    use("tokens", state.tokens);
    use("agent_ms", state.agent_ms);
    use("tpu_ms", state.tpu_ms);
    use("stop_reason", state.stop_reason);
    use("journal_records", state.records);
}

bool has_type_of(const Json& json, const std::string& /*value*/) { return json.is_string(); }
template <std::integral Number>
bool has_type_of(const Json& json, Number /*value*/) {
    return json.is_number_integer();
}
bool has_type_of(const Json& json, const std::map<std::string, int>& /*value*/) {
    return json.is_object() &&
           std::all_of(json.begin(), json.end(), [](const Json& n) { return n.is_number_integer(); });
}

// Makes PATH.bak the current PATH: the same file, whose bytes are already on disk.
Status keep_backup(const std::filesystem::path& path) {
    const std::string backup = path.string() + ".bak";
    const std::string link = backup + ".new";
    std::error_code problem;
    std::filesystem::remove(link, problem);
    std::filesystem::create_hard_link(path, link, problem);
    if (!problem) std::filesystem::rename(link, backup, problem);
    if (!problem || problem == std::errc::no_such_file_or_directory) return {};
    // Not every file system supports links.
    GDNCTL_TRY_ASSIGN(const auto before, read_file_if_exists(path));
    return before ? replace_whole(backup, *before, 0600) : Status();
}

}  // namespace

tl::unexpected<Error> unknown_record(std::string_view name, std::size_t line, std::string_view what) {
    return fail(ErrorKind::config, fmt::format("{}:{}: this gdnctl does not know {}", name, line, what),
                "it was written by a newer gdnctl: use that one, or another --log-dir");
}

tl::unexpected<Error> damaged_journal(std::string_view name, std::size_t line, std::string_view why) {
    return fail(ErrorKind::conflict, fmt::format("{}:{}: the journal is damaged: {}", name, line, why),
                "restore the file, or start a new run with another --log-dir");
}

Result<std::string> read_chain(std::string_view text, std::string_view name, const UseRecord& use) {
    Chain chain(name, use);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        GDNCTL_TRY(chain.take(text.substr(at, end - at), end < text.size()));
        at = end + 1;
    }
    return chain.end();
}

Result<std::string> read_chain_file(const std::filesystem::path& path, const UseRecord& use) {
    const std::string name = path.string();
    Chain chain(name, use);
    std::ifstream file(path, std::ios::binary);
    std::error_code problem;
    if (!file && std::filesystem::exists(path, problem)) {
        return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    }
    for (std::string line; std::getline(file, line);) GDNCTL_TRY(chain.take(line, !file.eof()));
    if (file.bad()) return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    return chain.end();
}

Status check_never_begun(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::error_code problem;
    const bool lost =
        file && (file.peek() == '\0' || std::filesystem::exists(path.parent_path() / "state.json", problem));
    if (!lost) return {};
    return damaged_journal(path.string(), 1, "it was emptied");
}

Result<std::string> chain_line(std::uint64_t seq, std::string_view time, std::string_view type, const Json& facts,
                               std::string_view previous_line) {
    GDNCTL_TRY_ASSIGN(const std::string prev, hash_of(previous_line));
    Json json = {{"v", k_version}, {"seq", seq}, {"ts", time}, {"type", type}, {"prev", prev}};
    for (const auto& [key, value] : facts.items()) {
        if (!is_envelope(key)) json[key] = value;
    }
    return gdnctl::to_text(json);
}

Result<ChainJournal> ChainJournal::open(const std::filesystem::path& path, const UseRecord& use) {
    std::uint64_t records = 0;
    GDNCTL_TRY_ASSIGN(std::string last, read_chain_file(path, [&](const Json& record, std::size_t line) {
                          records = line;
                          return use(record, line);
                      }));
    if (last.empty()) GDNCTL_TRY(check_never_begun(path));
    GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(path));
    ChainJournal opened(path, std::move(journal));
    opened.m_last = std::move(last);
    opened.m_records = records;
    return opened;
}

Status ChainJournal::write_again(std::string_view text) {
    std::error_code problem;
    if (std::filesystem::exists(m_path, problem)) {
        return fail(ErrorKind::conflict, fmt::format("{} was replaced while in use", m_path.string()));
    }
    GDNCTL_TRY(make_private_directory(m_path.parent_path()));
    GDNCTL_TRY(atomic_replace(m_path, text, 0600));
    m_journal.reset();  // its lock would block us
    GDNCTL_TRY_ASSIGN(m_journal, Journal::open(m_path));
    log::warning("{} was removed while in use: rewrote it", m_path.string());
    return {};
}

Status ChainJournal::append(std::string_view type, const Json& facts, std::string_view time) {
    GDNCTL_TRY_ASSIGN(std::string line, chain_line(m_records + 1, time, type, facts, m_last));
    if (!m_journal) {
        return fail(ErrorKind::local_io,
                    fmt::format("cannot append to {}: it could not be rewritten", m_path.string()));
    }
    GDNCTL_TRY(m_journal->append(line));
    m_last = std::move(line);
    ++m_records;
    return {};
}

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

std::string_view to_text(StepKind kind) {
    constexpr std::array<std::string_view, 13> k_kinds = {
        "start_run", "begin_iteration", "set_aside", "take_base", "put_away",      "run_attempt", "collect",
        "judge",     "settle",          "write_log", "restore",   "end_iteration", "finished"};
    return k_kinds[static_cast<std::size_t>(kind)];
}

const Record* last_of(std::span<const Record> records, RecordType type) {
    const auto at = std::find_if(records.rbegin(), records.rend(), [&](const Record& r) { return r.type == type; });
    return at == records.rend() ? nullptr : &*at;
}

const Record* first_of(std::span<const Record> records, RecordType type) {
    const auto at = std::find_if(records.begin(), records.end(), [&](const Record& r) { return r.type == type; });
    return at == records.end() ? nullptr : &*at;
}

std::span<const Record> open_iteration(std::span<const Record> records) {
    for (std::size_t i = records.size(); i-- > 0;) {
        if (records[i].type == RecordType::iteration_end) return {};
        if (records[i].type == RecordType::iteration) return records.subspan(i);
    }
    return {};
}

Step next_step(std::span<const Record> records, int iterations, bool stashes, bool interrupted) {
    if (records.empty()) return {};
    const auto open = open_iteration(records);
    if (open.empty()) {
        if (ended_iterations(records) >= iterations) return {StepKind::finished};
        return {StepKind::begin_iteration, last_number(records) + 1};
    }
    const int iteration = open.front().iteration;
    const auto has = [&](RecordType type) { return last_of(open, type) != nullptr; };
    const Stash stash = stash_of(open);
    if (stashes && stash.stashed == nullptr && !has(RecordType::settled)) {
        const bool again = stash.intent != nullptr;
        return {StepKind::stash_user_work, iteration, 0, again, again ? stash.intent->word("message") : ""};
    }
    const Record* candidate = last_of(open, RecordType::candidate);
    if (candidate == nullptr) return step_of_attempts(open, iteration, interrupted);
    // A candidate that followed a moved branch is judged again.
    const Record* decision = last_of(open, RecordType::decision);
    if (decision == nullptr || decision < candidate) return {StepKind::judge, iteration, 0, interrupted};
    const Record* intent = last_of(open, RecordType::settle_intent);
    if (!has(RecordType::settled)) return {StepKind::settle, iteration, 0, intent != nullptr && intent > decision};
    if (!has(RecordType::logged)) return {StepKind::write_log, iteration, 0, has(RecordType::log_intent)};
    if (stash.stashed != nullptr && !stash.stashed->word("commit").empty()) {
        return {StepKind::restore_stash, iteration, 0, interrupted};
    }
    return {StepKind::end_iteration, iteration};
}

RunState summarise(std::span<const Record> records, int iterations, bool stashes) {
    RunState state;
    state.total = iterations;
    state.records = records.size();
    for (const Record& record : records) {
        switch (record.type) {
            case RecordType::run:
                state.run = record.word("run");
                state.isolation = record.word("isolation");
                break;
            case RecordType::resume: state.stop_reason.clear(); break;
            case RecordType::iteration: state.open = record.iteration; break;
            case RecordType::attempt_end:
                state.tokens += record.count("tokens");
                state.agent_ms += record.count("wall_ms");
                break;
            case RecordType::stage: state.tpu_ms += record.count("tpu_ms"); break;
            case RecordType::iteration_end:
                state.open = 0;
                ++state.ended;
                state.failures += static_cast<int>(record.count("counted"));
                ++state.outcomes[record.word("outcome")];
                state.since_promotion = record.count("promoted") > 0 ? 0 : state.since_promotion + 1;
                state.promotions += static_cast<int>(record.count("promoted"));
                state.tpu_ms += record.count("tpu_ms");
                break;
            case RecordType::stop: state.stop_reason = record.word("reason"); break;
            default: break;
        }
    }
    state.next = to_text(next_step(records, iterations, stashes, false).kind);
    return state;
}

Status write_state(const std::filesystem::path& path, const RunState& state) {
    Json json = {{"schema", k_schema}};
    each_field(state, [&](const char* key, const auto& value) { json[key] = value; });
    GDNCTL_TRY(keep_backup(path));
    return replace_whole(path, gdnctl::to_text(json, 2) + "\n", 0600);  // the journal can recreate it
}

Result<std::optional<RunState>> read_state(const std::filesystem::path& path) {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path));
    if (!text) return std::optional<RunState>();
    const Json json = Json::parse(*text, nullptr, false);
    const auto refused = [&](std::string_view why) {
        return fail(
            ErrorKind::config, fmt::format("{} {}; nothing was changed", path.string(), why),
            "compare it with state.json.bak; `gdnctl loop-status --rebuild-state` rebuilds it from the journal");
    };
    if (!json.is_object()) return refused("does not parse");
    RunState state;
    const std::string schema = json::text(json, "schema");
    if (!schema.empty() && schema != k_schema) return refused("is of another version (" + schema + ")");
    bool whole = !schema.empty();
    each_field(state, [&](const char* key, auto& value) {
        whole = whole && has_type_of(json::field(json, key), value);
        if (whole) value = json.at(key).get<std::remove_cvref_t<decltype(value)>>();
    });
    if (!whole) return refused("lacks a field or has one of the wrong type");
    return std::optional(std::move(state));
}

}  // namespace gdnctl::loop
