// The part of a log that fits into a prompt.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"
#include "runlog/render/summary.h"
#include "runlog/render/summary_values.h"

namespace gdnctl::runlog {

namespace {

constexpr std::size_t k_text = 280;   // bytes of one field of a recent entry
constexpr std::size_t k_recent = 6;   // iterations shown in full; older ones get one line
constexpr std::size_t k_metrics = 8;  // numbers per entry

std::string change_text(const Json& record, const Objective& objective) {
    const auto gain = gain_of(record, objective);
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
    if (const auto index = json::integer_at(record, "/loop/index")) {
        add("Iteration of its run", std::to_string(*index));
    }
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
    std::string text = fmt::format("# Running log: {} iterations\n", history.size());
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
        add(fmt::format("# Running log: {} iterations\n", history.size()));
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
