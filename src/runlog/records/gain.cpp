#include "runlog/records/gain.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "runlog/records/record.h"

namespace gdnctl::runlog {

namespace {

double geometric_mean(const std::vector<double>& values) {
    // Equal runs have exactly their value as a mean.
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end()) return values.front();
    double sum = 0;
    for (const double value : values) sum += std::log(value);
    return std::exp(sum / static_cast<double>(values.size()));
}

double middle(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t at = values.size() / 2;
    return values.size() % 2 == 1 ? values[at] : (values[at - 1] + values[at]) / 2;
}

const Json* value_of(const Json& record, const std::string& metric) {
    for (const char* table : {"metrics", "extra_metrics"}) {
        const Json* values = json::object(record, table);
        if (values == nullptr) continue;
        const auto found = values->find(metric);
        if (found != values->end() && found->is_object()) return &*found;
    }
    return nullptr;
}

bool differ(double a, double b) { return std::abs(a - b) > 1e-9 * std::max(std::abs(a), std::abs(b)); }

// A metric's values are stored in two places of a record.
std::string fault_of_values(const Json& record, const Gain& gain) {
    const Json* value = value_of(record, gain.metric);
    if (value == nullptr) return fmt::format("the gain is for {}, but the record has no value for it", gain.metric);
    for (const auto& [name, mine] : {std::pair{"before", gain.before}, {"after", gain.after}}) {
        const auto other = json::number(*value, name);
        if (other.has_value() == mine.has_value() && (!other || !differ(*other, *mine))) continue;
        return fmt::format("{} {} is {} in the record, and {} in what the gain was computed from", gain.metric, name,
                           other ? quantity(*other, gain.unit) : "missing",
                           mine ? quantity(*mine, gain.unit) : "missing");
    }
    return {};
}

std::string fault_of_runs(const Gain& gain) {
    if (gain.before_runs.size() != gain.after_runs.size() ||
        gain.before_runs.size() != static_cast<std::size_t>(gain.pairs)) {
        return fmt::format("{} pairs are recorded, with {} and {} runs", gain.pairs, gain.before_runs.size(),
                           gain.after_runs.size());
    }
    for (const auto& [name, runs, value] :
         {std::tuple{"before", &gain.before_runs, gain.before}, {"after", &gain.after_runs, gain.after}}) {
        // Earlier versions recorded the median.
        const bool same = value && (!differ(*value, geometric_mean(*runs)) || !differ(*value, middle(*runs)));
        if (same) continue;
        return fmt::format("{} is recorded as {}, but the mean of its runs is {}", name,
                           value ? quantity(*value, gain.unit) : "missing", quantity(geometric_mean(*runs), gain.unit));
    }
    double sum = 0;
    for (std::size_t i = 0; i < gain.before_runs.size(); ++i) {
        const auto one = speed_factor(gain.before_runs[i], gain.after_runs[i], gain.lower_is_better);
        if (!one) return "a pair contains a run that is not above 0";
        sum += std::log(*one);
    }
    const double factor = std::exp(sum / static_cast<double>(gain.pairs));
    if (!differ(factor, *gain.factor)) return {};
    Gain computed = gain;
    computed.factor = factor;
    return fmt::format("the record says {}, but the runs give {}", gain_text(gain), gain_text(computed));
}

// Without the runs, the ratio of the two medians must be close to the mean of the pairs, as far as the pairs agree.
std::string fault_of_ratio(const Gain& gain) {
    const auto ratio = speed_factor(gain.before, gain.after, gain.lower_is_better);
    if (!ratio || !gain.factor || *gain.factor <= 0) return {};
    double allowed = 1e-6;
    if (gain.pairs > 0) {
        // The bounds are mean -+ t s / sqrt(n); t of 3, 5 and 9 pairs.
        const double t = gain.pairs <= 3 ? 6.965 : gain.pairs <= 5 ? 3.298 : 2.306;
        const bool bounded = gain.low && gain.high && *gain.low > 0 && *gain.high >= *gain.low;
        const double half = bounded ? std::log(*gain.high / *gain.low) / 2 : 0;
        allowed = std::max({0.005, half, 1.5 * half * std::sqrt(static_cast<double>(gain.pairs)) / t});
    }
    if (std::abs(std::log(*ratio) - std::log(*gain.factor)) <= allowed) return {};
    Gain unpaired = gain;
    unpaired.pairs = 0;
    unpaired.low = unpaired.high = std::nullopt;
    unpaired.values_apart = false;
    unpaired.factor = ratio;
    return fmt::format("{} is recorded as {}, but {} is {}", gain.metric, gain_text(gain), compared_text(unpaired),
                       gain_text(unpaired));
}

// A field of the wrong type would be read as missing, and so never be compared.
std::string fault_of_fields(const Json& gain) {
    for (const char* name : {"before", "after", "factor", "low", "high", "lone_baseline", "pairs"}) {
        const auto field = gain.find(name);
        if (field == gain.end() || field->is_null() || field->is_number()) continue;
        return fmt::format("the gain's `{}` is not a number", name);
    }
    for (const char* name : {"before_runs", "after_runs"}) {
        const auto field = gain.find(name);
        if (field == gain.end() || field->is_null()) continue;
        const bool numbers = field->is_array() &&
                             std::all_of(field->begin(), field->end(), [](const Json& one) { return one.is_number(); });
        if (!numbers) return fmt::format("the gain's `{}` is not a list of numbers", name);
    }
    return {};
}

std::string fault_of_factor(const Gain& gain) {
    if (!gain.factor) {
        Gain computed = gain;
        computed.pairs = 0;
        computed.factor = speed_factor(gain.before, gain.after, gain.lower_is_better);
        if (!computed.factor) return {};
        return fmt::format("the gain has no factor, but {} is {}", compared_text(computed), gain_text(computed));
    }
    if (!(*gain.factor > 0)) {
        return fmt::format("the gain's factor is {}; a factor is above 0", number_for_people(*gain.factor));
    }
    return {};
}

std::string fault_of_bounds(const Gain& gain) {
    if (!gain.factor) return {};
    if (gain.low.has_value() != gain.high.has_value()) return "the gain has only one of its two bounds";
    if (!gain.low) return {};
    const double slack = 1e-9 * *gain.factor;
    if (*gain.low - slack <= *gain.factor && *gain.factor <= *gain.high + slack) return {};
    return fmt::format("the gain's factor {} is not between its bounds, {} and {}", number_for_people(*gain.factor),
                       number_for_people(*gain.low), number_for_people(*gain.high));
}

// `gain_pct`, its bounds, the pairs and the unit are also stored with the metric's values.
std::string fault_of_copies(const Json& record, const Gain& gain) {
    const Json& value = *value_of(record, gain.metric);
    const auto percent = [&](const char* name, const char* pointer,
                             const std::optional<double>& factor) -> std::string {
        const Json* field = json::find_at(value, pointer);
        if (field == nullptr) return {};
        const bool same =
            field->is_number() && factor && std::abs(1 + field->get<double>() / 100 - *factor) <= 1e-6 * *factor;
        if (same) return {};
        const std::string copy = field->is_number() ? quantity(field->get<double>(), "%") : std::string("not a number");
        return fmt::format("`{}` of {} is {}, but the gain says {}", name, gain.metric, copy,
                           factor ? quantity(factor_percent(*factor), "%") : "nothing about it");
    };
    for (const auto& [name, pointer, factor] : {std::tuple{"gain_pct", "/gain_pct", &gain.factor},
                                                {"gain_bounds_pct", "/gain_bounds_pct/0", &gain.low},
                                                {"gain_bounds_pct", "/gain_bounds_pct/1", &gain.high}}) {
        if (std::string fault = percent(name, pointer, *factor); !fault.empty()) return fault;
    }
    const auto pairs = json::integer(value, "pairs");
    if (pairs && *pairs != gain.pairs) {
        return fmt::format("{} has {} pairs, but the gain has {}", gain.metric, *pairs, gain.pairs);
    }
    const std::string unit = json::text(value, "unit");
    if (unit.empty() || gain.unit.empty() || unit == gain.unit) return {};
    return fmt::format("{} is in {}, but the gain is in {}", gain.metric, unit, gain.unit);
}

// Decimals of a value that its noise carries: two digits of half the interval. nullopt: no interval.
std::optional<int> decimals_for(double half) {
    if (!(half > 0)) return std::nullopt;
    return std::max(0, 1 - static_cast<int>(std::floor(std::log10(half))));
}

// Digits of a value with so many decimals.
int digits_for(double value, int decimals) {
    return std::max(1, decimals + static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1);
}

std::string factor_text(double factor, int digits, std::optional<int> decimals) {
    return number_for_people(factor, decimals ? std::min(digits, digits_for(factor, *decimals)) : digits);
}

// A factor and its bounds, with enough digits to tell them apart, and the factor from 1, but no more than the bounds
// carry.
std::vector<std::string> factor_texts(double factor, const std::vector<double>& bounds) {
    int digits = 3;
    for (double limit = 0.1; digits < 5 && std::abs(factor - 1.0) < limit; limit /= 10) ++digits;
    const auto decimals = bounds.empty() ? std::nullopt : decimals_for((bounds[1] - bounds[0]) / 2);
    for (;; ++digits) {
        std::vector<std::string> texts = {factor_text(factor, digits, decimals)};
        for (const double bound : bounds) texts.push_back(factor_text(bound, digits, decimals));
        std::vector<std::string> sorted = texts;
        std::sort(sorted.begin(), sorted.end());
        if (digits >= 5 || std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) return texts;
    }
}

// A smaller value of something other than a time is not "faster".
bool is_speed(const Gain& gain) {
    constexpr std::array<std::string_view, 6> k_times = {"ns", "us", "µs", "ms", "s", "min"};
    return !gain.lower_is_better || gain.unit.empty() ||
           std::find(k_times.begin(), k_times.end(), gain.unit) != k_times.end();
}

}  // namespace

std::optional<double> speed_factor(std::optional<double> before, std::optional<double> after, bool lower_is_better) {
    if (!before || !after || !(*before > 0) || !(*after > 0)) return std::nullopt;
    return lower_is_better ? *before / *after : *after / *before;
}

double factor_percent(double factor) { return (factor - 1.0) * 100.0; }

std::optional<double> mean_of_runs(const std::vector<double>& runs) {
    const bool all = !runs.empty() && std::all_of(runs.begin(), runs.end(), [](double run) { return run > 0; });
    return all ? std::optional(geometric_mean(runs)) : std::nullopt;
}

Json gain_json(const Gain& gain) {
    Json out = {{"metric", gain.metric},
                {"unit", json::or_null(gain.unit)},
                {"better", gain.lower_is_better ? "lower" : "higher"},
                {"against", gain.against},
                {"before", json::or_null(gain.before)},
                {"after", json::or_null(gain.after)},
                {"pairs", gain.pairs},
                {"factor", json::or_null(gain.factor)},
                {"low", json::or_null(gain.low)},
                {"high", json::or_null(gain.high)},
                {"lone_baseline", json::or_null(gain.lone_baseline)},
                {"busy", json::or_null(gain.busy)},
                {"before_runs", gain.before_runs},
                {"after_runs", gain.after_runs}};
    if (gain.values_apart) out["values_apart"] = true;
    return out;
}

std::optional<Gain> parse_gain(const Json& value) {
    if (!value.is_object() || json::text(value, "metric").empty()) return std::nullopt;
    Gain gain;
    gain.metric = json::text(value, "metric");
    gain.unit = json::text(value, "unit");
    gain.lower_is_better = json::text(value, "better") == "lower";
    gain.against = json::text(value, "against");
    gain.before = json::number(value, "before");
    gain.after = json::number(value, "after");
    gain.before_runs = json::numbers(value, "before_runs");
    gain.after_runs = json::numbers(value, "after_runs");
    gain.pairs = std::max<std::int64_t>(0, json::integer(value, "pairs").value_or(0));
    gain.factor = json::number(value, "factor");
    gain.low = json::number(value, "low");
    gain.high = json::number(value, "high");
    gain.lone_baseline = json::number(value, "lone_baseline");
    gain.busy = json::text(value, "busy");
    gain.values_apart = json::boolean(value, "values_apart").value_or(false);
    return gain;
}

std::string unit_of(std::string_view metric, const Json* value) {
    if (value != nullptr) {
        if (std::string unit = json::text(*value, "unit"); !unit.empty()) return unit;
    }
    for (const std::string_view unit : {"ms", "us", "ns", "s"}) {
        if (metric.size() > unit.size() && metric.ends_with(unit) && metric[metric.size() - unit.size() - 1] == '_') {
            return std::string(unit);
        }
    }
    return metric == "throughput/duration" ? "s" : "";
}

std::string shown_unit(std::string_view metric, const Json* value) {
    if (std::string unit = unit_of(metric, value); !unit.empty()) return unit;
    if (metric == "throughput/mfu") return "%";
    return metric == "throughput/tokens_per_second" ? "tokens/s" : "";
}

std::optional<Gain> gain_of(const Json& record, const std::string& metric, bool lower_is_better) {
    if (const auto own = record.find("gain"); own != record.end()) {
        if (auto gain = parse_gain(*own); gain && gain->metric == metric) return gain;
    }
    const Json* value = value_of(record, metric);
    if (value == nullptr) return std::nullopt;
    Gain gain;
    gain.metric = metric;
    gain.unit = unit_of(metric, value);
    gain.lower_is_better = lower_is_better;
    gain.against = json::text_at(record, "/comparison/kind");
    gain.before = json::number(*value, "before");
    gain.after = json::number(*value, "after");
    if (!gain.before && !gain.after) return std::nullopt;
    gain.factor = speed_factor(gain.before, gain.after, lower_is_better);
    const auto percent = json::number(*value, "gain_pct");
    gain.pairs = percent ? json::integer(*value, "pairs").value_or(0) : 0;
    if (gain.pairs <= 0) return gain;
    gain.factor = 1 + *percent / 100;
    const auto low = json::number_at(*value, "/gain_bounds_pct/0");
    const auto high = json::number_at(*value, "/gain_bounds_pct/1");
    if (low && high) {
        gain.low = 1 + *low / 100;
        gain.high = 1 + *high / 100;
    }
    gain.values_apart = true;
    return gain;
}

std::string gain_fault(const Json& record) {
    const auto own = record.find("gain");
    if (own != record.end() && !own->is_null()) {
        const auto gain = parse_gain(*own);
        if (!gain) return "the gain does not name a metric";
        if (std::string fault = fault_of_fields(*own); !fault.empty()) return fault;
        if (std::string fault = fault_of_values(record, *gain); !fault.empty()) return fault;
        if (std::string fault = fault_of_factor(*gain); !fault.empty()) return fault;
        const bool has_runs = !gain->before_runs.empty() || !gain->after_runs.empty();
        if (gain->factor) {
            const bool paired = gain->pairs > 0 && has_runs;
            if (std::string fault = paired ? fault_of_runs(*gain) : fault_of_ratio(*gain); !fault.empty()) return fault;
        }
        if (std::string fault = fault_of_bounds(*gain); !fault.empty()) return fault;
        return fault_of_copies(record, *gain);
    }
    for (const char* table : {"metrics", "extra_metrics"}) {
        const Json* values = json::object(record, table);
        if (values == nullptr) continue;
        for (const auto& [metric, value] : values->items()) {
            const auto percent = json::number(value, "gain_pct");
            if (!percent) continue;
            // These records do not say which direction is better, so the name decides: a shorter time is better.
            auto gain = gain_of(record, metric, !unit_of(metric, &value).empty());
            if (!gain || !gain->before || !gain->after) continue;
            if (gain->pairs <= 0) gain->factor = 1 + *percent / 100;
            if (std::string fault = fault_of_ratio(*gain); !fault.empty()) return fault;
        }
    }
    return {};
}

// A gain in words.

std::string value_text(const Gain& gain, double value) {
    constexpr int k_most = 5, k_least = 2;
    const bool bounded =
        gain.pairs > 0 && !gain.values_apart && gain.factor && *gain.factor > 0 && gain.low && gain.high;
    const auto decimals =
        bounded ? decimals_for(std::abs(value) * (*gain.high - *gain.low) / 2 / *gain.factor) : std::nullopt;
    if (!decimals || value == 0) return quantity(value, gain.unit);
    return quantity(value, gain.unit, std::clamp(digits_for(value, *decimals), k_least, k_most));
}

std::string percent_text(const Gain& gain) {
    if (!gain.factor) return {};
    const double percent = factor_percent(*gain.factor);
    if (std::abs(percent) >= 1000) return "+" + number_for_people(percent);
    const bool bounded = gain.pairs > 0 && gain.low && gain.high;
    const auto decimals = bounded ? decimals_for(100 * (*gain.high - *gain.low) / 2) : std::nullopt;
    return signed_number(percent, std::min(2, decimals.value_or(2)));
}

std::string speed_text(const Gain& gain) {
    const std::string text = gain_text(gain);
    return text.substr(0, text.find(" ("));
}

std::string gain_text(const Gain& gain) {
    if (!gain.factor || !(*gain.factor > 0)) return {};
    const bool worse = *gain.factor < 1;
    std::vector<double> bounds;
    if (gain.pairs > 0 && gain.low && gain.high && *gain.low > 0 && *gain.high > 0) {
        bounds = worse ? std::vector{1 / *gain.high, 1 / *gain.low} : std::vector{*gain.low, *gain.high};
    }
    const auto texts = factor_texts(worse ? 1 / *gain.factor : *gain.factor, bounds);
    const std::string& shown = texts.front();
    const bool speed = is_speed(gain);
    std::string text = shown + "x ";
    if (shown == "1") {
        text = speed ? "as fast" : "as good";
    } else {
        text += speed ? (worse ? "slower" : "faster") : (worse ? "worse" : "better");
    }
    if (gain.pairs <= 0) return text + " (unpaired)";
    const std::string between = bounds.empty() ? std::string() : fmt::format("{}-{}x, ", texts[1], texts[2]);
    return text + fmt::format(" ({}{} pair{})", between, gain.pairs, gain.pairs == 1 ? "" : "s");
}

std::string compared_text(const Gain& gain) {
    if (!gain.before || !gain.after) {
        const auto& only = gain.after ? gain.after : gain.before;
        return only ? value_text(gain, *only) : std::string();
    }
    return fmt::format("{} -> {}{}", value_text(gain, *gain.before), value_text(gain, *gain.after),
                       gain.values_apart ? " (these two are unpaired)" : "");
}

std::string whole_gain_text(const Gain& gain) {
    const std::string values = compared_text(gain);
    const std::string text = gain_text(gain);
    return values + (values.empty() || text.empty() ? "" : ", ") + text;
}

}  // namespace gdnctl::runlog
