// How often the keep rule is right when the truth is known: invented pairs through the real rule. Pure and repeatable.
#pragma once

#include <cstdint>
#include <string_view>

#include "loop/measure/pairs.h"

namespace gdnctl::loop {

enum class NoiseShape {
    normal,
    heavy,  // one pair in twenty is five times as noisy: a neighbour on the machine
    drift,  // the device slows down by one deviation from pair to pair; taking turns cancels most of it
};
std::string_view to_text(NoiseShape shape);

struct Simulated {
    double kept = 0.0, refused = 0.0, tied = 0.0;  // shares of the trials
    double pairs = 0.0;                            // on average
    double claimed_gain = 0.0;                     // what the kept ones seemed to gain on average; 0: none was kept
};

// `noise`: standard deviation of one pair's d; `gain`: the truth, of T (0.01: one per cent faster).
Simulated simulate_pairs(const PairRule& rule, NoiseShape shape, double noise, double gain, int trials,
                         std::uint64_t seed);

}  // namespace gdnctl::loop
