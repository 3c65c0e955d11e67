#include "loop/perf/simulation.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <optional>
#include <vector>

namespace gdnctl::loop {

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
