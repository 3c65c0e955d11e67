// From the planes of a trace to devices, programs and steps.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/text.h"
#include "trace/model/model.h"

namespace gdnctl::trace {

namespace {

constexpr std::string_view k_tpu = "/device:TPU:", k_gpu = "/device:GPU:";

// Sums and differences of times must fit into 64 bits. Those of real profiles are far from the limit, which is 26 days.
Status check_times(const std::vector<RawTrace>& traces) {
    double first = 0, last = 0, sum = 0, planes = 0;
    bool any = false;
    for (const RawTrace& trace : traces) {
        for (const Plane& plane : trace.planes) {
            ++planes;
            for (const Line& line : plane.lines) {
                for (const Event& event : line.events) {
                    const auto start = static_cast<double>(event.start), length = static_cast<double>(event.duration);
                    first = any ? std::min(first, start) : start;
                    last = any ? std::max(last, start + length) : start + length;
                    sum += length;
                    any = true;
                }
            }
        }
    }
    constexpr double k_most_ps = 0x1p61;
    if ((last - first) * planes < k_most_ps && sum < k_most_ps) return {};
    return fail(ErrorKind::bad_input, fmt::format("the events of the trace span {:.3g} s, which no profile does; its "
                                                  "times are damaged",
                                                  (last - first) / 1e12));
}

// The N of "/device:TPU:N"; nullopt: another plane ("/device:TPU:0 SparseCore 1", "#Chip TPU:0").
std::optional<std::int64_t> device_number(std::string_view plane, std::string_view prefix) {
    if (!plane.starts_with(prefix)) return std::nullopt;
    return text::parse_int(plane.substr(prefix.size()));
}

// "jit_f" of "jit_f(12190760917235803885)".
std::string_view program_name(std::string_view module) {
    const std::size_t bracket = module.rfind('(');
    const bool has_id = bracket != std::string_view::npos && module.ends_with(')') && bracket > 0;
    return has_id ? module.substr(0, bracket) : module;
}

bool is_lane(const Line& line, DeviceKind kind) {
    return kind == DeviceKind::tpu ? line.name == "XLA Ops" : line.name.starts_with("Stream");
}

class Builder {
public:
    explicit Builder(const ModelOptions& options) : m_options(options) {}

    Result<Model> build(std::vector<RawTrace> traces) {
        GDNCTL_TRY(check_times(traces));
        GDNCTL_TRY(prepare(traces));
        for (std::size_t host = 0; host < traces.size(); ++host) {
            add_trace(traces[host], traces.size() > 1 ? fmt::format("{} ", host_name(traces[host], host)) : "");
        }
        GDNCTL_TRY(check_devices());
        name_programs();
        GDNCTL_TRY(keep_module());
        find_classes();
        m_model.times.resize(m_model.ops.size());
        find_steps();
        for (Device& device : m_model.devices) {
            for (Line& lane : device.lanes) set_self_times(lane.events, m_model.ops, m_model.times);
            set_extent(device);
        }
        add_up();
        note_truncation();
        return std::move(m_model);
    }

private:
    static std::string host_name(const RawTrace& trace, std::size_t index) {
        return trace.host.empty() ? fmt::format("host{}", index) : trace.host;
    }

    Status prepare(const std::vector<RawTrace>& traces);
    void add_trace(RawTrace& trace, const std::string& host);
    void add_device(RawTrace& trace, Plane& plane, std::string name, std::uint32_t first_op);
    void add_cpu(RawTrace& trace, const std::string& host, std::uint32_t first_op);
    void add_host_steps(RawTrace& trace, std::uint32_t first_op);
    void read_peaks(const Plane& plane);
    void use_table();
    Status check_devices();
    void name_programs();
    Status keep_module();
    void find_classes();
    void find_steps();
    void use_steps();
    void exclude_steps();
    void set_extent(Device& device) const;
    void add_up();
    void note_truncation();
    std::uint32_t program_index(std::string_view name);
    std::size_t ops_in(std::size_t step) const;

    const ModelOptions& m_options;
    Model m_model;
    std::unordered_map<std::string, std::uint32_t> m_program_of_name;
    std::int64_t m_next_device = 0;  // number of the first device of the next host
    bool m_has_host_ops = false, m_has_device_planes = false;
    std::int64_t m_x_events = 0;
    struct Annotation {
        Run run;
        std::string name;
        std::string line;
    };
    std::vector<Annotation> m_annotations;  // steps on the host
};

Status Builder::prepare(const std::vector<RawTrace>& traces) {
    const Generation* generation = find_generation(m_options.device);
    if (!m_options.device.empty() && m_options.device != "cpu" && generation == nullptr) {
        return fail(ErrorKind::usage, fmt::format("--device {}: unknown device", m_options.device),
                    "use v4, v5e, v5p, v6e, tpu7x, or cpu");
    }
    bool tpu = false, gpu = false;
    for (const RawTrace& trace : traces) {
        for (const Plane& plane : trace.planes) {
            tpu = tpu || device_number(plane.name, k_tpu);
            gpu = gpu || device_number(plane.name, k_gpu);
        }
    }
    m_has_device_planes = tpu || gpu;
    m_model.kind = m_options.device == "cpu" ? DeviceKind::cpu : tpu || !gpu ? DeviceKind::tpu : DeviceKind::gpu;
    return {};
}

std::uint32_t Builder::program_index(std::string_view name) {
    const auto [at, is_new] =
        m_program_of_name.try_emplace(std::string(name), static_cast<std::uint32_t>(m_model.programs.size()));
    if (is_new) m_model.programs.emplace_back(name);
    return at->second;
}

void Builder::add_trace(RawTrace& trace, const std::string& host) {
    const auto first_op = static_cast<std::uint32_t>(m_model.ops.size());
    if (first_op == 0) {
        m_model.ops = std::move(trace.ops);
        m_model.source = trace.kind;
        m_model.jax = trace.jax;
        m_model.jaxlib = trace.jaxlib;
        m_model.libtpu = trace.libtpu;
        m_model.profile_options = trace.profile_options;
        m_model.profile_start_ns = trace.profile_start_ns;
    } else {
        std::move(trace.ops.begin(), trace.ops.end(), std::back_inserter(m_model.ops));
    }
    m_model.schedules.merge(trace.schedules);
    m_x_events = std::max(m_x_events, trace.x_events);
    for (std::string& one : trace.damage) m_model.stream.push_back(host + one);
    for (std::string& one : trace.hints) m_model.warnings.push_back(host + one);
    std::int64_t last = -1;
    for (Plane& plane : trace.planes) {
        const bool is_gpu = m_model.kind == DeviceKind::gpu;
        const auto number = device_number(plane.name, is_gpu ? k_gpu : k_tpu);
        if (!number || m_model.kind == DeviceKind::cpu) continue;
        last = std::max(last, *number);
        read_peaks(plane);
        const auto& wanted = m_options.devices;
        const std::int64_t running = m_next_device + *number;
        if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), running) == wanted.end()) continue;
        add_device(trace, plane, fmt::format("{}{}:{}", host, is_gpu ? "GPU" : "TPU", *number), first_op);
    }
    m_next_device += last + 1;
    add_host_steps(trace, first_op);
    if (m_model.kind == DeviceKind::cpu) add_cpu(trace, host, first_op);
}

void Builder::read_peaks(const Plane& plane) {
    const auto number = [&](const char* name) -> std::optional<double> {
        const auto at = plane.numbers.find(name);
        return at == plane.numbers.end() || at->second <= 0 ? std::nullopt : std::optional(at->second);
    };
    if (const auto type = plane.texts.find("device_type_string"); type != plane.texts.end() && m_model.type.empty()) {
        m_model.type = type->second;
    }
    Peaks& peaks = m_model.peaks;
    if (peaks.source != "none") return;
    peaks.tflops = number("peak_teraflops_per_second");
    peaks.hbm_gbps = number("peak_hbm_bw_gigabytes_per_second");
    peaks.vmem_rd_gbps = number("peak_vmem_rd_bw_gigabytes_per_second");
    peaks.vmem_wr_gbps = number("peak_vmem_wr_bw_gigabytes_per_second");
    if (const auto bandwidth = number("memory_bandwidth"); bandwidth && !peaks.hbm_gbps) {
        peaks.hbm_gbps = *bandwidth / 1e9;
    }
    if (peaks.tflops || peaks.hbm_gbps) peaks.source = "plane";
}

// Peaks of one device: the option, else the plane's, else the table's.
void Builder::use_table() {
    Peaks& peaks = m_model.peaks;
    const Generation* generation = nullptr;
    if (m_model.kind == DeviceKind::tpu) {
        generation = find_generation(m_model.type);
        if (const Generation* named = find_generation(m_options.device); named != nullptr && generation == nullptr) {
            generation = named;
            if (m_model.type.empty()) m_model.type = named->devices[0];
        }
    }
    if (generation != nullptr) {
        m_model.cores_per_chip = generation->cores;
        if (peaks.source == "none") {
            peaks.tflops = generation->tflops / generation->cores;
            peaks.hbm_gbps = generation->hbm_gbps / generation->cores;
            peaks.source = "table";
        }
    }
    if (m_options.peak_tflops) {
        const double cores = generation != nullptr ? generation->cores : 1;
        peaks.tflops = *m_options.peak_tflops / cores;
        peaks.source = "option";
    }
}

void Builder::add_device(RawTrace& trace, Plane& plane, std::string name, std::uint32_t first_op) {
    Device device;
    device.name = std::move(name);
    const auto runs_of = [&](const Line& line, std::vector<Run>& runs, bool are_steps) {
        for (const Event& event : line.events) {
            const std::string& text = m_model.ops[event.op + first_op].name;
            const std::int64_t number = event.number >= 0 ? trace.numbers[static_cast<std::size_t>(event.number)]
                                        : are_steps       ? text::parse_int(text).value_or(0)
                                                          : 0;
            const std::uint32_t program = are_steps ? 0 : program_index(program_name(text));
            runs.push_back({event.start, event.start + event.duration, program, number});
        }
        std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.start < b.start; });
    };
    for (Line& line : plane.lines) {
        if (line.name == "XLA Modules") runs_of(line, device.runs, false);
        if (line.name == "Steps") runs_of(line, device.steps, true);
        if (line.name == "Async XLA Ops" && !line.events.empty()) {
            Intervals all;
            for (const Event& event : line.events) all.push_back({event.start, event.start + event.duration});
            device.async = union_of(std::move(all));
            device.has_async = true;
        }
        for (Event& event : line.events) event.op += first_op;
        if (line.name == "XLA TraceMe") {
            device.spans = std::move(line.events);
            sort_events(device.spans);
        } else if (is_lane(line, m_model.kind) && !line.events.empty()) {
            sort_events(line.events);
            device.lanes.push_back(std::move(line));
        }
    }
    if (!device.lanes.empty()) m_model.devices.push_back(std::move(device));
}

// One device for the operations of a host, a lane for each thread; its runs are the operations of one run id.
void Builder::add_cpu(RawTrace& trace, const std::string& host, std::uint32_t first_op) {
    Device device;
    device.name = fmt::format("{}cpu:{}", host, m_next_device++);
    std::map<std::pair<std::string, std::int32_t>, Run> runs;
    for (Plane& plane : trace.planes) {
        for (Line& line : plane.lines) {
            Line lane;
            lane.name = line.name;
            for (Event event : line.events) {
                event.op += first_op;
                const Op& op = m_model.ops[event.op];
                if (!op.is_host_op) continue;
                lane.events.push_back(event);
                if (op.program.empty()) continue;
                const Ps end = event.start + event.duration;
                const auto [at, is_new] = runs.try_emplace({op.program, event.number}, Run{event.start, end, 0, 0});
                if (is_new) {
                    at->second.program = program_index(op.program);
                    at->second.number = event.number < 0 ? 0 : trace.numbers[static_cast<std::size_t>(event.number)];
                }
                at->second.start = std::min(at->second.start, event.start);
                at->second.end = std::max(at->second.end, end);
            }
            if (lane.events.empty()) continue;
            sort_events(lane.events);
            device.lanes.push_back(std::move(lane));
        }
    }
    for (const auto& [key, run] : runs) device.runs.push_back(run);
    std::stable_sort(device.runs.begin(), device.runs.end(),
                     [](const Run& a, const Run& b) { return a.start < b.start; });
    const auto& wanted = m_options.devices;
    const bool chosen = wanted.empty() || std::find(wanted.begin(), wanted.end(), m_next_device - 1) != wanted.end();
    if (!device.lanes.empty() && chosen) m_model.devices.push_back(std::move(device));
}

void Builder::add_host_steps(RawTrace& trace, std::uint32_t first_op) {
    for (const Plane& plane : trace.planes) {
        if (device_number(plane.name, k_tpu) || device_number(plane.name, k_gpu)) continue;
        for (const Line& line : plane.lines) {
            for (const Event& event : line.events) {
                const std::uint32_t index = event.op + first_op;
                const Op& op = m_model.ops[index];
                m_has_host_ops = m_has_host_ops || op.is_host_op;
                if (!op.is_step) continue;
                const std::int64_t number =
                    event.number < 0 ? 0 : trace.numbers[static_cast<std::size_t>(event.number)];
                m_annotations.push_back({{event.start, event.start + event.duration, 0, number}, op.name, line.name});
            }
        }
    }
}

Status Builder::check_devices() {
    if (m_model.devices.empty() && !m_options.devices.empty() && m_next_device > 0) {
        return fail(ErrorKind::usage, "--devices matches no device of this profile",
                    fmt::format("it has devices 0 to {}", m_next_device - 1));
    }
    for (const std::int64_t wanted : m_options.devices) {
        if (wanted >= 0 && wanted < m_next_device) continue;
        return fail(ErrorKind::usage, fmt::format("--devices {}: there is no such device", wanted),
                    fmt::format("the profile has devices 0 to {}", m_next_device - 1));
    }
    if (!m_model.devices.empty()) {
        use_table();
        return {};
    }
    const bool asks_cpu = m_model.kind == DeviceKind::cpu;
    std::string why = "the profile holds host planes only";
    if (m_has_device_planes) {
        why = asks_cpu ? "the host planes hold no XLA ops; leave out --device cpu to analyse the device's"
                       : "the device planes hold no operations";
    }
    if (m_has_host_ops && !asks_cpu) why += "; --device cpu analyses its XLA ops";
    return fail(ErrorKind::bad_input, "no device events: " + why);
}

// Gives each operation the program around it, where the trace does not say it. An operation that runs in two programs
// becomes two.
void Builder::name_programs() {
    std::unordered_map<std::uint64_t, std::uint32_t> split;
    for (Device& device : m_model.devices) {
        if (device.runs.empty()) continue;
        for (Line& lane : device.lanes) {
            std::size_t at = 0;
            for (Event& event : lane.events) {
                if (!m_model.ops[event.op].program.empty()) continue;
                while (at + 1 < device.runs.size() && device.runs[at + 1].start <= event.start) ++at;
                const Run& run = device.runs[at];
                if (event.start < run.start || event.start > run.end) continue;
                const auto key = std::uint64_t{event.op} << 32 | run.program;
                const auto [found, is_new] = split.try_emplace(key, static_cast<std::uint32_t>(m_model.ops.size()));
                if (is_new) {
                    Op named = m_model.ops[event.op];
                    named.program = m_model.programs[run.program];
                    m_model.ops.push_back(std::move(named));
                }
                event.op = found->second;
            }
        }
    }
}

Status Builder::keep_module() {
    if (m_options.module.empty()) return {};
    GDNCTL_TRY_ASSIGN(const LineRegex wanted, LineRegex::compile(m_options.module, "--module"));
    bool any = false;
    for (Device& device : m_model.devices) {
        std::erase_if(device.runs, [&](const Run& run) { return !wanted.matches(m_model.programs[run.program]); });
        for (Line& lane : device.lanes) {
            std::erase_if(lane.events, [&](const Event& one) {
                const std::string& program = m_model.ops[one.op].program;
                return program.empty() || !wanted.matches(program);
            });
            any = any || !lane.events.empty();
        }
        std::erase_if(device.lanes, [](const Line& lane) { return lane.events.empty(); });
        device.steps.clear();
    }
    m_annotations.clear();
    if (any) return {};
    return fail(ErrorKind::usage, fmt::format("--module {}: no program with operations matches", m_options.module),
                fmt::format("its programs are: {}", text::join(m_model.programs, ", ")));
}

void Builder::find_classes() {
    std::vector<bool> used(m_model.ops.size());
    bool has_category = false;
    for (const Device& device : m_model.devices) {
        for (const Line& lane : device.lanes) {
            for (const Event& event : lane.events) used[event.op] = true;
        }
    }
    for (std::size_t i = 0; i < used.size(); ++i)
        has_category = has_category || (used[i] && !m_model.ops[i].category.empty());
    m_model.class_from_name = m_model.kind != DeviceKind::tpu || !has_category;
    m_model.classes.reserve(m_model.ops.size());
    for (Op& op : m_model.ops) {
        const bool by_name = m_model.class_from_name || op.category.empty();
        m_model.classes.push_back(class_of(op, m_model.kind, by_name));
        if (m_model.kind != DeviceKind::tpu) op.category.clear();  // kineto's `cat` is no HLO category
        constexpr std::string_view k_descriptor = ".kd";           // of AMD's code objects
        if (m_model.kind == DeviceKind::gpu && op.name.ends_with(k_descriptor)) {
            op.name.resize(op.name.size() - k_descriptor.size());
        }
    }
}

void Builder::find_steps() {
    std::map<std::string, Ps> time_of;
    bool has_line = false, has_runs = false;
    for (const Device& device : m_model.devices) {
        has_line = has_line || !device.steps.empty();
        has_runs = has_runs || !device.runs.empty();
        for (const Run& run : device.runs) time_of[m_model.programs[run.program]] += run.end - run.start;
    }
    if (!has_runs) {
        for (const Device& device : m_model.devices) {
            for (const Line& lane : device.lanes) {
                for (const Event& one : lane.events) {
                    const std::string& program = m_model.ops[one.op].program;
                    if (!program.empty()) time_of[program] += one.duration;
                }
            }
        }
    }
    Ps most = -1;
    for (const auto& [name, time] : time_of) {
        if (time > most) m_model.dominant = name;
        most = std::max(most, time);
    }
    if (has_line) {
        m_model.step_source = "steps-line";
    } else if (has_runs) {
        m_model.step_source = (m_model.kind == DeviceKind::cpu ? "runs:" : "modules:") + m_model.dominant;
        const std::uint32_t dominant = program_index(m_model.dominant);
        for (Device& device : m_model.devices) {
            std::copy_if(device.runs.begin(), device.runs.end(), std::back_inserter(device.steps),
                         [&](const Run& run) { return run.program == dominant; });
        }
    } else if (!m_annotations.empty()) {
        use_steps();
    } else {
        m_model.step_source = "none";
    }
    exclude_steps();
}

// The host's annotations as steps of every device: kineto's own of the GPU before those of the host, and of each the
// name that covers most time.
void Builder::use_steps() {
    m_model.step_source = "host-steps";
    const bool on_gpu = std::any_of(m_annotations.begin(), m_annotations.end(),
                                    [](const Annotation& one) { return one.line == "gpu_user_annotation"; });
    std::map<std::string, Ps> time_of;
    for (const Annotation& one : m_annotations) {
        if (on_gpu && one.line != "gpu_user_annotation") continue;
        time_of[one.name] += one.run.end - one.run.start;
    }
    std::string name;
    Ps most = -1;
    for (const auto& [stem, time] : time_of) {
        if (time > most) name = stem;
        most = std::max(most, time);
    }
    std::vector<Run> steps;
    for (const Annotation& one : m_annotations) {
        if (one.name == name && (!on_gpu || one.line == "gpu_user_annotation")) steps.push_back(one.run);
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Run& a, const Run& b) { return a.start < b.start; });
    for (Device& device : m_model.devices) device.steps = steps;
}

std::size_t Builder::ops_in(std::size_t step) const {
    std::size_t count = 0;
    for (const Device& device : m_model.devices) {
        const Run& run = device.steps[step];
        for (const Line& lane : device.lanes) {
            const auto from = std::lower_bound(lane.events.begin(), lane.events.end(), run.start,
                                               [](const Event& one, Ps at) { return one.start < at; });
            const auto to = std::lower_bound(from, lane.events.end(), run.end,
                                             [](const Event& one, Ps at) { return one.start < at; });
            count += static_cast<std::size_t>(to - from);
        }
    }
    return count;
}

// Lines up the steps of all devices, and finds those at the ends that the profile cut.
void Builder::exclude_steps() {
    std::size_t count = m_model.devices.front().steps.size();
    bool equal = true;
    for (const Device& device : m_model.devices) {
        equal = equal && device.steps.size() == count;
        count = std::min(count, device.steps.size());
    }
    if (!equal) {
        m_model.warnings.push_back(
            fmt::format("the devices have different numbers of steps; only the first {} of each are used", count));
    }
    std::vector<double> durations;
    std::vector<std::size_t> ops;
    for (std::size_t i = 0; i < count; ++i) {
        StepTime step;
        for (Device& device : m_model.devices) {
            step.by_device.push_back(device.steps[i].end - device.steps[i].start);
            step.mean_ps += static_cast<double>(step.by_device.back()) / static_cast<double>(m_model.devices.size());
        }
        durations.push_back(step.mean_ps);
        ops.push_back(ops_in(i));
        m_model.steps.push_back(std::move(step));
    }
    for (Device& device : m_model.devices) device.steps.resize(count);
    for (const std::size_t at : {std::size_t{0}, count - 1}) {
        if (count < 3) break;
        std::vector<double> others = durations;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(at));
        const std::size_t usual = ops[at == 0 ? 1 : 0];
        bool alike = true;
        for (std::size_t i = 0; i < count; ++i) alike = alike && (i == at || ops[i] == usual);
        if (durations[at] < 0.5 * quantile(others, 0.5)) {
            m_model.steps[at].excluded = "shorter than half the median of the others";
        } else if (alike && ops[at] < usual) {
            m_model.steps[at].excluded = fmt::format("{} operations where the others have {}", ops[at], usual);
        }
    }
    for (std::size_t i = 0; i < count && i < static_cast<std::size_t>(std::max<std::int64_t>(0, m_options.skip_first));
         ++i) {
        m_model.steps[i].excluded = "skipped by --skip-first";
    }
}

void Builder::set_extent(Device& device) const {
    Intervals all;
    for (const Line& lane : device.lanes) {
        for (const Event& event : lane.events) {
            const Interval one{event.start, event.start + event.duration};
            if (!all.empty() && one.start >= all.back().start && one.start <= all.back().end) {
                all.back().end = std::max(all.back().end, one.end);
            } else {
                all.push_back(one);
            }
        }
    }
    device.busy = union_of(std::move(all));
    Interval& window = device.window;
    window = {std::numeric_limits<Ps>::max(), std::numeric_limits<Ps>::min()};
    const auto widen = [&window](Ps start, Ps end) {
        window.start = std::min(window.start, start);
        window.end = std::max(window.end, end);
    };
    const bool own_steps = m_model.step_source == "steps-line" || m_model.step_source == "host-steps";
    for (const Run& run : own_steps ? device.steps : device.runs) widen(run.start, run.end);
    if (!device.busy.empty()) widen(device.busy.front().start, device.busy.back().end);
    if (window.end < window.start) window = {};
}

void Builder::add_up() {
    m_model.times.resize(m_model.ops.size());
    std::int64_t position = 0;
    for (std::size_t i = 0; i < m_model.devices.size(); ++i) {
        const Intervals steps = m_model.counted_steps(i);
        for (const Line& lane : m_model.devices[i].lanes) {
            std::size_t at = 0;
            for (const Event& event : lane.events) {
                OpTime& time = m_model.times[event.op];
                if (time.calls++ == 0) time.first = position;
                ++position;
                time.self += event.self;
                time.total += event.duration;
                while (at < steps.size() && steps[at].end <= event.start) ++at;
                if (at == steps.size() || event.start < steps[at].start) continue;
                time.step_self += event.self;
                time.step_total += event.duration;
                ++time.step_calls;
            }
        }
    }
}

void Builder::note_truncation() {
    constexpr std::array<std::int64_t, 2> k_caps = {5'000'000, 1'000'000};
    for (const std::int64_t cap : k_caps) {
        if (m_x_events < cap - 1 || m_x_events > cap + 1) continue;
        m_model.event_cap.push_back(fmt::format("{} events: the converter keeps {}", m_x_events, cap));
    }
    for (const Device& device : m_model.devices) {
        const Ps last_op = device.busy.empty() ? 0 : device.busy.back().end;
        const Ps last_run = device.runs.empty() ? last_op : device.runs.back().start;
        const Ps last_step =
            device.steps.empty() || m_model.step_source != "steps-line" ? last_op : device.steps.back().start;
        if (m_model.source == TraceKind::chrome_json && last_op < std::max(last_run, last_step)) {
            m_model.event_cap.push_back(
                fmt::format("{}: the last operation ends before the last program starts", device.name));
        }
        for (const Event& span : device.spans) {
            const std::string& name = m_model.ops[span.op].name;
            if (text::to_lower(name).find("dropped") == std::string::npos) continue;
            m_model.hw_buffer.push_back(fmt::format("{}: {}", device.name, name));
            break;
        }
    }
}

}  // namespace

std::int64_t Model::counted() const {
    return std::count_if(steps.begin(), steps.end(), [](const StepTime& step) { return step.excluded.empty(); });
}

double Model::step_divisor() const { return static_cast<double>(counted()) * static_cast<double>(devices.size()); }

Intervals Model::counted_steps(std::size_t device) const {
    Intervals counted;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const Run& run = devices[device].steps[i];
        if (steps[i].excluded.empty()) counted.push_back({run.start, run.end});
    }
    return counted;
}

Result<Model> build_model(std::vector<RawTrace> traces, const ModelOptions& options) {
    return Builder(options).build(std::move(traces));
}

}  // namespace gdnctl::trace
