#include "loop/memory/ledger.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/engine/log_dir.h"
#include "loop/memory/ideas.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/journal.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

constexpr double k_ms_per_s = 1000;

std::string ref_name(const LedgerFacts& facts, int iteration) {
    return fmt::format("refs/gdnctl/{}/iter-{:03}/head", facts.run, iteration);
}

void put_commits(Json& record, const IterationView& view, const LedgerFacts& facts) {
    record["base"]["commit"] = json::or_null(view.base);
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
    record["coverage_slot"] = json::or_null(report.slot);
    record["change_class"] = json::or_null(report.change_class);
    record["idea"]["id"] = json::or_null(idea_id(idea));
    record["idea"]["move"] = json::or_null(report.move);
    record["idea"]["title"] = json::or_null(report.title);
    record["idea"]["hypothesis"] = json::or_null(report.hypothesis);
    record["idea"]["reject_if"] = report.reject_if;
    record["idea"]["patch_id"] = json::or_null(facts.patch_id);
    if (!report.new_argument.empty()) record["idea"]["new_argument"] = report.new_argument;
    record["changes"] = report.changes;
    record["files"] = facts.files;
    record["next_hypothesis"] = json::or_null(report.next_hypothesis);
}

Json check_of(const StageView& stage) {
    Json check = {{"name", stage.name},
                  {"exit", stage.verdict == "fail" ? 1 : 0},
                  {"seconds", static_cast<double>(stage.wall_ms) / k_ms_per_s},
                  {"verdict", stage.reason.empty() ? stage.verdict : stage.reason}};
    if (stage.oracle.is_object()) check["oracle"] = stage.oracle;
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
            {"value", json::or_null(gate.value)},
            {"limit", json::or_null(gate.limit)},
            {"reason", json::or_null(gate.words)}};
}

void put_stages(Json& record, const IterationView& view) {
    for (const StageView& stage : view.stages) {
        if (stage.verdict == "skip") continue;
        record["checks"].push_back(check_of(stage));
        for (const GateView& gate : stage.gates) record["gates"].push_back(gate_entry(gate));
    }
    if (view.outcome != "infra" && view.outcome != "environment") return;
    record["infra"].push_back({{"class", view.outcome},
                               {"signature", json::or_null(view.sign)},
                               {"excerpt", json::or_null(shown(view.reason, 1000))}});
}

void put_measured(Json& record, const IterationView& view, const LedgerFacts& facts) {
    const MeasuredView* measured = facts.measured == nullptr ? nullptr : facts.measured->of(view);
    if (measured == nullptr) return;
    record["decision"] = json::or_null(measured->decision);
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
        metric["before"] = json::or_null(gain.before);
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
                                  {"run_url", json::or_null(measured->run_url)},
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
    const Json total = json::or_null(view.tokens);
    Json tokens = {{"total", total}};
    if (split) tokens = {{"total", total}, {"input", input}, {"cached", cached}, {"output", output}};
    record["cost"] = {{"wall_s", static_cast<double>(view.wall_ms) / k_ms_per_s},
                      {"agent_s", static_cast<double>(view.agent_ms) / k_ms_per_s},
                      {"tpu_s", static_cast<double>(view.tpu_ms) / k_ms_per_s},
                      {"tokens", std::move(tokens)},
                      {"retries", view.retries()}};
}

constexpr std::size_t k_report_limit = std::size_t{64} << 10;
constexpr std::size_t k_ledger_limit = std::size_t{256} << 20;

fs::path ledger_path(const fs::path& log_dir) { return log_dir / "ledger.jsonl"; }

std::string without_blanks(std::string_view line) {
    std::string text;
    for (const char c : line) {
        if (c != ' ' && c != '\t' && c != '\r') text += c;
    }
    return text;
}

// Hashes the changes of a patch line by line.
class PatchHash {
public:
    static Result<PatchHash> create() {
        GDNCTL_TRY_ASSIGN(Hasher hasher, Hasher::create(HashKind::sha256));
        return PatchHash(std::move(hasher));
    }
    void take(std::string_view line) {
        if (line.empty()) return;
        const bool names_file = line.starts_with("diff --git ");
        m_in_hunk = !names_file && (m_in_hunk || line.starts_with("@@"));
        m_in_binary = !names_file && (m_in_binary || line.starts_with("GIT binary patch"));
        const bool changes = m_in_hunk && (line.starts_with('+') || line.starts_with('-'));
        if ((!names_file && !changes && !m_in_binary) || !m_status) return;
        m_status = m_hasher.update(without_blanks(line) + "\n");
        m_empty = false;
    }
    Result<std::string> id() {
        GDNCTL_TRY(m_status);
        if (m_empty) return std::string();
        GDNCTL_TRY_ASSIGN(const std::string hash, m_hasher.hex());
        return hash.substr(0, 16);
    }

private:
    explicit PatchHash(Hasher hasher) : m_hasher(std::move(hasher)) {}
    Hasher m_hasher;
    Status m_status;
    bool m_in_hunk = false, m_in_binary = false, m_empty = true;
};

std::span<const Record> records_of_iteration(std::span<const Record> records, int iteration) {
    const auto of_it = [&](const Record& record) { return record.iteration == iteration; };
    const auto first = std::find_if(records.begin(), records.end(), of_it);
    const auto last = std::find_if(records.rbegin(), records.rend(), of_it);
    if (first == records.end()) return {};
    // A `resume` in between belongs to the iteration, so that the time without work is not counted.
    return {first, last.base()};
}

}  // namespace

Json iteration_record(std::span<const Record> records, const LedgerFacts& facts) {
    const RunView run = view_of(records);
    const IterationView view = run.iterations.empty() ? IterationView{} : run.iterations.front();
    const auto started = parse_iso8601(view.started).value_or(WallTime{});
    const runlog::IterationNumber number{view.number, {}};
    Json record = runlog::empty_record(runlog::make_record_id(started, number), number, started);
    record["loop"] = {{"run_id", facts.run}, {"index", view.number}, {"total", facts.total}};
    record["finished_at"] = json::or_null(run.last);
    put_commits(record, view, facts);
    record["outcome"] = json::or_null(view.outcome);
    record["decision"] = json::or_null(view.verdict);
    if (!view.reason.empty()) record["decision_reasons"].push_back(shown(view.reason, 2000));
    put_idea(record, facts);
    put_stages(record, view);
    put_measured(record, view, facts);
    put_cost(record, view, records);
    record["assessment"] = json::or_null(shown(view.reason, 2000));
    runlog::make_public(record);
    return record;
}

Result<AgentReport> parse_agent_report(std::string_view text, std::string_view name) {
    GDNCTL_TRY_ASSIGN(const Json json, parse_json(text, name));
    if (!json.is_object()) return fail(ErrorKind::bad_input, fmt::format("{}: not a JSON object", name));
    const auto word = [&](const char* key) { return text::visible(text::trim(json::text(json, key))); };
    const auto words = [&](const char* key) {
        std::vector<std::string> list = json::texts(json, key);
        for (std::string& one : list) one = text::visible(one);
        return list;
    };
    AgentReport report;
    report.title = word("title");
    report.slot = word("slot");
    report.move = word("move");
    report.hypothesis = word("hypothesis");
    report.change_class = word("change_class");
    report.new_argument = word("new_argument");
    report.next_hypothesis = word("next_hypothesis");
    report.changes = words("changes");
    report.reject_if = words("reject_if");
    return report;
}

Result<AgentReport> read_agent_report(const fs::path& log_dir, int iteration) {
    const fs::path path = log_dir / (iteration_prefix(iteration) + "report.json");
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, k_report_limit));
    if (!text) return AgentReport();
    return parse_agent_report(*text, path.string());
}

Status append_ledger(const fs::path& log_dir, const Json& record) {
    GDNCTL_TRY(runlog::check_record(record, "ledger"));
    GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(ledger_path(log_dir)));
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(ledger_path(log_dir), k_ledger_limit));
    // Only an append that is repeated after a kill can find its own record, and then it is the last one.
    const auto lines = parse_journal(text ? std::string_view(*text) : std::string_view()).records;
    if (!lines.empty()) {
        const Json last = Json::parse(lines.back(), nullptr, false);
        const bool same = last.is_object() &&
                          json::text_at(last, "/loop/run_id") == json::text_at(record, "/loop/run_id") &&
                          json::integer_at(last, "/loop/index") == json::integer_at(record, "/loop/index");
        if (same) return {};
    }
    return journal.append(gdnctl::to_text(record));
}

Result<std::vector<Json>> read_ledger(const fs::path& log_dir) {
    const fs::path path = ledger_path(log_dir);
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, k_ledger_limit));
    if (!text) return std::vector<Json>();
    GDNCTL_TRY_ASSIGN(auto lines, runlog::parse_records(*text, path.string()));
    return std::move(lines.records);
}

Result<std::string> patch_id(std::string_view patch) {
    GDNCTL_TRY_ASSIGN(PatchHash hash, PatchHash::create());
    for (const std::string_view line : text::split(patch, '\n')) hash.take(line);
    return hash.id();
}

Result<std::string> patch_id(const GitCheckout& repository, std::string_view from, std::string_view to) {
    GDNCTL_TRY_ASSIGN(PatchHash hash, PatchHash::create());
    GDNCTL_TRY(repository.patch_lines(from, to, [&](std::string_view line) { hash.take(line); }));
    return hash.id();
}

Result<std::optional<KnownIteration>> known_iteration(const std::filesystem::path& log_dir,
                                                      const GitCheckout& repository, std::span<const Record> records,
                                                      int iteration) {
    KnownIteration known;
    known.own = records_of_iteration(records, iteration);
    const RunView run = view_of(known.own);
    if (run.iterations.empty()) return std::optional<KnownIteration>();
    known.view = run.iterations.front();
    IterationView& view = known.view;
    const Record* candidate = last_of(known.own, RecordType::candidate);
    if (candidate != nullptr && !candidate->word("base").empty()) view.base = candidate->word("base");
    LedgerFacts& facts = known.facts;
    facts.run = records.front().word("run");
    facts.total = state_of(records).total;
    if (!view.head.empty() && !view.base.empty() && view.head != view.base) {
        GDNCTL_TRY_ASSIGN(facts.commits, repository.commits(view.base, view.head));
        GDNCTL_TRY_ASSIGN(const auto changes, repository.diff(view.base, view.head));
        for (const auto& change : changes) facts.files.push_back(change.path);
        GDNCTL_TRY_ASSIGN(facts.patch_id, patch_id(repository, view.base, view.head));
    }
    auto report = read_agent_report(log_dir, iteration);
    if (!report) log::warning("ignoring the agent's report: {}", report.error().text());
    if (report) facts.report = std::move(*report);
    GDNCTL_TRY_ASSIGN(auto measured, read_measured(log_dir, records));
    if (measured) known.measured = std::make_shared<const MeasuredRun>(std::move(*measured));
    facts.measured = known.measured.get();
    return std::optional(std::move(known));
}

Status keep_in_ledger(const std::filesystem::path& log_dir, const GitCheckout& repository,
                      std::span<const Record> records, int iteration) {
    GDNCTL_TRY_ASSIGN(const auto known, known_iteration(log_dir, repository, records, iteration));
    return known ? append_ledger(log_dir, iteration_record(known->own, known->facts)) : Status();
}

}  // namespace gdnctl::loop
