#include "loop/perf/review.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/text.h"

namespace gdnctl::loop {

namespace {

constexpr int k_aa_every = 10;
constexpr int k_aa_runs = 3;
constexpr int k_rejections_before_aa = 2;

bool settles_base(PerfVerdict verdict) {
    return verdict == PerfVerdict::aa_ok || verdict == PerfVerdict::baseline_shift || verdict == PerfVerdict::baseline;
}

// The last refusals in a row.
int rejections_in_a_row(const std::vector<PerfRecord>& history) {
    int n = 0;
    for (auto it = history.rbegin(); it != history.rend() && is_rejection(it->decision); ++it) ++n;
    return n;
}

class Reviewer {
public:
    Reviewer(const PerfState& state, const ReviewInput& input, const ReviewDeps& deps)
        : m_input(input),
          m_deps(deps),
          m_key(input.candidate.fingerprint.key()),
          m_history(state.history(m_key)),
          m_champion(state.champion(m_key)),
          m_other_champions(state.champion_keys().size()),
          m_candidate(input.candidate) {}

    Result<Review> run() {
        if (!m_input.candidate.value) {
            m_review.decision = decide(question(m_input.candidate, nullptr, std::nullopt));
            return finished(m_input.candidate);
        }
        GDNCTL_TRY(prepare_champion());
        GDNCTL_TRY(judge());
        if (m_review.decision.verdict == PerfVerdict::quarantined) {
            m_deps.say("measuring once more");
            if (!paired()) {
                GDNCTL_TRY_ASSIGN(m_candidate, measured(m_input.commit));
            }
            GDNCTL_TRY(judge());
        }
        const bool third =
            is_rejection(m_review.decision.verdict) && rejections_in_a_row(m_history) >= k_rejections_before_aa;
        const bool alarm = m_review.decision.verdict == PerfVerdict::common_factor;
        if (m_champion && !m_looked_at_base && (third || alarm)) {
            // Pairs have measured the champion just now: against the same commit nothing else would come out.
            const bool stands = paired() && m_champion->commit == m_input.base;
            GDNCTL_TRY(look_at_base(
                {alarm ? "several buckets changed by one factor" : "this would be the third rejection in a row"}));
            if (alarm || (m_review.base_shifted && !stands)) GDNCTL_TRY(judge());
        }
        return finished(m_judged);
    }

private:
    bool paired() const { return m_input.pairs > 1; }

    PerfQuestion question(const Measurement& candidate, const PerfRecord* champion,
                          std::optional<PairLook> pairs) const {
        return {m_input.policy,
                m_input.on_regression,
                m_input.higher_is_better,
                candidate,
                champion,
                m_input.change_class,
                pairs,
                m_input.unit,
                m_lone_baseline,
                m_base_is_known};
    }

    Result<Measurement> measured(const std::string& commit) {
        ++m_review.runs;
        GDNCTL_TRY_ASSIGN(Measurement m, m_deps.measure(commit));
        derive_budgets(m.metrics, m_input.upper_bound_step_ms);
        if (!m.busy.empty() && !m_busy_said) m_deps.say("the machine is busy: " + m.busy);
        m_busy_said = m_busy_said || !m.busy.empty();
        return m;
    }

    PerfRecord record_of(Measurement m, const std::string& commit, PerfVerdict decision) const {
        PerfRecord record;
        record.iteration = m_input.iteration;
        record.commit = commit;
        record.measured = std::move(m);
        record.timestamp_unix = m_input.now_unix;
        record.unit = m_input.unit;
        record.decision = decision;
        return record;
    }

    void set_champion(PerfRecord record) {
        m_champion = record;
        m_review.champion = std::move(record);
    }

    Status prepare_champion() {
        if (!m_champion) {
            if (m_other_champions > 0) {
                m_deps.say("no champion under these conditions; champions of other configurations do not change");
            }
            if (!paired()) return {};
            GDNCTL_TRY_ASSIGN(Measurement m, measured(m_input.base));
            if (!m.value) {
                return fail(ErrorKind::infrastructure, "no " + m_input.candidate.metric + " of HEAD was measured");
            }
            PerfRecord record = record_of(std::move(m), m_input.base, PerfVerdict::baseline);
            PerfDecision baseline;
            baseline.busy = record.measured.busy;
            m_deps.say(decision_text(question(record.measured, nullptr, std::nullopt), baseline, m_input.base));
            m_review.before.push_back(record);
            set_champion(std::move(record));
            return {};
        }
        AaFacts facts;
        std::string reference = m_champion->commit;
        for (const PerfRecord& record : m_history) {
            if (settles_base(record.decision)) {
                facts.since_last = 0;
            } else {
                ++facts.since_last;
            }
            if (settles_base(record.decision) || record.decision == PerfVerdict::promoted) reference = record.commit;
        }
        if (reference != m_input.base) {
            GDNCTL_TRY_ASSIGN(facts.base_differs, m_deps.differs(reference, m_input.base));
        }
        // Pairs measure both sides again.
        facts.source_differs = !paired() && !is_same_source(m_champion->measured, m_input.candidate);
        const auto reasons = aa_reasons(facts);
        return reasons.empty() || !m_champion->measured.value ? Status() : look_at_base(reasons);
    }

    // A/A: HEAD as it is, against what the champion was.
    Status look_at_base(const std::vector<std::string>& reasons) {
        m_looked_at_base = true;
        m_deps.say("measuring HEAD unchanged (A/A): " + text::join(reasons, "; "));
        std::vector<Measurement> runs;
        for (int i = 0; i < k_aa_runs; ++i) {
            GDNCTL_TRY_ASSIGN(Measurement m, measured(m_input.base));
            if (m.value) runs.push_back(std::move(m));
        }
        if (runs.empty()) {
            return fail(ErrorKind::infrastructure, "no " + m_input.candidate.metric + " of HEAD was measured");
        }
        const std::string source = runs.back().source;
        std::erase_if(runs, [&](const Measurement& run) { return run.source != source; });
        const Measurement now = merged(std::move(runs));
        if (!is_same_source(m_champion->measured, now)) {
            set_baseline(now);
            return {};
        }
        const double before = *m_champion->measured.value;
        const double delta = delta_percent(before, *now.value);
        const double band = aa_band_pct(m_input.policy, m_champion->measured.points, now.points);
        const bool shifted = std::abs(delta) > band;
        // These are no pairs: what else the machine does may be all of the difference.
        const bool untold = shifted && !now.busy.empty();
        say_look(now, band,
                 !shifted ? "the base has not moved"
                 : untold ? "the champion stays, as the machine was busy: " + now.busy
                          : "the base has moved, HEAD is the new baseline");
        if (untold) return {};
        m_base_is_known = true;
        PerfRecord record = record_of(now, m_input.base, shifted ? PerfVerdict::baseline_shift : PerfVerdict::aa_ok);
        record.delta_vs_champion_pct = delta;
        record.baseline_source = "champion";
        m_review.before.push_back(record);
        if (!shifted) return {};
        m_review.base_shifted = true;
        set_champion(std::move(record));
        return {};
    }

    // Faster is a plus whichever way the metric counts, as in every other line.
    void say_look(const Measurement& now, double band, const std::string& what_follows) const {
        runlog::Gain gain;
        gain.metric = m_input.candidate.metric;
        gain.unit = m_input.unit;
        gain.lower_is_better = !m_input.higher_is_better;
        gain.before = m_champion->measured.value;
        gain.after = now.value;
        gain.factor = runlog::speed_factor(gain.before, gain.after, gain.lower_is_better);
        const double percent = gain.factor ? runlog::factor_percent(*gain.factor) : 0.0;
        m_deps.say(fmt::format("HEAD unchanged: {} ({}%, band {:.2f}%; {}): {}", runlog::compared_text(gain),
                               signed_number(percent, 2), band, noise_text(now.points, m_input.unit), what_follows));
    }

    void set_baseline(const Measurement& now) {
        m_base_is_known = true;
        m_deps.say(fmt::format("HEAD now measures {}, the champion measured {}: HEAD is the new baseline ({}){}",
                               now.source, m_champion->measured.source, noise_text(now.points, m_input.unit),
                               now.busy.empty() ? "" : "; the machine was busy: " + now.busy));
        PerfRecord record = record_of(now, m_input.base, PerfVerdict::baseline);
        m_review.before.push_back(record);
        set_champion(std::move(record));
    }

    Status judge() {
        if (paired() && m_champion && m_champion->measured.value) return judge_in_pairs();
        m_judged = m_candidate;
        derive_budgets(m_judged.metrics, m_input.upper_bound_step_ms);
        m_review.measured_against = m_champion;
        decide_on(std::nullopt);
        return {};
    }

    void decide_on(const std::optional<PairLook>& look) {
        PerfRecord* champion = m_review.measured_against ? &*m_review.measured_against : nullptr;
        if (champion != nullptr) derive_budgets(champion->measured.metrics, m_input.upper_bound_step_ms);
        const PerfQuestion q = question(m_judged, champion, look);
        m_review.decision = decide(q);
        m_review.record.pairs = look;
        m_deps.say(decision_text(q, m_review.decision, m_input.commit));
    }

    Status judge_in_pairs() {
        const PerfPolicy& policy = m_input.policy;
        const PairRule rule{policy.min_improvement_pct / 100.0, -policy.max_regression_pct / 100.0, policy.noise_share,
                            m_input.pairs};
        std::vector<Measurement> ours, theirs;
        std::vector<double> d;
        PairLook look;
        while (look.verdict == PairVerdict::next) {
            // AB, BA, AB, ...: what drifts from run to run hits both sides alike.
            if (m_deps.at_work) m_deps.at_work(pair_at_work(d, m_input.pairs));
            const bool champion_first = d.size() % 2 == 0;
            for (const bool champion : {champion_first, !champion_first}) {
                GDNCTL_TRY_ASSIGN(Measurement m, measured(champion ? m_champion->commit : m_input.commit));
                if (!m.value || *m.value <= 0.0) return no_number(champion, std::move(m));
                if (!ours.empty() || !theirs.empty()) {
                    const Measurement& first = theirs.empty() ? ours.front() : theirs.front();
                    if (!is_same_source(first, m)) return two_sources(first, m);
                }
                (champion ? theirs : ours).push_back(std::move(m));
            }
            d.push_back(pair_difference(*theirs.back().value, *ours.back().value, m_input.higher_is_better));
            look = judge_pairs(d, rule);
            m_deps.say(pair_text(*theirs.back().value, *ours.back().value, d));
        }
        m_lone_baseline = m_champion->measured.value;
        m_review.measured_against = m_champion;
        m_review.measured_against->measured = mean_of(std::move(theirs));
        m_judged = mean_of(std::move(ours));
        m_deps.say(fmt::format("champion: {}; candidate: {}",
                               noise_text(m_review.measured_against->measured.points, m_input.unit),
                               noise_text(m_judged.points, m_input.unit)));
        decide_on(look);
        return {};
    }

    // What decides is the mean over the pairs, so the value of each side is the mean of its runs: their ratio is the
    // gain.
    static Measurement mean_of(std::vector<Measurement> runs) {
        Measurement all = merged(std::move(runs));
        const auto mean = runlog::mean_of_runs(all.points);
        if (!mean) return all;
        all.value = mean;
        if (const auto own = all.metrics.find(all.metric); own != all.metrics.end()) own->second = *mean;
        return all;
    }

    // The values of the last pair, and the gain over all pairs `d` so far.
    std::string pair_text(double champion, double candidate, std::span<const double> d) const {
        runlog::Gain gain;
        gain.unit = m_input.unit;
        gain.lower_is_better = !m_input.higher_is_better;
        gain.factor = std::exp(std::accumulate(d.begin(), d.end(), 0.0) / static_cast<double>(d.size()));
        gain.pairs = static_cast<int>(d.size());
        return fmt::format("pair {} of at most {}: champion {}, candidate {}; so far {}", d.size(), m_input.pairs,
                           quantity(champion, gain.unit), quantity(candidate, gain.unit), gain_text(gain));
    }

    static Status two_sources(const Measurement& first, const Measurement& other) {
        return fail(
            ErrorKind::infrastructure,
            fmt::format("one run's number is {}, another's is {}: they cannot be paired", first.source, other.source),
            "W&B did not answer for all of them; see the warnings");
    }

    Status no_number(bool champion, Measurement m) {
        if (champion) {
            return fail(ErrorKind::infrastructure, "no " + m_input.candidate.metric + " of the champion was measured");
        }
        m.value.reset();
        m_judged = std::move(m);
        m_review.measured_against = m_champion;
        decide_on(std::nullopt);
        return {};
    }

    Review finished(Measurement judged) {
        const PerfDecision& decision = m_review.decision;
        // The comparison is that of the candidate's own profile; the profiles of pairs have none.
        if (!judged.ce_ab_compare) judged.ce_ab_compare = m_input.candidate.ce_ab_compare;
        PerfRecord record = record_of(std::move(judged), m_input.commit, decision.verdict);
        record.delta_vs_champion_pct = decision.delta_pct;
        record.change_class = m_input.change_class;
        record.gates = decision.gates;
        record.pairs = m_review.record.pairs;
        record.gain = decision.gain;
        record.labels = decision.labels;
        if (m_review.measured_against) {
            record.baseline_source = "champion";
            record.baseline_metrics = m_review.measured_against->measured.metrics;
        }
        if (decision.becomes_champion()) set_champion(record);
        m_review.record = std::move(record);
        return std::move(m_review);
    }

    const ReviewInput& m_input;
    const ReviewDeps& m_deps;
    std::string m_key;
    std::vector<PerfRecord> m_history;
    std::optional<PerfRecord> m_champion;
    std::size_t m_other_champions;
    Measurement m_candidate;  // one run, if candidates are not judged in pairs
    Measurement m_judged;
    bool m_looked_at_base = false;  // A/A was measured
    bool m_base_is_known = false;   // and told whether the base is where the champion was
    bool m_busy_said = false;
    std::optional<double> m_lone_baseline;
    Review m_review;
};

}  // namespace

Result<Review> review(const PerfState& state, const ReviewInput& input, const ReviewDeps& deps) {
    return Reviewer(state, input, deps).run();
}

int apply_review(PerfState& state, const Review& review) {
    const std::string key = review.record.measured.fingerprint.key();
    int suspects = 0;
    for (const PerfRecord& record : review.before) {
        if (record.decision == PerfVerdict::baseline_shift) suspects += state.mark_suspects(key);
        state.append(record);
    }
    state.append(review.record);
    if (review.champion) state.set_champion(*review.champion);
    return suspects;
}

std::vector<std::string> aa_reasons(const AaFacts& facts) {
    std::vector<std::string> reasons;
    if (facts.base_differs) reasons.emplace_back("HEAD differs from the champion in measured files");
    if (facts.since_last >= k_aa_every) {
        reasons.push_back(fmt::format("{} candidates were judged since the last check", facts.since_last));
    }
    if (facts.source_differs) reasons.emplace_back("the champion's number is of another kind");
    return reasons;
}

}  // namespace gdnctl::loop
