#include "loop/memory/running_log.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/memory/run_view.h"
#include "runlog/history/append.h"
#include "runlog/import/import.h"
#include "runlog/parse/block.h"
#include "runlog/parse/log.h"
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
void copy_idea_fields(Json& record, const Json& agents) {
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
    runlog::PlacementOptions place;
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
    runlog::PlacementOptions place;
    place.only_missing = true;
    GDNCTL_TRY_ASSIGN(auto placed, runlog::place_records(sources.text, runlog::current_records(all), all, place));
    return std::optional(ComposedLog{std::move(placed.text), with_record(sources.records, record),
                                     runlog::id_of(record), number.text(), false});
}

// The entry of a record as a separate text, for a git note. `number`: of the iteration in its run. Errors: bad_input.
Result<std::string> compose_note(Json record, int number, WallTime at) {
    const runlog::IterationNumber iteration{number, {}};
    record["iteration"] = number;
    record["suffix"] = "";
    record["id"] = runlog::make_record_id(parse_iso8601(json::text(record, "started_at")).value_or(at), iteration);
    runlog::make_public(record);
    GDNCTL_TRY(runlog::check_record(record, "the iteration's record"));
    return runlog::render_entry(record);
}

constexpr std::size_t k_most_words = 2000;
constexpr std::string_view k_metric = "metric.", k_trace = "trace.";
constexpr std::string_view k_not_stated = "none was stated";

std::string subject_of(const std::string& message) {
    return shown(text::trim(std::string_view(message).substr(0, message.find('\n'))), 200);
}

// The first paragraph after the subject, as one line, unless it consists of trailers.
std::string body_of(const std::string& message) {
    const auto gap = message.find("\n\n");
    if (gap == std::string::npos) return {};
    const std::string_view rest = text::trim(std::string_view(message).substr(gap));
    std::string line(rest.substr(0, rest.find("\n\n")));
    const auto colon = line.find(": ");
    const bool trailer = colon != std::string::npos && line.substr(0, colon).find_first_of(" \n") == std::string::npos;
    if (trailer) return {};
    std::replace(line.begin(), line.end(), '\n', ' ');
    return shown(line, k_most_words);
}

void put_missing_words(Json& record, const LogFacts& log) {
    const auto put = [&](const char* pointer, const std::string& words) {
        if (json::text_at(record, pointer).empty() && !words.empty()) record[Json::json_pointer(pointer)] = words;
    };
    if (!log.messages.empty()) {
        const std::string& last = log.messages.back();
        put("/title", subject_of(last));
        const std::string body = body_of(last);
        put("/idea/hypothesis", body.empty() ? subject_of(last) : body);
        if (record["changes"].empty()) {
            for (const auto& message : log.messages) record["changes"].push_back(subject_of(message));
        }
    }
    const std::string outcome = json::text(record, "outcome");
    put("/title", outcome == "no-op" ? "nothing was changed" : outcome);
    put("/idea/hypothesis", std::string(k_not_stated));
    put("/next_hypothesis", std::string(k_not_stated));
}

// Measured results are numbers; decisions without a measurement use the words of a log.
void put_decision(Json& record) {
    const std::string outcome = json::text(record, "outcome");
    const std::string verdict = json::text(record, "decision");
    if (outcome == "infra" || outcome == "environment") {
        record["decision"] = "infra-blocked";
    } else if (outcome == "no-op" || verdict == "park") {
        record["decision"] = "none";
    } else if (verdict == "keep") {
        record["decision"] = "accepted";
    } else if (verdict == "reject") {
        record["decision"] = "rejected";
    }
    // Parked work is not a result yet, and must not look like a commit of the branch.
    if (json::text(record, "commit_status") == "parked") {
        record["commit_status"] = "none";
        record["commits"] = Json::array();
    }
    // The reason follows the decision.
    if (json::texts(record, "decision_reasons").size() == 1 &&
        json::text_at(record, "/decision_reasons/0") == json::text(record, "assessment")) {
        record["assessment"] = nullptr;
    }
    // "regression: 3 % slower" follows "regression".
    const std::string said = json::text(record, "decision") + ": ";
    for (Json& reason : record["decision_reasons"]) {
        if (reason.is_string() && reason.get<std::string>().starts_with(said)) {
            reason = reason.get<std::string>().substr(said.size());
        }
    }
}

const StageView* stage_named(const IterationView& view, std::string_view name) {
    const auto at =
        std::find_if(view.stages.begin(), view.stages.end(), [&](const StageView& s) { return s.name == name; });
    return at == view.stages.end() ? nullptr : &*at;
}

std::string fact_of(const StageView& stage, std::string_view name) {
    for (const auto& [key, value] : stage.facts) {
        if (key == name) return value;
    }
    return {};
}

// Metrics of a profile that no policy has judged.
void put_plain_metrics(Json& record, const StageView& stage) {
    if (!record["metrics"].empty() || !record["extra_metrics"].empty()) return;
    for (const auto& [name, value] : stage.facts) {
        const auto number = name.starts_with(k_metric) ? text::parse_double(value) : std::nullopt;
        if (!number) continue;
        const std::string key = name.substr(k_metric.size());
        const bool known = key.starts_with("throughput/") || key.ends_with("_ms");
        record[known ? "metrics" : "extra_metrics"][key] = {
            {"before", nullptr}, {"after", *number}, {"source", "profile"}, {"repeats", 1}};
        if (json::text_at(record, "/comparison/kind").empty()) record["comparison"]["kind"] = "champion";
    }
}

void put_profile(Json& record, const StageView& stage, const LogFacts& log) {
    if (record["profiles"].empty()) record["profiles"].push_back({{"arm", "candidate"}});
    Json& profile = record["profiles"].back();
    const auto put = [&](const char* field, const std::string& value) {
        if (!value.empty()) profile[field] = value;
    };
    put("command", fact_of(stage, "command"));
    put("job_id", fact_of(stage, "job"));
    put("cluster", fact_of(stage, "cluster"));
    const std::string file = fact_of(stage, "log");
    put("output", file.empty() ? "" : log.evidence_folder + file);
    if (const std::string trace = fact_of(stage, "trace"); !trace.empty()) {
        profile["trace"] = {{"path", log.evidence_folder + trace}, {"sha256", fact_of(stage, "trace_sha256")}};
    }
    if (!stage.trace_lines.empty()) profile["hotspots"] = stage.trace_lines;
    if (stage.verdict == "fail") put("failure", shown(stage.reason, k_most_words));
    for (const auto& [name, value] : stage.facts) {
        if (const auto budget = text::parse_double(value); name.starts_with(k_trace) && budget) {
            profile["metrics"][name.substr(k_trace.size())] = *budget;
        }
        for (const std::string role : {"requested", "effective"}) {
            if (!name.starts_with(role + ".")) continue;
            const auto number = text::parse_double(value);
            profile[role][name.substr(role.size() + 1)] = number ? Json(*number) : Json(value);
        }
    }
    put_plain_metrics(record, stage);
}

// Neither a profile nor the performance policy is a check: their gates and numbers have fields of their own.
void put_checks(Json& record, const IterationView& view, const LogFacts& log) {
    Json checks = Json::array();
    for (Json& check : record["checks"]) {
        const std::string name = json::text(check, "name");
        const StageView* stage = stage_named(view, name);
        const bool is_check =
            name != "validation-profile" && name != "performance" && name != "idea" && name != "running-log";
        if (!is_check || stage == nullptr) continue;
        if (const auto file = json::text(check, "evidence"); !file.empty())
            check["evidence"] = log.evidence_folder + file;
        std::string verdict = fact_of(*stage, "verdict");
        if (verdict.empty()) verdict = stage->verdict == "pass" ? "OK" : "FAILED";
        check["verdict"] = verdict;
        if (verdict == "FAILED") check.erase("verdict");
        checks.push_back(std::move(check));
    }
    record["checks"] = std::move(checks);
    if (const StageView* profile = stage_named(view, "validation-profile")) put_profile(record, *profile, log);
    for (Json& failure : record["infra"]) {
        for (const StageView& stage : view.stages) {
            if (stage.verdict == "fail") failure["command"] = fact_of(stage, "command");
        }
    }
}

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

class LogStage final : public Stage {
public:
    LogStage(std::string path, const GitCheckout& repository)
        : m_path(std::move(path)), m_records(runlog::records_path(m_path).generic_string()), m_repository(repository) {}

    std::string_view name() const override { return "running-log"; }
    Policy policy() const override { return Policy::count_failure; }
    bool wants(DiffClass diff) const override { return diff != DiffClass::no_op; }

    Result<StageResult> run(const StageContext& context) override {
        StageResult result;
        const auto& files = context.candidate.files;
        if (std::none_of(files.begin(), files.end(), [&](const auto& one) { return is_of_log(one.path); })) {
            result.verdict = StageVerdict::skip;
            return result;
        }
        const std::string& base = context.base.sha;
        const std::string& head = context.candidate.head;
        const std::array names = {base + ":" + m_path, base + ":" + m_records, head + ":" + m_path,
                                  head + ":" + m_records};
        GDNCTL_TRY_ASSIGN(const auto found, m_repository.objects(names));
        std::string finding = finding_in(found[2], found[3]);
        for (const std::size_t i : {0U, 1U}) {
            if (found[i] && !found[i + 2]) finding = (i == 0 ? m_path : m_records) + " was deleted";
        }
        if (finding.empty()) return result;
        if (const std::string before = finding_in(found[0], found[1]); !before.empty()) {
            log::warning("the running log could not be read before this iteration either: {}", before);
            return result;
        }
        result.verdict = StageVerdict::fail;
        result.reason = "entries could no longer be added to the running log: " + finding;
        result.sign = "the running log cannot be read";
        result.exit_status = 1;
        return result;
    }

private:
    bool is_of_log(const std::string& path) const { return path == m_path || path == m_records; }

    std::string finding_in(const std::optional<std::string>& text, const std::optional<std::string>& records) const {
        const Status checked = check_log(m_path, text.value_or(std::string()), records.value_or(std::string()));
        return checked ? std::string() : checked.error().text();
    }

    std::string m_path, m_records;
    const GitCheckout& m_repository;
};

}  // namespace

Status check_log(const std::string& name, const std::string& text, const std::string& records) {
    GDNCTL_TRY(open_document(text, name));
    GDNCTL_TRY(runlog::parse_records(records, runlog::records_path(name).generic_string()));
    return {};
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
    copy_idea_fields(record, agents != nullptr ? *agents : runlog::import_entry(*brought));
    return add_entry(sources, document, all, std::move(record), at);
}

Json log_record(std::span<const Record> own, const LedgerFacts& facts, const LogFacts& log) {
    Json record = iteration_record(own, facts);
    const RunView run = view_of(own);
    if (run.iterations.empty()) return record;
    const IterationView& view = run.iterations.front();
    put_checks(record, view, log);
    put_decision(record);
    put_missing_words(record, log);
    runlog::make_public(record);
    return record;
}

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

std::unique_ptr<Stage> make_log_stage(std::string path, const GitCheckout& repository) {
    return std::make_unique<LogStage>(std::move(path), repository);
}

}  // namespace gdnctl::loop
