// Every step of a chunk with every fault of a list, so that the faults are not chosen to suit the search.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "unit/oracle/mutants/tapped_kernel.h"

namespace gdnctl::oracle::testing {

namespace {

using Size = std::size_t;

struct Corruption {
    std::string what;
    TapChange change;
    std::string stage;        // that is also right, whatever the step
    bool in_columns = false;  // only in some columns
};

double largest_of(const Reals& x) {
    double largest = 0;
    for (const double value : x) largest = std::max(largest, std::fabs(value));
    return largest;
}

// Each value from its own: of(value, largest, index).
template <class Of>
Corruption each(std::string what, const Of& of, std::string stage = {}) {
    return {std::move(what),
            [of](Reals& x, Size, Size) {
                const double largest = largest_of(x);
                for (Size i = 0; i < x.size(); ++i) x[i] = of(x[i], largest, i);
            },
            std::move(stage), false};
}

// Rows from others: from(i).
template <class From>
Corruption rows_from(std::string what, const From& from) {
    return {std::move(what),
            [from](Reals& x, Size rows, Size width) {
                const Reals old = x;
                for (Size i = 0; i < rows; ++i) {
                    for (Size j = 0; j < width; ++j) x[i * width + j] = old[from(i) * width + j];
                }
            },
            "", false};
}

const std::vector<Corruption>& spoilings() {
    static const std::vector<Corruption> k_all = {
        each("off by up to 5 % everywhere",
             [](double x, double, Size i) {
                 const auto hash = (static_cast<std::uint32_t>(i) + 1) * 2654435761U;
                 return x * (1 + 0.05 * (static_cast<double>(hash >> 16U) / 32768.0 - 1));
             }),
        each("with every 5th value 0", [](double x, double, Size i) { return i % 5 == 2 ? 0 : x; }),
        each("clipped at half its largest",
             [](double x, double largest, Size) { return std::clamp(x, -largest / 2, largest / 2); }),
        each("without signs", [](double x, double, Size) { return std::fabs(x); }),
        each(
            "in steps of a 64th of its largest",
            [](double x, double largest, Size) {
                const double step = largest / 64;
                return step > 0 ? std::round(x / step) * step : x;
            },
            "rounding"),
        each("2 % of its largest too large",
             [](double x, double largest, Size) { return x == 0 ? 0 : x + 0.02 * largest; }),
        each("bent", [](double x, double largest, Size) { return largest > 0 ? x * (1 + 0.2 * x / largest) : x; }),
        {"with its lower left quarter 0",
         [](Reals& x, Size rows, Size width) {
             for (Size i = rows / 2; i < rows; ++i) {
                 for (Size j = 0; j < (width + 1) / 2; ++j) x[i * width + j] = 0;
             }
         },
         "", true},
        rows_from("with rows from three before", [](Size i) { return i < 3 ? i : i - 3; }),
        rows_from("with rows 8 to 11 those of 4 to 7", [](Size i) { return i >= 8 && i < 12 ? i - 4 : i; }),
        {"with its last columns those of its first",
         [](Reals& x, Size rows, Size width) {
             const Size count = width / 4;
             for (Size i = 0; i < rows; ++i) {
                 for (Size j = 0; j < count; ++j) x[i * width + width - count + j] = x[i * width + j];
             }
         },
         "", true},
    };
    return k_all;
}

// Written after the search was finished, and never used to change it.
const std::vector<Corruption>& later_spoilings() {
    static const std::vector<Corruption> k_all = {
        each("with its negative values 10 % too large", [](double x, double, Size) { return x < 0 ? 1.1 * x : x; }),
        each("with every third sign turned", [](double x, double, Size i) { return i % 3 == 0 ? -x : x; }),
        each(
            "with three bits of mantissa",
            [](double x, double, Size) {
                int exponent = 0;
                const double mantissa = std::frexp(x, &exponent);
                return std::ldexp(std::round(mantissa * 16) / 16, exponent);
            },
            "rounding"),
        each("with what is below a tenth of its largest 0",
             [](double x, double largest, Size) { return std::fabs(x) < largest / 10 ? 0 : x; }),
        {"with a tenth of each row added to the next",
         [](Reals& x, Size rows, Size width) {
             for (Size i = rows; i-- > 1;) {
                 for (Size j = 0; j < width; ++j) x[i * width + j] += 0.1 * x[(i - 1) * width + j];
             }
         },
         "", false},
        {"with the largest of each row 0",
         [](Reals& x, Size rows, Size width) {
             for (Size i = 0; i < rows; ++i) {
                 const auto row = x.begin() + static_cast<std::ptrdiff_t>(i * width);
                 *std::max_element(row, row + static_cast<std::ptrdiff_t>(width),
                                   [](double a, double b) { return std::fabs(a) < std::fabs(b); }) = 0;
             }
         },
         "", false},
        {"with a quarter of its rows in one order and the rest in another",
         [](Reals& x, Size rows, Size width) {
             const Reals old = x;
             for (Size i = 0; i < rows; ++i) {
                 const Size from = i < rows / 4 ? i : rows / 4 + (rows - 1 - i);
                 std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                             x.begin() + static_cast<std::ptrdiff_t>(i * width));
             }
         },
         "", false},
        {"with a block of 8 rows and 8 columns left from elsewhere",
         [](Reals& x, Size rows, Size width) {
             for (Size i = 8; i < std::min<Size>(rows, 16); ++i) {
                 for (Size j = 0; j < std::min<Size>(width, 8); ++j) x[i * width + j] = x[(i - 8) * width + j];
             }
         },
         "", true},
    };
    return k_all;
}

std::vector<Mutant> spoilt_by(const std::vector<Corruption>& list) {
    std::vector<Mutant> all;
    for (const TapPoint& point : tap_points()) {
        for (const Corruption& spoiling : list) {
            Mutant m;
            m.name = fmt::format("{} {}", point.name, spoiling.what);
            m.stages = point.stages;
            if (!spoiling.stage.empty()) m.stages.push_back(spoiling.stage);
            if (spoiling.in_columns && point.of_values) m.stages.emplace_back("tile");
            m.kernel = [tap = point.tap, &spoiling](const GdnReference& r, const MutantScope& scope, int threads) {
                return run_tapped(r, tap, spoiling.change, scope, threads);
            };
            all.push_back(std::move(m));
        }
    }
    return all;
}

}  // namespace

std::vector<Mutant> tapped_mutants() { return spoilt_by(spoilings()); }
std::vector<Mutant> later_tapped_mutants() { return spoilt_by(later_spoilings()); }

}  // namespace gdnctl::oracle::testing
