// What a candidate was compared with, and how much faster it is. The loop makes one of these of every judgement;
// records keep it as `gain`, and everything that shows a gain renders it, so that no two places can say different
// things.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace gdnctl::runlog {

struct Gain {
    std::string metric;  // "gdn/forward_ms"
    std::string unit;    // "ms"; empty: none is known
    bool lower_is_better = false;
    std::string against = "champion";  // what `before` is of

    // Medians of the very runs that were compared. Run i of one and run i of the other make pair i.
    std::optional<double> before, after;
    std::vector<double> before_runs, after_runs;

    std::int64_t pairs = 0;           // 0: unpaired, two values that were measured at different times
    std::optional<double> factor;     // of the speed: above 1 is faster. Of pairs: the geometric mean of theirs
    std::optional<double> low, high;  // between which the factor of the pairs is believed to be

    // What was recorded of the champion when it became one: a run of another time, which nothing is compared with here.
    std::optional<double> lone_baseline;
    std::string busy;  // what else the machine did while one of these was measured; empty: nothing that is known of
    // Of a record of an earlier version: the factor is of pairs, `before` and `after` are not.
    bool values_apart = false;

    bool operator==(const Gain&) const = default;
};

// Of two values that are above 0; nullopt: there is none.
std::optional<double> speed_factor(std::optional<double> before, std::optional<double> after, bool lower_is_better);
// 1.25 -> 25, which `gain_pct` is everywhere: above 0 is better.
double factor_percent(double factor);

// "2.26x faster (1.25-4.1x, 3 pairs)", "1.3x slower (1.1-1.5x, 9 pairs)", "4.7x faster (unpaired)"; the bounds are in
// the direction that the word says. Metrics that are no speed get "better" and "worse". Empty: there is no factor.
std::string gain_text(const Gain& gain);
// "8.2 ms -> 3.6 ms"; one value alone where there is no other; empty: there is none.
std::string compared_text(const Gain& gain);
// Both: "8.2 ms -> 3.6 ms, 2.26x faster (1.25-4.1x, 3 pairs)".
std::string whole_gain_text(const Gain& gain);

Json gain_json(const Gain& gain);
// nullopt: no such object.
std::optional<Gain> parse_gain(const Json& value);

// What a record says of a metric. `lower_is_better` counts where the record does not tell. Records of earlier versions
// have no `gain`: two values that were measured at different times, and perhaps what pairs told. nullopt: no value.
std::optional<Gain> gain_of(const Json& record, const std::string& metric, bool lower_is_better);
// The unit that a metric's name or object tells; empty: none.
std::string unit_of(std::string_view metric, const Json* value);
// The same for people; throughput metrics have the unit that W&B shows them in ("%", "tokens/s").
std::string shown_unit(std::string_view metric, const Json* value);

// What is wrong with a record's gain, set against its values before and after; empty: nothing.
std::string gain_fault(const Json& record);

}  // namespace gdnctl::runlog
