// Turns the journal and the measurements of an iteration into its record.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "loop/memory/ideas.h"
#include "loop/memory/ledger.h"
#include "loop/report/model.h"
#include "runlog/records/record.h"

namespace gdnctl::loop {

namespace {

constexpr double k_ms_per_s = 1000;

Json or_absent(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json or_absent(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::string ref_name(const LedgerFacts& facts, int iteration) {
    return fmt::format("refs/gdnctl/{}/iter-{:03}/head", facts.run, iteration);
}

void put_commits(Json& record, const IterationView& view, const LedgerFacts& facts) {
    record["base"]["commit"] = or_absent(view.base);
    const bool committed = !view.head.empty() && view.head != view.base;
    if (view.kept() && committed && view.settled != "blocked") {
        record["commit_status"] = "committed";
        record["commits"] = facts.commits.empty() ? std::vector<std::string>{view.head} : facts.commits;
    } else if (committed && (view.verdict == "park" || view.settled == "blocked")) {
        record["commit_status"] = "parked";
        record["commit_reason"] = "kept at " + ref_name(facts, view.number);
        record["commits"] = facts.commits.empty() ? std::vector<std::string>{view.head} : facts.commits;
    } else {
        record["commit_status"] = "none";
        record["commit_reason"] =
            committed ? "failed attempt, kept at " + ref_name(facts, view.number) : "no new commit";
    }
}

void put_idea(Json& record, const LedgerFacts& facts) {
    const AgentReport& report = facts.report;
    const Idea idea = idea_of(facts);
    record["title"] = report.title.empty() ? Json() : Json(shown(report.title, 200));
    record["coverage_slot"] = or_absent(report.slot);
    record["change_class"] = or_absent(report.change_class);
    record["idea"]["id"] = or_absent(idea_id(idea));
    record["idea"]["move"] = or_absent(report.move);
    record["idea"]["title"] = or_absent(report.title);
    record["idea"]["hypothesis"] = or_absent(report.hypothesis);
    record["idea"]["reject_if"] = report.reject_if;
    record["idea"]["patch_id"] = or_absent(facts.patch_id);
    if (!report.new_argument.empty()) record["idea"]["new_argument"] = report.new_argument;
    record["changes"] = report.changes;
    record["files"] = facts.files;
    record["next_hypothesis"] = or_absent(report.next_hypothesis);
}

Json check_of(const StageView& stage) {
    Json check = {{"name", stage.name},
                  {"exit", stage.verdict == "fail" ? 1 : 0},
                  {"seconds", static_cast<double>(stage.wall_ms) / k_ms_per_s},
                  {"verdict", stage.reason.empty() ? stage.verdict : stage.reason}};
    for (const auto& [name, value] : stage.facts) {
        const bool counts =
            name == "passed" || name == "failed" || name == "skipped" || name == "deselected" || name == "cases";
        const bool words =
            name == "backend" || name == "cluster" || name == "job_id" || name == "command" || name == "evidence";
        const auto number = text::parse_int(value);
        if (counts && number) check[name] = *number;
        if (words) check[name] = value;
        if (name == "job") check["job_id"] = value;
        if (name == "log") check["evidence"] = value;
    }
    return check;
}

Json gate_entry(const GateView& gate) {
    return {{"id", gate.id},
            {"result", gate.result},
            {"value", or_absent(gate.value)},
            {"limit", or_absent(gate.limit)},
            {"reason", or_absent(gate.words)}};
}

void put_stages(Json& record, const IterationView& view) {
    for (const StageView& stage : view.stages) {
        if (stage.verdict == "skip") continue;
        record["checks"].push_back(check_of(stage));
        for (const GateView& gate : stage.gates) record["gates"].push_back(gate_entry(gate));
    }
    if (view.outcome != "infra" && view.outcome != "environment") return;
    record["infra"].push_back({{"class", view.outcome},
                               {"signature", or_absent(view.sign)},
                               {"excerpt", or_absent(shown(view.reason, 1000))}});
}

void put_measured(Json& record, const IterationView& view, const LedgerFacts& facts) {
    const MeasuredView* measured = facts.measured == nullptr ? nullptr : facts.measured->of(view);
    if (measured == nullptr) return;
    record["decision"] = or_absent(measured->decision);
    if (record["gates"].empty()) {
        for (const GateView& gate : measured->gates) record["gates"].push_back(gate_entry(gate));
    }
    if (!measured->value) return;
    Json metric = {{"before", nullptr},
                   {"after", *measured->value},
                   {"source", "profile"},
                   {"repeats", std::max<std::size_t>(measured->points.size(), 1)}};
    if (!measured->unit.empty()) metric["unit"] = measured->unit;
    if (measured->gain) {
        const runlog::Gain& gain = *measured->gain;
        metric["before"] = or_absent(gain.before);
        if (!gain.unit.empty()) metric["unit"] = gain.unit;
        if (gain.factor) metric["gain_pct"] = runlog::factor_percent(*gain.factor);
        if (gain.low && gain.high) {
            metric["gain_bounds_pct"] = {runlog::factor_percent(*gain.low), runlog::factor_percent(*gain.high)};
        }
        if (gain.pairs > 0) metric["pairs"] = gain.pairs;
        record["gain"] = runlog::gain_json(gain);
    }
    // Metrics of unknown unit are stored with the others, as an import would do.
    const bool known = measured->metric.starts_with("throughput/") || measured->metric.ends_with("_ms");
    record[known ? "metrics" : "extra_metrics"][measured->metric] = std::move(metric);
    record["comparison"]["kind"] = "champion";
    const auto points = static_cast<std::int64_t>(measured->points.size());
    record["profiles"].push_back({{"arm", "candidate"},
                                  {"run_url", or_absent(measured->run_url)},
                                  {"window", {{"points", measured->window_points.value_or(points)}}}});
}

void put_cost(Json& record, const IterationView& view, std::span<const Record> records) {
    std::int64_t input = 0;
    std::int64_t cached = 0;
    std::int64_t output = 0;
    bool split = false;
    for (const Record& one : records) {
        if (one.type != RecordType::attempt_end) continue;
        split = split || one.number.contains("tokens_input");
        input += one.count("tokens_input");
        cached += one.count("tokens_cached");
        output += one.count("tokens_output");
    }
    const Json total = view.tokens ? Json(*view.tokens) : Json();
    Json tokens = {{"total", total}};
    if (split) tokens = {{"total", total}, {"input", input}, {"cached", cached}, {"output", output}};
    record["cost"] = {{"wall_s", static_cast<double>(view.wall_ms) / k_ms_per_s},
                      {"agent_s", static_cast<double>(view.agent_ms) / k_ms_per_s},
                      {"tpu_s", static_cast<double>(view.tpu_ms) / k_ms_per_s},
                      {"tokens", std::move(tokens)},
                      {"retries", view.retries()}};
}

}  // namespace

Json iteration_record(std::span<const Record> records, const LedgerFacts& facts) {
    const RunView run = view_of(records);
    const IterationView view = run.iterations.empty() ? IterationView{} : run.iterations.front();
    const auto started = parse_iso8601(view.started).value_or(WallTime{});
    const runlog::IterationNumber number{view.number, {}};
    Json record = runlog::empty_record(runlog::make_record_id(started, number), number, started);
    record["loop"] = {{"run_id", facts.run}, {"index", view.number}, {"total", facts.total}};
    record["finished_at"] = or_absent(run.last);
    put_commits(record, view, facts);
    record["outcome"] = or_absent(view.outcome);
    record["decision"] = or_absent(view.verdict);
    if (!view.reason.empty()) record["decision_reasons"].push_back(shown(view.reason, 2000));
    put_idea(record, facts);
    put_stages(record, view);
    put_measured(record, view, facts);
    put_cost(record, view, records);
    record["assessment"] = or_absent(shown(view.reason, 2000));
    runlog::make_public(record);
    return record;
}

}  // namespace gdnctl::loop
