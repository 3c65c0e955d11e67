// Common parts of every operator's verdict.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::oracle {

enum class Verdict { ok, suspect, wrong, unstable_input, no_data };

std::string_view name_of(Verdict verdict);  // "OK", "UNSTABLE_INPUT"

// The element with the largest error.
struct Worst {
    std::string tensor;
    std::string axes;                 // "b,t,h,v"
    std::vector<std::int64_t> index;  // in the dump's own layout
    double got = 0, want = 0;
};

struct NotCompared {
    std::string tensor;
    std::string reason;
};

// What a field of a contract says, and who said so.
struct ContractField {
    std::string name;    // "head_map"
    std::string value;   // "interleaved"
    std::string origin;  // "contract marin", "inputs metadata", "--set", "default"
};

// A known mistake that would explain the dump.
struct Hint {
    std::string stage;       // one word of docs/oracle.md, "Stages"
    std::string text;        // "matches if the scale is missing"
    double improvement = 1;  // how many times smaller the error is if this mistake is assumed
};

// Errors as multiples of what is allowed, and how they look.

// Bands on error / budget.
inline constexpr double k_ok_band = 4;
inline constexpr double k_wrong_band = 30;
inline constexpr double k_wrong_gradient_band = 12;  // budgets of gradients allow more than correct kernels need

// What errors are multiples of, and the bands on them. A band that is no wider than the one before it is none.
struct Scale {
    std::string_view unit = "budget";
    double ok = k_ok_band, wrong = k_wrong_band;  // up to `ok` it is OK, beyond `wrong` WRONG, between the two SUSPECT
};
inline constexpr Scale k_limit{"limit", 1, 1};  // right or wrong

// Class of a colour: up to 1, up to the OK band, up to the WRONG band, above. NaN counts as above.
int error_level(double error, const Scale& scale);
double worse_error(double a, double b);                    // NaN is the worst
std::string times_text(double error, const Scale& scale);  // "3.2 x budget"

}  // namespace gdnctl::oracle
