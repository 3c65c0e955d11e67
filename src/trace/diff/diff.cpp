#include "trace/diff/diff.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/text.h"
#include "trace/diff/match.h"
#include "trace/model/model.h"
#include "trace/model/names.h"

namespace gdnctl::trace {

namespace {

constexpr std::int64_t k_fewest_steps = 4;

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

// Both are known and they differ.
bool differs(const std::string& a, const std::string& b) { return !a.empty() && !b.empty() && a != b; }
bool differs(const std::optional<double>& a, const std::optional<double>& b) { return a && b && *a != *b; }

// Gates that need nothing but the profiles.

void add_refusals(const Profile& before, const Profile& after, std::vector<Gate>& gates) {
    const auto refuse = [&](const char* name, const std::string& a, const std::string& b) {
        gates.push_back({name, true, fmt::format("{} and {}", a, b)});
    };
    if (before.kind != after.kind) {
        refuse("device-type", before.kind, after.kind);
    } else if (differs(text::to_lower(before.device_type), text::to_lower(after.device_type))) {
        refuse("device-type", before.device_type, after.device_type);
    }
    if (before.devices != after.devices) {
        refuse("device-count", std::to_string(before.devices), std::to_string(after.devices));
    }
    if (before.dominant != after.dominant) {
        refuse("dominant-program", or_none(before.dominant), or_none(after.dominant));
    }
}

// The shapes of a custom call's results and operands, without layouts: "bf16[16,128] f32[8]".
std::string shapes_in(std::string_view text) {
    text = text.substr(0, text.find(", custom_call_target="));
    std::string shapes;
    for (std::size_t open = text.find('['); open != std::string_view::npos; open = text.find('[', open + 1)) {
        std::size_t start = open;
        while (start > 0 && std::isalnum(static_cast<unsigned char>(text[start - 1])) != 0) --start;
        const std::size_t close = text.find(']', open);
        if (start == open || close == std::string_view::npos) continue;
        shapes.append(shapes.empty() ? "" : " ").append(text.substr(start, close + 1 - start));
    }
    return shapes;
}

// Of the kernels with a text: the shapes of all calls with one canonical name.
std::map<std::string, std::multiset<std::string>> shapes_by_kernel(const Profile& profile) {
    std::map<std::string, std::multiset<std::string>> found;
    for (const KernelSum& kernel : profile.kernels) {
        if (kernel.text.empty()) continue;
        found[canonical_name(kernel.name, profile.kind)].insert(shapes_in(kernel.text));
    }
    return found;
}

std::string changed_shapes(const Profile& before, const Profile& after) {
    std::vector<std::string> names;
    const auto old_shapes = shapes_by_kernel(before);
    for (const auto& [name, shapes] : shapes_by_kernel(after)) {
        const auto old = old_shapes.find(name);
        if (old != old_shapes.end() && old->second != shapes) names.push_back(name);
    }
    return text::join(names, ", ");
}

// ProfileOptions, in hex, without field 14: the name of the session.
std::string without_session(std::string_view hex) {
    std::string kept;
    std::size_t at = 0;
    const auto read_varint = [&] {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64 && at + 1 < hex.size(); shift += 7, at += 2) {
            const auto byte = static_cast<unsigned>(text::hex_value(hex[at]) << 4 | text::hex_value(hex[at + 1]));
            value |= std::uint64_t{byte & 0x7f} << shift;
            if ((byte & 0x80) != 0) continue;
            at += 2;
            break;
        }
        return value;
    };
    while (at + 1 < hex.size()) {
        const std::size_t start = at;
        const std::uint64_t tag = read_varint(), wire = tag & 7;
        std::uint64_t length = wire == 1 ? 8 : wire == 5 ? 4 : 0;
        if (wire == 0) read_varint();
        if (wire == 2) length = read_varint();
        at += 2 * std::min<std::uint64_t>(length, (hex.size() - at) / 2);
        if (tag >> 3 != 14) kept.append(hex.substr(start, at - start));
    }
    return kept;
}

void add_warnings(const Profile& before, const Profile& after, std::vector<Gate>& gates) {
    const auto warn = [&](const char* name, std::string detail) {
        if (!detail.empty()) gates.push_back({name, false, std::move(detail)});
    };
    const auto changed = [](const char* what, const auto& a, const auto& b) {
        return differs(a, b) ? fmt::format("{} {} and {}", what, a, b) : std::string();
    };
    if (before.programs != after.programs) {
        warn("programs-changed", fmt::format("{} and {}", or_none(text::join(before.programs, ", ")),
                                             or_none(text::join(after.programs, ", "))));
    }
    warn("kernel-shapes-changed", changed_shapes(before, after));
    std::vector<std::string> tools = {changed("jax", before.jax, after.jax),
                                      changed("jaxlib", before.jaxlib, after.jaxlib),
                                      changed("libtpu", before.libtpu, after.libtpu)};
    std::erase(tools, "");
    warn("toolchain-changed", text::join(tools, "; "));
    std::vector<std::string> peaks;
    if (differs(before.peak_tflops, after.peak_tflops)) {
        peaks.push_back(fmt::format("{} and {} TFLOP/s", *before.peak_tflops, *after.peak_tflops));
    }
    if (differs(before.peak_hbm_gbps, after.peak_hbm_gbps)) {
        peaks.push_back(fmt::format("{} and {} GB/s", *before.peak_hbm_gbps, *after.peak_hbm_gbps));
    }
    warn("peak-changed", text::join(peaks, "; "));
    warn("profile-options-changed",
         changed("ProfileOptions", without_session(before.options), without_session(after.options)));
    if (before.step_source != after.step_source) {
        warn("step-source-changed", fmt::format("{} and {}", or_none(before.step_source), or_none(after.step_source)));
    }
}

// A factor common to all rows points to another clock or another chip rather than to another program. Rows below 0.1 %
// of the whole are too noisy to ask.
void add_uniform_scaling(const std::vector<WaterfallRow>& rows, std::vector<Gate>& gates) {
    constexpr double k_least_change = 0.02, k_tolerance = 0.01, k_least_share = 0.001;
    constexpr int k_fewest_rows = 4;
    double before = 0;
    double after = 0;
    for (const WaterfallRow& row : rows) {
        if (row.kind == "idle") continue;
        before += static_cast<double>(row.before_ps);
        after += static_cast<double>(row.after_ps);
    }
    if (before <= 0 || after <= 0) return;
    const double factor = after / before;
    if (std::abs(factor - 1) <= k_least_change) return;
    int counted = 0;
    for (const WaterfallRow& row : rows) {
        const auto a = static_cast<double>(row.before_ps);
        const auto b = static_cast<double>(row.after_ps);
        if (row.kind == "idle" || (a < k_least_share * before && b < k_least_share * after)) continue;
        if (std::abs(b - a * factor) > k_tolerance * a * factor) return;
        ++counted;
    }
    if (counted >= k_fewest_rows) {
        gates.push_back(
            {"uniform-scaling", false, fmt::format("all {} rows changed by the factor {:.3f}", counted, factor)});
    }
}

double mean_of(const std::vector<Ps>& values) {
    double sum = 0;
    for (const Ps value : values) sum += static_cast<double>(value);
    return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// `margin` in ps is the smallest change of a step that counts.
std::vector<std::string> labels_of(const Profile& before, const Profile& after, const Matching& matching,
                                   const Diff& diff, double margin) {
    std::vector<std::string> labels;
    if (matching.same_texts) labels.emplace_back("same-program");
    const double busy = mean_of(after.step_busy) - mean_of(before.step_busy);
    const double gaps = mean_of(after.step_gap) - mean_of(before.step_gap);
    if (busy < 0 && busy <= -margin && gaps >= margin) labels.emplace_back("host-bound");
    double work = 0;     // matched compute and kernels
    double waiting = 0;  // waits and collectives
    double rest = 0;     // everything else that runs
    for (const WaterfallRow& row : diff.rows) {
        const auto delta = static_cast<double>(row.delta_ps);
        const bool is_work = row.cls == "compute" || row.cls == "kernel";
        if (is_work && (row.kind == "matched" || row.kind == "group")) work += delta;
        if (row.cls == "wait" || row.cls == "collective") {
            waiting += delta;
        } else if (row.kind != "idle") {
            rest += delta;
        }
    }
    const bool step_fell = diff.verdict == Verdict::improved;
    if (work < 0 && work <= -margin && !step_fell) labels.emplace_back("off-critical-path");
    if (rest < 0 && rest <= -margin && waiting >= -rest / 2) labels.emplace_back("waiting");
    if (matching.moved_names) labels.emplace_back("namespace-only");
    return labels;
}

Verdict verdict_of(const DiffStats& stats, double margin, double alpha) {
    if (std::min(stats.n_before, stats.n_after) < k_fewest_steps) return Verdict::insufficient;
    const bool changed =
        stats.shift_ps != 0 && stats.p && *stats.p < alpha && std::abs(static_cast<double>(stats.shift_ps)) >= margin;
    if (!changed) return Verdict::no_change;
    return stats.shift_ps < 0 ? Verdict::improved : Verdict::regressed;
}

std::string impact_of(const Profile& before, const Profile& after) {
    if (!before.mfu || !after.mfu || *before.mfu <= 0) return {};
    const double rise = *after.mfu / *before.mfu - 1;
    // A rise from 0.40 to 0.44 is one of 10 %, whatever its last binary digit says.
    constexpr double k_rounding = 1e-9;
    if (rise >= 0.10 - k_rounding) return "target-hit";
    const bool same_hotspot = !before.hotspot.empty() &&
                              canonical_name(before.hotspot, before.kind) == canonical_name(after.hotspot, after.kind);
    return rise < 0.03 - k_rounding && same_hotspot ? "low-impact" : "";
}

void set_before(const KernelSum& kernel, KernelChange& change) {
    change.before_ps = kernel.median_ps;
    change.wait_share_before = kernel.wait_share;
    change.spill_before = kernel.spill;
    change.bound_before = kernel.bound;
}

void set_after(const KernelSum& kernel, KernelChange& change) {
    change.after_ps = kernel.median_ps;
    change.wait_share_after = kernel.wait_share;
    change.spill_after = kernel.spill;
    change.bound_after = kernel.bound;
}

// Kernels whose operations are matched belong together; the others are paired by program and canonical name, in order.
std::vector<KernelChange> kernel_changes(const Profile& before, const Profile& after, const Matching& matching) {
    using Key = std::pair<std::string, std::string>;  // program, name
    std::map<Key, std::string> renamed;
    for (const OpMatch& match : matching.matches) {
        if (match.kind != "matched") continue;
        const OpSum& op = before.ops[match.before.front()];
        renamed.emplace(Key(op.program, op.name), after.ops[match.after.front()].name);
    }
    std::vector<bool> taken(after.kernels.size());
    const auto find = [&](const auto& is_it) {
        for (std::size_t i = 0; i < taken.size(); ++i) {
            if (!taken[i] && is_it(after.kernels[i])) return i;
        }
        return taken.size();
    };
    std::vector<std::size_t> partner;
    for (const KernelSum& kernel : before.kernels) {
        const auto name = renamed.find({kernel.program, kernel.name});
        partner.push_back(name == renamed.end() ? taken.size() : find([&](const KernelSum& other) {
            return other.program == kernel.program && other.name == name->second;
        }));
        if (partner.back() < taken.size()) taken[partner.back()] = true;
    }
    std::vector<KernelChange> changes;
    for (std::size_t i = 0; i < before.kernels.size(); ++i) {
        const KernelSum& kernel = before.kernels[i];
        if (partner[i] == taken.size()) {
            partner[i] = find([&](const KernelSum& other) {
                return other.program == kernel.program &&
                       canonical_name(other.name, after.kind) == canonical_name(kernel.name, before.kind);
            });
        }
        KernelChange& change = changes.emplace_back();
        change.name = kernel.name;
        set_before(kernel, change);
        if (partner[i] == taken.size()) continue;
        const KernelSum& other = after.kernels[partner[i]];
        taken[partner[i]] = true;
        if (other.name != kernel.name) change.name += " -> " + other.name;
        set_after(other, change);
    }
    for (std::size_t i = 0; i < taken.size(); ++i) {
        if (taken[i]) continue;
        changes.emplace_back().name = after.kernels[i].name;
        set_after(after.kernels[i], changes.back());
    }
    std::stable_sort(changes.begin(), changes.end(),
                     [](const KernelChange& a, const KernelChange& b) { return a.name < b.name; });
    return changes;
}

Json levels_json(const MatchLevels& levels) {
    return Json::object({{"stable_op_id", levels.stable_op_id},
                         {"exact", levels.exact},
                         {"text", levels.text},
                         {"text_order", levels.text_order},
                         {"source", levels.source},
                         {"source_order", levels.source_order},
                         {"group", levels.group},
                         {"added", levels.added},
                         {"removed", levels.removed}});
}

Json stats_json(const DiffStats& stats) {
    return Json::object({{"shift_ps", stats.shift_ps},
                         {"ci_low_ps", stats.ci_low_ps},
                         {"ci_high_ps", stats.ci_high_ps},
                         {"p", json::or_null(stats.p)},
                         {"n_before", stats.n_before},
                         {"n_after", stats.n_after},
                         {"floor_ps", json::or_null(stats.floor_ps)}});
}

Json row_json(const WaterfallRow& row) {
    return Json::object({{"label", row.label},
                         {"kind", row.kind},
                         {"before_ps", row.before_ps},
                         {"after_ps", row.after_ps},
                         {"delta_ps", row.delta_ps},
                         {"level", json::or_null(row.level)}});
}

Json rows_json(const std::vector<WaterfallRow>& rows) {
    Json list = Json::array();
    for (const WaterfallRow& row : rows) list.push_back(row_json(row));
    return list;
}

Json kernel_change_json(const KernelChange& change) {
    return Json::object({{"name", change.name},
                         {"before_ps", json::or_null(change.before_ps)},
                         {"after_ps", json::or_null(change.after_ps)},
                         {"wait_share_before", json::or_null(change.wait_share_before)},
                         {"wait_share_after", json::or_null(change.wait_share_after)},
                         {"spill_before", json::or_null(change.spill_before)},
                         {"spill_after", json::or_null(change.spill_after)},
                         {"bound_before", json::or_null(change.bound_before)},
                         {"bound_after", json::or_null(change.bound_after)}});
}

double median_of(const std::vector<Ps>& steps) {
    return quantile(std::vector<double>(steps.begin(), steps.end()), 0.5);
}

}  // namespace

const char* name_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::improved: return "improved";
        case Verdict::regressed: return "regressed";
        case Verdict::no_change: return "no-change";
        case Verdict::insufficient: return "insufficient";
    }
    return "";
}

Status check_comparable(const Profile& before, const Profile& after, const DiffOptions& options, bool can_allow) {
    if (!options.allow_same && !before.sha256.empty() && before.sha256 == after.sha256) {
        return fail(ErrorKind::bad_input,
                    fmt::format("same trace: both inputs have sha256 {}…{}", before.sha256.substr(0, 12),
                                can_allow ? "; pass --allow-same to compare anyway" : ""));
    }
    std::vector<Gate> gates;
    add_refusals(before, after, gates);
    if (gates.empty() || options.allow_mismatch) return {};
    std::vector<std::string> reasons;
    for (const Gate& gate : gates) reasons.push_back(gate.name + ": " + gate.detail);
    if (can_allow) reasons.emplace_back("pass --allow-mismatch to compare anyway");
    return fail(ErrorKind::bad_input, "not comparable: " + text::join(reasons, "; "));
}

Result<Diff> compare(const Profile& before, const Profile& after, const DiffOptions& options) {
    GDNCTL_TRY(check_comparable(before, after, options));
    Diff diff;
    add_refusals(before, after, diff.gates);
    add_warnings(before, after, diff.gates);
    const Matching matching = match_ops(before, after);
    diff.levels = matching.levels;
    set_waterfall(diff, before, after, matching.matches);
    diff.stats = shift_of(before.steps, after.steps);
    diff.stats.floor_ps = options.noise_floor_ps ? options.noise_floor_ps : before.floor_ps;
    diff.median_before_ps = median_of(before.steps);
    diff.median_after_ps = median_of(after.steps);
    const double margin =
        std::max(options.min_effect * diff.median_before_ps, 3 * static_cast<double>(diff.stats.floor_ps.value_or(0)));
    diff.verdict = verdict_of(diff.stats, margin, options.alpha);
    add_uniform_scaling(diff.rows, diff.gates);
    diff.labels = labels_of(before, after, matching, diff, margin);
    diff.impact = impact_of(before, after);
    diff.kernels = kernel_changes(before, after, matching);
    return diff;
}

Json diff_json(const Diff& diff, std::int64_t top) {
    Json gates = Json::array();
    for (const Gate& gate : diff.gates) {
        gates.push_back(
            Json::object({{"name", gate.name}, {"level", gate.refuses ? "refuse" : "warn"}, {"detail", gate.detail}}));
    }
    Json kernels = Json::array();
    for (const KernelChange& change : diff.kernels) kernels.push_back(kernel_change_json(change));
    return Json::object({{"verdict", name_of(diff.verdict)},
                         {"impact", json::or_null(diff.impact)},
                         {"labels", diff.labels},
                         {"gates", std::move(gates)},
                         {"match_levels", levels_json(diff.levels)},
                         {"stats", stats_json(diff.stats)},
                         {"total_delta_ps", diff.total_delta_ps},
                         {"waterfall", rows_json(shown_waterfall(diff, top))},
                         {"kernels", std::move(kernels)}});
}

}  // namespace gdnctl::trace
