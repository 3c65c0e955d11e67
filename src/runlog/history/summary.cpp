#include "runlog/history/summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "runlog/import/import.h"
#include "runlog/parse/block.h"
#include "runlog/records/gain.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

Result<std::vector<Json>> history_of(std::string_view log, const std::vector<Json>& records) {
    std::vector<Json> history = current_records(records);
    GDNCTL_TRY_ASSIGN(auto imported, import_log(log, records, WallTime{}, {.brief = true, .only = {}, .lost = true}));
    for (Json& record : imported.records) {
        const std::string replaced = replaced_id(record);
        const auto old = std::find_if(history.begin(), history.end(),
                                      [&](const Json& known) { return !replaced.empty() && id_of(known) == replaced; });
        if (old != history.end()) {
            *old = std::move(record);
        } else {
            history.push_back(std::move(record));
        }
    }
    std::stable_sort(history.begin(), history.end(),
                     [](const Json& a, const Json& b) { return iteration_of(a).before(iteration_of(b)); });
    return history;
}

std::size_t count_lost(std::string_view log, const std::vector<Json>& records) {
    std::set<std::string, std::less<>> ids;
    for (const Json& record : records) ids.insert(id_of(record));
    const auto blocks = find_blocks(log);
    return static_cast<std::size_t>(
        std::count_if(blocks.begin(), blocks.end(), [&](const auto& block) { return !ids.contains(block.id); }));
}

Result<Json> whole_record(std::string_view log, const std::vector<Json>& records, const Json& brief) {
    if (!is_import(brief)) return brief;
    const ImportOptions whole{.brief = false, .only = iteration_of(brief), .lost = true};
    GDNCTL_TRY_ASSIGN(auto imported, import_log(log, records, WallTime{}, whole));
    for (Json& record : imported.records) {
        if (id_of(record) == id_of(brief)) return std::move(record);
    }
    return brief;  // the records hold the whole text
}

namespace {

std::optional<Gain> recorded_gain(const Json& record) {
    const Json* own = json::find(record, "gain");
    return own == nullptr ? std::nullopt : parse_gain(*own);
}

// Whether the iteration became the champion, or set the first one.
bool is_champion(const Json& record) {
    const std::string decision = json::text(record, "decision");
    if (decision == "promoted" || decision == "baseline") return true;
    const std::string status = json::text(record, "commit_status");
    return json::text(record, "outcome") == "accepted" && decision != "within_threshold" &&
           (status == "committed" || status == "self");
}

// The gain in the objective, else in another metric that the record has a gain for; nullopt: neither.
std::optional<Gain> objective_gain(const Json& record, const Objective& objective) {
    auto gain = objective.key.empty() ? std::nullopt : gain_of(record, objective.key, objective.lower_is_better);
    if (!gain) gain = recorded_gain(record);
    if (!gain || !gain->unit.empty()) return gain;
    if (gain->metric == objective.key) gain->unit = objective.unit;
    if (gain->unit.empty()) gain->unit = shown_unit(gain->metric, nullptr);
    return gain;
}

// Short form of the commit field: 12 digits of a sha, `none (reason)`, ...
std::string commit_text(const Json& record) {
    const std::string text = render_commit(record);
    return json::text(record, "commit_status") == "committed" ? text.substr(0, 12) : text;
}

// On one line, cut between characters to at most `limit` bytes plus an ellipsis.
std::string short_text(std::string_view text, std::size_t limit) {
    std::string line;
    for (const char c : text::trim(text)) line += c == '\n' || c == '\r' || c == '\t' ? ' ' : c;
    if (line.size() <= limit) return line;
    std::size_t end = limit;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;
    return line.substr(0, end) + "…";
}

// "accepted 2, rejected 7", or "none".
std::string counts_text(const Json& counts) {
    std::string line;
    for (const auto& [name, count] : counts.items()) {
        line += fmt::format("{}{} {}", line.empty() ? "" : ", ", outcome_phrase(name), count.get<std::int64_t>());
    }
    return line.empty() ? "none" : line;
}

Json entry_of(const Json& record, const Objective& objective) {
    Json entry = {{"iteration", iteration_of(record).text()},
                  {"id", id_of(record)},
                  {"title", json::text(record, "title")},
                  {"commit", render_commit(record)}};
    const auto loop_index = json::integer_at(record, "/loop/index");
    entry["loop_iteration"] = json::or_null(loop_index);
    const auto gain = objective_gain(record, objective);
    const bool comparable = gain && gain->metric == objective.key;
    entry["before"] = comparable ? json::or_null(gain->before) : Json();
    entry["after"] = comparable ? json::or_null(gain->after) : Json();
    entry["gain_pct"] = comparable && gain->factor ? Json(factor_percent(*gain->factor)) : Json();
    entry["gain"] = gain ? gain_json(*gain) : Json();
    return entry;
}

Json best_by_slot(const std::vector<Json>& history, const Objective& objective) {
    std::map<std::string, const Json*> best;
    const auto gain = [&](const Json& record) {
        const auto of_record = objective_gain(record, objective);
        return of_record && of_record->metric == objective.key ? of_record->factor : std::nullopt;
    };
    for (const Json& record : history) {
        const std::string slot = json::text(record, "coverage_slot");
        const auto value = gain(record);
        if (slot.empty() || !value) continue;
        const Json*& held = best[slot];
        if (held == nullptr || *value > *gain(*held)) held = &record;
    }
    Json list = Json::array();
    for (const auto& [slot, record] : best) {
        Json entry = {{"slot", slot}};
        entry.update(entry_of(*record, objective));
        list.push_back(std::move(entry));
    }
    return list;
}

Json count_texts(const std::vector<Json>& history, std::string_view pointer) {
    std::map<std::string, std::int64_t> counts;
    for (const Json& record : history) {
        const std::string text = json::text_at(record, pointer);
        ++counts[text.empty() ? "unknown" : text];
    }
    Json object = Json::object();
    for (const auto& [text, count] : counts) object[text] = count;
    return object;
}

constexpr std::array<std::string_view, 9> k_failures = {"infra", "environment", "compile",     "oom",     "test-fail",
                                                        "flaky", "timeout",     "agent-error", "rejected"};

std::string entry_line(const Json& entry, const std::string& objective) {
    std::string line =
        fmt::format("  {:>5}  {}", json::text(entry, "iteration"), short_text(json::text(entry, "title"), 48));
    // The number in the loop differs from the log's, and people know both.
    const auto loop_index = json::integer(entry, "loop_iteration");
    if (loop_index && std::to_string(*loop_index) != json::text(entry, "iteration")) {
        line += fmt::format(" (iteration {} of its run)", *loop_index);
    }
    if (const auto gain = parse_gain(entry["gain"])) {
        line += gain->metric == objective ? "  " : fmt::format("  {} ", short_text(gain->metric, 48));
        line += whole_gain_text(*gain);
    }
    return line + "\n";
}

constexpr std::size_t k_text = 280;   // bytes of one field of a recent entry
constexpr std::size_t k_recent = 6;   // iterations shown in full; older ones get one line
constexpr std::size_t k_metrics = 8;  // numbers per entry

std::string change_text(const Json& record, const Objective& objective) {
    const auto gain = objective_gain(record, objective);
    return gain && gain->after ? fmt::format("{} {}", gain->metric, whole_gain_text(*gain)) : std::string();
}

// "24 passed, 1 warning"
std::string tests_text(const Json& check) {
    std::string text = render_check_result(check);
    for (const std::string many : {"1 warnings", "1 errors"}) {
        const auto at = text.find(many);
        if (at != std::string::npos && (at == 0 || text[at - 1] == ' ')) text.erase(at + many.size() - 1, 1);
    }
    return text;
}

// The number shown by the loop, if it differs from the log's.
std::string number_in_run(const Json& record) {
    const auto index = json::integer_at(record, "/loop/index");
    if (!index || IterationNumber{*index, {}} == iteration_of(record)) return {};
    return fmt::format(" (iteration {} of its run)", *index);
}

std::string one_line(const Json& record, const Objective& objective) {
    const std::string title = short_text(json::text(record, "title"), 90);
    std::string line = fmt::format("- {}{}{}{}: ", iteration_of(record).text(), number_in_run(record),
                                   title.empty() ? "" : " ", title);
    std::string outcome = json::text(record, "decision");
    if (outcome.empty()) outcome = json::text(record, "outcome");
    line += outcome.empty() ? short_text(commit_text(record), 60) : outcome;
    if (const auto change = change_text(record, objective); !change.empty()) line += "; " + change;
    return line + "\n";
}

std::string in_full(const Json& record, const Objective& objective) {
    const std::string title = short_text(json::text(record, "title"), 120);
    std::string text =
        fmt::format("### Iteration {}{}{}\n", iteration_of(record).text(), title.empty() ? "" : " - ", title);
    const auto add = [&](std::string_view label, const std::string& value) {
        if (!value.empty()) text += fmt::format("- {}: {}\n", label, short_text(value, k_text));
    };
    if (const auto index = json::integer_at(record, "/loop/index")) add("Iteration of its run", std::to_string(*index));
    add("Commit", commit_text(record));
    add("Decision",
        json::text(record, "decision").empty() ? json::text(record, "outcome") : json::text(record, "decision"));
    add("Hypothesis", json::text_at(record, "/idea/hypothesis"));
    add("Change", text::join(json::texts(record, "changes"), "; "));
    if (const Json* checks = json::find(record, "checks")) {
        for (const Json& check : *checks) add("Tests", tests_text(check));
    }
    add("Result", change_text(record, objective));
    std::size_t shown = 0;
    if (const Json* metrics = json::find(record, "metrics")) {
        for (const auto& [key, value] : metrics->items()) {
            if (key == objective.key || ++shown > k_metrics) continue;
            text += fmt::format("  - {}\n", metric_for_people(key, value));
        }
    }
    add("Assessment", json::text(record, "assessment"));
    for (const auto& line : json::texts(record, "interpretation")) add("Interpretation", line);
    add("Next hypothesis", json::text(record, "next_hypothesis"));
    return text + "\n";
}

std::string head(const std::vector<Json>& history, const Objective& objective) {
    const Json summary = summarize(history, objective);
    std::string text = fmt::format("# Running log: {} iteration{}\n", history.size(), history.size() == 1 ? "" : "s");
    const auto champion = std::find_if(history.rbegin(), history.rend(), is_champion);
    if (champion != history.rend()) {
        text +=
            fmt::format("- Champion: iteration {}{} ({}), {}", iteration_of(*champion).text(), number_in_run(*champion),
                        commit_text(*champion), short_text(json::text(*champion, "title"), 90));
        const auto change = change_text(*champion, objective);
        text += change.empty() ? "\n" : fmt::format("; {}\n", change);
    } else {
        text += "- Champion: none yet\n";
    }
    text += fmt::format("- Outcomes: {}\n", counts_text(summary["outcomes"]));
    for (const Json& slot : summary["best_by_slot"]) {
        const auto gain = parse_gain(slot["gain"]);
        text += fmt::format("- Best of slot {}: iteration {}, {}\n", json::text(slot, "slot"),
                            json::text(slot, "iteration"), gain ? gain_text(*gain) : "");
    }
    return text + "\n";
}

}  // namespace

Objective choose_objective(const std::vector<Json>& history, const Objective& wanted) {
    Objective judged;
    for (const Json& record : history) {
        if (const auto gain = recorded_gain(record)) judged = {gain->metric, gain->lower_is_better, gain->unit};
    }
    for (const Objective& objective :
         {wanted, judged, Objective{"throughput/mfu", false}, Objective{"step_duration_ms", true}}) {
        if (objective.key.empty()) continue;
        const bool used = std::any_of(history.begin(), history.end(), [&](const Json& record) {
            const auto gain = gain_of(record, objective.key, objective.lower_is_better);
            return gain && gain->after;
        });
        if (!used) continue;
        Objective chosen = objective;
        if (chosen.unit.empty() && chosen.key == judged.key) chosen.unit = judged.unit;
        return chosen;
    }
    return {};
}

Json summarize(const std::vector<Json>& history, const Objective& objective) {
    Json champions = Json::array();
    for (const Json& record : history) {
        if (is_champion(record)) champions.push_back(entry_of(record, objective));
    }
    const Json outcomes = count_texts(history, "/outcome");
    Json failures = Json::object();
    for (const auto name : k_failures) {
        if (outcomes.contains(name)) failures[std::string(name)] = outcomes[std::string(name)];
    }
    const auto imported = std::count_if(history.begin(), history.end(), is_import);
    Json summary = {
        {"schema", "gdnctl.log-summary/1"},
        {"entries", history.size()},
        {"recorded", static_cast<std::int64_t>(history.size()) - imported},
        {"hand_written", imported},
        {"first_iteration", history.empty() ? Json() : Json(iteration_of(history.front()).text())},
        {"last_iteration", history.empty() ? Json() : Json(iteration_of(history.back()).text())},
        {"objective", objective.key.empty() ? Json()
                                            : Json({{"metric", objective.key},
                                                    {"better", objective.lower_is_better ? "lower" : "higher"}})},
        {"champions", std::move(champions)},
        {"best_by_slot", best_by_slot(history, objective)},
        {"outcomes", outcomes},
        {"failures", std::move(failures)},
        {"commit_status", count_texts(history, "/commit_status")},
        {"next_hypothesis", history.empty() || json::text(history.back(), "next_hypothesis").empty()
                                ? Json()
                                : Json(json::text(history.back(), "next_hypothesis"))}};
    return summary;
}

std::string summary_text(const Json& summary) {
    const auto first = json::text(summary, "first_iteration");
    std::string text = fmt::format("entries: {}", json::integer(summary, "entries").value_or(0));
    if (!first.empty()) text += fmt::format(" (iterations {} to {})", first, json::text(summary, "last_iteration"));
    text += fmt::format("\nrecorded: {}, hand-written: {}\n", json::integer(summary, "recorded").value_or(0),
                        json::integer(summary, "hand_written").value_or(0));
    const auto metric = json::text_at(summary, "/objective/metric");
    if (!metric.empty()) {
        text += fmt::format("objective: {} ({} is better)\n", metric, json::text_at(summary, "/objective/better"));
    }
    text += "champions:\n";
    for (const Json& entry : summary["champions"]) text += entry_line(entry, metric);
    if (summary["champions"].empty()) text += "  none\n";
    if (!summary["best_by_slot"].empty()) {
        text += "best gain by slot:\n";
        for (const Json& entry : summary["best_by_slot"]) {
            text += fmt::format("  {:<4}", short_text(json::text(entry, "slot"), 24)) + entry_line(entry, metric);
        }
    }
    text += fmt::format("outcomes: {}\n", counts_text(summary["outcomes"]));
    text += fmt::format("failures: {}\n", counts_text(summary["failures"]));
    text += fmt::format("commits: {}\n", counts_text(summary["commit_status"]));
    if (const auto next = json::text(summary, "next_hypothesis"); !next.empty())
        text += fmt::format("next: {}\n", next);
    return text;
}

// The part of a log that fits into a prompt.

std::string context_pack(const std::vector<Json>& history, const Objective& objective, std::size_t bytes) {
    std::string text;
    const auto add = [&](const std::string& part) {
        const bool fits = text.size() + part.size() <= bytes;
        if (fits) text += part;
        return fits;
    };
    if (history.empty()) {
        add("# Running log: no iterations yet\n");
        return text;
    }
    if (!add(head(history, objective))) {
        add(fmt::format("# Running log: {} iteration{}\n", history.size(), history.size() == 1 ? "" : "s"));
        return text;
    }
    std::size_t next = history.size();
    for (std::size_t shown = 0; next > 0 && shown < k_recent; ++shown) {
        if (!add(in_full(history[next - 1], objective))) break;
        --next;
    }
    if (next > 0 && add("Earlier, newest first:\n")) {
        while (next > 0 && add(one_line(history[next - 1], objective))) --next;
    }
    if (next > 0) add(fmt::format("({} older ones are left out)\n", next));
    return text;
}

}  // namespace gdnctl::runlog
