// L403, L405-L407: numbers that follow from other numbers.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/metrics/equations.h"

namespace gdnctl::runlog::rule {

namespace {

struct Number {
    double value;
    double half_digit;
};

// A value that the entry states itself.
std::optional<Number> stated(const Entry& entry, std::string_view key, bool after) {
    const Metric* metric = entry.metric(key);
    if (metric == nullptr || metric->derived) return std::nullopt;
    const auto& value = after ? metric->after : metric->before;
    if (!value) return std::nullopt;
    return Number{*value, after ? metric->half_digit_after : metric->half_digit_before};
}

// The reading that determines a key's value, and its number on one side as written.
struct Printed {
    const Reading* reading;
    const Quantity* quantity;
};
std::optional<Printed> printed(const Entry& entry, std::string_view key, bool after) {
    const Metric* metric = entry.metric(key);
    if (metric == nullptr) return std::nullopt;
    for (const Reading& r : readings_of_line(entry, metric->number)) {
        const auto& quantity = after ? r.after : r.before;
        if (r.key == key && quantity) return Printed{&r, &*quantity};
    }
    return std::nullopt;
}

std::optional<Fix> recomputed(const Printed& place, double value, const Reporter& reporter) {
    const auto plain = text::parse_double(place.quantity->text);
    if (!plain || *plain != place.quantity->value) return std::nullopt;  // another unit
    const std::size_t dot = place.quantity->text.find('.');
    const int decimals = dot == std::string_view::npos ? 0 : static_cast<int>(place.quantity->text.size() - dot - 1);
    return reporter.unsafe(place.quantity->text, fmt::format("{:.{}f}", value, decimals));
}

void check_equation(const EntryFacts& facts, const Equation& equation, bool after, Reporter& reporter) {
    const auto sum = stated(facts.entry, equation.sum, after);
    if (!sum) return;
    double expected = 0;
    double rounding = sum->half_digit;
    for (const EquationTerm& term : equation.terms) {
        if (term.key.empty()) continue;
        const auto number = stated(facts.entry, term.key, after);
        if (!number) return;
        expected += term.sign * number->value;
        rounding += number->half_digit;
    }
    if (std::abs(sum->value - expected) <= std::max(rounding, 0.002) + 1e-9) return;
    const auto place = printed(facts.entry, equation.sum, after);
    if (!place) return;
    const std::string given = shown_value(equation.sum, sum->value);
    std::string other = shown_value(equation.sum, expected);
    if (other == given) {
        const double more = expected - sum->value;
        other = fmt::format("{} {}", shown_value(equation.sum, std::abs(more)), more > 0 ? "more" : "less");
    }
    reporter.add(at(*place->reading),
                 fmt::format("{} ({}) is {}, but {} gives {}", equation.sum, after ? "after" : "before", given,
                             equation.text, other),
                 recomputed(*place, expected, reporter));
}

void check_share(const EntryFacts& facts, const GapShare& share, bool after, Reporter& reporter) {
    const auto stated_share = stated(facts.entry, share.key, after);
    const auto budget = stated(facts.entry, share.budget, after);
    const Metric* gap = facts.entry.metric("upper_bound_gap_ms");
    if (!stated_share || !budget || gap == nullptr) return;
    const auto gap_value = after ? gap->after : gap->before;
    if (!gap_value || *gap_value <= 0) return;
    const double expected = budget->value / *gap_value;
    const double gap_half = std::max(after ? gap->half_digit_after : gap->half_digit_before, 0.0005);
    const double rounding = stated_share->half_digit + (budget->half_digit + expected * gap_half) / *gap_value;
    if (std::abs(stated_share->value - expected) <= std::max(rounding, 1e-4) + 1e-9) return;
    const auto place = printed(facts.entry, share.key, after);
    if (!place) return;
    reporter.add(at(*place->reading),
                 fmt::format("{} ({}) is {:.2f}%, but budget / gap gives {:.2f}%", share.key,
                             after ? "after" : "before", stated_share->value * 100, expected * 100));
}

// A product that is constant for one model and batch, with its relative rounding error.
struct Product {
    double value;
    double tolerance;
};
std::optional<Product> product(const Entry& entry, std::string_view key, bool after) {
    const auto a = stated(entry, key, after);
    const auto b = stated(entry, "throughput/duration", after);
    if (!a || !b || a->value <= 0 || b->value <= 0) return std::nullopt;
    return Product{a->value * b->value, 1e-3 + a->half_digit / a->value + b->half_digit / b->value};
}

bool near(const Product& p, double reference) { return std::abs(p.value / reference - 1) <= p.tolerance; }

// From the common profile: tokens per step (8 x 4096), and MFU x duration of the 130m hybrid and of its attention-only
// control.
constexpr std::array k_tokens_per_step = {32768.0};
constexpr std::array k_mfu_seconds = {1.012927, 1.220065};

void check_product(const EntryFacts& facts, std::string_view key, std::span<const double> usual, Reporter& reporter) {
    const auto before = product(facts.entry, key, false);
    const auto after = product(facts.entry, key, true);
    const auto known = [&](const Product& p) {
        return std::any_of(usual.begin(), usual.end(), [&](double reference) { return near(p, reference); });
    };
    const auto slightly_off = [&](const Product& p) {
        return !known(p) && std::any_of(usual.begin(), usual.end(),
                                        [&](double reference) { return std::abs(p.value / reference - 1) < 0.05; });
    };
    const Metric* metric = facts.entry.metric(key);
    if (metric == nullptr) return;
    const std::string unit = key == "throughput/mfu" ? "% x s" : " tokens";
    std::string problem;
    if (before && after) {
        const Product wide{after->value, after->tolerance + before->tolerance - 1e-3};
        const bool same = near(wide, before->value);
        const bool other_model =
            metric->comparison == Comparison::control && !slightly_off(*before) && !slightly_off(*after);
        if (same || other_model || (known(*before) && known(*after))) return;
        problem =
            fmt::format("{}{} before, {}{} after", five_digits(before->value), unit, five_digits(after->value), unit);
    } else {
        const auto& one = after ? after : before;
        if (!one || !slightly_off(*one)) return;
        problem = five_digits(one->value) + unit;
    }
    for (const Reading& r : readings_of_line(facts.entry, metric->number)) {
        if (r.key != key) continue;
        reporter.add(at(r), fmt::format("{} x duration is not what one model and batch give: {}", key, problem));
        return;
    }
}

}  // namespace

void arithmetic(const EntryFacts& facts, Reporter& reporter) {
    if (facts.entry.metrics.size() < 3) return;
    for (const bool after : {false, true}) {
        for (const Equation& equation : k_equations) check_equation(facts, equation, after, reporter);
        for (const GapShare& share : k_gap_shares) check_share(facts, share, after, reporter);
    }
}

void unit_slip(const EntryFacts& facts, Reporter& reporter) {
    for (const bool after : {false, true}) {
        const auto seconds = stated(facts.entry, "throughput/duration", after);
        const auto step = stated(facts.entry, "step_duration_ms", after);
        if (!seconds || !step || seconds->value <= 0 || step->value <= 0) continue;
        const double ratio = seconds->value * 1000 / step->value;
        const double rounding = seconds->half_digit / seconds->value + step->half_digit / step->value;
        if (std::abs(ratio - 1) <= 0.01 + rounding) continue;
        const auto place = printed(facts.entry, "throughput/duration", after);
        if (!place) continue;
        const bool slip = std::abs(ratio / 1000 - 1) < 0.1 || std::abs(ratio * 1000 - 1) < 0.1;
        reporter.add(at(*place->reading), fmt::format("throughput/duration is {} s, but the step duration is {} ms{}",
                                                      five_digits(seconds->value), five_digits(step->value),
                                                      slip ? ": one of them has the wrong unit" : ""));
    }
}

void throughput_invariants(const EntryFacts& facts, Reporter& reporter) {
    check_product(facts, "throughput/tokens_per_second", k_tokens_per_step, reporter);
    check_product(facts, "throughput/mfu", k_mfu_seconds, reporter);
}

void champion_baseline(const EntryFacts& facts, Reporter& reporter) {
    if (facts.run.input.records == nullptr) return;
    const RecordFacts* own = facts.run.record_of(facts.entry.head);
    if (own != nullptr && own->measured_anew) return;
    const RecordFacts* champion = nullptr;
    for (const RecordFacts& record : *facts.run.input.records) {
        if (record.number >= facts.entry.head.number || !record.champion) continue;
        if (own != nullptr && record.fingerprint != own->fingerprint) continue;
        if (champion == nullptr || record.number >= champion->number) champion = &record;
    }
    if (champion == nullptr) return;
    for (const RecordFacts::Value& value : champion->metrics) {
        const Metric* metric = facts.entry.metric(value.key);
        if (metric == nullptr || metric->derived || metric->comparison != Comparison::champion) continue;
        if (!metric->before || !value.after || *value.after == 0) continue;
        if (std::abs(*metric->before / *value.after - 1) <= 0.005) continue;
        const auto place = printed(facts.entry, value.key, false);
        if (!place) continue;
        reporter.add(at(*place->reading),
                     fmt::format("{} starts at {}, but the champion of iteration {}{} recorded {}", value.key,
                                 shown_value(value.key, *metric->before), champion->number, champion->suffix,
                                 shown_value(value.key, *value.after)));
    }
}

void recorded_gain(const EntryFacts& facts, Reporter& reporter) {
    const RecordFacts* own = facts.run.record_of(facts.entry.head);
    if (own == nullptr || own->gain_fault.empty()) return;
    reporter.add(heading_of(facts.entry), fmt::format("the record {}: {}", own->id, own->gain_fault));
}

}  // namespace gdnctl::runlog::rule
