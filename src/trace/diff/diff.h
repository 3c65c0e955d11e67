// What changed between two profiles, and whether it is real.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "trace/diff/profile.h"

namespace gdnctl::trace {

struct DiffOptions {
    double min_effect = 0.01;  // fraction of the median step
    double alpha = 0.05;
    bool allow_same = false, allow_mismatch = false;
    std::optional<Ps> noise_floor_ps = {};  // |shift| of `--noise`; otherwise the floor of `before`, where it has one
};

struct Gate {
    std::string name;
    bool refuses = false;  // otherwise a warning
    std::string detail;
};

// A row before it is rounded: ps a step, in units of 1/Diff::scale, with the names on both sides as a stable order.
struct ExactShare {
    __extension__ using Product = __int128;  // a sum of picoseconds times a count does not fit into 64 bits
    Product before = 0, after = 0;
    std::string first, second;
    Product delta() const { return after - before; }
};

struct WaterfallRow {
    std::string label;                             // "fusion.24", "fusion.24 -> fusion.703"
    std::string kind;                              // "matched", "group", "added", "removed", "idle", "rest"
    Ps before_ps = 0, after_ps = 0, delta_ps = 0;  // a step
    std::string level;                             // of the match; empty: none
    // Of matched rows and groups, for labels: class before, names.
    std::string cls;
    ExactShare exact;
};

struct DiffStats {
    Ps shift_ps = 0, ci_low_ps = 0, ci_high_ps = 0;
    std::optional<double> p;
    std::int64_t n_before = 0, n_after = 0;
    std::optional<Ps> floor_ps;
};

struct KernelChange {
    std::string name;
    std::optional<Ps> before_ps, after_ps;  // median of a call
    std::optional<double> wait_share_before, wait_share_after;
    std::optional<std::int64_t> spill_before, spill_after;
    std::string bound_before, bound_after;  // empty: none
};

enum class Verdict { improved, regressed, no_change, insufficient };
const char* name_of(Verdict verdict);  // "no-change"

struct MatchLevels {
    std::int64_t stable_op_id = 0, exact = 0, text = 0, text_order = 0, source = 0, source_order = 0, group = 0,
                 added = 0, removed = 0;
};

struct Diff {
    Verdict verdict = Verdict::insufficient;
    std::string impact;  // "target-hit", "low-impact"; empty: neither
    std::vector<std::string> labels;
    std::vector<Gate> gates;
    MatchLevels levels;
    DiffStats stats;
    double median_before_ps = 0, median_after_ps = 0;
    Ps total_delta_ps = 0;
    std::int64_t scale = 1;          // of ExactShare
    std::vector<WaterfallRow> rows;  // all, by |delta|, then label; the last are "idle"; their sum is total_delta_ps
    std::vector<KernelChange> kernels;
};

// Errors: bad_input (a gate refuses and allow_mismatch is off; the same trace twice and allow_same is off: "same trace:
// both inputs have sha256 <12 hex>…; pass --allow-same to compare anyway"). `can_allow`: the command has these options.
Status check_comparable(const Profile& before, const Profile& after, const DiffOptions& options, bool can_allow = true);
// Errors: those of check_comparable().
Result<Diff> compare(const Profile& before, const Profile& after, const DiffOptions& options);

// Shift of two samples (Hodges-Lehmann), its 95 % interval and p of the permutation test of the mean: exact up to
// 200,000 splits, otherwise Monte Carlo with fixed draws. Without values on a side all is 0 and p is nullopt; p is also
// nullopt with one value a side.
DiffStats shift_of(const std::vector<Ps>& before, const std::vector<Ps>& after);

// The member `diff` of gdnctl.trace/1; `top` rows, the others summed in a row of kind "rest" (-1: all).
Json diff_json(const Diff& diff, std::int64_t top);

}  // namespace gdnctl::trace
