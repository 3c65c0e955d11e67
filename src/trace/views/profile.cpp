// What comparisons and rules need of a model.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "core/glob.h"
#include "core/text.h"
#include "trace/model/names.h"
#include "trace/views/format.h"

namespace gdnctl::trace {

namespace {

// Of each counted step: what `of(device)` says of its part of a device, mean over devices.
template <class Of>
std::vector<Ps> over_steps(const Model& model, Of of) {
    std::vector<double> sums(static_cast<std::size_t>(model.counted()));
    for (std::size_t i = 0; i < model.devices.size(); ++i) {
        const Intervals steps = model.counted_steps(i);
        const auto part = of(model.devices[i]);
        for (std::size_t k = 0; k < steps.size(); ++k) sums[k] += static_cast<double>(part(steps, k));
    }
    std::vector<Ps> means;
    for (const double sum : sums) means.push_back(round_ps(sum / static_cast<double>(model.devices.size())));
    return means;
}

// How much of any interval a device was busy.
class BusyTime {
public:
    explicit BusyTime(const Device& device) : m_busy(device.busy) {
        for (const Interval& one : m_busy) m_before.push_back(m_before.back() + one.end - one.start);
    }
    Ps within(const Interval& step) const { return until(step.end) - until(step.start); }

private:
    Ps until(Ps time) const {
        const auto at = std::lower_bound(m_busy.begin(), m_busy.end(), time,
                                         [](const Interval& one, Ps end) { return one.end <= end; });
        const Ps whole = m_before[static_cast<std::size_t>(at - m_busy.begin())];
        return at == m_busy.end() || at->start >= time ? whole : whole + time - at->start;
    }

    const Intervals& m_busy;
    std::vector<Ps> m_before{0};  // sums of what ends before each interval
};

std::string class_text(const Model& model, std::size_t op) { return std::string(name_of(model.classes[op])); }

void add_ops(Profile& profile, const Model& model) {
    const bool steps = model.counted() > 0;
    Ps most = -1;
    for (std::size_t i = 0; i < model.ops.size(); ++i) {
        const OpTime& time = model.times[i];
        if (time.calls == 0) continue;
        const Op& op = model.ops[i];
        if (time.self > most) profile.hotspot = canonical_name(op.name, profile.kind);
        most = std::max(most, time.self);
        if (steps && time.step_calls == 0) continue;
        OpSum sum;
        sum.program = op.program;
        sum.name = op.name;
        sum.category = op.category;
        sum.tf_op = op.tf_op;
        sum.source = op.source;
        sum.stable_id = op.stable_id;
        sum.text = op.text;
        sum.cls = class_text(model, i);
        sum.self_ps = steps ? time.step_self : time.self;
        sum.calls = steps ? time.step_calls : time.calls;
        sum.order = time.first;
        profile.ops.push_back(std::move(sum));
    }
}

std::string hex_of(std::string_view bytes) {
    std::string hex;
    for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return hex;
}

// "12.5 of kernel.NAME.median_us": the metric's parts.
std::optional<double> step_metric(const Profile& profile, std::string_view what) {
    std::vector<double> steps(profile.steps.begin(), profile.steps.end());
    const StepSpread spread = spread_of(steps);
    if (what == "n") return static_cast<double>(steps.size());
    if (steps.empty()) return std::nullopt;
    if (what == "median_ms") return spread.median / 1e9;
    if (what == "mean_ms") return spread.mean / 1e9;
    if (what == "p90_ms") return spread.p90 / 1e9;
    return spread.cv;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

// nullopt also for a class that class_of() never gives on this kind of device.
std::optional<double> class_metric(const Profile& profile, std::string_view cls, bool share) {
    const bool has_class = profile.kind == "gpu" ? is_one_of(cls, {"compute", "collective", "copy"}) : cls != "copy";
    if (!has_class) return std::nullopt;
    double time = 0, all = 0;
    for (const OpSum& op : profile.ops) {
        all += static_cast<double>(op.self_ps);
        if (op.cls == cls) time += static_cast<double>(op.self_ps);
    }
    if (share) return all > 0 ? std::optional(time / all) : std::nullopt;
    const double steps = static_cast<double>(profile.steps.size()) * static_cast<double>(profile.devices);
    return steps > 0 ? std::optional(time / steps / 1e9) : std::nullopt;
}

bool is_named(const std::string& kernel, std::string_view name, const std::string& kind) {
    return kernel == name || canonical_name(kernel, kind) == name;
}

std::optional<double> kernel_metric(const Source& source, std::string_view name, std::string_view what) {
    const Profile& profile = source.profile;
    std::optional<double> value;
    const auto keep = [&](std::optional<double> one) {
        if (one) value = std::max(value.value_or(*one), *one);  // of several copies, the worst
    };
    if (source.model && what != "median_us") {
        double total = 0;
        for (const KernelRow& row : kernel_rows(*source.model, {})) {
            if (!is_named(row.name, name, profile.kind)) continue;
            if (what == "times_floor") keep(row.times_floor());
            if (what == "wait_share") keep(row.wait_share());
            total += static_cast<double>(row.step_total);
            if (what == "ms" && source.model->counted() > 0) value = total / source.model->step_divisor() / 1e9;
        }
        return value;
    }
    for (const KernelSum& kernel : profile.kernels) {
        if (!is_named(kernel.name, name, profile.kind)) continue;
        if (what == "median_us") keep(static_cast<double>(kernel.median_ps) / 1e6);
        if (what == "wait_share") keep(kernel.wait_share);
    }
    return value;
}

std::optional<double> time_metric(const Source& source, std::string_view what) {
    if (!source.model) return std::nullopt;
    const Json time = time_json(*source.model);
    if (what == "overlap") return json::number(time, "overlap");
    const auto idle = json::number_at(time, "/idle_ps/total"), span = json::number(time, "span_ps");
    return idle && span && *span > 0 ? std::optional(*idle / *span) : std::nullopt;
}

}  // namespace

Profile profile_of(const Model& model, const InputFile& file) {
    Profile profile;
    profile.sha256 = file.sha256;
    profile.path = file.path;
    profile.kind = name_of(model.kind);
    profile.device_type = model.type;
    profile.devices = static_cast<std::int64_t>(model.devices.size());
    profile.dominant = model.dominant;
    profile.programs = model.programs;
    std::sort(profile.programs.begin(), profile.programs.end());
    profile.step_source = model.step_source;
    const auto counted = static_cast<double>(model.counted());
    for (const StepTime& step : model.steps) {
        if (!step.excluded.empty()) continue;
        profile.steps.push_back(std::llround(step.mean_ps));  // halves away from 0: exchanging the sides negates
        profile.mean_step_ps += step.mean_ps / counted;
    }
    profile.step_busy = over_steps(model, [](const Device& device) {
        return [busy = BusyTime(device)](const Intervals& steps, std::size_t k) { return busy.within(steps[k]); };
    });
    profile.step_gap = over_steps(model, [](const Device&) {
        return [](const Intervals& steps, std::size_t k) {
            return k + 1 < steps.size() ? std::max<Ps>(0, steps[k + 1].start - steps[k].end) : 0;
        };
    });
    add_ops(profile, model);
    for (const KernelRow& row : kernel_rows(model, {})) {
        KernelSum sum{row.name, row.program, row.text, row.bound, round_ps(row.median()), row.wait_share(), {}};
        if (row.schedule != nullptr) sum.spill = row.schedule->spill;
        profile.kernels.push_back(std::move(sum));
    }
    profile.peak_tflops = model.peaks.tflops;
    profile.peak_hbm_gbps = model.peaks.hbm_gbps;
    profile.mfu = mfu_of(model).device;
    profile.jax = model.jax;
    profile.jaxlib = model.jaxlib;
    profile.libtpu = model.libtpu;
    profile.options = hex_of(model.profile_options);
    return profile;
}

Result<std::optional<double>> metric_of(const Source& source, std::string_view metric) {
    const std::size_t dot = metric.find('.'), last = metric.rfind('.');
    const std::string_view group = metric.substr(0, dot);
    const std::string_view what = last == std::string_view::npos ? std::string_view() : metric.substr(last + 1);
    const std::string_view name = last > dot ? metric.substr(dot + 1, last - dot - 1) : std::string_view();
    if (group == "step" && name.empty() && is_one_of(what, {"median_ms", "mean_ms", "p90_ms", "n", "cv"})) {
        return step_metric(source.profile, what);
    }
    if (group == "class" && is_one_of(what, {"share", "ms"})) {
        for (std::size_t i = 0; i < k_classes; ++i) {
            if (name == name_of(static_cast<OpClass>(i))) return class_metric(source.profile, name, what == "share");
        }
    }
    if (metric == "idle.share" || metric == "overlap")
        return time_metric(source, metric == "overlap" ? "overlap" : "idle");
    if (metric == "mfu") return source.profile.mfu;
    if (group == "kernel" && !name.empty() && is_one_of(what, {"median_us", "times_floor", "wait_share", "ms"})) {
        return kernel_metric(source, name, what);
    }
    return fail(ErrorKind::usage, fmt::format("unknown metric '{}'", metric),
                "use step.{median,mean,p90}_ms, step.n, step.cv, class.CLASS.{share,ms}, idle.share, overlap, mfu, or "
                "kernel.NAME.{median_us,times_floor,wait_share,ms}");
}

Result<Objective> objective_of(const Model& model, std::string_view metric) {
    constexpr std::string_view k_kernel = "trace:kernel:";
    if (model.counted() == 0) return fail(ErrorKind::bad_input, "the trace has no steps");
    if (metric == "trace:step") return Objective{step_spread(model).median / 1e9, "ms"};
    if (!metric.starts_with(k_kernel) || metric.size() == k_kernel.size()) {
        return fail(ErrorKind::usage, fmt::format("unknown metric '{}'", metric),
                    "use trace:step or trace:kernel:GLOB");
    }
    const std::string_view glob = metric.substr(k_kernel.size());
    std::vector<bool> wanted(model.ops.size());
    bool any = false;
    for (std::size_t i = 0; i < model.ops.size(); ++i) {
        wanted[i] =
            model.times[i].calls > 0 && glob_matches(glob, canonical_name(model.ops[i].name, name_of(model.kind)));
        any = any || wanted[i];
    }
    if (!any) return fail(ErrorKind::bad_input, fmt::format("no operation of the trace matches '{}'", glob));
    const std::vector<Ps> sums = over_steps(model, [&](const Device& device) {
        std::map<Ps, Ps> until;  // a start: what begins until then takes so long
        for (const Line& lane : device.lanes) {
            for (const Event& event : lane.events) {
                if (wanted[event.op]) until[event.start] += event.duration;
            }
        }
        Ps sum = 0;
        for (auto& [start, time] : until) time = sum += time;
        return [until = std::move(until)](const Intervals& steps, std::size_t k) {
            const auto before = [&until](Ps time) {
                const auto at = until.lower_bound(time);
                return at == until.begin() ? 0 : std::prev(at)->second;
            };
            return before(steps[k].end) - before(steps[k].start);
        };
    });
    return Objective{quantile(std::vector<double>(sums.begin(), sums.end()), 0.5) / 1e6, "us"};
}

}  // namespace gdnctl::trace
