// Turns the output of a job command into fields of a record.
#include "runlog/history/append.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

namespace {

std::string first_line(std::string_view text) { return std::string(text::trim(text.substr(0, text.find('\n')))); }

// "ray-test" from "gdnctl.ray-test/1"; for a job that was looked up by id, from what it was submitted as.
std::string command_name(const Json& job) {
    if (const auto kind = json::text(job, "kind"); kind == "test" || kind == "profile") return "ray-" + kind;
    std::string name = json::text(job, "schema");
    if (name.starts_with("gdnctl.")) name.erase(0, 7);
    return name.substr(0, name.find('/'));
}

std::string command_of(const Json& job, const std::string& name) {
    for (const char* field : {"command", "entrypoint"}) {
        if (auto command = json::text(job, field); !command.empty()) return command;
    }
    const std::string cluster = json::text(job, "cluster");
    return cluster.empty() ? "gdnctl " + name : fmt::format("gdnctl {} --cluster {}", name, cluster);
}

// Test counts, wherever the command reports them.
void put_counts(Json& check, const Json& job) {
    for (const char* field : {"tests", "pytest", "counts"}) {
        const Json* counts = json::object(job, field);
        if (counts == nullptr) continue;
        for (const char* name :
             {"passed", "failed", "skipped", "deselected", "xfailed", "xpassed", "errors", "warnings", "flaky"}) {
            const Json& value = json::field(*counts, name);
            if (!value.is_null()) check[name] = value;
        }
    }
}

// The oracle's last verdict. `OK` only if no item has a worse one, because a job may run the oracle more than once.
// Items that the oracle finds unstable may be unstable on purpose.
std::string verdict_of(const Json& job) {
    if (auto verdict = json::text(job, "verdict"); !verdict.empty()) return verdict;
    const std::string overall = json::text_at(job, "/verdict/overall");
    if (overall != "OK") return overall;
    for (const char* bad : {"WRONG", "NO_DATA"}) {
        const auto count = json::integer_at(job, std::string("/verdict/counts/") + bad);
        if (count && *count > 0) return bad;
    }
    return overall;
}

Json seconds_between(const Json& job) {
    const auto start = json::number(job, "start_time");
    const auto end = json::number(job, "end_time");
    // If the clock was set back in between, the duration is unknown.
    return start && end && *end >= *start ? Json((*end - *start) / 1000.0) : Json();
}

Json check_of(const Json& job, const std::string& name) {
    Json check = {{"name", json::or_null(name)},
                  {"command", command_of(job, name)},
                  {"exit", json::field(job, "driver_exit_code")},
                  {"seconds", seconds_between(job)}};
    put_counts(check, job);
    const std::string verdict = verdict_of(job);
    if (!verdict.empty()) {
        check["verdict"] = verdict;
        check["verdicts"] = json::field_at(job, "/verdict/counts");
        check["cases"] = json::field_at(job, "/verdict/cases");
        check["vectors"] = json::field_at(job, "/verdict/vectors");
    }
    const bool succeeded = json::text(job, "status") == "SUCCEEDED";
    if (!check.contains("passed") && !succeeded && check["exit"].is_null()) {
        check["result"] = fmt::format("{}: {}", json::text(job, "status"), first_line(json::text(job, "message")));
    }
    check["status"] = json::field(job, "status");
    check["backend"] = json::field_at(job, "/device/backend");
    check["cluster"] = json::field(job, "cluster");
    check["job_id"] = json::field(job, "submission_id");
    check["url"] = json::field(job, "url");
    return check;
}

void put_metric(Json& record, const std::string& name, const Json& value) {
    if (!value.is_number()) return;
    const auto key = metric_key(name);
    Json& table = record[key ? "metrics" : "extra_metrics"];
    table[key.value_or(name)] = {{"before", nullptr}, {"after", value}, {"source", "profile"}};
}

void add_profile(Json& record, const Json& job, const std::string& name) {
    Json profile = {{"arm", "candidate"},
                    {"command", command_of(job, name)},
                    {"cluster", json::field(job, "cluster")},
                    // Whatever type was named: this machine gives a job no TPU.
                    {"tpu", json::text(job, "backend") == "local" ? Json() : json::field(job, "tpu")},
                    {"job_id", json::field(job, "submission_id")},
                    {"run_url", json::field_at(job, "/profile/run_url")}};
    if (json::text(job, "status") != "SUCCEEDED") profile["failure"] = first_line(json::text(job, "message"));
    record["profiles"].push_back(std::move(profile));
    for (const auto& [field, metric] : {std::pair{"mfu", "throughput/mfu"},
                                        {"tokens_per_second", "throughput/tokens_per_second"},
                                        {"duration_s", "throughput/duration"}}) {
        put_metric(record, metric, json::field_at(job, std::string("/profile/") + field));
    }
    if (const Json* metrics = json::object(job, "metrics")) {
        for (const auto& [key, value] : metrics->items()) put_metric(record, key, value);
    }
    if (const auto metric = json::text_at(job, "/metric/name"); !metric.empty()) {
        put_metric(record, metric, json::field_at(job, "/metric/value"));
    }
}

bool is_infra(const Json& job) {
    const std::string failure = json::text(job, "failure_class");
    return failure == "infra" || failure == "infra-suspect" || failure == "auth";
}

// Of a job that did not succeed; nullptr: nothing says that it failed.
const char* outcome_of(const Json& job) {
    const std::string failure = json::text(job, "failure_class");
    if (is_infra(job)) return "infra";
    if (failure == "timeout") return "timeout";
    return json::text(job, "status") == "FAILED" || failure == "user" ? "test-fail" : nullptr;
}

void add_outcome(Json& record, const Json& job) {
    if (is_infra(job)) {
        record["infra"].push_back({{"class", json::or_null(json::text(job, "error_type"))},
                                   {"command", command_of(job, command_name(job))},
                                   {"exit", json::field(job, "driver_exit_code")},
                                   {"signature", json::or_null(first_line(json::text(job, "message")))},
                                   {"job_id", json::field(job, "submission_id")}});
    }
    const char* outcome = outcome_of(job);
    if (outcome != nullptr && record["outcome"].is_null()) record["outcome"] = outcome;
}

}  // namespace

Status add_job(Json& record, const Json& job) {
    const std::string status = json::text(job, "status");
    if (!job.is_object() || status.empty() || json::text(job, "submission_id").empty()) {
        return fail(ErrorKind::bad_input, "not the JSON of a job: it has no `status` or no `submission_id`",
                    "pass the output of `gdnctl ray-test --json` or `gdnctl ray-wait ID --json`");
    }
    if (status == "PENDING" || status == "RUNNING") {
        return fail(ErrorKind::usage, fmt::format("job {} has not ended: {}", json::text(job, "submission_id"), status),
                    fmt::format("`gdnctl ray-wait {} --json` prints it when it has", json::text(job, "submission_id")));
    }
    const bool ended = status == "SUCCEEDED" || status == "FAILED" || status == "STOPPED";
    if (!ended && outcome_of(job) == nullptr) {
        return fail(
            ErrorKind::bad_input,
            fmt::format("job {} has an unknown status: {}", json::text(job, "submission_id"), status),
            fmt::format("`gdnctl ray-wait {} --json` prints its current status", json::text(job, "submission_id")));
    }
    const std::string name = command_name(job);
    if (name.find("profile") != std::string::npos) {
        add_profile(record, job, name);
    } else {
        record["checks"].push_back(check_of(job, name.empty() ? "job" : name));
    }
    add_outcome(record, job);
    return {};
}

Template template_of(const Document& document) {
    if (document.kind == Template::experiment || !document.entries.empty()) return document.kind;
    LineCursor cursor(document.text);
    BlockTracker tracker;
    Line line;
    while (cursor.next(line)) {
        if (tracker.inside(line.text)) continue;
        const std::string_view text = text::trim(line.text);
        if (text == "# Experiment Log" || text == "## Ongoing Template") return Template::experiment;
    }
    return Template::hillclimb;
}

bool is_log(const Document& document) {
    if (!document.entries.empty() || !document.malformed_headings.empty()) return true;
    if (!parse_experiments(document).empty()) return true;
    LineCursor cursor(document.text);
    BlockTracker tracker;
    Line line;
    bool first = true;
    while (cursor.next(line)) {
        const std::string_view words = text::trim(line.text);
        if (tracker.inside(line.text) || tracker.commented() || words.empty()) continue;
        for (const std::string_view head :
             {"## Iterations", "## Loop Contract", "## Entry Template", "## Ongoing Template"}) {
            if (words == head) return true;
        }
        // A title alone is enough: "# Hill-climb log"
        const std::string lower_case = text::to_lower(words);
        if (first && lower_case.starts_with("# ") && lower_case.ends_with(" log")) return true;
        first = false;
    }
    return text::trim(document.text).empty();
}

IterationNumber next_iteration(const Document& document, const std::vector<Json>& records) {
    std::int64_t last = -1;
    for (const EntryHead& entry : document.entries) last = std::max(last, entry.number);
    for (const Json& record : records) last = std::max(last, iteration_of(record).number);
    if (document.kind == Template::experiment) {
        last = std::max(last, static_cast<std::int64_t>(parse_experiments(document).size()) - 1);
    }
    return {last + 1, {}};
}

IterationNumber next_free_iteration(const LogWriter& writer, const Document& document) {
    IterationNumber iteration = next_iteration(document, writer.records());
    std::error_code ec;
    while (std::filesystem::exists(draft_path(writer.log(), iteration.number), ec)) ++iteration.number;
    return iteration;
}

void fill_sections(Json& record) {
    Json& sections = record["sections"];
    if (!sections.is_object()) sections = Json::object();
    const auto put = [&](const char* name, std::string text) {
        if (!text.empty() && !sections.contains(name)) sections[name] = std::move(text);
    };
    const auto bullets = [](const std::vector<std::string>& items) {
        std::string text;
        for (const auto& item : items) text += fmt::format("{}- {}", text.empty() ? "" : "\n", item);
        return text;
    };
    put("Goal", json::text_at(record, "/idea/title"));
    put("Hypothesis", json::text_at(record, "/idea/hypothesis"));
    auto actions = json::texts(record, "changes");
    std::vector<std::string> outcomes;
    if (const Json* checks = json::find(record, "checks")) {
        for (const Json& check : *checks) {
            const std::string command = json::text(check, "command");
            if (!command.empty()) actions.push_back(fmt::format("Ran `{}`", command));
            outcomes.push_back(fmt::format(
                "{}{}", render_check_result(check),
                json::text(check, "job_id").empty() ? "" : fmt::format(" (job `{}`)", json::text(check, "job_id"))));
        }
    }
    if (const Json* metrics = json::find(record, "metrics")) {
        for (const auto& [key, value] : metrics->items()) outcomes.push_back(render_metric(key, value));
    }
    if (const Json* metrics = json::find(record, "extra_metrics")) {
        for (const auto& [key, value] : metrics->items()) outcomes.push_back(render_metric(key, value));
    }
    if (const auto assessment = json::text(record, "assessment"); !assessment.empty()) outcomes.push_back(assessment);
    put("Action", bullets(actions));
    put("Outcome", bullets(outcomes));
    put("Breakthrough / Insight", bullets(json::texts(record, "interpretation")));
    put("Next Step", json::text(record, "next_hypothesis"));
}

namespace {

bool number_taken(const Document& document, const std::vector<Json>& records, const IterationNumber& iteration) {
    const bool in_log = std::any_of(document.entries.begin(), document.entries.end(), [&](const EntryHead& entry) {
        return entry.number == iteration.number && entry.suffix == iteration.suffix;
    });
    return in_log || std::any_of(records.begin(), records.end(),
                                 [&](const Json& record) { return iteration_of(record) == iteration; });
}

bool id_taken(const std::vector<Json>& records, const std::string& id) {
    return std::any_of(records.begin(), records.end(), [&](const Json& record) { return id_of(record) == id; });
}

Status give_identity(Json& record, const LogWriter& writer, const Document& document, const AppendOptions& options) {
    if (options.keep_number) {
        GDNCTL_TRY(check_record(record, "the record"));
        if (number_taken(document, writer.records(), iteration_of(record))) {
            return fail(ErrorKind::conflict,
                        fmt::format("iteration {} is already in the log", iteration_of(record).text()),
                        "`gdnctl log new` gives the next free number");
        }
        if (id_taken(writer.records(), id_of(record))) {
            return fail(ErrorKind::conflict, fmt::format("the records already contain the id {}", id_of(record)),
                        "`gdnctl log new` makes a record with a new id");
        }
    } else {
        const IterationNumber iteration = next_free_iteration(writer, document);
        record["iteration"] = iteration.number;
        record["suffix"] = iteration.suffix;
        record["id"] = make_record_id(options.now, iteration);
        record["started_at"] = format_iso8601(options.now);
    }
    if (json::text(record, "finished_at").empty()) {
        // A draft may have been started before the clock was set back.
        const auto started = parse_iso8601(json::text(record, "started_at"));
        record["finished_at"] = format_iso8601(std::max(options.now, started.value_or(options.now)));
    }
    return {};
}

}  // namespace

Status check_appendable(const Document& document, const std::string& name) {
    const std::string place = name.empty() ? "" : name + ": ";
    if (const auto mark = detail::first_conflict(document.text)) {
        return fail(ErrorKind::conflict,
                    fmt::format("{}line {} is an unresolved merge conflict marker", place, mark->number),
                    "resolve the merge: keep the entries of both sides, and delete the conflict markers");
    }
    if (!document.unclosed) return {};
    return fail(ErrorKind::bad_input,
                fmt::format("{}the {} that line {} opens is never closed; an entry after it would be hidden", place,
                            document.unclosed->what, document.unclosed->line.number),
                "close it; `gdnctl lint-log --fix` closes a code fence where that is safe");
}

Result<Appended> append_entry(LogWriter& writer, Json& record, const AppendOptions& options) {
    GDNCTL_TRY_ASSIGN(const auto document, parse_document(writer.text()));
    if (writer.records().empty() && !is_log(document)) {
        return fail(ErrorKind::usage,
                    fmt::format("{} is not a running log: it has no entry and no log heading", writer.log().string()),
                    "`gdnctl log init --log-file PATH` starts a log; --log-file names another one");
    }
    GDNCTL_TRY(check_appendable(document, ""));
    std::vector<Json> all = writer.records();
    GDNCTL_TRY(give_identity(record, writer, document, options));
    if (template_of(document) == Template::experiment) record["kind"] = "experiment";
    const auto has_numbers = [&](const char* table) {
        const Json* numbers = json::find_at(record, table);
        return numbers != nullptr && !numbers->empty();
    };
    if ((has_numbers("/metrics") || has_numbers("/extra_metrics")) &&
        json::text_at(record, "/comparison/kind").empty()) {
        record["comparison"]["kind"] = name_of(Comparison::unknown);
    }
    make_public(record);
    if (is_experiment(record)) fill_sections(record);
    GDNCTL_TRY(check_record(record, "the record"));
    all.push_back(record);

    PlaceOptions place;
    place.only_missing = true;
    const auto current = current_records(all);
    GDNCTL_TRY_ASSIGN(const auto placement, place_records(writer.text(), current, all, place));
    Appended appended;
    for (const Difference& difference : placement.differences) {
        if (difference.id == id_of(record)) continue;
        auto& list = difference.settled ? appended.repaired : appended.warnings;
        list.push_back(difference.message);
    }
    GDNCTL_TRY(writer.commit({&record, 1}, placement.text, options.on_step));
    return appended;
}

}  // namespace gdnctl::runlog
