#include "loop/measure/pairs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace gdnctl::loop {

namespace {

struct Look {
    int n;
    double t;
};
// One-sided .010, .015, .025 with 2, 4 and 8 degrees of freedom.
constexpr std::array k_looks = {Look{3, 6.965}, Look{5, 3.298}, Look{9, 2.306}};

// Timers and schedulers are no more precise than this, even if three numbers agree by chance.
constexpr double k_least_deviation = 0.0005;

const Look* look_at(int n, int cap) {
    const auto at = std::find_if(k_looks.begin(), k_looks.end(), [&](const Look& look) { return look.n == n; });
    return at == k_looks.end() || at->n > cap ? nullptr : &*at;
}

bool is_last_look(int n, int cap) {
    return std::none_of(k_looks.begin(), k_looks.end(), [&](const Look& look) { return look.n > n && look.n <= cap; });
}

}  // namespace

std::string_view to_text(PairVerdict verdict) {
    constexpr std::array<std::string_view, 4> k_words = {"next", "keep", "refuse", "tie"};
    return k_words[static_cast<std::size_t>(verdict)];
}

PairLook judge_pairs(std::span<const double> d, const PairRule& rule) {
    PairLook look;
    look.n = static_cast<int>(d.size());
    if (d.empty()) return look;
    const double n = static_cast<double>(d.size());
    for (const double one : d) look.mean += one / n;
    double squares = 0.0;
    for (const double one : d) squares += (one - look.mean) * (one - look.mean);
    look.deviation = d.size() < 2 ? 0.0 : std::sqrt(squares / (n - 1.0));
    look.deviation = std::max(look.deviation, k_least_deviation);
    look.low = look.high = look.mean;
    const Look* rules = look_at(look.n, rule.cap);
    if (rules == nullptr) return look;
    const double h = rules->t * look.deviation / std::sqrt(n);
    look.low = look.mean - h;
    look.high = look.mean + h;
    const double needed = std::max(std::log1p(rule.min_gain), rule.noise_share * look.deviation);
    if (look.low > needed) {
        look.verdict = PairVerdict::keep;
    } else if (look.high < std::log1p(rule.refuse_below)) {
        look.verdict = PairVerdict::refuse;
    } else if (is_last_look(look.n, rule.cap)) {
        look.verdict = PairVerdict::tie;
    }
    return look;
}

double pair_difference(double champion, double candidate, bool higher_is_better) {
    return higher_is_better ? std::log(candidate / champion) : std::log(champion / candidate);
}

std::string pair_at_work(std::span<const double> d, int most) {
    std::string text = fmt::format("pair {} of at most {}", d.size() + 1, most);
    if (d.empty()) return text;
    const double mean = std::accumulate(d.begin(), d.end(), 0.0) / static_cast<double>(d.size());
    return text + fmt::format(", the candidate {:.3f}x as fast so far", std::exp(mean));
}

double to_percent(double d) { return std::expm1(d) * 100.0; }

double median_of(std::span<const double> values) {
    if (values.empty()) return 0.0;
    std::vector<double> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0;
}

double mad_of(std::span<const double> values) {
    const double middle = median_of(values);
    std::vector<double> distances;
    distances.reserve(values.size());
    for (const double value : values) distances.push_back(std::abs(value - middle));
    return median_of(distances);
}

}  // namespace gdnctl::loop
