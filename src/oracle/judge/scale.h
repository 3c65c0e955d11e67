// Errors as multiples of what is allowed, and how they look.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::oracle {

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
