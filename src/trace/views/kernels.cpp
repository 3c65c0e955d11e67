#include "trace/views/kernels.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"
#include "trace/model/names.h"
#include "trace/views/format.h"

namespace gdnctl::trace {

namespace {

constexpr std::string_view k_stage_flag = "LIBTPU_INIT_ARGS=--xla_xprof_enable_custom_call_tracing=true";
constexpr std::string_view k_schedule_flag = "LIBTPU_INIT_ARGS=--xla_xprof_register_llo_debug_info=true";

struct Collector {
    const Model& model;
    std::map<std::pair<std::string, std::string>, std::size_t> at;  // program, name
    std::vector<std::int64_t> row_of_op;                            // -1: none
    std::vector<KernelRow> rows;
    std::vector<std::map<std::string, KernelStage>> stages, scopes;  // of each row

    void add_op(std::size_t op) {
        const Op& one = model.ops[op];
        const auto [found, is_new] = at.try_emplace({one.program, one.name}, rows.size());
        row_of_op[op] = static_cast<std::int64_t>(found->second);
        if (is_new) {
            KernelRow& row = rows.emplace_back();
            row.name = one.name;
            row.program = one.program;
            row.text = one.text;
        }
        KernelRow& row = rows[found->second];
        row.total += model.times[op].total;
        row.step_total += model.times[op].step_total;
        row.step_calls += model.times[op].step_calls;
        if (const auto flops = flops_of(one)) row.claimed_flops = std::max(row.claimed_flops.value_or(0), *flops);
        if (one.bytes_accessed) {
            row.claimed_bytes = std::max(row.claimed_bytes.value_or(0), *one.bytes_accessed);
        }
        for (const std::string& flag : claim_flags(model, op)) {
            if (std::find(row.flags.begin(), row.flags.end(), flag) == row.flags.end()) row.flags.push_back(flag);
        }
    }

    struct Call {
        Ps start = 0, end = 0;
        std::size_t row = 0;
        Ps outer_end = 0;  // of the outermost span so far
    };

    // The stages within calls: outermost spans, and those nested in them. A span belongs to the innermost call around
    // its start.
    void add_spans(const Device& device, std::vector<Call> calls) {
        std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.start < b.start; });
        std::vector<Call> open;
        auto next = calls.begin();
        for (const Event& span : device.spans) {
            for (; next != calls.end() && next->start <= span.start; ++next) open.push_back(*next);
            while (!open.empty() && open.back().end <= span.start) open.pop_back();
            if (open.empty()) continue;
            Call& call = open.back();
            const Ps end = span.start + span.duration;
            const bool nested = span.start < call.outer_end;
            if (!nested) call.outer_end = end;
            const std::string& name = model.ops[span.op].name;
            KernelStage& stage = (nested ? scopes : stages)[call.row][name];
            stage.name = name;
            stage.time += std::min(end, call.end) - span.start;
            ++stage.calls;
        }
    }

    void add_device(const Device& device) {
        std::vector<Call> calls;
        for (const Line& lane : device.lanes) {
            Ps last_end = 0;
            bool any = false;
            for (const Event& event : lane.events) {
                const Ps end = event.start + event.duration;
                if (const std::int64_t index = row_of_op[event.op]; index >= 0) {
                    KernelRow& row = rows[static_cast<std::size_t>(index)];
                    row.durations.push_back(static_cast<double>(event.duration));
                    if (any) row.gaps.push_back(static_cast<double>(std::max<Ps>(0, event.start - last_end)));
                    calls.push_back({event.start, end, static_cast<std::size_t>(index), event.start});
                }
                last_end = any ? std::max(last_end, end) : end;
                any = true;
            }
        }
        add_spans(device, std::move(calls));
    }
};

std::vector<KernelStage> by_time(const std::map<std::string, KernelStage>& named) {
    std::vector<KernelStage> all;
    for (const auto& [name, stage] : named) all.push_back(stage);
    std::stable_sort(all.begin(), all.end(),
                     [](const KernelStage& a, const KernelStage& b) { return a.time > b.time; });
    return all;
}

void set_stages(KernelRow& row, std::map<std::string, KernelStage> stages,
                const std::map<std::string, KernelStage>& scopes) {
    const bool recorded =
        std::any_of(stages.begin(), stages.end(), [](const auto& one) { return one.first.starts_with("ep_"); });
    if (!recorded) return;
    Ps known = 0;
    for (const auto& [name, stage] : stages) known += stage.time;
    if (known < row.total) stages["other"] = {"other", stages["other"].time + row.total - known, 0};
    row.stages = by_time(stages);
    row.scopes = by_time(scopes);
}

Ps stage_time(const KernelRow& row, std::string_view name) {
    for (const KernelStage& stage : row.stages) {
        if (stage.name == name) return stage.time;
    }
    return 0;
}

std::optional<double> rate_of(const std::optional<double>& flops, const KernelRow& row) {
    if (!flops || *flops <= 0 || row.median() <= 0) return std::nullopt;
    return *flops / row.median();  // FLOPs a ps are TFLOP/s
}

std::optional<double> of_peak(const std::optional<double>& rate, const std::optional<double>& peak) {
    if (!rate || !peak || *peak <= 0) return std::nullopt;
    return *rate / *peak;
}

std::int64_t slots_used(const Schedule& schedule, std::string_view unit) {
    for (const Schedule::Unit& one : schedule.units) {
        if (one.name == unit) return one.used;
    }
    return 0;
}

// What bounds the kernel: the first of these rules that holds, with its evidence.
void set_bound(KernelRow& row, const Model& model) {
    const auto is = [&row](std::string bound, std::string why) {
        row.bound = std::move(bound);
        row.why = std::move(why);
    };
    if (const auto share = row.wait_share(); share && *share >= 0.30) {
        const bool input = stage_time(row, "ep_wait_in") >= stage_time(row, "ep_wait_out");
        return is(input ? "waits-on-input-dma" : "waits-on-output-dma",
                  fmt::format("{:.0f} % of the time waits for DMA", *share * 100));
    }
    if (const auto times = row.times_floor(); times && *times <= 1.3) {
        return is("at-memory-floor", fmt::format("{:.2f} x the time to move its inputs and outputs once", *times));
    }
    const auto share = of_peak(rate_of(row.true_flops, row), model.peaks.tflops);
    if (share && *share >= 0.70) return is("at-compute-peak", fmt::format("{:.0f} % of the peak", *share * 100));
    if (row.schedule != nullptr && row.schedule->bundles > 0) {
        const Schedule& plan = *row.schedule;
        const double spills = static_cast<double>(plan.spill) / static_cast<double>(plan.bundles);
        if (spills > 0.5) {
            return is("register-pressure", fmt::format("{:.2f} spills a bundle in the compiler's schedule", spills));
        }
        const std::int64_t salu = slots_used(plan, "salu"), mxu = slots_used(plan, "mxu");
        if (salu > mxu) {
            return is("scalar-bound", fmt::format("the compiler's schedule has {} scalar and {} MXU slots", salu, mxu));
        }
    }
    row.bound = "unknown";
    if (model.kind != DeviceKind::tpu) return;
    if (row.stages.empty()) {
        row.why = "no kernel stages were recorded";
        row.flag = k_stage_flag;
    } else if (row.schedule == nullptr) {
        row.why = "no compiler's schedule was recorded";
        row.flag = k_schedule_flag;
    } else if (!row.true_flops) {
        row.why = "its true FLOPs are not known";
        row.flag = "--flops N";
    }
}

Json stages_json(const std::vector<KernelStage>& stages, const KernelRow& row) {
    if (row.stages.empty()) return {};
    Json all = Json::array();
    for (const KernelStage& stage : stages) {
        const double share = row.total > 0 ? static_cast<double>(stage.time) / static_cast<double>(row.total) : 0;
        all.push_back({{"name", stage.name}, {"ps", stage.time}, {"share", share}, {"calls", stage.calls}});
    }
    return all;
}

Json schedule_json(const Schedule* schedule) {
    if (schedule == nullptr) return {};
    Json slots = Json::object();
    for (const Schedule::Unit& unit : schedule->units) {
        const auto share =
            unit.available > 0 ? Json(static_cast<double>(unit.used) / static_cast<double>(unit.available)) : Json();
        slots[unit.name] = {{"used", unit.used}, {"available", unit.available}, {"share", share}};
    }
    return {{"bundles", schedule->bundles}, {"slots", slots}, {"spill", schedule->spill}, {"fill", schedule->fill}};
}

// "ep_wait_in" -> "wait_in", "ep_run_kernel" -> "run".
std::string short_stage(std::string_view name) {
    if (name.starts_with("ep_")) name.remove_prefix(3);
    return std::string(name == "run_kernel" ? "run" : name);
}

std::string stages_text(const KernelRow& row) {
    std::string text = "  ";
    std::size_t listed = 0;
    const auto share = [&](const KernelStage& stage) {
        return static_cast<double>(stage.time) / static_cast<double>(row.total);
    };
    for (const KernelStage& stage : row.stages) {
        if (listed == 5 || share(stage) < 0.01) break;
        text += fmt::format("{}{} {}", listed++ == 0 ? "" : ", ", short_stage(stage.name), percent(share(stage)));
        if (stage.name != "ep_run_kernel" || row.scopes.empty()) continue;
        std::string inner;
        for (std::size_t i = 0; i < row.scopes.size() && i < 4; ++i) {
            inner +=
                fmt::format("{}{} {:.1f}", inner.empty() ? "" : ", ", row.scopes[i].name, share(row.scopes[i]) * 100);
        }
        text += " (" + inner + ")";
    }
    for (const std::string& flag : row.flags) text += "; " + flag;
    return text;
}

std::string schedule_text(const Schedule& plan) {
    std::string text = fmt::format("  compiler's schedule, not measured: {} bundles", plan.bundles);
    std::vector<Schedule::Unit> units = plan.units;
    const auto share = [](const Schedule::Unit& one) {
        return one.available > 0 ? static_cast<double>(one.used) / static_cast<double>(one.available) : 0.0;
    };
    std::stable_sort(units.begin(), units.end(), [&](const auto& a, const auto& b) { return share(a) > share(b); });
    for (const Schedule::Unit& unit : units) {
        const bool is_usual = unit.name == "mxu" || unit.name == "vload" || unit.name == "valu";
        if (share(unit) < (is_usual ? 0.05 : 0.25)) continue;
        std::string name = unit.name;
        std::transform(name.begin(), name.end(), name.begin(),
                       [](char c) { return static_cast<char>(std::toupper(c)); });
        text += fmt::format(", {} {}", name, percent(share(unit)));
    }
    return text + fmt::format(", spills {}", plan.spill);
}

}  // namespace

std::optional<double> KernelRow::times_floor() const {
    if (!floor_ps || *floor_ps <= 0) return std::nullopt;
    return median() / *floor_ps;
}

std::optional<double> KernelRow::wait_share() const {
    if (stages.empty() || total <= 0) return std::nullopt;
    return static_cast<double>(stage_time(*this, "ep_wait_in") + stage_time(*this, "ep_wait_out")) /
           static_cast<double>(total);
}

bool claims_too_much(const Model& model, std::size_t op) {
    constexpr double k_credible = 1.05;
    const Op& one = model.ops[op];
    const OpTime& time = model.times[op];
    const OpClass cls = model.classes[op];
    if (time.total <= 0 || cls == OpClass::wait || cls == OpClass::issue) return false;
    const double a_call = static_cast<double>(time.total) / static_cast<double>(time.calls);
    const auto exceeds = [&](const std::optional<double>& claim, const std::optional<double>& peak, double scale) {
        return claim && peak && *claim / a_call * scale > k_credible * *peak;
    };
    return exceeds(flops_of(one), model.peaks.tflops, 1) || exceeds(one.hbm_bytes, model.peaks.hbm_gbps, 1000);
}

std::vector<std::string> claim_flags(const Model& model, std::size_t op) {
    std::vector<std::string> flags;
    const Op& one = model.ops[op];
    const OpClass cls = model.classes[op];
    const bool by_name = model.class_from_name || one.category.empty();
    if (claims_too_much(model, op)) flags.emplace_back("claim_not_credible");
    if (cls == OpClass::kernel && model.kind == DeviceKind::tpu) {
        if (flops_of(one).value_or(0) <= 0) flags.emplace_back("no_cost_estimate");
        const auto moved = io_bytes(one.text);
        if (moved && one.bytes_accessed && *one.bytes_accessed < static_cast<double>(*moved)) {
            flags.emplace_back("claim_below_shapes");
        }
    }
    if (by_name) flags.emplace_back("class_from_name");
    const bool rated = cls != OpClass::wait && cls != OpClass::issue;
    if (rated && !one.hbm_bytes && one.bytes_accessed.value_or(0) > 0) flags.emplace_back("upper_bound_bytes");
    return flags;
}

std::vector<KernelRow> kernel_rows(const Model& model, const Asked& asked) {
    Collector all{model, {}, std::vector<std::int64_t>(model.ops.size(), -1), {}, {}, {}};
    std::optional<LineRegex> wanted;
    if (auto regex = LineRegex::compile(asked.name, "--name"); regex && !asked.name.empty()) wanted = std::move(*regex);
    for (std::size_t i = 0; i < model.ops.size(); ++i) {
        if (model.times[i].calls == 0) continue;
        if (wanted ? wanted->matches(model.ops[i].name) : model.classes[i] == OpClass::kernel) all.add_op(i);
    }
    all.stages.resize(all.rows.size());
    all.scopes.resize(all.rows.size());
    for (const Device& device : model.devices) all.add_device(device);
    for (std::size_t i = 0; i < all.rows.size(); ++i) {
        KernelRow& row = all.rows[i];
        row.io_bytes = io_bytes(row.text);
        if (row.io_bytes && *row.io_bytes > 0 && model.peaks.hbm_gbps) {
            row.floor_ps = static_cast<double>(*row.io_bytes) / *model.peaks.hbm_gbps * 1000;
        }
        row.true_flops = asked.flops;
        set_stages(row, std::move(all.stages[i]), all.scopes[i]);
        const auto plan = model.schedules.find(row.program + "::" + row.name);
        if (plan != model.schedules.end()) row.schedule = &plan->second;
        set_bound(row, model);
    }
    std::sort(all.rows.begin(), all.rows.end(), [](const KernelRow& a, const KernelRow& b) {
        return a.total != b.total ? a.total > b.total : a.name < b.name;
    });
    return std::move(all.rows);
}

Json kernel_json(const KernelRow& row, const Model& model) {
    const double steps = model.step_divisor();
    const auto claimed = rate_of(row.claimed_flops, row), true_rate = rate_of(row.true_flops, row);
    const auto [least, most] = std::minmax_element(row.durations.begin(), row.durations.end());
    const Ps run = stage_time(row, "ep_run_kernel");
    const auto share = row.wait_share();
    Json flags = Json::array();
    for (const std::string& flag : row.flags) flags.push_back(flag);
    return {{"name", row.name},
            {"program", json::or_null(row.program)},
            {"calls", static_cast<std::int64_t>(row.durations.size())},
            {"calls_per_step", steps > 0 ? Json(static_cast<double>(row.step_calls) / steps) : Json()},
            {"median_ps", round_ps(row.median())},
            {"mad_ps", round_ps(median_deviation(row.durations))},
            {"min_ps", round_ps(*least)},
            {"max_ps", round_ps(*most)},
            {"total_ps", row.total},
            {"gap_before_ps", row.gaps.empty() ? Json() : Json(round_ps(quantile(row.gaps, 0.5)))},
            {"io_bytes", json::or_null(row.io_bytes)},
            {"io_floor_ps", ps_or_null(row.floor_ps)},
            {"times_floor", json::or_null(row.times_floor())},
            {"claim",
             {{"flops", json::or_null(row.claimed_flops)},
              {"bytes", json::or_null(row.claimed_bytes)},
              {"tflops", json::or_null(claimed)},
              {"of_peak", json::or_null(of_peak(claimed, model.peaks.tflops))}}},
            {"true_flops", json::or_null(row.true_flops)},
            {"true_tflops", json::or_null(true_rate)},
            {"true_of_peak", json::or_null(of_peak(true_rate, model.peaks.tflops))},
            {"stages", stages_json(row.stages, row)},
            {"scopes", stages_json(row.scopes, row)},
            {"wait_share", json::or_null(share)},
            {"wait_ratio",
             share && run > 0 ? Json(*share * static_cast<double>(row.total) / static_cast<double>(run)) : Json()},
            {"static", schedule_json(row.schedule)},
            {"bound", row.bound},
            {"why", json::or_null(row.why)},
            {"flag", json::or_null(row.flag)},
            {"flags", flags}};
}

Block kernel_block(const std::vector<KernelRow>& rows, const Model& model) {
    Block block{"Kernels", {}, {}, {}};
    Table& table = block.table;
    table.columns = {
        {"kernel", true}, {"calls"}, {"median us"}, {"MAD", false, true}, {"gap", false, true}, {"floor"}, {"x floor"},
        {"wait"},         {"claim"}, {"true"},      {"bound", true}};
    for (const KernelRow& row : rows) {
        const auto or_dash = [](const std::optional<double>& value, auto&& shown) {
            return value ? shown(*value) : std::string("-");
        };
        const auto rate = [&](const std::optional<double>& flops) {
            return or_dash(of_peak(rate_of(flops, row), model.peaks.tflops), [](double of) { return percent(of); });
        };
        table.rows.push_back({row.name, std::to_string(row.durations.size()), us(row.median()),
                              us(median_deviation(row.durations)), row.gaps.empty() ? "-" : us(quantile(row.gaps, 0.5)),
                              or_dash(row.floor_ps, us),
                              or_dash(row.times_floor(), [](double times) { return fmt::format("{:.2f}", times); }),
                              or_dash(row.wait_share(), [](double share) { return percent(share, 0); }),
                              rate(row.claimed_flops), rate(row.true_flops), row.bound});
        if (!row.stages.empty()) {
            block.after.push_back(row.name + ":");
            block.after.push_back(stages_text(row));
        } else if (!row.flags.empty()) {
            block.after.push_back(fmt::format("{}: {}", row.name, text::join(row.flags, ", ")));
        }
        if (row.schedule != nullptr) block.after.push_back(schedule_text(*row.schedule));
    }
    return block;
}

Result<Answer> kernels_view(const Source& source, const Asked& asked) {
    if (!asked.name.empty()) {
        GDNCTL_TRY_ASSIGN([[maybe_unused]] const LineRegex checked, LineRegex::compile(asked.name, "--name"));
    }
    const Model& model = *source.model;
    std::vector<KernelRow> rows = kernel_rows(model, asked);
    Answer answer;
    if (rows.empty()) {
        answer.warnings.push_back({"no_kernels", asked.name.empty()
                                                     ? "no custom calls: --name RE shows other operations"
                                                     : fmt::format("no operation matches --name {}", asked.name)});
    }
    if (asked.top >= 0 && rows.size() > static_cast<std::size_t>(asked.top)) {
        rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(asked.top), rows.end());
    }
    Json kernels = Json::array();
    for (const KernelRow& row : rows) kernels.push_back(kernel_json(row, model));
    answer.json = {{"steps", {{"source", model.step_source}, {"n", model.counted()}}}, {"kernels", kernels}};
    answer.blocks.push_back(kernel_block(rows, model));
    return answer;
}

}  // namespace gdnctl::trace
