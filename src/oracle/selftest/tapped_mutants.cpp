// Every step of a chunk spoilt in every one of some ways: nobody chose what the search can tell apart.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "oracle/selftest/tapped_kernel.h"

namespace gdnctl::oracle {

namespace {

using Size = std::size_t;

struct Spoiling {
    std::string what;
    TapChange change;
    std::string stage;        // that is right too, wherever it is done
    bool in_columns = false;  // in some columns alone
};

double largest_of(const Reals& x) {
    double largest = 0;
    for (const double value : x) largest = std::max(largest, std::fabs(value));
    return largest;
}

// Each value by its own: of(value, largest, index).
template <class Of>
Spoiling each(std::string what, const Of& of) {
    return {std::move(what),
            [of](Reals& x, Size, Size) {
                const double largest = largest_of(x);
                for (Size i = 0; i < x.size(); ++i) x[i] = of(x[i], largest, i);
            },
            "", false};
}

// Rows from others: from(i).
template <class From>
Spoiling rows_from(std::string what, const From& from) {
    return {std::move(what),
            [from](Reals& x, Size rows, Size width) {
                const Reals old = x;
                for (Size i = 0; i < rows; ++i) {
                    for (Size j = 0; j < width; ++j) x[i * width + j] = old[from(i) * width + j];
                }
            },
            "", false};
}

Spoiling in_steps() {
    Spoiling s = each("in steps of a 64th of its largest", [](double x, double largest, Size) {
        const double step = largest / 64;
        return step > 0 ? std::round(x / step) * step : x;
    });
    s.stage = "rounding";
    return s;
}

const std::vector<Spoiling>& spoilings() {
    static const std::vector<Spoiling> k_all = {
        each("off by up to 5 % everywhere",
             [](double x, double, Size i) {
                 const auto hash = (static_cast<std::uint32_t>(i) + 1) * 2654435761U;
                 return x * (1 + 0.05 * (static_cast<double>(hash >> 16U) / 32768.0 - 1));
             }),
        each("with every 5th value 0", [](double x, double, Size i) { return i % 5 == 2 ? 0 : x; }),
        each("clipped at half its largest",
             [](double x, double largest, Size) { return std::clamp(x, -largest / 2, largest / 2); }),
        each("without signs", [](double x, double, Size) { return std::fabs(x); }),
        in_steps(),
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

}  // namespace

std::vector<Mutant> tapped_mutants() {
    std::vector<Mutant> all;
    for (const TapPoint& point : tap_points()) {
        for (const Spoiling& spoiling : spoilings()) {
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

}  // namespace gdnctl::oracle
