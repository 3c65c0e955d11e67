#include "loop/log_entry.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gdnctl/core/log.h"
#include "gdnctl/services/runlog/record_store.h"
#include "loop/log_compose.h"
#include "loop/log_record.h"

namespace gdnctl::loop {

namespace {

constexpr std::size_t k_most_messages = 20;
constexpr std::string_view k_subject = "Log iteration ";
constexpr std::string_view k_code = "\nGdnctl-Code: ";

// A commit object is headers, an empty line, the message.
std::string message_of(const std::string& commit) {
    const auto gap = commit.find("\n\n");
    return gap == std::string::npos ? std::string() : commit.substr(gap + 2);
}

// The commit whose code a commit has: a log commit names it.
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

// `code`: the commit that it stands on, log commits aside.
std::string log_message(const ComposedLog& log, const IterationView& view, const std::string& run, bool landed,
                        const std::string& code) {
    std::string text =
        fmt::format("{}{}: {}\n\nGdnctl-Run: {} {}", k_subject, log.iteration, view.outcome, run, view.number);
    if (!log.id.empty()) text += "\nGdnctl-Log: " + log.id;
    if (landed) text += "\nGdnctl-Stamps: " + view.head;
    return text + std::string(k_code) + code + "\n";
}

}  // namespace

// What git has of the log and of the candidate; `sources` is nullopt where the branch has no log.
struct RunningLog::Read {
    std::optional<LogSources> sources;
    std::vector<std::string> messages;  // of the candidate's commits, oldest first
    std::string start;                  // the base, log commits aside
    std::string tip;                    // of the branch, which `sources` is read from
};

Result<RunningLog::Read> RunningLog::read(const KnownIteration& known) const {
    Read read;
    if (m_path.empty()) return read;
    const IterationView& view = known.view;
    const std::string beside = runlog::records_path(m_path).generic_string();
    GDNCTL_TRY_ASSIGN(const auto tip, m_repository.resolve(view.branch.empty() ? "HEAD" : view.branch));
    if (!tip) return fail(ErrorKind::conflict, fmt::format("the branch {} is gone", view.branch));
    read.tip = *tip;
    const std::string head = view.head.empty() ? view.base : view.head;
    std::vector<std::string> names = {*tip + ":" + m_path, *tip + ":" + beside, view.base + ":" + m_path,
                                      head + ":" + m_path, head + ":" + beside, view.base};
    const std::size_t objects = names.size();
    const auto& commits = known.facts.commits;
    for (std::size_t i = commits.size() - std::min(commits.size(), k_most_messages); i < commits.size(); ++i) {
        names.push_back(commits[i]);
    }
    GDNCTL_TRY_ASSIGN(const auto found, m_repository.objects(names));
    const auto text = [&](std::size_t i) { return found[i].value_or(std::string()); };
    for (std::size_t i = objects; i < found.size(); ++i) read.messages.push_back(message_of(text(i)));
    read.start = code_of(view.base, message_of(text(5)));
    if (found[0]) read.sources = LogSources{m_path, text(0), text(1), text(2), text(3), text(4)};
    return read;
}

void RunningLog::say_missing() {
    if (!m_missing_said) {
        log::warning("no running log{}: iterations get no entry in one",
                     m_path.empty() ? "" : " " + m_path + " on the branch");
    }
    m_missing_said = true;
}

Result<std::optional<LogEntry>> RunningLog::entry(std::span<const Record> records, int iteration) {
    const std::optional<LogEntry> none;
    GDNCTL_TRY_ASSIGN(const auto known, known_iteration(m_log_dir, m_repository, records, iteration));
    if (!known) return none;
    const IterationView& view = known->view;
    const bool stuck = view.kept() && view.settled == "blocked";  // accepted, yet it could not land: an error
    if (stuck || view.outcome == to_text(Outcome::error)) return none;
    GDNCTL_TRY_ASSIGN(const Read found, read(*known));
    if (!found.sources) {
        say_missing();
        return none;
    }
    Json record =
        log_record(known->own, known->facts, {evidence_folder(m_log_dir, m_repository.root()), found.messages});
    record["base"]["commit"] = found.start;
    const bool landed = view.kept() && view.head != view.base;
    const auto at = parse_iso8601(records.back().time).value_or(WallTime{});
    const auto composed = compose_log(*found.sources, std::move(record), landed, at);
    if (!composed) {
        log::warning("no entry in the running log: {}", composed.error().text());
        if (!composed.error().hint.empty()) log::warning("hint: {}", composed.error().hint);
        return none;
    }
    if (!*composed) {
        log::info("the agent's own entry stays as it is in {}", m_path);
        return none;
    }
    const ComposedLog& done = **composed;
    LogEntry entry;
    entry.tip = found.tip;
    entry.said = done.stamped ? fmt::format("stamped last hill-climb log entry with commit {}", view.head.substr(0, 12))
                              : fmt::format("iteration {} of the log is in {}", done.iteration, m_path);
    entry.files[m_path] = done.text;
    if (!done.records.empty()) entry.files[runlog::records_path(m_path).generic_string()] = done.records;
    entry.message = log_message(done, view, known->facts.run, landed, landed ? view.head : found.start);
    return std::optional(std::move(entry));
}

}  // namespace gdnctl::loop
