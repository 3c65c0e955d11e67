#include <cmath>

#include <fmt/format.h>

#include "core/text.h"
#include "trace/views/format.h"

namespace gdnctl::trace {

namespace {

// C(n + m, n), as far as a double tells it.
double arrangements(std::int64_t n, std::int64_t m) {
    return std::exp(std::lgamma(static_cast<double>(n + m + 1)) - std::lgamma(static_cast<double>(n + 1)) -
                    std::lgamma(static_cast<double>(m + 1)));
}

std::string stats_text(const Diff& diff) {
    const DiffStats& stats = diff.stats;
    std::string text =
        fmt::format("{}: step {} -> {} ms, shift {} [{}, {}]", name_of(diff.verdict), ms(diff.median_before_ps),
                    ms(diff.median_after_ps), ms(static_cast<double>(stats.shift_ps)),
                    ms(static_cast<double>(stats.ci_low_ps)), ms(static_cast<double>(stats.ci_high_ps)));
    if (stats.p) text += ", p " + short_p(*stats.p);
    text += fmt::format(", n {} and {}; ", stats.n_before, stats.n_after);
    return text +
           (stats.floor_ps ? fmt::format("A/A floor {} ms", ms(static_cast<double>(*stats.floor_ps))) : "no A/A floor");
}

}  // namespace

Result<Diff> compare_sources(const Source& before, const Source& after, const Asked& asked,
                             std::vector<Warning>& warnings) {
    GDNCTL_TRY_ASSIGN(Diff diff, compare(before.profile, after.profile, asked.diff));
    const DiffStats& stats = diff.stats;
    if (stats.n_before > 0 && stats.n_after > 0) {
        const double smallest =
            std::min(1.0, (stats.n_before == stats.n_after ? 2 : 1) / arrangements(stats.n_before, stats.n_after));
        if (smallest >= asked.diff.alpha || stats.n_before < 4 || stats.n_after < 4) {
            warnings.push_back(
                {"few_steps", fmt::format("with {} and {} steps no difference can be significant (smallest p = {:.2g})",
                                          stats.n_before, stats.n_after, smallest)});
        }
    } else {
        warnings.push_back({"few_steps", "without steps on both sides no difference can be significant"});
    }
    for (const Gate& gate : diff.gates) warnings.push_back({gate.name, gate.name + ": " + gate.detail});
    return diff;
}

Block diff_block(const Diff& diff, std::int64_t top) {
    Block block{"What changed", {stats_text(diff)}, {}, {}};
    std::vector<std::string> parts;
    if (!diff.impact.empty()) parts.push_back("impact: " + diff.impact);
    if (!diff.labels.empty()) parts.push_back("labels: " + text::join(diff.labels, ", "));
    if (!parts.empty()) block.lines.push_back(text::join(parts, "; "));
    block.table.columns = {{"ms a step"}, {"before"}, {"after"}, {"how", true}, {"what", true}};
    const Json json = diff_json(diff, top);
    for (const Json& row : *json::array(json, "waterfall")) {
        const auto number = [&](const char* key) { return ms(json::number(row, key).value_or(0)); };
        const std::string kind = json::text(row, "kind"), level = json::text(row, "level");
        block.table.rows.push_back({number("delta_ps"), number("before_ps"), number("after_ps"),
                                    level.empty() || kind == level ? kind : kind + " (" + level + ")",
                                    json::text(row, "label")});
    }
    block.after.push_back(fmt::format("(total {})", ms(static_cast<double>(diff.total_delta_ps))));
    for (const KernelChange& kernel : diff.kernels) {
        const auto shown = [](const std::optional<Ps>& value) { return value ? us(static_cast<double>(*value)) : "-"; };
        const bool moved = kernel.bound_before != kernel.bound_after;
        block.after.push_back(
            fmt::format("kernel {}: {} -> {} us a call{}", kernel.name, shown(kernel.before_ps), shown(kernel.after_ps),
                        moved ? fmt::format(", {} -> {}", kernel.bound_before.empty() ? "-" : kernel.bound_before,
                                            kernel.bound_after.empty() ? "-" : kernel.bound_after)
                              : ""));
    }
    return block;
}

Result<Answer> diff_view(const Source& source, const Asked& asked) {
    Answer answer;
    GDNCTL_TRY_ASSIGN(const Diff diff, compare_sources(*asked.against, source, asked, answer.warnings));
    answer.json = {{"diff", diff_json(diff, asked.top)}};
    answer.blocks.push_back(diff_block(diff, asked.top));
    if (diff.verdict == Verdict::regressed && !asked.exit_zero) answer.exit = ExitCode::check_failed;
    return answer;
}

}  // namespace gdnctl::trace
