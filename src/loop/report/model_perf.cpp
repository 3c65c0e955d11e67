// Reads the parts of perf_state.json that people want to see.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "loop/report/model.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace {

std::optional<PairsView> pairs_at(const Json& record) {
    const Json* at = json::object(record, "pairs");
    if (at == nullptr) return std::nullopt;
    PairsView pairs;
    pairs.n = json::integer(*at, "n").value_or(0);
    pairs.gain_pct = json::number(*at, "gain_pct").value_or(0);
    pairs.low_pct = json::number(*at, "low_pct").value_or(0);
    pairs.high_pct = json::number(*at, "high_pct").value_or(0);
    pairs.deviation_pct = json::number(*at, "deviation_pct").value_or(0);
    pairs.verdict = json::text(*at, "verdict");
    return pairs;
}

// A state of an earlier version has the difference of the values, and the result of the pairs. It did not record which
// direction is better. A gain with a smaller value shows it; otherwise the name decides, since only times have a unit
// in it.
std::optional<runlog::Gain> gain_at(const Json& record, const MeasuredView& view) {
    if (const Json* own = json::object(record, "gain")) {
        return runlog::parse_gain(*own);
    }
    if (!view.value || !view.delta_pct || *view.delta_pct <= -100 || view.decision == "aa_ok") return std::nullopt;
    runlog::Gain gain;
    gain.metric = view.metric;
    gain.unit = view.unit;
    const double sides = view.pairs ? view.pairs->gain_pct * *view.delta_pct : 0;
    gain.lower_is_better = sides == 0 ? !gain.unit.empty() : sides < 0;
    gain.before = *view.value / (1 + *view.delta_pct / 100);
    gain.after = view.value;
    gain.factor = runlog::speed_factor(gain.before, gain.after, gain.lower_is_better);
    if (!view.pairs || view.pairs->n <= 0) return gain;
    gain.pairs = view.pairs->n;
    gain.factor = 1 + view.pairs->gain_pct / 100;
    gain.low = 1 + view.pairs->low_pct / 100;
    gain.high = 1 + view.pairs->high_pct / 100;
    return gain;
}

void read_gate_list(const Json& record, MeasuredView& view) {
    if (const Json* gates = json::array(record, "gates")) {
        for (const Json& gate : *gates) {
            if (!gate.is_object()) continue;
            const std::string numbers = json::text(gate, "numbers");
            const std::string reason = json::text(gate, "reason");
            GateView one{json::text(gate, "id"), json::text(gate, "result")};
            one.words = numbers + (numbers.empty() || reason.empty() ? "" : "; ") + reason;
            view.gates.push_back(std::move(one));
        }
        return;
    }
    // The recipe's program stores the reasons of gates that fired, and nothing about the others.
    if (const Json* reasons = json::array(record, "control_gate_reasons")) {
        for (const Json& reason : *reasons) {
            if (!reason.is_string()) continue;
            GateView one{"gate", "fail"};
            one.words = reason.get<std::string>();
            view.gates.push_back(std::move(one));
        }
    }
}

MeasuredView measured_view(const Json& record) {
    MeasuredView view;
    view.iteration =
        static_cast<int>(std::clamp<std::int64_t>(json::integer(record, "iteration").value_or(0), 0, 1'000'000'000));
    view.commit = json::text(record, "commit");
    view.metric = json::text(record, "metric");
    view.unit = json::text(record, "metric_unit");
    if (view.unit.empty()) view.unit = runlog::unit_of(view.metric, nullptr);
    view.source = json::text(record, "metric_source");
    view.decision = json::text(record, "decision");
    view.run_url = json::text(record, "run_url");
    view.key = json::text(record, "fingerprint_key");
    view.value = json::number(record, "metric_value");
    view.delta_pct = json::number(record, "delta_vs_champion_pct");
    if (const Json* points = json::array(record, "points")) {
        for (const Json& point : *points) {
            if (point.is_number()) view.points.push_back(point.get<double>());
        }
    }
    if (view.source.starts_with("wandb-history-"))
        view.window_points = json::integer(record, "metric_points").value_or(0);
    view.pairs = pairs_at(record);
    view.gain = gain_at(record, view);
    read_gate_list(record, view);
    view.timestamp_unix = json::integer(record, "timestamp_unix").value_or(0);
    view.suspect = json::boolean(record, "suspect").value_or(false);
    return view;
}

double middle(std::vector<double> values) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), at, values.end());
    if (values.size() % 2 == 1) return *at;
    return (*at + *std::max_element(values.begin(), at)) / 2;
}

}  // namespace

bool MeasuredView::became_champion() const {
    return decision == "baseline" || decision == "promoted" || decision == "promote_corrupt_champion" ||
           decision == "baseline_shift";
}

const MeasuredView* MeasuredRun::of(const IterationView& iteration) const {
    const auto began = parse_iso8601(iteration.started);
    const auto ended = parse_iso8601(iteration.finished);
    const MeasuredView* in_time = nullptr;
    for (auto at = history.rbegin(); at != history.rend(); ++at) {
        if (at->iteration != iteration.number) continue;
        const bool whole = at->commit.size() >= 12 && !iteration.head.empty();
        if (whole && iteration.head.starts_with(at->commit.substr(0, 40))) return &*at;
        const WallTime time{std::chrono::seconds(at->timestamp_unix)};
        const bool own = began && time >= *began && (!ended || time <= *ended + std::chrono::seconds(1));
        // Measured in the iteration, but not its candidate: the unchanged base.
        const bool other = whole && !at->decision.empty() && (at->decision == "aa_ok" || at->became_champion());
        if (in_time == nullptr && own && !other) in_time = &*at;
    }
    return in_time;
}

std::optional<double> MeasuredRun::noise_pct() const {
    std::vector<double> spreads;
    for (const MeasuredView& one : history) {
        const bool same = !champion || one.key == champion->key;
        if (same && one.pairs && one.pairs->n >= 3 && one.pairs->deviation_pct > 0) {
            spreads.push_back(one.pairs->deviation_pct);
        }
    }
    if (!spreads.empty()) return middle(std::move(spreads));
    if (!champion || champion->points.size() < 3) return std::nullopt;
    const double median = middle(champion->points);
    if (median == 0) return std::nullopt;
    std::vector<double> distances;
    distances.reserve(champion->points.size());
    for (const double point : champion->points) distances.push_back(std::abs(point - median));
    constexpr double k_deviation_of_mad = 1.4826;  // for a normal distribution
    return 100 * k_deviation_of_mad * middle(std::move(distances)) / std::abs(median);
}

Result<MeasuredRun> parse_measured(std::string_view text, std::string_view name) {
    const Json root = Json::parse(text, nullptr, false);
    if (!root.is_object()) {
        return fail(ErrorKind::config, fmt::format("{}: the performance state is not a JSON object", name),
                    "repair it, or move it away to start without a champion");
    }
    MeasuredRun run;
    if (const Json* champion = json::object(root, "champion")) {
        run.champion = measured_view(*champion);
    }
    if (const Json* history = json::array(root, "history")) {
        for (const Json& record : *history) {
            if (record.is_object()) run.history.push_back(measured_view(record));
        }
    }
    return run;
}

Result<std::optional<MeasuredRun>> read_measured(const std::filesystem::path& log_dir,
                                                 std::span<const Record> records) {
    std::filesystem::path path = log_dir / k_perf_state;
    for (const Record& record : records) {
        const bool of_session = record.type == RecordType::run || record.type == RecordType::resume;
        if (of_session && !record.word("perf_state").empty()) path = log_dir / record.word("perf_state");
    }
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path));
    if (!text) return std::optional<MeasuredRun>();
    GDNCTL_TRY_ASSIGN(MeasuredRun run, parse_measured(*text, path.string()));
    return std::optional(std::move(run));
}

Result<std::optional<MeasuredRun>> read_measured(const LoadedRun& run) {
    return read_measured(run.log_dir, *run.records);
}

}  // namespace gdnctl::loop
