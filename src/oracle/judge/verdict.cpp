#include "oracle/judge/verdict.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace gdnctl::oracle {

std::string_view name_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::ok: return "OK";
        case Verdict::suspect: return "SUSPECT";
        case Verdict::wrong: return "WRONG";
        case Verdict::unstable_input: return "UNSTABLE_INPUT";
        case Verdict::no_data: return "NO_DATA";
    }
    return "";
}

int error_level(double error, const Scale& scale) {
    if (error <= 1) return 0;
    if (error <= scale.ok) return 1;
    return error <= scale.wrong ? 2 : 3;
}

double worse_error(double a, double b) { return std::isnan(a) || std::isnan(b) ? HUGE_VAL : std::max(a, b); }

std::string times_text(double error, const Scale& scale) {
    return std::isfinite(error) ? fmt::format("{:.3g} x {}", error, scale.unit) : std::string("not finite");
}

}  // namespace gdnctl::oracle
