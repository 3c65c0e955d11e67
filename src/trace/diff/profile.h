// What a diff needs of a trace, and what a baseline stores of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "trace/model/trace.h"

namespace gdnctl::trace {

// One operation of one program, summed over the counted steps of all chosen devices.
struct OpSum {
    std::string program, name, category, tf_op, source, stable_id;
    std::string text;  // HLO text as in the trace; empty: none (GPU, CPU)
    std::string cls;   // "compute", "kernel", "wait", "issue", "collective", "control", "copy"
    Ps self_ps = 0;    // of runs that start in a counted step
    std::int64_t calls = 0;
    std::int64_t order = 0;  // of the first run in the trace: program order
};

// One kernel (custom call), over all its calls.
struct KernelSum {
    std::string name, program, text, bound;
    Ps median_ps = 0;
    std::optional<double> wait_share;
    std::optional<std::int64_t> spill;
};

struct Profile {
    std::string sha256, path;
    std::string kind;  // "tpu", "gpu", "cpu"
    std::string device_type;
    std::int64_t devices = 0;
    std::string dominant;               // program with the largest time; empty: there are no programs
    std::vector<std::string> programs;  // sorted
    std::string step_source;            // "modules:jit_f"
    std::vector<Ps> steps;              // duration of each counted step, mean over devices
    double mean_step_ps = 0;            // of all counted steps and devices
    // For every counted step, mean over devices: union of the operations in it, and the time up to the next counted
    // step's start.
    std::vector<Ps> step_busy, step_gap;
    std::vector<OpSum> ops;
    std::vector<KernelSum> kernels;
    std::optional<double> peak_tflops, peak_hbm_gbps;
    std::optional<double> mfu;
    std::string hotspot;  // row with the largest self time
    std::string jax, jaxlib, libtpu;
    std::string options;         // ProfileOptions, hex; empty: not said
    std::optional<Ps> floor_ps;  // shift of an A/A comparison; nullopt: none was made
};

// The baseline file (gdnctl.trace-baseline/1).
Json to_json(const Profile& profile);
// Error: bad_input, naming the field.
Result<Profile> profile_from_json(const Json& json);

}  // namespace gdnctl::trace
