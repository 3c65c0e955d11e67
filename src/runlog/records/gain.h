// What a candidate was compared with, and how much faster it is. The loop makes one of these per judgement, records
// store it as `gain`, and everything that shows a gain renders it, so that all places agree.
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
    std::string unit;    // "ms"; empty: unknown
    bool lower_is_better = false;
    std::string against = "champion";  // what `before` was measured on

    // Of pairs: the geometric means of the runs, whose ratio is the factor (an earlier version recorded the medians).
    // Run i of one side and run i of the other form pair i.
    std::optional<double> before, after;
    std::vector<double> before_runs, after_runs;

    std::int64_t pairs = 0;           // 0: unpaired, two values measured at different times
    std::optional<double> factor;     // speed factor: above 1 is faster. With pairs: the geometric mean over the pairs
    std::optional<double> low, high;  // confidence bounds of the pairs' factor

    // The value recorded when the champion was accepted. It is from an earlier run, and nothing here is compared with
    // it.
    std::optional<double> lone_baseline;
    std::string busy;  // other load on the machine during the measurement; empty: none known
    // Set for records of an earlier version, in which the factor is from pairs but `before` and `after` are not.
    bool values_apart = false;

    bool operator==(const Gain&) const = default;
};

// From two values above 0; nullopt: cannot be computed.
std::optional<double> speed_factor(std::optional<double> before, std::optional<double> after, bool lower_is_better);
// 1.25 -> 25, the `gain_pct` used everywhere: above 0 is better.
double factor_percent(double factor);

// "2.26x faster (1.25-4.1x, 3 pairs)", "1.3x slower (1.1-1.5x, 9 pairs)", "4.7x faster (unpaired)". The bounds are in
// the same direction as the word. For metrics other than speed: "better" and "worse". Empty: no factor.
std::string gain_text(const Gain& gain);
// The same without what is in parentheses: "2.26x faster".
std::string speed_text(const Gain& gain);
// The factor as a percentage, "+126.55", and one of its values, "8.2 ms". Like all texts here, they have no more digits
// than the bounds of the pairs carry.
std::string percent_text(const Gain& gain);
std::string value_text(const Gain& gain, double value);
// Their geometric mean; nullopt: there is none.
std::optional<double> mean_of_runs(const std::vector<double>& runs);
// "8.2 ms -> 3.6 ms"; only one value if the other is missing; empty: neither.
std::string compared_text(const Gain& gain);
// Both: "8.2 ms -> 3.6 ms, 2.26x faster (1.25-4.1x, 3 pairs)".
std::string whole_gain_text(const Gain& gain);

Json gain_json(const Gain& gain);
// nullopt: no such object.
std::optional<Gain> parse_gain(const Json& value);

// A record's gain in a metric. `lower_is_better` applies if the record does not say. Records of earlier versions have
// no `gain`, only two values measured at different times and perhaps the result of pairs. nullopt: no value.
std::optional<Gain> gain_of(const Json& record, const std::string& metric, bool lower_is_better);
// The unit given by a metric's name or object; empty: none.
std::string unit_of(std::string_view metric, const Json* value);
// The same for people; throughput metrics use the units that W&B shows ("%", "tokens/s").
std::string shown_unit(std::string_view metric, const Json* value);

// What is inconsistent between a record's gain and its values before and after; empty: nothing.
std::string gain_fault(const Json& record);

}  // namespace gdnctl::runlog
