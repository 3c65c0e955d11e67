#include "loop/perf/policy_trial.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/perf/state.h"
#include "platform/journal.h"

namespace gdnctl::loop {

namespace {

bool is_judgement(PerfVerdict verdict) {
    return verdict != PerfVerdict::aa_ok && verdict != PerfVerdict::baseline_shift &&
           verdict != PerfVerdict::baseline && verdict != PerfVerdict::metric_missing;
}

// The champion of each configuration while the records were written.
class Lineage {
public:
    void add(PerfRecord record, std::string place, std::vector<ReplayCase>& into) {
        const std::string key = record.measured.fingerprint.key();
        const auto known = m_champions.find(key);
        const bool crowned = record.decision == PerfVerdict::baseline || record.decision == PerfVerdict::promoted ||
                             record.decision == PerfVerdict::promote_corrupt_champion ||
                             record.decision == PerfVerdict::baseline_shift;
        if (is_judgement(record.decision)) {
            ReplayCase one;
            one.place = std::move(place);
            one.decided = to_text(record.decision);
            if (known == m_champions.end()) {
                one.skipped = "the record that it was compared with is not in this file";
            } else {
                one.champion = known->second;
                compare_as_then(record, *one.champion);
            }
            one.record = record;
            into.push_back(std::move(one));
        }
        if (crowned) m_champions[key] = std::move(record);
    }

private:
    // With pairs the champion was measured again: its value follows from the recorded difference.
    static void compare_as_then(const PerfRecord& record, PerfRecord& champion) {
        if (!record.baseline_metrics.empty()) {
            for (const auto& [name, value] : record.baseline_metrics) champion.measured.metrics[name] = value;
        }
        if (record.pairs && record.delta_vs_champion_pct && record.measured.value) {
            const double share = 1.0 + *record.delta_vs_champion_pct / 100.0;
            if (share > 0.0) champion.measured.value = *record.measured.value / share;
        }
    }
    std::map<std::string, PerfRecord> m_champions;
};

// One line of the running log's records.
ReplayCase log_case(const Json& line, std::string place, const std::string& metric) {
    ReplayCase one;
    one.place = std::move(place);
    one.decided = json::text(line, "decision");
    one.record.iteration = static_cast<int>(json::integer(line, "iteration").value_or(0));
    one.record.change_class = json::text(line, "change_class");
    one.record.measured.metric = metric;
    if (const Json* it = json::array(line, "commits"); it != nullptr && !it->empty() && it->back().is_string()) {
        one.record.commit = it->back().get<std::string>();
    }
    PerfRecord champion;
    champion.measured.metric = metric;
    if (const Json* metrics = json::object(line, "metrics")) {
        for (const auto& [name, pair] : metrics->items()) {
            if (const auto before = json::number(pair, "before")) champion.measured.metrics[name] = *before;
            if (const auto after = json::number(pair, "after")) one.record.measured.metrics[name] = *after;
        }
    }
    const auto value_in = [&metric](Measurement& m) {
        const auto it = m.metrics.find(metric);
        if (it != m.metrics.end()) m.value = it->second;
    };
    value_in(champion.measured);
    value_in(one.record.measured);
    const Json comparison = line.value("comparison", Json());
    const std::string kind = comparison.is_object() ? json::text(comparison, "kind") : "";
    if (!one.record.measured.value || !champion.measured.value) {
        one.skipped = "no " + metric + " of both sides";
    } else if (kind != "champion" && kind != "previous") {
        one.skipped = "compared with " + (kind.empty() ? "something unknown" : "a " + kind) + ", not with a champion";
    } else {
        one.champion = std::move(champion);
    }
    return one;
}

// Applies other thresholds to the recorded look. If measuring would have continued, the result is unknown: a tie.
PairLook look_again(PairLook look, const PerfPolicy& policy) {
    const double needed = std::max(std::log1p(policy.min_improvement_pct / 100.0), policy.noise_share * look.deviation);
    look.verdict = look.low > needed                                            ? PairVerdict::keep
                   : look.high < std::log1p(-policy.max_regression_pct / 100.0) ? PairVerdict::refuse
                                                                                : PairVerdict::tie;
    return look;
}

}  // namespace

Result<std::vector<ReplayCase>> replay_cases(std::string_view text, std::string_view name, std::string_view metric) {
    std::vector<ReplayCase> cases;
    Lineage lineage;
    if (const auto whole = parse_json(text, name); whole && whole->is_object() && whole->contains("history")) {
        auto state = PerfState::parse(text, name);
        if (!state) return fail(ErrorKind::bad_input, state.error().message);
        std::size_t index = 0;
        for (PerfRecord& record : state->history())
            lineage.add(std::move(record), fmt::format("history[{}]", index++), cases);
        return cases;
    }
    std::size_t number = 0;
    auto lines = parse_journal(text);
    if (!lines.torn.empty() && parse_json(lines.torn, name)) lines.records.push_back(std::exchange(lines.torn, {}));
    if (lines.records.empty()) {
        return fail(ErrorKind::bad_input, fmt::format("{}: contains neither records nor a performance state", name),
                    "pass perf_state.json of a loop, or a file with one record per line");
    }
    if (!lines.torn.empty()) log::warning("{}: ignoring the incomplete last line", name);
    for (const std::string& line : lines.records) {
        const std::string place = fmt::format("line {}", ++number);
        const auto value = parse_json(line, fmt::format("{}, {}", name, place));
        if (!value) {
            return fail(ErrorKind::bad_input, value.error().text(),
                        "pass a performance state, or a file with one record per line");
        }
        if (!value->is_object()) return fail(ErrorKind::bad_input, fmt::format("{}, {}: no record", name, place));
        if (json::text(*value, "schema") == "gdnctl.iteration/1") {
            cases.push_back(log_case(*value, place, std::string(metric)));
        } else if (parse_perf_verdict(json::text(*value, "decision"))) {
            lineage.add(parse_record(*value), place, cases);
        } else {
            return fail(ErrorKind::bad_input,
                        fmt::format("{}, {}: neither a record of the performance state nor one of "
                                    "the running log",
                                    name, place));
        }
    }
    return cases;
}

Replayed replay(const ReplayCase& input, const PerfPolicy& policy, RegressionPolicy on_regression,
                bool higher_is_better) {
    Replayed out{input, {}, false};
    if (!input.skipped.empty()) return out;
    PerfQuestion question{policy,
                          on_regression,
                          higher_is_better,
                          input.record.measured,
                          input.champion ? &*input.champion : nullptr,
                          input.record.change_class};
    if (input.record.pairs) question.pairs = look_again(*input.record.pairs, policy);
    out.decision = decide(question);
    out.differs = !input.decided.empty() && input.decided != to_text(out.decision.verdict);
    return out;
}

namespace {

// SplitMix64 and Box-Muller: the same numbers with every compiler.
class Normals {
public:
    explicit Normals(std::uint64_t seed) : m_state(seed) {}
    double uniform() {  // (0, 1)
        m_state += 0x9e3779b97f4a7c15U;
        std::uint64_t z = m_state;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        z ^= z >> 31U;
        return (static_cast<double>(z >> 11U) + 0.5) * 0x1.0p-53;
    }
    double next() {
        if (m_spare) {
            const double spare = *m_spare;
            m_spare.reset();
            return spare;
        }
        const double radius = std::sqrt(-2.0 * std::log(uniform()));
        const double angle = 2.0 * std::numbers::pi * uniform();
        m_spare = radius * std::sin(angle);
        return radius * std::cos(angle);
    }

private:
    std::uint64_t m_state;
    std::optional<double> m_spare;
};

double noise_of_pair(NoiseShape shape, double noise, std::size_t pair, Normals& normals) {
    const double plain = noise * normals.next();
    switch (shape) {
        case NoiseShape::normal: return plain;
        case NoiseShape::heavy: return normals.uniform() < 0.05 ? 5.0 * plain : plain;
        case NoiseShape::drift: break;
    }
    // The second run of a pair is the slower one: the candidate in AB, the champion in BA.
    return plain + (pair % 2 == 0 ? -0.5 : 0.5) * noise;
}

}  // namespace

std::string_view to_text(NoiseShape shape) {
    constexpr std::array<std::string_view, 3> k_words = {"normal", "heavy", "drift"};
    return k_words[static_cast<std::size_t>(shape)];
}

Simulated simulate_pairs(const PairRule& rule, NoiseShape shape, double noise, double gain, int trials,
                         std::uint64_t seed) {
    Normals normals(seed);
    Simulated out;
    const double truth = std::log1p(gain);
    double claimed = 0.0;
    int kept = 0, refused = 0, tied = 0;
    std::int64_t pairs = 0;
    std::vector<double> d;
    for (int trial = 0; trial < trials; ++trial) {
        d.clear();
        PairLook look;
        while (look.verdict == PairVerdict::next) {
            d.push_back(truth + noise_of_pair(shape, noise, d.size(), normals));
            look = judge_pairs(d, rule);
        }
        pairs += look.n;
        if (look.verdict == PairVerdict::keep) {
            ++kept;
            claimed += std::expm1(look.mean);
        } else if (look.verdict == PairVerdict::refuse) {
            ++refused;
        } else {
            ++tied;
        }
    }
    const double all = trials;
    out.kept = kept / all;
    out.refused = refused / all;
    out.tied = tied / all;
    out.pairs = static_cast<double>(pairs) / all;
    out.claimed_gain = kept == 0 ? 0.0 : claimed / kept;
    return out;
}

}  // namespace gdnctl::loop
