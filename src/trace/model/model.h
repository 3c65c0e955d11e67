// What all views ask of a trace: devices with their operations, programs and steps, each run's self time, and what the
// hardware can do. Made from one profile, which may consist of the traces of several hosts. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/line_regex.h"
#include "core/result.h"
#include "trace/model/trace.h"

namespace gdnctl::trace {

// Sets of instants, as sorted intervals that neither touch nor overlap. Ends are exclusive.

struct Interval {
    Ps start = 0, end = 0;
};
using Intervals = std::vector<Interval>;

// The union of intervals in any order; empty ones are dropped.
inline Intervals union_of(Intervals all) {
    std::erase_if(all, [](const Interval& one) { return one.end <= one.start; });
    const auto earlier = [](const Interval& a, const Interval& b) { return a.start < b.start; };
    if (!std::is_sorted(all.begin(), all.end(), earlier)) std::sort(all.begin(), all.end(), earlier);
    Intervals merged;
    for (const Interval& one : all) {
        if (!merged.empty() && one.start <= merged.back().end) {
            merged.back().end = std::max(merged.back().end, one.end);
        } else {
            merged.push_back(one);
        }
    }
    return merged;
}

// What both unions have in common.
inline Intervals intersection(const Intervals& a, const Intervals& b) {
    Intervals common;
    for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        const Interval both{std::max(a[i].start, b[j].start), std::min(a[i].end, b[j].end)};
        if (both.start < both.end) common.push_back(both);
        a[i].end < b[j].end ? ++i : ++j;
    }
    return common;
}

// What `a` has and `b` does not; both are unions.
inline Intervals difference(const Intervals& a, const Intervals& b) {
    Intervals rest;
    std::size_t j = 0;
    for (Interval left : a) {
        while (j < b.size() && b[j].end <= left.start) ++j;
        for (std::size_t k = j; k < b.size() && b[k].start < left.end; ++k) {
            if (b[k].start > left.start) rest.push_back({left.start, b[k].start});
            left.start = std::max(left.start, std::min(b[k].end, left.end));
        }
        if (left.start < left.end) rest.push_back(left);
    }
    return rest;
}

// Of a union, in ps.
inline Ps length_of(const Intervals& intervals) {
    Ps sum = 0;
    for (const Interval& one : intervals) sum += one.end - one.start;
    return sum;
}

enum class OpClass : std::uint8_t { compute, kernel, wait, issue, collective, control, copy };
inline constexpr std::size_t k_classes = 7;
std::string_view name_of(OpClass cls);

enum class DeviceKind : std::uint8_t { tpu, gpu, cpu };
std::string_view name_of(DeviceKind kind);

// What the user chose.
struct ModelOptions {
    std::string device;  // "v5p": a TPU generation; "cpu": the operations of the host; empty: as the trace says
    std::optional<double> peak_tflops;
    std::vector<std::int64_t> devices;  // numbers; empty: all
    std::string module;                 // RE2: only the operations of these programs; empty: all
    std::int64_t skip_first = 0;        // steps
};

struct Peaks {
    std::optional<double> tflops, hbm_gbps, vmem_rd_gbps, vmem_wr_gbps;  // of one device of the trace
    std::string_view source = "none";                                    // "plane", "option", "table"
};

// One run of a program.
struct Run {
    Ps start = 0, end = 0;
    std::uint32_t program = 0;  // index into Model::programs
    std::int64_t number = 0;    // run_id, or the step's number
};

// One TPU core, GPU or host.
struct Device {
    std::string name;         // "TPU:0", "HOST TPU:0", "cpu:0"
    std::vector<Line> lanes;  // of operations, in order of time, with their self times
    std::vector<Run> runs;    // of programs, in order of time
    std::vector<Run> steps;   // as found on this device, in order of time
    Intervals async;          // union of the asynchronous operations
    bool has_async = false;
    std::vector<Event> spans;  // line "XLA TraceMe", in order of time: stages of kernels, waits for other cores
    Intervals busy;            // union of all operations
    Interval window;           // see trace-analysis.md, §3
};

struct StepTime {
    std::vector<Ps> by_device;  // duration on each device
    double mean_ps = 0;         // over devices
    std::string excluded;       // the reason; empty: it counts
};

// Sums of one operation over the chosen devices.
struct OpTime {
    Ps self = 0, total = 0;
    std::int64_t calls = 0;
    Ps step_self = 0, step_total = 0;  // of runs that start in a counted step
    std::int64_t step_calls = 0;
    bool has_flop_child = false;  // contains operations with FLOPs of their own
    std::int64_t first = 0;       // position of the first run, in order of time
};

struct Model {
    DeviceKind kind = DeviceKind::tpu;
    std::string type;  // "TPU v6 Lite"; empty: not said
    std::optional<std::int64_t> cores_per_chip;
    Peaks peaks;
    std::vector<Device> devices;
    std::vector<Op> ops;
    std::vector<OpClass> classes;  // of each op
    std::vector<OpTime> times;     // of each op
    bool class_from_name = false;  // there are no categories
    std::vector<std::string> programs;
    std::string dominant;     // program with the largest time; empty: none
    std::string step_source;  // "steps-line", "modules:NAME", "runs:NAME", "host-steps", "none"
    std::vector<StepTime> steps;
    std::vector<std::string> warnings;
    // From the trace of the first host.
    TraceKind source = TraceKind::xplane;
    std::string jax, jaxlib, libtpu, profile_options;
    std::optional<std::int64_t> profile_start_ns;
    std::map<std::string, Schedule> schedules;
    // Why the trace may lack its end, by kind.
    std::vector<std::string> event_cap, stream, hw_buffer;

    // Steps that count.
    std::int64_t counted() const;
    // counted() x devices: what sums of `step_` fields are divided by; 0 without steps.
    double step_divisor() const;
    // The counted steps of a device as intervals, in order of time.
    Intervals counted_steps(std::size_t device) const;
};

// Consumes the traces. Errors: bad_input ("no device events: ..."), usage (unknown generation or device number, bad
// regex).
Result<Model> build_model(std::vector<RawTrace> traces, const ModelOptions& options);

// Sets the self time of each event of a line that is in order of start, longer events first: each instant belongs to
// the event that started last of those that are open. `flops` tells which ops count FLOPs, `has_child` collects the ops
// around them.
void set_self_times(std::vector<Event>& events, const std::vector<Op>& ops, std::vector<OpTime>& times);
// The order that set_self_times() needs.
void sort_events(std::vector<Event>& events);

// The FLOPs of a run as the compiler claims them; nullopt: no claim.
std::optional<double> flops_of(const Op& op);

OpClass class_of(const Op& op, DeviceKind kind, bool by_name);

// What a generation can do ("v5p"), by its name or the device's own ("TPU v5"); nullptr: unknown.
struct Generation {
    std::string_view name;
    std::array<std::string_view, 2> devices;
    int cores;
    double tflops, hbm_gbps;  // bf16, per chip
};
const Generation* find_generation(std::string_view word);

// Bytes that an instruction must move by its HLO text: all results and operands that lie in HBM (no layout S(1) or
// higher), an aliased pair once. nullopt: the text has no shapes.
std::optional<std::int64_t> io_bytes(std::string_view text);

// To the nearest whole ps, halves to even.
Ps round_ps(double ps);
// Quantiles with linear interpolation, of values in any order. 0 without values.
double quantile(std::vector<double> values, double q);
// Median of the distances from the median.
double median_deviation(const std::vector<double>& values);

}  // namespace gdnctl::trace
