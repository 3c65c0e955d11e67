#include "runlog/render/templates.h"

namespace gdnctl::runlog {

namespace {

constexpr std::string_view k_hillclimb = R"(# GDN Pallas TPU Hill-Climb Log

One entry per iteration: what was tried, what was measured, and what to try next.

## Goal

- Make the Gated DeltaNet kernels faster end to end, with every correctness test green.
- Judge by step duration and MFU of a profiled run, not by the time of a single kernel.

## Loop Contract

Each iteration is:

1. 1 hypothesis
2. 1 change set
3. TPU correctness
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

}  // namespace

std::string log_head(Template kind) { return std::string(kind == Template::experiment ? k_experiment : k_hillclimb); }

}  // namespace gdnctl::runlog
