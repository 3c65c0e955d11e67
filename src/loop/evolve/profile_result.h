// What a profile printed, read so that what a candidate's own code prints does not count. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "target/target.h"

namespace gdnctl::loop::evolve {

struct ProfileResult {
    // The target's metric, if it comes from JSON; with several shapes, their geometric mean.
    std::optional<double> value, floor;
    std::map<std::string, double> shapes;  // where the metric is a list or an object of numbers
    bool nonce = false;                    // the object that they are of has this launch's nonce
    bool unseen = false;                   // the evaluator says that it obeyed GDNCTL_EVAL_SHAPES=unseen
    bool has_op = true;                    // Target::kernel_op is in the text
    std::string lack;                      // why there is no value
};
// The last object with the nonce. Objects with a different nonce are ignored; one without a nonce counts only if no
// object has it.
ProfileResult read_profile(std::string_view text, const Target& target, std::string_view nonce);

// Whether a test or a profile says that it used unseen shapes: a line "shapes: unseen", or that member of an object.
bool says_unseen(std::string_view text);

// The checks of stage anticheat that a profile's text allows: "pass", "fail", or "skip" where the target does not say
// how to check.
struct ProfileChecks {
    std::string floor, kernel_op;
    std::string problem;      // of the one that fails
    bool impossible = false;  // faster than is physically possible: never believed
    double roofline = 0;      // share of what is physically possible; 0: not known
};
ProfileChecks check_profile(const ProfileResult& result, double value, const Target& target);

}  // namespace gdnctl::loop::evolve
