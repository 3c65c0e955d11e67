// A ledger's worth of iterations, ideas and measurements.
#pragma once

#include <algorithm>
#include <span>

#include "loop/memory/ideas.h"
#include "loop/memory/ledger.h"
#include "loop/memory/run_view.h"
#include "loop_fixture.h"
#include "run_script.h"

namespace gdnctl::loop {

inline std::span<const Record> records_of(const std::vector<Record>& all, int iteration) {
    const auto of_it = [&](const Record& r) { return r.iteration == iteration; };
    const auto first = std::find_if(all.begin(), all.end(), of_it);
    const auto last = std::find_if_not(first, all.end(), of_it);
    return {first, last};
}

inline LedgerFacts facts_for_test(const MeasuredRun* measured = nullptr) {
    LedgerFacts facts;
    facts.run = "r1";
    facts.total = 10;
    facts.files = {"kernel.c"};
    facts.patch_id = "0123456789abcdef";
    facts.report.title = "Batch the K matmuls";
    facts.report.slot = "H";
    facts.measured = measured;
    return facts;
}

inline PastIdea past(int iteration, const char* slot, const char* title, const char* outcome,
                     const char* file = "kernel.c", const char* patch = "") {
    PastIdea one;
    one.idea.slot = slot;
    one.idea.title = title;
    one.idea.patch_id = patch;
    one.idea.files = {file};
    one.iteration = iteration;
    one.outcome = outcome;
    one.reason = "slower by 1 %";
    return one;
}

inline Idea idea(const char* slot, const char* title, const char* file = "kernel.c") {
    Idea one;
    one.slot = slot;
    one.title = title;
    one.files = {file};
    return one;
}

inline MeasuredRun measured_run() {
    return ok(parse_measured(
        R"({"version":2,"champion":{"iteration":1,"commit":"abcabcabcabcabc","metric":"gdn/forward_ms","metric_value":4.2,
            "fingerprint_key":"k1"},"history":[
            {"iteration":1,"commit":"bbbb","metric":"gdn/forward_ms","metric_value":4.4,"decision":"baseline","fingerprint_key":"k1"},
            {"iteration":1,"commit":"ccccccccccccccccccccccccccccccccccccccc1","metric":"gdn/forward_ms","metric_value":4.2,
             "points":[4.1,4.2,4.3],"decision":"promoted","delta_vs_champion_pct":-4.5,"fingerprint_key":"k1",
             "pairs":{"n":5,"gain_pct":4.6,"low_pct":4.1,"high_pct":5.1,"deviation_pct":0.3,"verdict":"keep"}},
            {"iteration":3,"commit":"ccccccccccccccccccccccccccccccccccccccc3","metric":"gdn/forward_ms","metric_value":4.5,
             "decision":"regression","delta_vs_champion_pct":7.1,"fingerprint_key":"k1",
             "pairs":{"n":3,"gain_pct":-7,"low_pct":-8,"high_pct":-6,"deviation_pct":0.5,"verdict":"refuse"},
             "gates":[{"id":"while","result":"fail","reason":"while_ms rose","numbers":"while_ms 0 -> 9, limit 5"}]}]})",
        "perf_state.json"));
}

}  // namespace gdnctl::loop
