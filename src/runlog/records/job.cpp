// Turns the output of a job command into fields of a record.
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "runlog/parse/log.h"
#include "runlog/records/append.h"

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

}  // namespace gdnctl::runlog
