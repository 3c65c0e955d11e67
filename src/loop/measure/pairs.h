// Whether a candidate is faster than the champion, from pairs of measurements that were taken one after the other.
//
// The unit is a pair: both sides measured as fresh runs, in turns AB, BA, AB, ...; d = ln(T_champion / T_candidate), so
// that d > 0 is a gain. It is looked at after 3, 5 and 9 pairs: mean m, standard deviation s, h = t s / sqrt(n) with
// the one-sided Student t of .010, .015 and .025. Between the looks nothing is decided. Pure.
#pragma once

#include <span>
#include <string_view>

namespace gdnctl::loop {

struct PairRule {
    double min_gain = 0.005;  // of T: 0.005 is half a per cent
    // A candidate is refused when the best that can be believed of it is below this gain; 0: when it is slower at all.
    double refuse_below = 0.0;
    // What is kept must also be believed to gain this share of s. Without it 4.2 % of candidates that change nothing
    // are kept where the noise is large against min_gain; with 0.4 less than 2 % whatever the noise.
    double noise_share = 0.0;
    int cap = 9;  // pairs: 3, 5 or 9
};

enum class PairVerdict { next, keep, refuse, tie };
std::string_view to_text(PairVerdict verdict);

struct PairLook {
    int n = 0;
    double mean = 0.0, deviation = 0.0;  // of d; the deviation at least 0.05 %
    double low = 0.0, high = 0.0;        // m - h, m + h
    PairVerdict verdict = PairVerdict::next;
    bool operator==(const PairLook&) const = default;
};

// What the pairs so far tell. `next` between the looks, and with fewer than three pairs; at the cap never.
PairLook judge_pairs(std::span<const double> d, const PairRule& rule);

// d of one pair. `higher_is_better`: the values are rates, not times.
double pair_difference(double champion, double candidate, bool higher_is_better);
// 0.01 -> 1.005 %: what a difference of logarithms is in per cent.
double to_percent(double d);

// Of an empty list: 0.
double median_of(std::span<const double> values);
double mad_of(std::span<const double> values);  // median of the distances to the median

}  // namespace gdnctl::loop
