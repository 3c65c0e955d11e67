// `trace report`: the other views in one page, with what to try next.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"
#include "trace/report/budgets.h"
#include "trace/views/format.h"

namespace gdnctl::trace {

namespace {

constexpr std::size_t k_digest_bytes = 8000;
constexpr std::int64_t k_report_rows = 8;

struct Try {
    std::string text, row;
    double ceiling = 0;  // ps: the step if it succeeded entirely
};

// The step, or without steps the whole time of the operations: what savings are taken from.
double step_of(const Model& model) {
    if (model.counted() > 0) return step_spread(model).median;
    double self = 0;
    for (const OpTime& time : model.times) self += static_cast<double>(time.self);
    return self / static_cast<double>(model.devices.size());
}

// At most three, by what they could save: kernels that met their floor, waits that were hidden.
std::vector<Try> tries_of(const Model& model, const std::vector<KernelRow>& kernels, const Json& hotspots) {
    const double step = step_of(model);
    std::vector<Try> tries;
    for (const KernelRow& row : kernels) {
        if (!row.floor_ps || row.median() <= *row.floor_ps) continue;
        const double calls =
            model.counted() > 0 ? static_cast<double>(row.step_calls) / model.step_divisor()
                                : static_cast<double>(row.durations.size()) / static_cast<double>(model.devices.size());
        const double saved = calls * (row.median() - *row.floor_ps);
        std::string how = fmt::format("move its {:.1f} MB once, at full HBM bandwidth ({:.2f} x the floor now)",
                                      static_cast<double>(*row.io_bytes) / 1e6, *row.times_floor());
        if (row.bound == "waits-on-input-dma" || row.bound == "waits-on-output-dma") {
            how = fmt::format("overlap its {} DMA with compute ({:.0f} % of its time is waiting)",
                              row.bound == "waits-on-input-dma" ? "input" : "output", *row.wait_share() * 100);
        }
        tries.push_back({how, row.name, step - saved});
    }
    for (const Json& row : *json::array(hotspots, "rows")) {
        const double self = model.counted() > 0 ? json::number(row, "self_ps_per_step").value_or(0)
                                                : json::number(row, "self_ps").value_or(0);
        const std::string cls = json::text(row, "class"), name = json::text(row, "name");
        const auto of_peak = json::number(row, "of_peak");
        if (cls == "wait") tries.push_back({"hide this wait behind compute", name, step - self});
        if (cls == "compute" && of_peak && *of_peak < 1) {
            const std::string bound = json::text(row, "bound_by");
            tries.push_back(
                {fmt::format("it runs at {:.0f} % of the {} peak", *of_peak * 100, bound == "hbm" ? "HBM" : bound),
                 name, step - self * (1 - *of_peak)});
        }
    }
    std::stable_sort(tries.begin(), tries.end(), [](const Try& a, const Try& b) { return a.ceiling < b.ceiling; });
    std::erase_if(tries, [&](const Try& one) { return one.ceiling > 0.999 * step; });
    if (tries.size() > 3) tries.resize(3);
    return tries;
}

// `- label: `before -> after``, as the running log reads it.
std::string log_line(std::string_view label, const std::string& before, const std::string& after) {
    return before.empty() ? fmt::format("- {}: `{} ms`", label, after)
                          : fmt::format("- {}: `{} ms -> {} ms`", label, before, after);
}

std::string name_in_line(std::string name) {
    std::replace(name.begin(), name.end(), '`', '\'');
    constexpr std::size_t k_longest = 80;
    return "`" + first_bytes(one_line(name), k_longest) + "`";
}

// The time of an operation before, by its name after: the compiler may have renumbered it.
double before_of(const Diff& diff, const std::string& name) {
    double before = 0;
    for (const WaterfallRow& row : diff.rows) {
        const std::size_t arrow = row.label.rfind(" -> ");
        const bool same = row.label == name || (arrow != std::string::npos && row.label.substr(arrow + 4) == name);
        if (row.kind == "matched" && same) before += static_cast<double>(row.before_ps);
    }
    return before;
}

std::vector<std::string> log_lines_of(const std::optional<Diff>& diff, const Json& hotspots, const Budgets& budgets,
                                      const Budgets& before) {
    std::vector<std::string> lines;
    const auto budget = [&](const std::string& key, double value) {
        const auto at = before.find(key);
        lines.push_back(log_line(budget_label(key), at == before.end() ? "" : fmt::format("{:.3f}", at->second),
                                 fmt::format("{:.3f}", value)));
    };
    if (const auto step = budgets.find("step_duration_ms"); step != budgets.end()) budget(step->first, step->second);
    std::size_t listed = 0;
    for (const Json& row : *json::array(hotspots, "rows")) {
        if (listed++ == 3) break;
        const std::string name = json::text(row, "name");
        const auto in_steps = json::number(row, "self_ps_per_step");
        const double after = in_steps ? *in_steps : json::number(row, "self_ps").value_or(0);
        std::string was;
        if (diff) {
            if (const double before_ps = before_of(*diff, name); before_ps > 0) was = ms(before_ps);
        }
        lines.push_back(log_line(name_in_line(name), was, ms(after)));
    }
    for (const auto& [key, value] : budgets) {
        if (key != "step_duration_ms") budget(key, value);
    }
    return lines;
}

std::string verdict_line(const Model& model, const std::optional<Diff>& diff) {
    if (diff) {
        std::string text = fmt::format("**{}**", name_of(diff->verdict));
        for (const std::string& label : diff->labels) text += ", " + label;
        return text;
    }
    if (model.counted() < 4) {
        return fmt::format("**insufficient**: {} step{}; take at least 4 to compare", model.counted(),
                           model.counted() == 1 ? "" : "s");
    }
    return "no verdict: nothing to compare with (`--against`)";
}

// What this profile does not tell, with the flag that would.
Block unknowns(const Source& source) {
    Block block{"What this profile cannot tell", {}, {}, {}};
    for (const Told& one : answers_of(source)) {
        if (one.can == "yes") continue;
        std::string name = one.question;
        std::replace(name.begin(), name.end(), '_', ' ');
        block.lines.push_back(fmt::format("- {}{}: {}{}", name, one.can == "degraded" ? " (partly)" : "", one.why,
                                          one.flag.empty() ? "" : fmt::format("; `{}`", one.flag)));
    }
    return block;
}

// The digest: as many rows and lines as fit.
std::string digest_of(std::vector<Block> blocks) {
    for (;;) {
        std::string text = as_markdown(blocks, 5);
        if (text.size() <= k_digest_bytes) return text;
        Block* longest = &blocks.front();
        const auto length = [](const Block& one) { return as_markdown({one}, 5).size(); };
        for (Block& one : blocks) {
            if (length(one) > length(*longest)) longest = &one;
        }
        if (!longest->after.empty()) {
            longest->after.pop_back();
        } else if (!longest->table.rows.empty()) {
            longest->table.rows.pop_back();
        } else if (longest->lines.size() > 1) {
            longest->lines.pop_back();
        } else {
            return first_bytes(text, k_digest_bytes);
        }
    }
}

void cut_names(Block& block) {
    constexpr std::size_t k_longest = 90;
    for (auto& row : block.table.rows) {
        for (std::string& word : row) {
            if (word.size() > k_longest) word = first_bytes(word, k_longest) + "…";
        }
    }
}

std::string device_line(const Source& source) {
    const Model& model = *source.model;
    const Peaks& peaks = model.peaks;
    std::string text =
        fmt::format("Trace `{}`, {} x {}", source.files.front().sha256.substr(0, 12),
                    model.type.empty() ? std::string(name_of(model.kind)) : model.type, model.devices.size());
    if (peaks.tflops) text += fmt::format(", {:.4g} TFLOP/s", *peaks.tflops);
    if (peaks.hbm_gbps) text += fmt::format(", {:.0f} GB/s", *peaks.hbm_gbps);
    return text + (peaks.source == "none" ? ", peaks unknown" : fmt::format(" ({})", peaks.source));
}

Json tries_json(const std::vector<Try>& tries) {
    Json all = Json::array();
    for (const Try& one : tries) {
        all.push_back({{"text", one.text}, {"row", one.row}, {"ceiling_ps", round_ps(std::max(0.0, one.ceiling))}});
    }
    return all;
}

Block tries_block(const std::vector<Try>& tries) {
    Block block{"Try", {}, {}, {}};
    for (const Try& one : tries) {
        block.lines.push_back(fmt::format("- {}: {}; ceiling {} ms a step", name_in_line(one.row), one.text,
                                          ms(std::max(0.0, one.ceiling))));
    }
    if (tries.empty()) block.lines.emplace_back("- nothing stands out: no kernel above its floor, no long wait");
    return block;
}

Result<Json> report_json(const Report& report, const Model& model, const std::vector<KernelRow>& kernels,
                         const Json& hotspots, const Json& steps, const Asked& asked) {
    Json rows = Json::array(), lines = Json::array(), budgets = Json::object();
    for (const KernelRow& row : kernels) rows.push_back(kernel_json(row, model));
    for (const std::string& line : report.log_lines) lines.push_back(line);
    for (const auto& [key, value] : report.budgets) budgets[key] = value;
    Json json = {{"steps", json::field(steps, "steps")}, {"time", json::field(steps, "time")}};
    json["hotspots"] = hotspots;
    json["kernels"] = rows;
    json["diff"] = report.diff ? diff_json(*report.diff, asked.top) : Json();
    json["verdict"] = report.diff           ? Json(name_of(report.diff->verdict))
                      : model.counted() < 4 ? Json("insufficient")
                                            : Json();
    Json metric;
    if (!asked.metric.empty()) {
        GDNCTL_TRY_ASSIGN(const Objective objective, objective_of(model, asked.metric));
        metric = {{"name", asked.metric}, {"value", objective.value}, {"unit", objective.unit}};
    }
    json["metric"] = metric;
    json["budgets"] = budgets;
    json["tries"] = tries_json(tries_of(model, kernels, hotspots));
    json["log_lines"] = lines;
    json["digest"] = report.digest;
    return json;
}

}  // namespace

Result<Report> report_of(const Source& source, const Asked& asked) {
    const Model& model = *source.model;
    Report report;
    Asked rows_asked = asked;
    rows_asked.by = "op";
    rows_asked.top = k_report_rows;
    HotspotRows hotspots = hotspot_rows(model, rows_asked);
    const std::vector<KernelRow> kernels = kernel_rows(model, asked);
    if (asked.against != nullptr) {
        GDNCTL_TRY_ASSIGN(report.diff, compare_sources(*asked.against, source, asked, report.warnings));
    }
    const Profile* before = asked.against == nullptr ? nullptr : &asked.against->profile;
    GDNCTL_TRY_ASSIGN(report.budgets, budgets_of(source.profile, before, asked.budget_rules));
    Budgets old;
    if (before != nullptr) {
        GDNCTL_TRY_ASSIGN(old, budgets_of(*before, nullptr, asked.budget_rules));
    }
    report.log_lines = log_lines_of(report.diff, hotspots.json, report.budgets, old);
    const std::vector<Try> tries = tries_of(model, kernels, hotspots.json);
    GDNCTL_TRY_ASSIGN(const Answer steps, steps_view(source, asked));
    report.warnings.insert(report.warnings.end(), steps.warnings.begin(), steps.warnings.end());

    std::vector<Block> blocks = {{"", {verdict_line(model, report.diff)}, {}, {}}};
    blocks.push_back(steps.blocks.front());
    hotspots.table.heading = "Hotspots";
    hotspots.table.lines = {model.counted() > 0 ? "ms a step" : "ms in all"};
    blocks.push_back(std::move(hotspots.table));
    if (!kernels.empty()) {
        blocks.push_back(kernel_block(
            {kernels.begin(),
             kernels.begin() + std::min<std::ptrdiff_t>(k_report_rows, static_cast<std::ptrdiff_t>(kernels.size()))},
            model));
    }
    if (report.diff) blocks.push_back(diff_block(*report.diff, k_report_rows));
    blocks.push_back(unknowns(source));
    blocks.push_back(tries_block(tries));
    for (Block& block : blocks) {
        cut_names(block);
        // Lines of a paragraph would run together in Markdown.
        if (block.heading == "Steps") {
            for (std::string& line : block.lines) line = "- " + line;
        }
    }
    report.digest = digest_of(blocks);
    report.markdown = "#### Trace report\n\n" + one_line(device_line(source)) + "\n\n" + as_markdown(blocks, 5) +
                      "\n##### Log lines\n\n";
    for (const std::string& line : report.log_lines) report.markdown += line + "\n";

    GDNCTL_TRY_ASSIGN(report.json, report_json(report, model, kernels, hotspots.json, steps.json, asked));
    return report;
}

Result<Answer> report_view(const Source& source, const Asked& asked) {
    GDNCTL_TRY_ASSIGN(Report report, report_of(source, asked));
    Answer answer;
    answer.json = std::move(report.json);
    answer.markdown = std::move(report.markdown);
    answer.digest = std::move(report.digest);
    answer.warnings = std::move(report.warnings);
    if (report.diff && report.diff->verdict == Verdict::regressed && !asked.exit_zero) {
        answer.exit = ExitCode::check_failed;
    }
    return answer;
}

}  // namespace gdnctl::trace
