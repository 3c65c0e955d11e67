#include "oracle/gdn/compare/stage_search.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "oracle/gdn/compare/localise.h"
#include "oracle/gdn/compare/stage_spans.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

struct Suspect {
    const Suspicion* suspicion = nullptr;
    Explanation explanation;
};

bool right_enough(const Section& s, std::size_t index, const Reals& errors) {
    const double left = rms_of(errors);
    if (left <= 2 * k_ok_band) return true;
    return explains(rms_of(honest_errors(s, index, s.truths[index])), 4 * left);
}

// Whether the chunk after an explained one is right from there, or wrong in the same way.
bool holds_on(const Section& s, std::size_t next, const Suspicion& suspicion, const Explanation& e) {
    if (next >= s.parts.size()) return true;
    if (suspicion.carries) return true;
    if (right_enough(s, next, honest_errors(s, next, e.state))) return true;
    return suspicion.attempt(s, next, e.state).has_value();
}

std::optional<Explanation> asked(const Section& s, const Suspicion& suspicion) {
    if (suspicion.carries && s.wrong == 0) return std::nullopt;
    if (!suspicion.carries && s.wrong == s.parts.size()) return std::nullopt;
    const std::size_t index = suspicion.carries ? s.wrong - 1 : s.wrong;
    auto e = suspicion.attempt(s, index, s.truths[index]);
    if (e && !holds_on(s, s.wrong + 1, suspicion, *e)) e.reset();
    return e;
}

Diagnosis named(std::vector<Suspect> found) {
    double best = HUGE_VAL;
    for (const Suspect& f : found) best = std::min(best, f.explanation.after);
    std::erase_if(found, [&](const Suspect& f) { return f.explanation.after > std::max(10 * best, 2.0); });
    std::stable_sort(found.begin(), found.end(),
                     [](const Suspect& a, const Suspect& b) { return a.explanation.numbers < b.explanation.numbers; });
    const std::size_t fewest = found.front().explanation.numbers;
    Diagnosis d;
    for (const Suspect& f : found) {
        for (const std::string& stage : f.suspicion->stages) {
            if (std::find(d.stages.begin(), d.stages.end(), stage) == d.stages.end()) d.stages.push_back(stage);
        }
        if (f.explanation.numbers > fewest + fewest / 4) continue;
        const Explanation& e = f.explanation;
        d.hints.push_back(
            {f.suspicion->stages.front(), fmt::format("matches if {}", e.text), e.before / std::max(e.after, 0.25)});
    }
    d.stage = d.stages.front();
    return d;
}

Diagnosis likely(std::vector<std::string> stages, std::string text) {
    Diagnosis d{stages.front(), {}, {{stages.front(), std::move(text), 1}}};
    d.stages = std::move(stages);
    return d;
}

// M, P or Gamma, all of which leave combinations of rows of U.
Diagnosis by_entries(const Section& s, const LaneErrors& errors, const ErrorSpans& spans) {
    const std::string what = "the errors of each token are sums of the rows of U up to it";
    const bool state_right = errors.final_state && *errors.final_state <= k_ok_band;
    // A final state may have recovered from something written long before it.
    if (spans.writes == Answer::yes)
        return likely({"solve", "wu", "decay"}, what + ", and U alone is wrong: consistent with a wrong M");
    if (state_right || spans.alone)
        return likely({"intra", "decay", "output"}, what + ", and the state is right: consistent with a wrong P");
    const EntryPrices prices = entry_prices(s);
    if (!errors.final_state && prices.p < std::min(prices.m, prices.both)) {
        return likely({"intra", "decay", "solve"},
                      what + ": consistent with a wrong P, or M (there is no state that could tell)");
    }
    if (prices.both < prices.m) {
        return likely({"decay", "solve", "gate"},
                      what + ", and the state is wrong too: consistent with a wrong Gamma, or M");
    }
    return likely({"solve", "decay", "wu"}, what + ", and the state is wrong too: consistent with a wrong M");
}

// Finds which product the errors consist of, if no class of changes explains them.
std::optional<Diagnosis> by_spans(const Section& s, const LaneErrors& errors, const ErrorSpans& spans) {
    if (spans.sums_of_u == Answer::yes) return by_entries(s, errors, spans);
    const bool right_after = errors.final_state ? *errors.final_state <= k_ok_band : spans.alone;
    if (spans.sums_of_v == Answer::yes && !right_after) {
        return likely({"wu", "layout"},
                      "the errors of each token are sums of the rows of V up to it: consistent with a wrong v");
    }
    if (spans.sums_of_ks == Answer::yes && !right_after) {
        return likely({"wu", "gate"},
                      "the errors of each token are sums of the rows of K S up to it: consistent with a wrong K S");
    }
    if (spans.state_before == Answer::yes && !spans.alone) {
        return likely({"carry", "layout"},
                      "the errors are consistent with a wrong state handed to the chunk, and no more");
    }
    return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> match_stages(const GdnReference& r, const ForwardEvidence& evidence, const LaneErrors& errors,
                                      int threads, const std::function<std::optional<Diagnosis>()>& even) {
    const auto lanes = wrong_lanes(r, {errors});
    if (lanes.empty()) return std::nullopt;
    const bool out_wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    const LaneSearch search(r, evidence);
    const auto few = make_section(search, r, evidence, lanes.front(), out_wrong, k_columns);
    const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
    const auto all = make_section(search, r, evidence, lanes.front(), out_wrong, dv);
    if (!few || !all) return std::nullopt;
    static const std::vector<Suspicion> k_suspicions = [] {
        auto list = move_suspicions();
        for (Suspicion& s : factor_suspicions()) list.push_back(std::move(s));
        return list;
    }();
    std::vector<std::optional<Explanation>> found(k_suspicions.size());
    run_tasks(found.size(), threads, [&] {
        return [&](std::size_t i) { found[i] = asked(k_suspicions[i].all_columns ? *all : *few, k_suspicions[i]); };
    });
    std::vector<Suspect> suspects;
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (found[i]) suspects.push_back({&k_suspicions[i], std::move(*found[i])});
    }
    if (!suspects.empty()) return named(std::move(suspects));
    if (auto d = match_finished(r, evidence, errors)) return d;
    if (auto d = even()) return d;
    if (all->out.empty() || all->wrong >= all->parts.size()) return std::nullopt;
    return by_spans(*all, errors, spans_of(*all));
}

std::optional<Diagnosis> exclude_stages(const GdnReference& r, const ForwardEvidence& evidence,
                                        const LaneErrors& errors) {
    const auto lanes = wrong_lanes(r, {errors});
    const bool out_wrong =
        std::any_of(errors.chunks.begin(), errors.chunks.end(), [](double x) { return !(x <= k_ok_band); });
    if (lanes.empty() || !out_wrong) return std::nullopt;
    const LaneSearch search(r, evidence);
    const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
    const auto s = make_section(search, r, evidence, lanes.front(), out_wrong, dv);
    if (!s || s->out.empty()) return std::nullopt;
    const ErrorSpans spans = spans_of(*s);
    if (spans.writes == Answer::yes && !spans.alone) {
        return likely({"wu", "solve", "beta"},
                      "the errors are consistent with a mistake in what the chunk writes, and no more");
    }
    if (errors.final_state ? *errors.final_state <= k_ok_band : spans.alone) {
        if (spans.sums_of_u != Answer::no) return std::nullopt;
        return likely(
            {"output", "intra", "layout", "l2norm", "scale", "tile"},
            std::string(errors.final_state ? "the final state is right" : "nothing after this chunk is wrong") +
                ", and the errors of out are no sums of rows of U: consistent with a mistake in what is read from the "
                "state, in q, or in out itself");
    }
    if (s->wrong != 0 || spans.sums_of_u != Answer::no || spans.state_before == Answer::yes) return std::nullopt;
    return likely(
        {"wu", "layout", "l2norm", "beta"},
        "the state is wrong too, and the errors are no sums of rows of U: consistent with a wrong k, v, or write, "
        "and not with a wrong M or P");
}

}  // namespace gdnctl::oracle
