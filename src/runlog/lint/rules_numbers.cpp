// L401-L412: how metrics are written, and whether the numbers follow from each other.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/lint/rules.h"
#include "runlog/parse/grammar.h"

namespace gdnctl::runlog {

namespace {

bool has_reading(const Entry& entry, std::uint32_t line) { return !readings_of_line(entry, line).empty(); }

// A digit followed by a unit ("about 9 ms", "9.1%"), or a unit without a number ("-> ms", "?? ms", "?%").
bool mentions_unit(std::string_view s) {
    for (std::size_t i = 1; i < s.size(); ++i) {
        if (s[i] == '%' && !is_alpha(s[i - 1])) return true;
        if (s[i] != 's' || (i + 1 < s.size() && is_word(s[i + 1]))) continue;
        const bool longer = s[i - 1] == 'm' || s[i - 1] == 'u';
        const std::size_t j = longer ? i - 1 : i;
        if (longer && (j == 0 || !is_word(s[j - 1]))) return true;
        if (j > 0 && (is_digit(s[j - 1]) || (s[j - 1] == ' ' && j > 1 && is_digit(s[j - 2])))) return true;
    }
    return false;
}

// Whether a field says what an entry plans or runs, not what it measured.
bool is_prediction(const Entry& entry, const Field& field) {
    for (const Field* f = &field; f != nullptr; f = entry.field(f->parent)) {
        for (const std::string_view label :
             {"expected effect", "reject if", "candidate shortlist", "hypothesis", "selected hypothesis",
              "next hypothesis", "next bold hypothesis", "command"}) {
            if (label_is(f->label, label, true)) return true;
        }
    }
    return false;
}

bool in_plain_ms(const Reading& r) {
    const auto plain = [](const std::optional<Quantity>& q) {
        const auto value = q ? text::parse_double(q->text) : std::nullopt;
        return value && *value == q->value;
    };
    return r.form == Reading::Form::arrow && r.unit == Unit::ms && !r.unit_in_name && plain(r.before) && plain(r.after);
}

// The line with its values in one pair of backticks and the label outside; empty: the line contains more than that.
std::optional<Fix> canonical_spelling(const Reading& r, const Reporter& reporter) {
    const auto bullet = match_bullet(r.line);
    if (!bullet || !in_plain_ms(r)) return std::nullopt;
    const std::size_t end = static_cast<std::size_t>(r.value.data() - r.line.data()) + r.value.size();
    std::string_view tail = r.line.substr(end);
    while (!tail.empty() && (tail.front() == '`' || tail.front() == '*')) tail.remove_prefix(1);
    if (!text::trim(tail).empty() && !text::trim(tail).starts_with("(")) return std::nullopt;
    const std::string_view head =
        bullet->content.substr(0, static_cast<std::size_t>(r.label.data() - bullet->content.data()));
    if (!strip_marks(head).empty()) return std::nullopt;
    std::string label(r.label);
    if (std::count(label.begin(), label.end(), '`') % 2 != 0 || label.find('*') != std::string::npos)
        return std::nullopt;
    const std::string line =
        fmt::format("{}- {}: `{} ms -> {} ms`{}", r.line.substr(0, r.line.find_first_not_of(" \t")), label,
                    r.before->text, r.after->text, tail);
    return reporter.safe(r.line, line);
}

// Equal, or one is the other rounded to fewer digits.
bool same_value(const std::optional<Quantity>& a, const std::optional<Quantity>& b) {
    if (!a || !b) return a.has_value() == b.has_value();
    return std::abs(a->value - b->value) <= std::max(a->half_digit, b->half_digit) + 1e-12;
}

bool is_bucket(std::string_view key) {
    return key.ends_with("_ms") && key != "step_duration_ms" && !key.starts_with("upper_bound");
}

// Sums of other buckets, which follow from their parts.
bool is_sum(std::string_view key) {
    for (const std::string_view sum : {"kernel_budget_ms", "control_budget_ms", "train_path_budget_ms",
                                       "remainder_budget_ms", "interaction_remainder_ms", "ce_control_budget_ms"}) {
        if (key == sum) return true;
    }
    return false;
}

const Reading* reading_at(const Entry& entry, const Metric& metric) {
    for (const Reading& r : readings_of_line(entry, metric.number)) {
        if (r.key == metric.key) return &r;
    }
    return nullptr;
}

std::optional<std::int64_t> first_integer(std::string_view s) {
    const std::size_t begin = s.find_first_of("0123456789");
    if (begin == std::string_view::npos) return std::nullopt;
    std::size_t end = begin;
    while (end < s.size() && is_digit(s[end])) ++end;
    return text::parse_int(strip_zeros(s.substr(begin, end - begin)));
}

// Whether the words around "2 points" are about a window of samples, not about percentage points or points of a list.
bool counts_samples(std::string_view before, std::string_view behind) {
    for (const std::string_view kind : {"median", "mean", "average", "window"}) {
        if (behind.starts_with(' ') && behind.substr(1).starts_with(kind)) return true;
    }
    for (const std::string_view link : {" of ", " over ", "d over "}) {
        if (!before.ends_with(link)) continue;
        const std::string_view words = before.substr(0, before.size() - link.size());
        for (const std::string_view kind : {"median", "mean", "average", "window"}) {
            if (words.ends_with(kind)) return true;
        }
    }
    const std::size_t open = before.rfind('(');
    if (open == std::string_view::npos || before.find(')', open) != std::string_view::npos) return false;
    const bool alone = behind.empty() || std::string_view("),;").find(behind[0]) != std::string_view::npos;
    return alone && (before.ends_with("(") || before.ends_with(", "));
}

// How many points a value is based on: `Points: 3`, "median of 2 points", "(2 points)", "3-point median".
std::optional<std::int64_t> points_of(const Field& field, std::string_view line) {
    const std::string label = normalise_label(field.label.substr(0, 40));
    if (label == "points" || label == "window points" || label == "metric points" || label == "measured points") {
        return first_integer(field.value);
    }
    for (std::size_t at = line.find("point"); at != std::string_view::npos; at = line.find("point", at + 1)) {
        const std::size_t digits_end = at > 0 && (line[at - 1] == ' ' || line[at - 1] == '-') ? at - 1 : at;
        std::size_t digits = digits_end;
        while (digits > 0 && is_digit(line[digits - 1])) --digits;
        if (digits == digits_end || digits_end == at) continue;
        const std::string_view behind =
            line.substr(at).starts_with("points") ? line.substr(at + 6) : line.substr(at + 5);
        if (counts_samples(line.substr(0, digits), behind)) return first_integer(line.substr(digits));
    }
    return std::nullopt;
}

// Whether a line says that its number is from the run's last step: "(last step)", "last-step value", a run's summary.
bool is_last_step(const Field& field, std::string_view line) {
    const std::string label = normalise_label(field.label.substr(0, 40));
    const bool names_source = label == "metric source" || label == "metrics source";
    if (names_source && line.find("summary") != std::string_view::npos) return true;
    for (const std::string_view words : {"last step", "last-step"}) {
        for (std::size_t at = line.find(words); at != std::string_view::npos; at = line.find(words, at + 1)) {
            std::string_view before = line.substr(0, at);
            if (before.ends_with("the ")) before.remove_suffix(4);
            if (before.ends_with("not ") || before.ends_with("instead of ") || before.ends_with("than ")) continue;
            const std::string_view behind = line.substr(at + words.size());
            if (names_source || before.ends_with("(") || behind.starts_with(" value") || behind.starts_with(" only") ||
                behind.starts_with(" alone")) {
                return true;
            }
        }
    }
    return false;
}

void unreadable_metric(const EntryFacts& facts, Reporter& reporter) {
    const Entry& entry = facts.entry;
    for (const Field& field : entry.fields) {
        if (field.label.empty() || has_reading(entry, field.number) || !mentions_unit(field.value)) continue;
        if (is_prediction(entry, field) || !metric_key(field.label)) continue;
        reporter.add(value_of(field),
                     fmt::format("no value can be read; write `{}: `1.000 ms -> 2.000 ms``", field.label));
    }
    for (std::size_t i = 0; i < entry.readings.size(); ++i) {
        const Reading& r = entry.readings[i];
        if (r.spelling == Reading::Spelling::canonical || !r.known || !in_plain_ms(r)) continue;
        const bool alone = (i == 0 || entry.readings[i - 1].number != r.number) &&
                           (i + 1 == entry.readings.size() || entry.readings[i + 1].number != r.number);
        if (!alone) continue;
        if (auto fix = canonical_spelling(r, reporter)) {
            reporter.add(at(r), "other tools read only `label: `1 ms -> 2 ms``, with the label outside the backticks",
                         std::move(fix));
        }
    }
}

void conflicting_values(const EntryFacts& facts, Reporter& reporter) {
    std::vector<const Reading*> arrows;
    for (const Reading& r : facts.entry.readings) {
        if (r.form == Reading::Form::arrow && r.known) arrows.push_back(&r);
    }
    std::stable_sort(arrows.begin(), arrows.end(), [](const Reading* a, const Reading* b) {
        if (a->key != b->key) return a->key < b->key;
        return a->arm < b->arm;
    });
    for (std::size_t i = 1; i < arrows.size(); ++i) {
        const Reading& first = *arrows[i - 1];
        const Reading& second = *arrows[i];
        if (first.key != second.key || first.arm != second.arm || first.comparison != second.comparison) continue;
        if (same_value(first.before, second.before) && same_value(first.after, second.after)) continue;
        reporter.add(at(second),
                     fmt::format("{} has another value in line {}: {}", second.key, first.number, first.value));
    }
}

void stated_percent(const EntryFacts& facts, Reporter& reporter) {
    for (const Reading& r : facts.entry.readings) {
        if (!r.percent || r.form != Reading::Form::arrow || !r.before || !r.after || r.before->value == 0) continue;
        const double base = std::abs(r.before->value);
        const double actual = (r.after->value - r.before->value) / base * 100;
        const double rounding = (r.before->half_digit + r.after->half_digit) / base * 100 + r.percent->half_digit;
        if (std::abs(r.percent->value - actual) <= 0.01 + rounding) continue;
        const std::size_t dot = r.percent->text.find('.');
        const int decimals = dot == std::string_view::npos ? 0 : static_cast<int>(r.percent->text.size() - dot - 1);
        const std::string mended = fmt::format("{:+.{}f}", actual, decimals);
        reporter.add({{r.line, r.number}, r.percent->text},
                     fmt::format("{} is {}%, not {}%", r.key, mended, r.percent->text),
                     reporter.safe(r.percent->text, mended));
    }
}

void unknown_direction(const EntryFacts& facts, Reporter& reporter) {
    const Entry& entry = facts.entry;
    for (const Metric& metric : entry.metrics) {
        if (!metric.ambiguous_arm) continue;
        if (const Reading* r = reading_at(entry, metric)) {
            reporter.add(at(*r), fmt::format("{} has values of several arms and none is the candidate's", metric.key));
        }
    }
    for (const Reading& r : entry.readings) {
        if (r.form != Reading::Form::arrow || !r.known || r.comparison != Comparison::unknown || !r.arm.empty())
            continue;
        reporter.add(at(r),
                     "it is unclear what the arrow compares; say so in the heading above, e.g. `Hotspots observed "
                     "(champion -> candidate):`");
        return;
    }
}

void gain_without_step(const EntryFacts& facts, Reporter& reporter) {
    const Entry& entry = facts.entry;
    if (entry.metric("step_duration_ms") != nullptr || entry.metric("throughput/duration") != nullptr) return;
    for (const Metric& metric : entry.metrics) {
        if (metric.derived || !metric.known || !is_bucket(metric.key) || !metric.delta()) continue;
        if (*metric.delta() >= -std::max(metric.half_digit_before, metric.half_digit_after)) continue;
        if (const Reading* r = reading_at(entry, metric)) {
            reporter.add(at(*r), fmt::format("{} got smaller, but the entry has no step duration", metric.key));
            return;
        }
    }
}

void few_points(const EntryFacts& facts, Reporter& reporter) {
    for (const Field& field : facts.entry.fields) {
        // Searches without the first letters, which may be upper case: most lines contain none of the words.
        const bool points_named = field.line.find("oint") != std::string_view::npos;
        const bool source_named =
            field.line.find("ast") != std::string_view::npos || field.line.find("ummary") != std::string_view::npos;
        if ((!points_named && !source_named) || is_prediction(facts.entry, field)) continue;
        const std::string line = text::to_lower(field.line.substr(0, 2000));
        const auto points = points_named ? points_of(field, line) : std::nullopt;
        if (points && *points < facts.run.options.window_points_min) {
            reporter.add(value_of(field), fmt::format("{} {} than the window's minimum of {}", *points,
                                                      *points == 1 ? "point is fewer" : "points are fewer",
                                                      facts.run.options.window_points_min));
        } else if (is_last_step(field, line)) {
            reporter.add(value_of(field), "only the value of the last step; use the median of a window");
        }
    }
}

void common_factor(const EntryFacts& facts, Reporter& reporter) {
    struct Change {
        double ratio;
        const Metric* metric;
    };
    std::vector<Change> changes;
    for (const Metric& m : facts.entry.metrics) {
        if (m.derived || !m.known || !is_bucket(m.key) || is_sum(m.key) || !m.before || !m.after) continue;
        if (*m.before <= 0 || *m.after <= 0 || std::abs(*m.after / *m.before - 1) < 0.05) continue;
        changes.push_back({*m.after / *m.before, &m});
    }
    std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.ratio < b.ratio; });
    for (std::size_t i = 0; i + 2 < changes.size(); ++i) {
        if (changes[i + 2].ratio > changes[i].ratio * 1.02) continue;
        if (const Reading* r = reading_at(facts.entry, *changes[i].metric)) {
            reporter.add(at(*r),
                         fmt::format("{}, {} and {} all changed by {:+.1f}%: the base or the measurement changed, not "
                                     "the candidate",
                                     changes[i].metric->key, changes[i + 1].metric->key, changes[i + 2].metric->key,
                                     (changes[i].ratio - 1) * 100));
        }
        return;
    }
}

// L403, L405-L407: numbers that follow from other numbers.

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

}  // namespace

std::span<const Rule> number_rules() {
    using enum Severity;
    static constexpr std::array k_rules = {
        on_entry(
            {"L401", "metric-spelling", warning, "a known metric has no readable value, or one that other tools miss",
             "Write label: `1.000 ms -> 2.000 ms` with the label outside the backticks."},
            &unreadable_metric),
        on_entry({"L402", "conflicting-values", warning, "one metric has different values in one entry",
                  "Keep each number in one place."},
                 &conflicting_values),
        on_entry({"L403", "arithmetic", warning, "a sum, difference or share does not follow from its parts",
                  "Recompute it, or correct the part."},
                 &arithmetic),
        on_entry({"L404", "stated-percent", warning, "a stated percentage does not match its two values",
                  "Recompute it; `--fix` does."},
                 &stated_percent),
        on_entry({"L405", "unit-slip", warning, "throughput/duration and step duration disagree",
                  "One is in seconds, the other in milliseconds."},
                 &unit_slip),
        on_entry({"L406", "throughput-invariant", warning, "throughput values do not belong to one model and batch",
                  "tokens/s x duration and MFU x duration stay the same within a model and batch: look for a value of "
                  "another run."},
                 &throughput_invariants),
        on_entry({"L407", "champion-baseline", warning, "a baseline is not what the champion recorded",
                  "Measure the champion again, or say what is compared."},
                 &champion_baseline),
        on_entry({"L408", "unknown-direction", warning, "it is unclear what an arrow compares, or whose value it is",
                  "Say it in the group's heading: champion -> candidate, previous -> this, control -> hybrid."},
                 &unknown_direction),
        on_entry({"L409", "gain-without-step", warning, "a bucket got smaller, but no step duration is given",
                  "Time that leaves one bucket may be in another: give the step duration."},
                 &gain_without_step),
        on_entry({"L410", "few-points", warning, "a value rests on too few points, or only on the last step",
                  "Take the median of a window."},
                 &few_points),
        on_entry({"L411", "common-factor", warning, "three or more buckets changed by one factor",
                  "The base or the measurement changed: measure both again in one session."},
                 &common_factor),
        on_entry({"L412", "recorded-gain", warning, "a recorded gain does not match the recorded values",
                  "Correct the record: the gain, or the values before and after that it was computed from."},
                 &recorded_gain)};
    return k_rules;
}

}  // namespace gdnctl::runlog
