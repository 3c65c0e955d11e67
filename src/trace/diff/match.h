// Which operations of two profiles are the same one, and what each contributes to the difference of their steps.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trace/diff/diff.h"
#include "trace/diff/profile.h"

namespace gdnctl::trace {

// One row of the waterfall: indices into Profile::ops. Both lists have one element in a match of single operations; one
// list is empty if the operation was added or removed.
struct OpMatch {
    std::string label, kind, level;
    std::vector<std::size_t> before, after;
};

struct Matching {
    std::vector<OpMatch> matches;  // every operation of both profiles is in exactly one of them
    MatchLevels levels;            // numbers of matches
    bool same_texts = false;       // both profiles consist of the same HLO texts, apart from numbers
    bool moved_names = false;      // same_texts, and some operations changed their tf_op or source
};

Matching match_ops(const Profile& before, const Profile& after);

// Sets the rows of all matches and of the idle time, per step, and their sum, the difference of the mean steps. No rows
// if a profile has no steps.
void set_waterfall(Diff& diff, const Profile& before, const Profile& after, const std::vector<OpMatch>& matches);

// The first `top` rows (-1: all), the others as one of the kind "rest", and idle; rounded anew, so that what is shown
// adds up to total_delta_ps.
std::vector<WaterfallRow> shown_waterfall(const Diff& diff, std::int64_t top);

}  // namespace gdnctl::trace
