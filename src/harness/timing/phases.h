// oracle bench --phases: where the time of one of our kernels goes, and what bounds each part of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/simd/phases.h"
#include "platform/clock.h"

namespace gdnctl::harness {

// What the phases are measured against, of the same rounds.
struct Ceilings {
    double gflops = 0;              // bare multiply-adds
    double gigabytes_a_second = 0;  // reading and writing an array of the size of inputs and outputs
};

struct PhaseRow {
    std::string_view name;
    double ms = 0;     // of one thread, in the run of median length
    double share = 0;  // of the run
    double gflops = 0, of_peak = 0;
    double gigabytes_a_second = 0, of_memory = 0;  // of the caller's arrays
    std::string_view bound;                        // "arithmetic", "memory" or "packing"; empty for waiting
};

// The runs of one kernel with its phases measured.
class PhaseRuns {
public:
    // One run. `inputs` are left without measurement.
    void run(const oracle::TimedKernel& kernel, oracle::BenchInputs& inputs, int threads, oracle::Isa isa,
             const Clock& clock);

    // The phases that took time, in their order, and "waiting": what no thread was inside a phase. Empty without runs,
    // or when the kernel has no phases.
    std::vector<PhaseRow> rows(const Ceilings& ceilings) const;

private:
    struct Run {
        double seconds = 0;
        double in_phase[oracle::k_phases] = {};  // seconds, summed over the threads and divided by their number
        double flop[oracle::k_phases] = {}, bytes[oracle::k_phases] = {};
    };
    std::vector<Run> m_runs;
};

std::string phases_text(std::string_view kernel, const std::vector<PhaseRow>& rows);
Json phases_json(const std::vector<PhaseRow>& rows);

}  // namespace gdnctl::harness
