#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "trace/model/names.h"
#include "trace/views/format.h"
#include "trace/views/kernels.h"

namespace gdnctl::trace {

namespace {

struct HotspotRow {
    std::string name, category;
    OpTime time;
    std::map<OpClass, Ps> classes;
    double flops = 0, bytes = 0;  // over all calls
    bool has_flops = false, has_bytes = false, upper_bound = false;
    std::set<std::string> flags;

    OpClass cls() const {
        return std::max_element(classes.begin(), classes.end(),
                                [](const auto& a, const auto& b) { return a.second < b.second; })
            ->first;
    }
};

std::string key_of(const Model& model, std::size_t op, const std::string& by) {
    const Op& one = model.ops[op];
    const auto or_none = [&](const std::string& text) { return text.empty() ? fmt::format("(no {})", by) : text; };
    if (by == "category") return or_none(one.category);
    if (by == "class") return std::string(name_of(model.classes[op]));
    if (by == "source") return or_none(one.source);
    if (by == "tf_op") return or_none(one.tf_op);
    if (by == "program") return or_none(one.program);
    return one.name;
}

void add_costs(HotspotRow& row, const Op& op, OpClass cls, double calls) {
    if (cls == OpClass::wait || cls == OpClass::issue) return;
    if (const auto flops = flops_of(op); flops && (*flops > 0 || cls != OpClass::kernel)) {
        row.has_flops = true;
        row.flops += *flops * calls;
    }
    const auto& bytes = op.hbm_bytes ? op.hbm_bytes : op.bytes_accessed;
    if (bytes && (*bytes > 0 || cls != OpClass::kernel)) {
        row.has_bytes = true;
        row.upper_bound = row.upper_bound || !op.hbm_bytes;
        row.bytes += *bytes * calls;
    }
}

std::vector<HotspotRow> rows_of(const Model& model, const std::string& by) {
    std::unordered_map<std::string, std::size_t> at;
    std::vector<HotspotRow> rows;
    for (std::size_t i = 0; i < model.times.size(); ++i) {
        const OpTime& time = model.times[i];
        if (time.calls == 0) continue;
        const auto [found, is_new] = at.try_emplace(key_of(model, i, by), rows.size());
        if (is_new) rows.emplace_back().name = found->first;
        HotspotRow& row = rows[found->second];
        const Op& op = model.ops[i];
        if (by == "op" || by == "category") row.category = op.category;
        row.time.self += time.self;
        row.time.total += time.total;
        row.time.calls += time.calls;
        row.time.step_self += time.step_self;
        row.time.step_total += time.step_total;
        row.time.step_calls += time.step_calls;
        row.classes[model.classes[i]] += time.self;
        add_costs(row, op, model.classes[i], static_cast<double>(time.calls));
        for (std::string& flag : claim_flags(model, i)) row.flags.insert(std::move(flag));
    }
    return rows;
}

// Shares of the peaks; nullopt where either side is unknown.
struct Rates {
    std::optional<double> tflops, gbps, of_peak;
    std::string_view bound_by = "unknown";
};

Rates rates_of(const HotspotRow& row, const Peaks& peaks) {
    Rates rates;
    if (row.time.total <= 0) return rates;
    const auto total = static_cast<double>(row.time.total);
    if (row.has_flops) rates.tflops = row.flops / total;
    if (row.has_bytes) rates.gbps = row.bytes / total * 1000;
    const double compute = rates.tflops && peaks.tflops ? *rates.tflops / *peaks.tflops : 0;
    const double memory = rates.gbps && peaks.hbm_gbps ? *rates.gbps / *peaks.hbm_gbps : 0;
    if (compute <= 0 && memory <= 0) return rates;
    rates.of_peak = std::max(compute, memory);
    rates.bound_by = compute >= memory ? "compute" : "hbm";
    return rates;
}

Json row_json(const HotspotRow& row, const Model& model, Ps all, bool is_op) {
    const double steps = model.step_divisor();
    const auto a_step = [&](auto sum) { return steps > 0 ? Json(static_cast<double>(sum) / steps) : Json(); };
    const Rates rates = rates_of(row, model.peaks);
    Json flags = Json::array();
    for (const std::string& flag : row.flags) flags.push_back(flag);
    return {{"name", row.name},
            {"canonical_name", is_op ? canonical_name(row.name, name_of(model.kind)) : row.name},
            {"category", json::or_null(row.category)},
            {"class", name_of(row.cls())},
            {"self_ps", row.time.self},
            {"total_ps", row.time.total},
            {"calls", row.time.calls},
            {"self_ps_per_step", a_step(row.time.step_self)},
            {"total_ps_per_step", a_step(row.time.step_total)},
            {"calls_per_step", a_step(row.time.step_calls)},
            {"share", all > 0 ? static_cast<double>(row.time.self) / static_cast<double>(all) : 0.0},
            {"tflops", json::or_null(rates.tflops)},
            {"hbm_gbps", json::or_null(rates.gbps)},
            {"of_peak", json::or_null(rates.of_peak)},
            {"bound_by", rates.bound_by},
            {"flags", flags}};
}

std::vector<std::string> row_text(const HotspotRow& row, const Model& model, Ps all, const std::string& by) {
    const double steps = model.step_divisor();
    const bool a_step = steps > 0;
    const auto shown = [&](Ps step, Ps total) {
        return ms(a_step ? static_cast<double>(step) / steps : static_cast<double>(total));
    };
    const Rates rates = rates_of(row, model.peaks);
    const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{:.1f}", *value) : "-"; };
    std::string flags;
    for (const std::string& flag : row.flags) {
        if (flag == "class_from_name" && model.class_from_name) continue;  // said once, below the table
        flags += (flags.empty() ? "" : ",") + flag;
    }
    std::vector<std::string> words = {
        shown(row.time.step_self, row.time.self),
        shown(row.time.step_total, row.time.total),
        all > 0 ? percent(static_cast<double>(row.time.self) / static_cast<double>(all)) : "-",
        fmt::format("{:.2f}",
                    a_step ? static_cast<double>(row.time.step_calls) / steps : static_cast<double>(row.time.calls)),
        number(rates.tflops),
        number(rates.gbps),
        rates.of_peak ? percent(*rates.of_peak) : "-",
        rates.bound_by == "unknown" ? "-" : std::string(rates.bound_by)};
    if (by != "class") words.emplace_back(name_of(row.cls()));
    words.push_back(row.name);
    words.push_back(flags);
    return words;
}

}  // namespace

HotspotRows hotspot_rows(const Model& model, const Asked& asked) {
    std::vector<HotspotRow> rows = rows_of(model, asked.by);
    Ps all = 0;
    for (const HotspotRow& row : rows) all += row.time.self;
    const auto value = [&](const HotspotRow& row) { return asked.total ? row.time.total : row.time.self; };
    std::sort(rows.begin(), rows.end(), [&](const HotspotRow& a, const HotspotRow& b) {
        return value(a) != value(b) ? value(a) > value(b) : a.name < b.name;
    });
    HotspotRows out;
    Table& table = out.table.table;
    table.columns = {{"self"}, {"total"}, {"share"}, {"calls"}, {"TFLOP/s"}, {"GB/s"}, {"peak"}, {"bound", true}};
    if (asked.by != "class") table.columns.push_back({"class", true, true});
    table.columns.push_back({asked.by, true});
    table.columns.push_back({"flags", true, true});
    Json listed = Json::array();
    OpTime rest;
    std::int64_t more = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (asked.top < 0 || i < static_cast<std::size_t>(asked.top)) {
            listed.push_back(row_json(rows[i], model, all, asked.by == "op"));
            table.rows.push_back(row_text(rows[i], model, all, asked.by));
            continue;
        }
        ++more;
        rest.self += rows[i].time.self;
        rest.total += rows[i].time.total;
        rest.calls += rows[i].time.calls;
        rest.step_self += rows[i].time.step_self;
    }
    const double steps = model.step_divisor();
    const double shown = steps > 0 ? static_cast<double>(rest.step_self) / steps : static_cast<double>(rest.self);
    if (more > 0) out.table.after.push_back(fmt::format("({} more {})", more, ms(shown)));
    if (model.class_from_name) out.table.after.emplace_back("class_from_name: the classes come from the names");
    Json remainder;
    if (more > 0) {
        remainder = {{"rows", more}, {"self_ps", rest.self}, {"total_ps", rest.total}, {"calls", rest.calls}};
    }
    out.json = {{"by", asked.by},
                {"rank", asked.total ? "total" : "self"},
                {"matched", static_cast<std::int64_t>(rows.size())},
                {"rows", listed},
                {"remainder", remainder}};
    return out;
}

Result<Answer> hotspots_view(const Source& source, const Asked& asked) {
    const Model& model = *source.model;
    Answer answer;
    HotspotRows rows = hotspot_rows(model, asked);
    Ps self = 0, busy = 0;
    for (const OpTime& time : model.times) self += time.self;
    for (const Device& device : model.devices) busy += length_of(device.busy);
    answer.json = {{"steps", {{"source", model.step_source}, {"n", model.counted()}}},
                   {"time", {{"self_ps", self}, {"busy_ps", busy}}},
                   {"hotspots", rows.json}};
    rows.table.heading = "Hotspots";
    rows.table.lines.push_back(model.counted() > 0 ? fmt::format("ms a step, {} step{} ({})", model.counted(),
                                                                 model.counted() == 1 ? "" : "s", model.step_source)
                                                   : "ms, no steps");
    answer.blocks.push_back(std::move(rows.table));
    return answer;
}

}  // namespace gdnctl::trace
