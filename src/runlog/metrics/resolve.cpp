// Merges what an entry says about each key, and adds derived values.
#include <algorithm>
#include <array>

#include "runlog/metrics/equations.h"
#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog::detail {

namespace {

using Readings = std::vector<const Reading*>;

bool names(std::string_view arm, std::string_view word) { return contains_word(normalise_label(arm), word); }

void take_before(Metric& metric, const Quantity& q) {
    metric.before = q.value;
    metric.half_digit_before = q.half_digit;
}
void take_after(Metric& metric, const Quantity& q) {
    metric.after = q.value;
    metric.half_digit_after = q.half_digit;
}

void take(Metric& metric, const Reading& reading) {
    if (reading.before) take_before(metric, *reading.before);
    if (reading.after) take_after(metric, *reading.after);
    metric.before_text = reading.before_text;
    metric.after_text = reading.after_text;
    metric.unit = reading.unit;
    metric.comparison = reading.comparison;
    metric.number = reading.number;
}

// With several arms, the candidate's value is `after`, and a baseline's or champion's is `before`.
void merge_arms(Metric& metric, const Readings& readings) {
    const auto is_candidate = [](const Reading* r) { return names(r->arm, "candidate"); };
    if (std::none_of(readings.begin(), readings.end(), is_candidate)) {
        metric.ambiguous_arm = true;
        metric.number = readings.front()->number;
        metric.unit = readings.front()->unit;
        return;
    }
    for (const Reading* r : readings) {
        if (is_candidate(r)) {
            const auto before = metric.before;
            take(metric, *r);
            if (!r->before) metric.before = before;
            if (r->form == Reading::Form::single && !r->after && r->before) {
                take_after(metric, *r->before);
                metric.before = before;
            }
            if (metric.comparison == Comparison::unknown) metric.comparison = Comparison::champion;
        } else if (names(r->arm, "baseline") || names(r->arm, "champion")) {
            const auto& q = r->after ? r->after : r->before;
            if (q) take_before(metric, *q);
        }
    }
}

Metric merge(const Readings& readings) {
    Metric metric;
    metric.key = readings.front()->key;
    metric.known = readings.front()->known;
    metric.unit = readings.front()->unit;
    metric.number = readings.front()->number;
    std::string_view arm;
    bool several = false;
    for (const Reading* r : readings) {
        if (r->arm.empty()) continue;
        several = several || (!arm.empty() && arm != r->arm);
        arm = r->arm;
    }
    if (several) {
        merge_arms(metric, readings);
        return metric;
    }
    for (const Reading* r : readings) {  // arrows take precedence over single values
        if (r->form == Reading::Form::single) take(metric, *r);
    }
    for (const Reading* r : readings) {
        if (r->form == Reading::Form::arrow || r->form == Reading::Form::text) take(metric, *r);
    }
    return metric;
}

// Reads and adds values of one side (before or after) of the merged metrics.
class Side {
public:
    Side(std::vector<Metric>& metrics, bool after) : m_metrics(metrics), m_after(after) {}

    std::optional<double> get(std::string_view key) const {
        const Metric* metric = find(key);
        if (metric == nullptr) return std::nullopt;
        return m_after ? metric->after : metric->before;
    }

    void add(std::string_view key, std::optional<double> value, std::string_view operand, Unit unit = Unit::ms) {
        if (!value || get(key)) return;
        Metric* metric = find(key);
        if (metric != nullptr && (!metric->derived || metric->ambiguous_arm)) return;  // given, at least in part
        if (metric == nullptr) {
            Metric fresh;
            fresh.key = std::string(key);
            fresh.known = fresh.derived = true;
            fresh.unit = unit;
            if (const Metric* source = find(operand)) fresh.comparison = source->comparison;
            m_metrics.push_back(std::move(fresh));
            metric = &m_metrics.back();
        }
        (m_after ? metric->after : metric->before) = *value;
    }

private:
    Metric* find(std::string_view key) const {
        const auto found =
            std::find_if(m_metrics.begin(), m_metrics.end(), [&](const Metric& m) { return m.key == key; });
        return found == m_metrics.end() ? nullptr : &*found;
    }

    std::vector<Metric>& m_metrics;
    bool m_after;
};

std::optional<double> value_of(const Side& side, const Equation& equation) {
    double sum = 0;
    bool any = false;
    for (const EquationTerm& term : equation.terms) {
        if (term.key.empty()) continue;
        const auto value = side.get(term.key);
        if (!value && !equation.any_term) return std::nullopt;
        any = any || value;
        sum += term.sign * value.value_or(0);
    }
    return any ? std::optional(sum) : std::nullopt;
}

void derive(Side side) {
    for (const Equation& equation : k_equations) {
        side.add(equation.sum, value_of(side, equation), equation.terms[0].key);
    }
    const auto gap = side.get("upper_bound_gap_ms");
    if (!gap || *gap <= 0) return;
    for (const GapShare& share : k_gap_shares) {
        if (const auto budget = side.get(share.budget)) {
            side.add(share.key, *budget / *gap, "upper_bound_gap_ms", Unit::fraction);
        }
    }
}

}  // namespace

std::vector<Metric> resolve_metrics(const std::vector<Reading>& readings) {
    std::vector<Metric> metrics;
    if (readings.empty()) return metrics;
    Readings order;
    order.reserve(readings.size());
    for (const Reading& r : readings) order.push_back(&r);
    std::stable_sort(order.begin(), order.end(), [](const Reading* a, const Reading* b) { return a->key < b->key; });
    std::vector<Metric> extra;
    for (auto first = order.begin(); first != order.end();) {
        const auto last = std::find_if(first, order.end(), [&](const Reading* r) { return r->key != (*first)->key; });
        Metric metric = merge(Readings(first, last));
        (metric.known ? metrics : extra).push_back(std::move(metric));
        first = last;
    }
    derive(Side(metrics, false));
    derive(Side(metrics, true));
    metrics.insert(metrics.end(), std::make_move_iterator(extra.begin()), std::make_move_iterator(extra.end()));
    std::sort(metrics.begin(), metrics.end(), [](const Metric& a, const Metric& b) { return a.key < b.key; });
    return metrics;
}

}  // namespace gdnctl::runlog::detail
