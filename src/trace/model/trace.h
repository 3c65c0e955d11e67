// A profiler trace as the readers leave it: planes, lines and events, whatever the format. Times are integer
// picoseconds (ps). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gdnctl::trace {

using Ps = std::int64_t;

// What is the same for every run of an operation. Two events share an Op if all of this is equal.
struct Op {
    std::string name;      // the row's name: "fusion.1"; of a host annotation or a module: the event's name
    std::string text;      // HLO text; empty: none
    std::string program;   // HLO module without its id: "jit_f"; empty: to be found from the module run around an event
    std::string category;  // hlo_category ("loop fusion"), or kineto's cat; empty: none
    std::string tf_op, source, stable_id;
    std::optional<double> flops, model_flops;         // of one run, as the compiler claims
    std::optional<double> bytes_accessed, hbm_bytes;  // all memories; HBM alone (xplane only)
    // Of events on host planes: an XLA operation on a CPU (stat hlo_op), or a step (StepTraceAnnotation, or kineto's
    // annotations, whose name is then without its number).
    bool is_host_op = false, is_step = false;
};

struct Event {
    Ps start = 0, duration = 0;
    Ps self = 0;               // set by build_model()
    std::uint32_t op = 0;      // index into RawTrace::ops
    std::int32_t number = -1;  // index into RawTrace::numbers: run_id of a run, step_num of a step; -1: none
};

struct Line {
    std::string name;           // "XLA Ops", "Stream #14(Compute)", "tf_XLAExecute/59"
    std::int64_t count = 0;     // of events in the file
    std::vector<Event> events;  // those that are kept, in the file's order
};

struct Plane {
    std::string name;  // "/device:TPU:0", "/host:CPU"
    std::vector<Line> lines;
    std::map<std::string, double> numbers;     // stats: "peak_teraflops_per_second"
    std::map<std::string, std::string> texts;  // stats: "device_type_string"
};

// The compiler's schedule of one kernel, by unit: "mxu", "xlu", "valu", "eup", "vload", "vstore", "salu".
struct Schedule {
    struct Unit {
        std::string name;
        std::int64_t used = 0, available = 0;  // slots over all bundles
    };
    std::int64_t bundles = 0;
    std::vector<Unit> units;  // in the order above
    std::int64_t spill = 0, fill = 0;
};

enum class TraceKind : std::uint8_t { xplane, chrome_json, kineto_json };

struct RawTrace {
    TraceKind kind = TraceKind::xplane;
    std::vector<Plane> planes;
    std::vector<Op> ops;
    std::vector<std::int64_t> numbers;
    std::map<std::string, Schedule> schedules;     // by "module::instruction", the module without its id
    std::string host;                              // XSpace.hostnames; empty: not said
    std::string jax, jaxlib, libtpu;               // versions; empty: not said
    std::string profile_options;                   // bytes of ProfileOptions; empty: not said
    std::optional<std::int64_t> profile_start_ns;  // since 1970
    std::int64_t x_events = 0;                     // Chrome JSON: events with ph "X"
    std::vector<std::string> damage;               // salvaged: what the rest of the file suffers from
    std::vector<std::string> hints;                // XSpace.errors and warnings
};

struct ReadOptions {
    // Also the events of host planes that are neither operations nor steps. Without it they are only counted.
    bool all_events = false;
    // Returns what was decoded before the damage, and says so in `damage`, in place of an error.
    bool salvage = false;
};

}  // namespace gdnctl::trace
