// Chooses the next parents and the agent's task from random numbers by counter: a draw depends only on its name and
// place, so that a resumed run and `evolve replay` get the same numbers. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace gdnctl::loop::evolve {

struct Draw {
    std::string name;
    int k = 0;
    double u = 0.0;
    bool operator==(const Draw&) const = default;
};

// In [0, 1): the first 8 bytes (big-endian) of SHA-256 of "gdnctl-evolve/1|<seed>|<attempt>|<name>|<k>", >> 11, times
// 2^-53.
double draw(std::uint64_t seed, std::int64_t attempt, std::string_view name, int k);

// Maps the first 8 bytes of a draw to a number in [0, 1).
double unit_of(std::uint64_t first_bytes);

// Chooses the next parents and the agent's task: operators, lineages, rank weights. Pure.

enum class Operator { explore, exploit, repair, cross, simplify, ablate };
std::string_view to_text(Operator op);
std::optional<Operator> parse_operator(std::string_view word);

enum class Verdict {
    none,  // not decided yet
    kept,
    tie,
    rejected,
    invalid,
    duplicate,
    abstained,
    noop,
    tampered,
    quarantined,
    abandoned,
    infra,
};
std::string_view to_text(Verdict verdict);
std::optional<Verdict> parse_verdict(std::string_view word);

// One attempt as selection sees it. Number 0 is the base: kept, gain 0, lineage -1.
struct Member {
    int number = 0;
    Operator op = Operator::explore;
    int lineage = -1;
    std::vector<int> parents;
    Verdict verdict = Verdict::none;
    double gain = 0.0;     // ln(T_base / T): of kept and tied ones
    int lines = 0;         // changed against the first parent
    bool restart = false;  // it restarted its lineage
    bool broken = false;   // has a commit that failed a gate: something to repair
    bool gone = false;     // its commit is missing: nothing can build on it
    std::string place;     // the files that it changed, joined
    std::string technique;
    bool operator==(const Member&) const = default;
};

// Shares of the operators, in the order of the enum; they add up to 1.
using OperatorMix = std::array<double, 6>;
inline constexpr OperatorMix k_default_mix = {.35, .30, .15, .10, .05, .05};
// "explore=.35,exploit=.3,..."; operators that are not named have no share. Error usage: a name that is none, a share
// below 0, or a sum that is not 1.
Result<OperatorMix> parse_mix(std::string_view text);
std::string to_text(const OperatorMix& mix);

struct SelectionRules {
    std::uint64_t seed = 0;
    int lineages = 3;
    int stagnation = 8;
    OperatorMix mix = k_default_mix;
};

struct Pick {
    Operator op = Operator::explore;
    int lineage = 0;
    std::vector<int> parents;  // numbers; the first is what the worktree holds
    std::vector<int> inspirations;
    std::vector<Draw> draws;
    bool restart = false;
};

// What attempt `number` does, given all attempts before it, each at the place of its number.
Pick pick(std::span<const Member> members, int number, const SelectionRules& rules);

// Base, kept and tied, best gain first; on equal gain the smaller diff, then the earlier one.
std::vector<int> ranked(std::span<const Member> members);
// The best one: the base until the first gain. A tie never moves it.
int best_of(std::span<const Member> members);
// For each, by number: attempts that have it as a parent, whatever their verdict but infra and abandoned.
std::vector<int> children_counts(std::span<const Member> members);
// w = 1 / (r (1 + children)), r from 1, scaled to a sum of 1.
std::vector<double> parent_weights(std::span<const int> children);
// The first whose cumulated weight exceeds u.
std::size_t index_at(std::span<const double> weights, double u);
// The best of each (place, technique), best first.
std::vector<int> archive(std::span<const Member> members);
// Attempts of a lineage since its last kept gain or restart.
int stagnant_for(std::span<const Member> members, int lineage);
// The same, a member at a time, in order.
void count_stagnant(const Member& member, int lineage, int& count);

}  // namespace gdnctl::loop::evolve
