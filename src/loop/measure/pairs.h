// Decides from pairs of measurements taken one after the other whether a candidate is faster than the champion.
//
// The unit is a pair: both sides measured as fresh runs, in alternating order AB, BA, AB, ...; d = ln(T_champion /
// T_candidate), so d > 0 is a gain. The pairs are evaluated after 3, 5 and 9 of them: mean m, standard deviation s, h =
// t s / sqrt(n) with the one-sided Student t of .010, .015 and .025. Nothing is decided in between. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gdnctl::loop {

struct PairRule {
    double min_gain = 0.005;  // relative to T: 0.005 is half a percent
    // Refuse a candidate if the upper bound of its gain is below this; 0: refuse only what is slower.
    double refuse_below = 0.0;
    // A candidate is kept only if the lower bound of its gain exceeds this share of s. Without this, 4.2 % of
    // candidates that change nothing are kept when the noise is large compared to min_gain; with 0.4 it is less than 2
    // % at any noise.
    double noise_share = 0.0;
    int cap = 9;  // largest number of pairs: 3, 5 or 9
};

enum class PairVerdict { next, keep, refuse, tie };
std::string_view to_text(PairVerdict verdict);

struct PairLook {
    int n = 0;
    double mean = 0.0, deviation = 0.0;  // of d; the deviation is at least 0.05 %
    double low = 0.0, high = 0.0;        // m - h, m + h
    PairVerdict verdict = PairVerdict::next;
    bool operator==(const PairLook&) const = default;
};

// The decision after these pairs. `next` between the evaluations and with fewer than three pairs, but never at the cap.
PairLook judge_pairs(std::span<const double> d, const PairRule& rule);

// d of one pair. `higher_is_better`: the values are rates, not times.
double pair_difference(double champion, double candidate, bool higher_is_better);
// 0.01 -> 1.005 %: converts a difference of logarithms to percent.
double to_percent(double d);

// "pair 3 of at most 9, the candidate 1.012x as fast so far": what is measured next, and what the pairs before say.
std::string pair_at_work(std::span<const double> d, int most);

// 0 for an empty list.
double median_of(std::span<const double> values);
double mad_of(std::span<const double> values);  // median absolute deviation from the median

}  // namespace gdnctl::loop
