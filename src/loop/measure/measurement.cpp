#include "loop/measure/measurement.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/for_people.h"
#include "loop/measure/pairs.h"

namespace gdnctl::loop {

namespace {

template <class Pick>
std::optional<double> median_value(const std::vector<Measurement>& runs, Pick pick) {
    std::vector<double> values;
    for (const Measurement& run : runs) {
        if (const auto value = pick(run)) values.push_back(*value);
    }
    if (values.empty()) return std::nullopt;
    return median_of(values);
}

}  // namespace

bool is_same_source(const Measurement& a, const Measurement& b) {
    return a.source.empty() || b.source.empty() || a.source == b.source;
}

Measurement merged(std::vector<Measurement> runs) {
    if (runs.empty()) return {};
    Measurement out = runs.front();
    out.points.clear();
    for (const Measurement& run : runs) out.points.insert(out.points.end(), run.points.begin(), run.points.end());
    out.value = out.points.empty() ? std::nullopt : std::optional(median_of(out.points));
    out.warnings.clear();
    for (const Measurement& run : runs) {
        if (out.busy.empty()) out.busy = run.busy;
        if (run.window_points)
            out.window_points = std::min(out.window_points.value_or(*run.window_points), *run.window_points);
        for (const std::string& warning : run.warnings) {
            if (std::find(out.warnings.begin(), out.warnings.end(), warning) == out.warnings.end()) {
                out.warnings.push_back(warning);
            }
        }
    }
    MetricMap names;
    for (const Measurement& run : runs) names.insert(run.metrics.begin(), run.metrics.end());
    for (auto& [name, value] : names) {
        value = *median_value(runs, [&wanted = name](const Measurement& run) -> std::optional<double> {
            const auto it = run.metrics.find(wanted);
            return it == run.metrics.end() ? std::nullopt : std::optional(it->second);
        });
    }
    out.metrics = std::move(names);
    return out;
}

std::string noise_text(const std::vector<double>& points, std::string_view unit) {
    return fmt::format("n={}, median {}, MAD {}", points.size(), quantity(median_of(points), unit),
                       quantity(mad_of(points), unit, 2));
}

}  // namespace gdnctl::loop
