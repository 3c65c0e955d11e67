#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "trace/views/format.h"

namespace gdnctl::trace {

namespace {

// Sums over the chosen devices, in ps.
struct TimeSums {
    Ps span = 0, self = 0, busy = 0, module_busy = 0, idle = 0, between = 0, in_module = 0, async = 0, hidden = 0;
    bool has_modules = false, has_async = false;
    std::map<std::string, Ps> named;
    std::array<Ps, k_classes> by_class{};
    Interval window{0, 0};
};

void add_idle(TimeSums& sums, const Model& model, const Device& device) {
    const Intervals window = {device.window};
    const Intervals idle = difference(window, device.busy);
    sums.idle += length_of(idle);
    if (device.runs.empty()) return;
    sums.has_modules = true;
    Intervals modules;
    for (const Run& run : device.runs) modules.push_back({run.start, run.end});
    modules = union_of(std::move(modules));
    sums.module_busy += length_of(modules);
    const Intervals inside = intersection(idle, modules);
    sums.in_module += length_of(inside);
    sums.between += length_of(idle) - length_of(inside);
    std::map<std::string, Intervals> named;
    for (const Event& span : device.spans) {
        const std::string& name = model.ops[span.op].name;
        if (name == "barrier-cores" || name == "dependency-wait") {
            named[name].push_back({span.start, span.start + span.duration});
        }
    }
    for (auto& [name, spans] : named) sums.named[name] += length_of(intersection(union_of(std::move(spans)), inside));
}

void add_overlap(TimeSums& sums, const Model& model, const Device& device) {
    if (!device.has_async) return;
    sums.has_async = true;
    Intervals work;
    for (const Line& lane : device.lanes) {
        for (const Event& event : lane.events) {
            const OpClass cls = model.classes[event.op];
            if (cls == OpClass::compute || cls == OpClass::kernel) {
                work.push_back({event.start, event.start + event.duration});
            }
        }
    }
    sums.async += length_of(device.async);
    sums.hidden += length_of(intersection(device.async, union_of(std::move(work))));
}

TimeSums sums_of(const Model& model) {
    TimeSums sums;
    for (const Device& device : model.devices) {
        const bool first = &device == model.devices.data();
        sums.span += device.window.end - device.window.start;
        sums.window.start = first ? device.window.start : std::min(sums.window.start, device.window.start);
        sums.window.end = first ? device.window.end : std::max(sums.window.end, device.window.end);
        sums.busy += length_of(device.busy);
        add_idle(sums, model, device);
        add_overlap(sums, model, device);
    }
    for (std::size_t i = 0; i < model.times.size(); ++i) {
        sums.self += model.times[i].self;
        sums.by_class[static_cast<std::size_t>(model.classes[i])] += model.times[i].self;
    }
    return sums;
}

Json time_json(const TimeSums& sums) {
    const auto where = [](bool known, Ps value) { return known ? Json(value) : Json(); };
    Json named = Json::object(), by_class = Json::object();
    for (const auto& [name, time] : sums.named) named[name] = time;
    for (std::size_t i = 0; i < k_classes; ++i) by_class[name_of(static_cast<OpClass>(i))] = sums.by_class[i];
    return {{"span_ps", sums.span},
            {"self_ps", sums.self},
            {"busy_ps", sums.busy},
            {"module_busy_ps", where(sums.has_modules, sums.module_busy)},
            {"idle_ps",
             {{"total", sums.idle},
              {"between_modules", where(sums.has_modules, sums.between)},
              {"in_module", where(sums.has_modules, sums.in_module)}}},
            {"in_module_named", named},
            {"wait_ps", sums.by_class[static_cast<std::size_t>(OpClass::wait)]},
            {"sync_collective_ps", sums.by_class[static_cast<std::size_t>(OpClass::collective)]},
            {"by_class", by_class},
            {"async_ps", where(sums.has_async, sums.async)},
            {"hidden_ps", where(sums.has_async, sums.hidden)},
            {"overlap", sums.has_async && sums.async > 0
                            ? Json(static_cast<double>(sums.hidden) / static_cast<double>(sums.async))
                            : Json()}};
}

std::vector<double> counted_means(const Model& model) {
    std::vector<double> means;
    for (const StepTime& step : model.steps) {
        if (step.excluded.empty()) means.push_back(step.mean_ps);
    }
    return means;
}

std::string time_text(const TimeSums& sums) {
    std::string text = fmt::format("window {}: busy {}, idle {}", ms(static_cast<double>(sums.span)),
                                   ms(static_cast<double>(sums.busy)), ms(static_cast<double>(sums.idle)));
    if (!sums.has_modules) return text;
    text += fmt::format(" (between modules {}, in modules {}", ms(static_cast<double>(sums.between)),
                        ms(static_cast<double>(sums.in_module)));
    std::string named;
    for (const auto& [name, time] : sums.named) {
        if (time < 1'000'000) continue;  // less than the last digit shown
        named += fmt::format("{}{} {}", named.empty() ? ": " : ", ", name, ms(static_cast<double>(time)));
    }
    return text + named + ")";
}

std::string class_text(const TimeSums& sums) {
    std::vector<std::pair<Ps, std::string_view>> classes;
    for (std::size_t i = 0; i < k_classes; ++i) {
        if (sums.by_class[i] >= 5'000'000) classes.emplace_back(-sums.by_class[i], name_of(static_cast<OpClass>(i)));
    }
    std::sort(classes.begin(), classes.end());
    std::string text;
    for (const auto& [time, name] : classes) {
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, ms(static_cast<double>(-time)));
    }
    if (!sums.has_async) return text;
    return text +
           fmt::format("; async {}, hidden {} ({:.2f} %)", ms(static_cast<double>(sums.async)),
                       ms(static_cast<double>(sums.hidden)),
                       100 * static_cast<double>(sums.hidden) / static_cast<double>(std::max<Ps>(1, sums.async)));
}

std::string steps_text(const Model& model) {
    const std::vector<double> steps = counted_means(model);
    const auto excluded = static_cast<std::int64_t>(model.steps.size()) - model.counted();
    if (steps.empty()) return fmt::format("no steps ({}); {} excluded", model.step_source, excluded);
    const StepSpread spread = spread_of(steps);
    return fmt::format("{} step{} ({}): median {} ms, MAD {}, p10 {}, p90 {}, CV {}; {} excluded", steps.size(),
                       steps.size() == 1 ? "" : "s", model.step_source, ms(spread.median), ms(spread.mad),
                       ms(spread.p10), ms(spread.p90), spread.cv ? fmt::format("{:.1f} %", *spread.cv * 100) : "-",
                       excluded);
}

}  // namespace

StepSpread spread_of(const std::vector<double>& steps) {
    StepSpread spread;
    if (steps.empty()) return spread;
    spread.median = quantile(steps, 0.5);
    spread.mad = median_deviation(steps);
    spread.p10 = quantile(steps, 0.1);
    spread.p90 = quantile(steps, 0.9);
    for (const double step : steps) spread.mean += step / static_cast<double>(steps.size());
    double squares = 0;
    for (const double step : steps) squares += (step - spread.mean) * (step - spread.mean);
    if (steps.size() > 1 && spread.mean > 0) {
        spread.cv = std::sqrt(squares / static_cast<double>(steps.size() - 1)) / spread.mean;
    }
    return spread;
}

StepSpread step_spread(const Model& model) { return spread_of(counted_means(model)); }

Json steps_json(const Model& model) {
    const std::vector<double> steps = counted_means(model);
    const StepSpread spread = spread_of(steps);
    const auto known = [&](double ps) { return steps.empty() ? Json() : Json(round_ps(ps)); };
    Json each = Json::array(), excluded = Json::array();
    for (const double step : steps) each.push_back(round_ps(step));
    for (std::size_t i = 0; i < model.steps.size(); ++i) {
        const StepTime& step = model.steps[i];
        if (step.excluded.empty()) continue;
        excluded.push_back({{"index", static_cast<std::int64_t>(i)},
                            {"duration_ps", round_ps(step.mean_ps)},
                            {"reason", step.excluded}});
    }
    const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
    return {{"source", model.step_source},
            {"n", static_cast<std::int64_t>(steps.size())},
            {"median_ps", known(spread.median)},
            {"mean_ps", known(spread.mean)},
            {"mad_ps", known(spread.mad)},
            {"p10_ps", known(spread.p10)},
            {"p90_ps", known(spread.p90)},
            {"min_ps", steps.empty() ? Json() : Json(round_ps(*least))},
            {"max_ps", steps.empty() ? Json() : Json(round_ps(*most))},
            {"cv", json::or_null(spread.cv)},
            {"per_step_ps", each},
            {"excluded", excluded}};
}

Mfu mfu_of(const Model& model, const std::vector<bool>& not_credible) {
    Mfu mfu;
    if (!model.peaks.tflops || model.counted() == 0) return mfu;
    double time = 0, flops = 0, credible = 0;
    for (const StepTime& step : model.steps) {
        if (step.excluded.empty()) time += step.mean_ps * static_cast<double>(model.devices.size());
    }
    bool any = false;
    for (std::size_t i = 0; i < model.times.size(); ++i) {
        const auto claimed = model.ops[i].model_flops;
        if (!claimed || model.times[i].has_flop_child) continue;
        any = any || *claimed > 0;
        flops += *claimed * static_cast<double>(model.times[i].step_calls);
        if (!not_credible[i]) credible += *claimed * static_cast<double>(model.times[i].step_calls);
    }
    if (!any || time <= 0) return mfu;
    mfu.device = flops / time / *model.peaks.tflops;
    mfu.credible = credible / time / *model.peaks.tflops;
    return mfu;
}

Mfu mfu_of(const Model& model) {
    std::vector<bool> doubtful;
    doubtful.reserve(model.ops.size());
    for (std::size_t i = 0; i < model.ops.size(); ++i) doubtful.push_back(claims_too_much(model, i));
    return mfu_of(model, doubtful);
}

Json time_json(const Model& model) { return time_json(sums_of(model)); }

Result<Answer> steps_view(const Source& source, const Asked& asked) {
    const Model& model = *source.model;
    const TimeSums sums = sums_of(model);
    Answer answer;
    if (!sums.has_async) {
        const bool is_json = model.source == TraceKind::chrome_json;
        const std::string why =
            is_json
                ? "async overlap cannot be measured from Chrome JSON (XLA drops 'Async XLA Ops'); pass the .xplane.pb"
                : "overlap cannot be measured: the trace has no async events";
        if (asked.need_overlap) return fail(ErrorKind::bad_input, why);
        if (model.kind == DeviceKind::tpu) answer.warnings.push_back({"no_overlap", why});
    }
    const Mfu mfu = mfu_of(model);
    answer.json = {{"steps", steps_json(model)},
                   {"window", {{"start_ps", sums.window.start}, {"end_ps", sums.window.end}}},
                   {"time", time_json(sums)},
                   {"mfu", {{"device", json::or_null(mfu.device)}, {"device_credible", json::or_null(mfu.credible)}}}};
    Block block{"Steps", {steps_text(model), time_text(sums), class_text(sums)}, {}, {}};
    if (mfu.device) {
        const bool same = *mfu.device == mfu.credible;
        block.lines.push_back(fmt::format(
            "MFU {:.3g}%{}", *mfu.device * 100,
            same ? "" : fmt::format(" ({} without claims above the peak)", percent(mfu.credible.value_or(0)))));
    }
    answer.blocks.push_back(std::move(block));
    return answer;
}

}  // namespace gdnctl::trace
