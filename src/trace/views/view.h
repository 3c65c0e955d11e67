// The views of a trace, as one table. A view answers a question as JSON and as blocks of text; the sinks (text,
// Markdown) know no view. A new view is one source and one row of k_views: help, completion and tests follow.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "trace/diff/diff.h"
#include "trace/diff/profile.h"
#include "trace/model/model.h"
#include "trace/report/blocks.h"

namespace gdnctl::trace {

// One file of a profile, and what was left out of its folder.
struct InputFile {
    std::string path, sha256;
    std::int64_t bytes = 0;
    std::string kind;  // "xplane", "chrome-json", "kineto-json", "baseline"
    std::string host, session;
};
struct PlaneCount {
    std::string name;
    std::vector<std::pair<std::string, std::int64_t>> lines;  // events of each
};

// One INPUT of a command: a profile with all its hosts, or a baseline, which has no model.
struct Source {
    std::vector<InputFile> files;
    std::vector<std::pair<std::string, std::string>> skipped;  // path, why
    std::vector<PlaneCount> planes;
    std::optional<Model> model;
    std::optional<Error> no_model;  // why there is none: `info` goes on
    Profile profile;
};

struct Rule {
    std::string metric;
    std::optional<double> max, min, max_regression_pct;
};
// {"rules":[{"metric":M,"max":121.0}]}. Error: bad_input, naming the rule.
Result<std::vector<Rule>> rules_of(const Json& json);

// What the options ask for.
struct Asked {
    std::string by = "op";
    bool total = false;     // rank by total time
    std::int64_t top = 25;  // -1: all
    bool need_overlap = false;
    std::string name;             // RE2 of operations in place of kernels
    std::optional<double> flops;  // true FLOPs of one call
    DiffOptions diff;
    std::vector<Rule> rules;
    Json budget_rules;   // null: the built-in ones
    std::string metric;  // "trace:step", "trace:kernel:GLOB"
    bool exit_zero = false;
    const Source* against = nullptr;  // `--against`, `--baseline`: the side before
};

struct Warning {
    std::string code, message;
};
struct Answer {
    Json json;  // the members of the view, after those that all have
    std::vector<Block> blocks;
    std::string markdown, digest;  // of `report`, in place of blocks
    std::vector<Warning> warnings;
    ExitCode exit = ExitCode::ok;
};

struct View {
    std::string_view command;  // "trace info"
    std::string_view summary;  // one line, no final period
    std::string_view about;    // a paragraph of help
    std::string_view example, example_text;
    Result<Answer> (*build)(const Source& source, const Asked& asked);
    bool needs_model = true;  // otherwise a baseline is enough
    bool compares = false;    // two inputs; the first is Asked::against

    constexpr std::string_view name() const { return command.substr(command.find(' ') + 1); }
};

Result<Answer> info_view(const Source& source, const Asked& asked);
Result<Answer> hotspots_view(const Source& source, const Asked& asked);
Result<Answer> steps_view(const Source& source, const Asked& asked);
Result<Answer> kernels_view(const Source& source, const Asked& asked);
Result<Answer> diff_view(const Source& source, const Asked& asked);
Result<Answer> check_view(const Source& source, const Asked& asked);
Result<Answer> report_view(const Source& source, const Asked& asked);

inline constexpr View k_views[] = {
    {"trace info", "show what a trace contains and what it can tell",
     "Shows the format, device and versions of a trace, and what it can and cannot tell.",
     "gdnctl trace info .profiles/wandb/abc123", "the newest profile of a download", info_view, false},
    {"trace hotspots", "rank operations by the time they take",
     "Ranks operations by self time: the time during which no operation that started later was running. Times are per "
     "step.",
     "gdnctl trace hotspots host0.xplane.pb --by class", "compute, waiting, collectives and so on", hotspots_view},
    {"trace steps", "show step times, idle time and overlap",
     "Shows step times, where the device was idle, and how much of the asynchronous copying was hidden behind compute.",
     "gdnctl trace steps host0.xplane.pb --devices 0", "one TPU core", steps_view},
    {"trace kernels", "show what bounds each kernel",
     "Shows each custom call: its time, the least time in which its inputs and outputs can be moved, its stages, the "
     "compiler's schedule, and what bounds it, with the evidence.",
     "gdnctl trace kernels host0.xplane.pb --op gdn:1,16,32,8192,128,128", "with the kernel's true FLOPs",
     kernels_view},
    {"trace diff", "show what changed between two traces, and whether it is real",
     "Matches the operations of two traces, even if the compiler renumbered them, and shows which ones account for the "
     "change of the step time, and whether the change is more than noise.",
     "gdnctl trace diff before.xplane.pb after.xplane.pb", "exits with 1 if the step got slower", diff_view, false,
     true},
    {"trace check", "check a trace against limits", "Checks a trace against limits, for CI.",
     "gdnctl trace check profile/ --expect rules.json", "exits with 1 if a limit is exceeded", check_view},
    {"trace report", "sum up a trace for people, agents and the running log",
     "Prints as Markdown where the time goes, what bounds the kernels, what changed, what this trace cannot tell, and "
     "what to try next. In a running log, lint-log verifies the block by its last line (L606).",
     "gdnctl trace report profile/ --against baseline:champion --digest", "at most 8,000 bytes, for an agent",
     report_view},
};

// The members of gdnctl.trace/1 that all commands have. `command`: the view's name.
Json common_json(std::string_view command, std::string_view version, std::span<const Source> sources,
                 const std::vector<Warning>& warnings);

// What a comparison needs of a trace.
Profile profile_of(const Model& model, const InputFile& file);

// A metric of a rule ("step.median_ms"); nullopt: this input cannot tell it. Error: usage, no such metric.
Result<std::optional<double>> metric_of(const Source& source, std::string_view metric);

// What a loop climbs on.
struct Objective {
    double value = 0;
    std::string unit;  // "ms", "us"
};
// "trace:step" (median) or "trace:kernel:GLOB" (time a step in operations whose canonical name matches, median over
// steps). Errors: usage (another metric), bad_input (the trace does not have it).
Result<Objective> objective_of(const Model& model, std::string_view metric);

}  // namespace gdnctl::trace
