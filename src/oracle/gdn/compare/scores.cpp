#include "oracle/gdn/compare/scores.h"

#include <algorithm>
#include <cmath>

#include "oracle/judge/blocks.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

bool fits(double want, DType judged) {
    if (std::fabs(want) < 6e4) return true;  // in every dtype
    return std::isfinite(rounded_to(want, judged == DType::f64 ? DType::f32 : judged));
}

std::vector<GroupBudget> with_output_rounding(const Pair& pair, int threads) {
    std::vector<GroupBudget> budgets = pair.budget->groups;
    if (pair.judged == DType::f64 || pair.judged == DType::f32) return budgets;
    std::vector<double> rounded(pair.want->size());
    // A value beyond the dtype's range is not rounding, and must not make the budget infinite.
    std::transform(pair.want->begin(), pair.want->end(), rounded.begin(),
                   [&](double y) { return fits(y, pair.judged) ? rounded_to(y, pair.judged) : y; });
    const auto sums = sum_groups(pair.groups, rounded, *pair.want, threads);
    // Terms that were rounded before they were added may round further than their sum does.
    const double of_terms = pair.budget->summed.empty() ? 0 : pair.judged == DType::bf16 ? 0x1p-9 : 0x1p-12;
    for (std::size_t g = 0; g < budgets.size(); ++g) {
        budgets[g].rms = std::hypot(budgets[g].rms, sums[g].error_rms());
        budgets[g].max_abs += sums[g].max_error + of_terms * sums[g].max_truth;
    }
    return budgets;
}

namespace {

// For equal scores, the earlier element is worse.
using Scored = std::pair<double, std::size_t>;
bool worse(const Scored& a, const Scored& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// The worst elements of some runs, unordered.
std::vector<Scored> worst_of_runs(const Pair& pair, const std::vector<GroupBudget>& budgets, std::size_t first,
                                  std::size_t last) {
    std::vector<Scored> worst;  // a heap with the least bad one in front
    for (std::size_t run = first; run < last; ++run) {
        const double of_group = budgets[pair.groups.of_run[run]].max_abs;
        for (std::size_t i = run * pair.groups.width; i < (run + 1) * pair.groups.width; ++i) {
            const double want = (*pair.want)[i];
            const double budget = std::min(of_group, pair.granted(i));
            const double error = std::fabs(pair.got[i] - want);
            const bool full = worst.size() == k_worst_elements;
            // Most are far below, so no quotient is needed.
            if (full && error < 0.999 * worst.front().first * budget) continue;
            if (!std::isfinite(want)) continue;
            double score = error / budget;
            if (!std::isfinite(pair.got[i])) {
                if (!fits(want, pair.judged)) continue;
                score = HUGE_VAL;
            }
            if (full && !worse({score, i}, worst.front())) continue;
            if (full) {
                std::pop_heap(worst.begin(), worst.end(), worse);
                worst.pop_back();
            }
            worst.emplace_back(score, i);
            std::push_heap(worst.begin(), worst.end(), worse);
        }
    }
    return worst;
}

}  // namespace

std::vector<std::size_t> worst_elements(const Pair& pair, const std::vector<GroupBudget>& budgets, int threads) {
    const Blocks blocks(pair.groups.of_run.size(), pair.groups.width);
    std::vector<std::vector<Scored>> parts(blocks.count);
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t b) { parts[b] = worst_of_runs(pair, budgets, blocks.begin(b), blocks.end(b)); };
    });
    std::vector<Scored> worst;
    for (const auto& part : parts) worst.insert(worst.end(), part.begin(), part.end());
    std::sort(worst.begin(), worst.end(), worse);
    worst.resize(std::min(worst.size(), k_worst_elements));
    std::vector<std::size_t> elements;
    for (const Scored& s : worst) elements.push_back(s.second);
    if (elements.empty()) elements.push_back(0);
    return elements;
}

double error_over_budget(const Pair& pair, const std::vector<GroupBudget>& budgets, int threads) {
    const auto sums = sum_groups(pair.groups, pair.got, *pair.want, threads);
    double score = 0;
    for (std::size_t g = 0; g < sums.size(); ++g) {
        if (sums[g].count == 0) continue;
        for (const double ratio : {sums[g].error_rms() / budgets[g].rms, sums[g].max_error / budgets[g].max_abs}) {
            score = std::isnan(ratio) ? HUGE_VAL : std::max(score, ratio);  // std::max would drop a NaN
        }
    }
    return score;
}

double local_error_over_budget(const Pair& pair, int threads) {
    if (pair.budget->local.empty()) return 0;
    const Blocks blocks(pair.got.size());
    std::vector<double> largest(blocks.count, 0);
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t b) {
            for (std::size_t i = blocks.begin(b); i < blocks.end(b); ++i) {
                const double error = std::fabs(pair.got[i] - (*pair.want)[i]);
                const double granted = pair.granted(i);
                if (error > largest[b] * granted && std::isfinite(error)) largest[b] = error / granted;
            }
        };
    });
    return blocks.count == 0 ? 0 : *std::max_element(largest.begin(), largest.end());
}

}  // namespace gdnctl::oracle
