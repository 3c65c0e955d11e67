#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"
#include "runlog/render/templates.h"

namespace gdnctl::runlog {

namespace {

std::string experiment_skeleton(const Json& record) {
    std::string text =
        fmt::format("## {} - {}\n", json::text(record, "started_at").substr(0, 10), json::text(record, "title"));
    for (const char* section :
         {"Goal", "Hypothesis", "Reasoning", "Action", "Outcome", "Breakthrough / Insight", "Next Step"}) {
        text += fmt::format("\n### {}\n", section);
    }
    return text;
}

}  // namespace

std::string entry_skeleton(const Json& record) {
    if (is_experiment(record)) return experiment_skeleton(record);
    const auto line = [](std::string_view label, const std::string& value) {
        return value.empty() ? fmt::format("- {}:\n", label) : fmt::format("- {}: {}\n", label, value);
    };
    const std::string title = json::text(record, "title");
    std::string text =
        fmt::format("### Iteration {}{}\n\n", iteration_of(record).text(), title.empty() ? "" : " - " + title);
    text += line("Date", json::text(record, "started_at"));
    text += line("Commit", "(pending)");
    if (const auto base = json::text_at(record, "/base/commit"); !base.empty()) text += line("Starting commit", base);
    text += line("Hypothesis", json::text_at(record, "/idea/hypothesis"));
    text +=
        "- Change summary:\n- Correctness checks:\n  - Command:\n  - Result:\n- Profile run:\n  - Command:\n"
        "  - Job ID:\n  - Trace location:\n- Hotspots observed:\n- MFU/throughput delta:\n- Next hypothesis:\n";
    return text;
}

}  // namespace gdnctl::runlog
