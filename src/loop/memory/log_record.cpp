#include "loop/memory/log_record.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "loop/report/model.h"
#include "runlog/records/record.h"

namespace gdnctl::loop {

namespace {

constexpr std::size_t k_most_words = 2000;
constexpr std::string_view k_metric = "metric.";
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
    if (stage.verdict == "fail") put("failure", shown(stage.reason, k_most_words));
    for (const auto& [name, value] : stage.facts) {
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

}  // namespace

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

}  // namespace gdnctl::loop
