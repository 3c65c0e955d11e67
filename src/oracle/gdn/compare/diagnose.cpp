// Simulates every known mistake on the worst head, and keeps those under which the dump becomes right.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "oracle/gdn/compare/head_search.h"
#include "oracle/gdn/compare/hypotheses.h"
#include "oracle/gdn/compare/localise.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

constexpr std::size_t k_chunks = 4;  // number of chunks on which a hypothesis is simulated

struct Match {
    const Hypothesis* hypothesis = nullptr;
    double improvement = 0;
    std::string where;
};

double best_of(const std::vector<Match>& found) {
    double best = 0;
    for (const Match& m : found) best = std::max(best, m.improvement);
    return best;
}

// Whether a match fits far worse than the best one.
bool accidental(double improvement, double best) { return improvement < best / 4; }

void drop_accidents(std::vector<Match>& found) {
    std::erase_if(found, [best = best_of(found)](const Match& m) { return accidental(m.improvement, best); });
}

// Tries every hypothesis on a window; returns those that explain it, best first.
std::vector<Match> matches_in(const HeadSearch& search, const Window& w, int threads, std::string_view where) {
    const auto& all = search.hypotheses();
    if (w.place.tokens == 0 && !w.ends) return {};
    const Misfit before = search.misfit_of_truth(w);
    const Window few = search.narrowed(w);
    std::vector<double> improvements(all.size(), 0);
    run_tasks(all.size(), threads, [&] {
        return [&](std::size_t i) {
            if (search.possible(few, w, before, *all[i])) improvements[i] = search.improvement(w, before, *all[i]);
        };
    });
    std::vector<Match> found;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (improvements[i] > 0) found.push_back({all[i], improvements[i], std::string(where)});
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Match& a, const Match& b) { return a.improvement > b.improvement; });
    drop_accidents(found);
    return found;
}

std::vector<Match> search_head(const HeadSearch& search, const WrongHead& head, std::size_t chunk,
                               std::size_t first_chunk, int threads) {
    const std::size_t before = first_chunk == 0 ? 0 : first_chunk - 1;
    const auto whole = search.window(head.sequence, head.head, chunk, before, k_chunks, std::nullopt);
    auto found = matches_in(search, whole, threads, "");
    if (!found.empty()) return found;
    const auto one = search.window(head.sequence, head.head, chunk, first_chunk, 1, first_chunk);
    found = matches_in(search, one, threads, fmt::format(" in chunk {} alone", first_chunk));
    if (first_chunk == 0) return found;
    const auto earlier = search.window(head.sequence, head.head, chunk, before, 2, before);
    for (Match& m : matches_in(search, earlier, threads, fmt::format(" in chunk {} alone", before))) {
        found.push_back(std::move(m));
    }
    drop_accidents(found);
    // A lost state looks like one that a gate cleared: if both fit, the state's hand-over comes first.
    const auto by_carry = [](const Match& m) { return m.hypothesis->stage == "carry"; };
    const auto rest = std::stable_partition(found.begin(), found.end(), by_carry);
    double carry = 0;
    for (auto m = found.begin(); m != rest; ++m) carry = std::max(carry, m->improvement);
    for (auto m = rest; carry > 0 && m != found.end(); ++m) m->improvement = std::min(m->improvement, carry);
    return found;
}

// Whether the final state is wrong, and out has too few digits to show where that began, or is missing.
bool out_hides(const ForwardEvidence& evidence, const std::vector<HeadErrors>& errors, const WrongHead& worst) {
    const auto head = std::find_if(errors.begin(), errors.end(), [&](const HeadErrors& e) {
        return static_cast<std::size_t>(e.sequence) == worst.sequence && static_cast<std::size_t>(e.head) == worst.head;
    });
    if (head == errors.end() || !head->final_state || *head->final_state <= k_ok_band) return false;
    return !evidence.out || evidence.out->judged == DType::bf16 || evidence.out->judged == DType::f16;
}

// From the first token on, because the error may have begun anywhere.
std::vector<Match> search_whole_head(const HeadSearch& search, const WrongHead& head, std::size_t chunk,
                                     const GdnSequence& s, int threads) {
    constexpr std::size_t k_most_chunks = 64;
    const std::size_t chunks = (static_cast<std::size_t>(s.end - s.begin) + chunk - 1) / chunk;
    if (chunks <= k_chunks && head.first_chunk <= 1) return {};  // already examined
    const std::size_t first = chunks > k_most_chunks ? chunks - k_most_chunks : 0;
    const auto all = search.window(head.sequence, head.head, chunk, first, k_most_chunks, std::nullopt);
    return matches_in(search, all, threads, "");
}

// Keeps the matches that also hold on another wrong head, if any do; if one fits far better there, only that one.
// `described`: something else explains all heads, so a match that does not is dropped.
void confirm(const GdnReference& r, const HeadSearch& search, const std::vector<WrongHead>& heads, bool described,
             std::vector<Match>& found) {
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    const bool doubted = described && !found.empty() && found.front().where.empty();
    for (std::size_t i = 1; i < std::min<std::size_t>(heads.size(), 4) && found.size() > (doubted ? 0 : 1); ++i) {
        const std::size_t before = heads[i].first_chunk == 0 ? 0 : heads[i].first_chunk - 1;
        const Window w = search.window(heads[i].sequence, heads[i].head, chunk, before, k_chunks, std::nullopt);
        const Misfit misfit = search.misfit_of_truth(w);
        std::vector<double> improvements;
        for (const Match& m : found) improvements.push_back(search.improvement_elsewhere(w, misfit, *m.hypothesis));
        const double best = *std::max_element(improvements.begin(), improvements.end());
        if (best == 0 && !doubted) continue;
        std::vector<Match> kept;
        for (std::size_t m = 0; m < found.size(); ++m) {
            if (improvements[m] > 0 && !accidental(improvements[m], best)) kept.push_back(found[m]);
        }
        found = std::move(kept);
    }
}

Diagnosis from_hints(std::vector<Hint> hints) {
    Diagnosis d;
    std::stable_sort(hints.begin(), hints.end(),
                     [](const Hint& a, const Hint& b) { return a.improvement > b.improvement; });
    for (const Hint& h : hints) {
        if (std::find(d.stages.begin(), d.stages.end(), h.stage) == d.stages.end()) d.stages.push_back(h.stage);
    }
    d.stage = d.stages.front();
    d.hints = std::move(hints);
    return d;
}

}  // namespace

std::optional<HeadResult> Hypothesis::simulate(HeadInputs inputs, GdnContract contract, const HeadSlice& place,
                                               const HeadGrams* grams) const {
    if (given && !given(inputs, contract, place)) return std::nullopt;
    PreparedHead head = prepare_head(inputs, contract);
    if (prepared) prepared(head);
    if (run != nullptr) return run(head);
    return run_head<double>(head, chunk, grams);
}

const std::vector<Hypothesis>& forward_hypotheses() {
    static const std::vector<Hypothesis> k_all = [] {
        auto all = input_hypotheses();
        for (Hypothesis& h : chunk_hypotheses()) all.push_back(std::move(h));
        return all;
    }();
    return k_all;
}

Diagnosis diagnose(const GdnReference& r, const ForwardEvidence& evidence, const std::vector<HeadErrors>& errors,
                   const FaultLocation& place, int threads) {
    if (auto zeros = match_zeros(r, evidence, errors)) return *zeros;
    const auto rearranged = match_rearranged(r, evidence, threads);
    const auto heads = wrong_heads(r, errors);
    if (heads.empty()) return match_pattern(r, evidence, errors, place, threads);
    std::vector<Hint> hints = rearranged;
    const HeadSearch search(r, evidence);
    const auto chunk = static_cast<std::size_t>(r.contract.value.chunk);
    std::string chunk_note;
    // A sequence without tokens has no computation that could be wrong.
    const GdnSequence s = r.problem.sequences[heads.front().sequence];
    std::vector<Match> found;
    if (s.begin != s.end) found = search_head(search, heads.front(), chunk, heads.front().first_chunk, threads);
    const bool hidden = out_hides(evidence, errors, heads.front());
    if (found.empty() && hints.empty() && hidden) found = search_whole_head(search, heads.front(), chunk, s, threads);
    if (found.empty() && hints.empty() && s.begin != s.end) {
        // The device's chunk length may differ from the contract's.
        for (const std::size_t other : {16UL, 32UL, 64UL, 128UL}) {
            if (other == chunk || !found.empty()) continue;
            found = search_head(search, heads.front(), other, heads.front().first_chunk * chunk / other, threads);
            chunk_note = fmt::format(", with chunks of {} tokens", other);
        }
    }
    confirm(r, search, heads, !rearranged.empty(), found);
    // A simulated mistake names the cause; a factor or an exchange only describes it, and perhaps poorly.
    std::erase_if(hints, [&, best = best_of(found)](const Hint& h) {
        return h.improvement < best / 100 ||
               std::any_of(found.begin(), found.end(), [&](const Match& m) { return m.hypothesis->stage == h.stage; });
    });
    // A matching head map says more than the single key head that it selects here.
    const auto starts = [](std::string_view with) {
        return [with](const Match& m) { return m.hypothesis->text.starts_with(with); };
    };
    if (std::any_of(found.begin(), found.end(), starts("the head map"))) {
        std::erase_if(found, starts("q and k are those of"));
    }
    for (const Match& m : found) {
        const bool once = m.hypothesis->stage == "carry" && !m.where.empty();
        const std::string segment = once ? segment_note(heads.front().first_chunk) : std::string();
        hints.push_back({std::string(m.hypothesis->stage),
                         "matches if " + m.hypothesis->text + m.where + chunk_note + segment, m.improvement});
    }
    if (!hints.empty()) return from_hints(std::move(hints));
    Diagnosis d = match_pattern(r, evidence, errors, place, threads);
    put_zeros_first(r, evidence, errors, d);
    return d;
}

}  // namespace gdnctl::oracle
