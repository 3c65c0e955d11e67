#include "loop/memory/log_entry.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/log_timed.h"
#include "loop/memory/log_compose.h"
#include "loop/memory/log_record.h"
#include "runlog/records/store.h"

namespace gdnctl::loop {

namespace {

constexpr std::size_t k_most_messages = 20;
constexpr std::string_view k_subject = "Log iteration ";
constexpr std::string_view k_code = "\nGdnctl-Code: ";

// A commit object consists of headers, an empty line and the message.
std::string message_of(const std::string& commit) {
    const auto gap = commit.find("\n\n");
    return gap == std::string::npos ? std::string() : commit.substr(gap + 2);
}

// The commit whose code a commit contains: a log commit names it.
std::string code_of(const std::string& commit, const std::string& message) {
    const auto at = message.find(k_code);
    if (at == std::string::npos || !message.starts_with(k_subject)) return commit;
    const std::string sha = message.substr(at + k_code.size(), commit.size());
    return sha.size() == commit.size() && sha.find_first_not_of("0123456789abcdef") == std::string::npos ? sha : commit;
}

std::string evidence_folder(const std::filesystem::path& log_dir, const std::filesystem::path& root) {
    const auto inside = log_dir.lexically_relative(root);
    const bool outside = inside.empty() || *inside.begin() == "..";
    return (outside ? log_dir : inside).generic_string() + "/";
}

bool has_landed(const IterationView& view) { return view.kept() && view.head != view.base; }

// `code`: the commit below it, not counting log commits.
std::string log_message(const ComposedLog& log, const IterationView& view, const std::string& run,
                        const std::string& code) {
    std::string text =
        fmt::format("{}{}: {}\n\nGdnctl-Run: {} {}", k_subject, log.iteration, view.outcome, run, view.number);
    if (!log.id.empty()) text += "\nGdnctl-Log: " + log.id;
    if (has_landed(view)) text += "\nGdnctl-Stamps: " + view.head;
    return text + std::string(k_code) + code + "\n";
}

std::string said_of_stamp(const IterationView& view) {
    return fmt::format("stamped last hill-climb log entry with commit {}", view.head.substr(0, 12));
}

void say_why_not(const Error& error) {
    log::warning("no entry in the running log: {}", error.text());
    if (!error.hint.empty()) log::warning("hint: {}", error.hint);
}

}  // namespace

// What git has of the log and the candidate; `sources` is nullopt if the branch has no log.
struct RunningLog::Read {
    std::optional<LogSources> sources;
    std::vector<std::string> messages;  // of the candidate's commits, oldest first
    std::string start;                  // the base, not counting log commits
    std::string tip;                    // tip of the branch, from which `sources` is read
    WallTime at{};
};

// An entry by the agent of an earlier iteration, with its commit.
struct RunningLog::Stamped {
    ComposedLog log;
    IterationView view;
};

Result<RunningLog::Read> RunningLog::read(const KnownIteration& known, WallTime at) const {
    Read read;
    read.at = at;
    const IterationView& view = known.view;
    GDNCTL_TRY_ASSIGN(const auto tip, m_repository.resolve(view.branch.empty() ? "HEAD" : view.branch));
    if (!tip) return fail(ErrorKind::conflict, fmt::format("the branch {} no longer exists", view.branch));
    read.tip = *tip;
    std::vector<std::string> names = {view.base};
    const auto& commits = known.facts.commits;
    for (std::size_t i = commits.size() - std::min(commits.size(), k_most_messages); i < commits.size(); ++i) {
        names.push_back(commits[i]);
    }
    const std::size_t of_log = names.size();
    if (!m_path.empty()) {
        const std::string beside = runlog::records_path(m_path).generic_string();
        const std::string head = view.head.empty() ? view.base : view.head;
        for (const std::string& name : {*tip + ":" + m_path, *tip + ":" + beside, view.base + ":" + m_path,
                                        head + ":" + m_path, head + ":" + beside}) {
            names.push_back(name);
        }
    }
    GDNCTL_TRY_ASSIGN(const auto found, m_repository.objects(names));
    const auto text = [&](std::size_t i) { return found[i].value_or(std::string()); };
    for (std::size_t i = 1; i < of_log; ++i) read.messages.push_back(message_of(text(i)));
    read.start = code_of(view.base, message_of(text(0)));
    if (of_log < found.size() && found[of_log]) {
        read.sources =
            LogSources{m_path, text(of_log), text(of_log + 1), text(of_log + 2), text(of_log + 3), text(of_log + 4)};
    }
    return read;
}

void RunningLog::say_missing() {
    if (!m_missing_said) {
        log::warning("no running log{}: iterations get no entry in one",
                     m_path.empty() ? "" : " " + m_path + " on the branch");
    }
    m_missing_said = true;
}

Result<std::optional<KnownIteration>> RunningLog::judged(std::span<const Record> records, int iteration) const {
    GDNCTL_TRY_ASSIGN(auto known, known_iteration(m_log_dir, m_repository, records, iteration));
    if (!known) return known;
    const IterationView& view = known->view;
    const bool stuck = view.kept() && view.settled == "blocked";  // accepted but could not land: an error
    if (stuck || view.outcome == to_text(Outcome::error)) known.reset();
    return known;
}

Json RunningLog::record(const KnownIteration& known, const Read& found) const {
    Json record = log_record(known.own, known.facts, {evidence_folder(m_log_dir, m_repository.root()), found.messages});
    record["base"]["commit"] = found.start;
    return record;
}

Result<std::optional<LogEntry>> RunningLog::note(const KnownIteration& known, const Read& found) const {
    const IterationView& view = known.view;
    const auto text = compose_note(record(known, found), view.number, found.at);
    if (!text) {
        say_why_not(text.error());
        return std::optional<LogEntry>();
    }
    LogEntry entry;
    entry.noted = view.head.empty() ? view.base : view.head;
    entry.message = fmt::format("{}\nGdnctl-Run: {} {}\n", *text, known.facts.run, view.number);
    entry.said = fmt::format("iteration {} is in a note of {} (git notes --ref=gdnctl show)", view.number,
                             entry.noted.substr(0, 12));
    return std::optional(std::move(entry));
}

// Stamps the last entry of the log in the checkout, as the recipe does; never another iteration's.
Status RunningLog::stamp_in_place(const KnownIteration& known, Read& found) const {
    if (!has_landed(known.view)) return {};
    GDNCTL_TRY_ASSIGN(auto writer, runlog::LogWriter::open(m_repository.root() / m_path, {std::chrono::seconds(30)}));
    LogSources& sources = *found.sources;
    sources.text = writer.text();
    sources.records.clear();
    for (const Json& line : writer.records()) sources.records += gdnctl::to_text(line) + "\n";
    const auto composed = compose_log(sources, record(known, found), true, found.at);
    if (!composed) {
        say_why_not(composed.error());
        return {};
    }
    if (!*composed || !(*composed)->stamped) return {};
    GDNCTL_TRY_ASSIGN(const auto lines, runlog::parse_records((*composed)->records, sources.name));
    const std::span<const Json> added = std::span(lines.records).subspan(writer.records().size());
    GDNCTL_TRY(writer.commit(added, (*composed)->text));
    log::write_as_it_is(log::Level::info, said_of_stamp(known.view));
    return {};
}

// Updates `found` with the commits of entries that agents of earlier iterations added since the last log commit.
Result<std::vector<RunningLog::Stamped>> RunningLog::stamp_earlier(std::span<const Record> records, int iteration,
                                                                   Read& found) const {
    std::vector<int> waiting;
    for (const Record& logged : records) {
        if (logged.type != RecordType::logged || logged.iteration >= iteration) continue;
        if (!logged.word("commit").empty()) waiting.clear();
        waiting.push_back(logged.iteration);
    }
    std::vector<Stamped> stamped;
    for (const int earlier : waiting) {
        GDNCTL_TRY_ASSIGN(const auto known, judged(records, earlier));
        if (!known || !has_landed(known->view)) continue;
        GDNCTL_TRY_ASSIGN(Read then, read(*known, found.at));
        if (!then.sources) continue;
        then.sources->text = found.sources->text;
        then.sources->records = found.sources->records;
        auto composed = compose_log(*then.sources, record(*known, then), true, found.at);
        if (!composed || !*composed || !(*composed)->stamped) continue;
        found.sources->text = (*composed)->text;
        found.sources->records = (*composed)->records;
        stamped.push_back({std::move(**composed), known->view});
    }
    return stamped;
}

LogEntry RunningLog::log_commit(const KnownIteration& known, const Read& found, const std::optional<ComposedLog>& own,
                                const std::vector<Stamped>& earlier) const {
    const IterationView& view = known.view;
    const ComposedLog& log = own ? *own : earlier.back().log;
    const IterationView& of_log = own ? view : earlier.back().view;
    LogEntry entry;
    entry.tip = found.tip;
    if (own) entry.number = own->iteration;
    entry.stamped = log.stamped;
    entry.said =
        log.stamped ? said_of_stamp(of_log) : fmt::format("iteration {} of the log is in {}", log.iteration, m_path);
    entry.files[m_path] = log.text;
    if (!log.records.empty()) entry.files[runlog::records_path(m_path).generic_string()] = log.records;
    entry.message = log_message(log, of_log, known.facts.run, has_landed(view) ? view.head : found.start);
    return entry;
}

Result<std::optional<LogEntry>> RunningLog::entry(std::span<const Record> records, int iteration) {
    const std::optional<LogEntry> none;
    GDNCTL_TRY_ASSIGN(const auto known, judged(records, iteration));
    if (!known) return none;
    GDNCTL_TRY_ASSIGN(Read found, read(*known, parse_iso8601(records.back().time).value_or(WallTime{})));
    if (m_mode == StampMode::notes) return note(*known, found);
    if (!found.sources) {
        say_missing();
        return none;
    }
    if (m_mode == StampMode::inplace) {
        GDNCTL_TRY(stamp_in_place(*known, found));
        return none;
    }
    std::vector<Stamped> earlier;
    if (m_mode == StampMode::next_entry) {
        GDNCTL_TRY_ASSIGN(earlier, stamp_earlier(records, iteration, found));
    }
    auto own = compose_log(*found.sources, record(*known, found), has_landed(known->view), found.at);
    if (!own) {
        say_why_not(own.error());
        return none;
    }
    if (!*own) log::info("leaving the agent's own entry in {} unchanged", m_path);
    if (m_mode == StampMode::next_entry && *own && (*own)->stamped)
        own->reset();  // stamped with the next iteration's entry
    if (!*own && earlier.empty()) return none;
    return std::optional(log_commit(*known, found, *own, earlier));
}

}  // namespace gdnctl::loop
