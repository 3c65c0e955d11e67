#include <fmt/format.h>

#include "core/json.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

namespace {

constexpr std::string_view k_hillclimb = R"(# Hill-Climb Log{}

One entry per iteration: what was tried, what was measured, and what to try next.

## Goal

- Make the kernels faster end to end, with every correctness test green.
- Judge by {} of a profiled run, not by the time of a single kernel.

## Loop Contract

Each iteration is:

1. 1 hypothesis
2. 1 change set
3. correctness: the target's test passes
4. 1 profiled run
5. 1 commit if validated; otherwise the code is reverted and the entry says `Commit: none (<reason>)`

## Known Constraints

- Test tolerances stay as they are.
- Numbers come from a profile or a trace, never from memory.

## Macro Move Menu

- Fewer and larger kernel launches per step
- More work per launch: a larger chunk, a fused epilogue, a fused gate
- A layout or tiling that feeds the matrix unit better
- A blockwise or associative form in place of a sequential dependency

## Entry Template

```markdown
### Iteration <N> - <short title>

- Date: <UTC timestamp>
- Commit: <sha>
- Hypothesis:
- Change summary:
- Correctness checks:
  - Command:
  - Result:
- Profile run:
  - Command:
  - Job ID:
  - Trace location:
- Hotspots observed:
- MFU/throughput delta:
- Next hypothesis:
```

## Iterations
)";

constexpr std::string_view k_experiment = R"(# Experiment Log

One entry per experiment, in order: the goal, what was done, and the result.

Concise engineering reasoning and decisions only.

## Ongoing Template

```markdown
## YYYY-MM-DD - <experiment name>

### Goal

### Hypothesis

### Reasoning

### Action

### Outcome

### Breakthrough / Insight

### Next Step
```
)";

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

std::string log_head(Template kind, std::string_view target, std::string_view metric) {
    if (kind == Template::experiment) return std::string(k_experiment);
    return fmt::format(k_hillclimb, target.empty() ? std::string() : fmt::format(": {}", target),
                       metric.empty() ? std::string("step duration and MFU") : fmt::format("`{}`", metric));
}

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
