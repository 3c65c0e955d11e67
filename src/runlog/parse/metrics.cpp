#include <algorithm>
#include <array>
#include <cmath>

#include "core/text.h"
#include "runlog/parse/grammar.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

constexpr std::string_view k_minus = "\xE2\x88\x92";       // U+2212
constexpr std::string_view k_arrow_sign = "\xE2\x86\x92";  // U+2192
constexpr std::string_view k_em_dash = "\xE2\x80\x94";

bool ends_word(std::string_view s, std::size_t at) { return at >= s.size() || !is_word(s[at]); }

// Appends the digits after `at` to `plain`, including groups of three after commas.
std::size_t parse_digits(std::string_view s, std::size_t at, bool groups, std::string& plain) {
    const auto digit = [&](std::size_t i) { return i < s.size() && is_digit(s[i]); };
    while (digit(at)) plain += s[at++];
    while (groups && !plain.empty() && is_digit(plain.back()) && at < s.size() && s[at] == ',' && digit(at + 1) &&
           digit(at + 2) && digit(at + 3) && !digit(at + 4)) {
        plain.append(s.substr(at + 1, 3));
        at += 4;
    }
    return at;
}

// e[+-]digits at this position; nullopt: none.
struct Exponent {
    int value;
    std::size_t end;
};
std::optional<Exponent> read_exponent(std::string_view s, std::size_t at) {
    if (at + 1 >= s.size() || lower(s[at]) != 'e') return std::nullopt;
    const bool sign = s[at + 1] == '+' || s[at + 1] == '-';
    const std::size_t first = at + (sign ? 2 : 1);
    std::size_t end = first;
    while (end < s.size() && is_digit(s[end]) && end - first < 3) ++end;
    if (end == first || !ends_word(s, end)) return std::nullopt;
    const auto value = static_cast<int>(text::parse_int(strip_zeros(s.substr(first, end - first))).value_or(0));
    return Exponent{s[at + 1] == '-' ? -value : value, end};
}

Scale read_unit(std::string_view s, std::size_t& at) {
    const std::size_t start = skip_soft(s, at);
    const std::string_view rest = s.substr(start);
    struct Name {
        std::string_view text;
        Scale scale;
    };
    constexpr std::array names = {Name{"ms", {Unit::ms, 1}},           Name{"us", {Unit::ms, 1e-3}},
                                  Name{"\xC2\xB5s", {Unit::ms, 1e-3}}, Name{"\xCE\xBCs", {Unit::ms, 1e-3}},
                                  Name{"s", {Unit::ms, 1e3}},          Name{"%", {Unit::fraction, 1e-2}}};
    for (const Name& name : names) {
        if (!rest.starts_with(name.text)) continue;
        if (name.text != "%" && !ends_word(rest, name.text.size())) continue;
        at = start + name.text.size();
        return name.scale;
    }
    return {};
}

std::optional<Printed> read_null(std::string_view s, std::size_t at) {
    const std::string lower_case = text::to_lower(s.substr(at, 14));
    for (const std::string_view word :
         {std::string_view("n/a"), std::string_view("not measured"), std::string_view("-"), k_em_dash}) {
        if (!lower_case.starts_with(word)) continue;
        const std::size_t end = at + word.size();
        if (word == "-" && end < s.size() && !is_soft(s[end]) && s[end] != ',' && s[end] != ';') continue;
        if (!ends_word(s, end)) continue;
        Printed printed;
        printed.null = true;
        printed.text = s.substr(at, word.size());
        printed.end = end;
        return printed;
    }
    return std::nullopt;
}

std::optional<Printed> read_value(std::string_view s, std::size_t at) {
    auto printed = read_number(s, at);
    if (!printed) return read_null(s, at);
    if (printed->end < s.size() && is_alpha(s[printed->end])) {
        std::size_t end = printed->end;
        if (read_unit(s, end).unit == Unit::none) return std::nullopt;  // "3x", "v5p"
    }
    printed->scale = read_unit(s, printed->end);
    return printed;
}

enum class Match { prefix, anywhere };
struct LabelRule {
    std::string_view label;  // normalised
    std::string_view key;
    Match match = Match::prefix;
};

// The first match wins.
constexpr std::array k_labels = {
    LabelRule{"ce attributed while", "ce_attributed_while_ms"},
    LabelRule{"ce control budget", "ce_control_budget_ms"},
    LabelRule{"forward closed call", "forward_closed_call_ms", Match::anywhere},
    LabelRule{"backward closed call", "backward_closed_call_ms", Match::anywhere},
    LabelRule{"while", "while_ms"},
    LabelRule{"conditional", "conditional_ms"},
    LabelRule{"kernel budget", "kernel_budget_ms"},
    LabelRule{"control budget", "control_budget_ms"},
    LabelRule{"train path budget", "train_path_budget_ms"},
    LabelRule{"step duration", "step_duration_ms"},
    LabelRule{"remainder budget", "remainder_budget_ms"},
    LabelRule{"decoder layer shell budget", "decoder_layer_shell_budget_ms"},
    LabelRule{"hybrid generic shell delta budget", "hybrid_generic_shell_delta_budget_ms"},
    LabelRule{"dispatch shard shell delta budget", "dispatch_shard_shell_delta_ms"},
    LabelRule{"xprof dispatch shard", "xprof_dispatch_shard_shell_delta_ms"},
    LabelRule{"ad wrapper shell delta budget", "ad_wrapper_shell_delta_ms"},
    LabelRule{"xprof ad wrapper", "xprof_ad_wrapper_shell_delta_ms"},
    LabelRule{"ad shell budget", "ad_shell_budget_ms"},
    LabelRule{"sharding shell budget", "sharding_shell_budget_ms"},
    LabelRule{"layout shell budget", "layout_shell_budget_ms"},
    LabelRule{"layout shell delta budget", "layout_shell_delta_ms"},
    LabelRule{"xprof layout shell delta budget", "xprof_layout_shell_delta_ms"},
    LabelRule{"residual add shell budget", "residual_add_shell_budget_ms"},
    LabelRule{"add shell budget", "residual_add_shell_budget_ms"},
    LabelRule{"residual add shell delta budget", "residual_add_shell_delta_ms"},
    LabelRule{"xprof residual add", "xprof_residual_add_shell_delta_ms"},
    LabelRule{"xprof hybrid generic shell delta budget", "xprof_hybrid_generic_shell_delta_budget_ms"},
    LabelRule{"interaction remainder", "interaction_remainder_ms"},
    LabelRule{"xprof idle attributed", "xprof_idle_attributed_ms"},
    LabelRule{"xprof custom call attributed", "xprof_custom_call_attributed_ms"},
    LabelRule{"xprof all gather attributed", "xprof_all_gather_attributed_ms"},
    LabelRule{"xprof custom fusion attributed", "xprof_custom_fusion_attributed_ms"},
    LabelRule{"xprof data formatting attributed", "xprof_data_formatting_attributed_ms"},
    LabelRule{"shard map", "shard_map_ms"},
    LabelRule{"all gather", "all_gather_ms"},
    LabelRule{"upper bound gap", "upper_bound_gap_ms"},
    LabelRule{"upper bound step", "upper_bound_ms"},
    LabelRule{"upper bound", "upper_bound_ms"},
    LabelRule{"gdn layer fraction", "gdn_layer_fraction"},
};

bool has_prefix(std::string_view label, std::string_view prefix) {
    if (label.empty() || label[0] != prefix[0]) return false;
    return label.starts_with(prefix) && (label.size() == prefix.size() || !is_word(label[prefix.size()]));
}

std::string snake(std::string_view normalised) {
    std::string key(normalised);
    for (char& c : key) {
        if (c == ' ') c = '_';
    }
    return key;
}

// "throughput/mfu", as W&B names it.
std::optional<std::string> throughput_key(std::string_view normalised) {
    constexpr std::string_view prefix = "throughput ";
    if (!normalised.starts_with(prefix)) return std::nullopt;
    const std::string_view rest = normalised.substr(prefix.size());
    for (const std::string_view name : {"mfu", "duration", "tokens per second", "examples per second",
                                        "gflops per second", "total gflops", "total tokens", "loading time"}) {
        if (has_prefix(rest, name)) return "throughput/" + snake(name);
    }
    return std::nullopt;
}

// "gap explained by train-path" and "gap_explained_by_train_path".
std::optional<std::string> explained_key(std::string_view normalised) {
    constexpr std::string_view prefix = "gap explained by ";
    if (!normalised.starts_with(prefix)) return std::nullopt;
    std::string_view rest = normalised.substr(prefix.size());
    for (const std::string_view name :
         {"train path", "decoder layer shell", "hybrid generic shell delta", "xprof hybrid generic shell delta"}) {
        if (has_prefix(rest, name)) return "gap_explained_by_" + snake(name);
    }
    rest = rest.substr(0, rest.find('('));
    return "gap_explained_by_" + snake(strip_marks(rest));
}

// "gated_deltanet.py", "kernel.cpp:12": a position in a source file, never a metric.
bool is_source_position(std::string_view label) {
    while (!label.empty() && (is_digit(label.back()) || label.back() == ':')) label.remove_suffix(1);
    const std::size_t dot = label.rfind('.');
    if (dot == std::string_view::npos || dot + 1 == label.size() || label.size() - dot > 6) return false;
    return std::all_of(label.begin() + static_cast<std::ptrdiff_t>(dot) + 1, label.end(),
                       [](char c) { return is_alpha(c); }) &&
           label.find(' ', dot) == std::string_view::npos;
}

std::optional<Quantity> quantity(const Printed& printed, double factor) {
    if (printed.null) return std::nullopt;
    return Quantity{printed.value * factor, printed.half_digit * factor, printed.text};
}

class LineReader {
public:
    LineReader(std::string_view line, const Bullet& bullet, std::uint32_t number, const MetricContext& context,
               std::vector<Reading>& readings)
        : m_line(line),
          m_content(bullet.content),
          m_bullet(bullet),
          m_number(number),
          m_context(context),
          m_readings(readings) {}

    void read() {
        std::size_t begin = 0;
        while (begin < m_content.size()) {
            begin = skip_separators(begin);
            std::size_t end = 0;
            for (std::size_t sign = next_sign(begin); sign != std::string_view::npos; sign = next_sign(sign + 1)) {
                if (try_at(begin, sign, end)) break;
            }
            if (end == 0) return;
            end = read_percent(end);
            end = skip_soft(m_content, end);
            if (end >= m_content.size() || (m_content[end] != ',' && m_content[end] != ';')) return;
            begin = end;
        }
    }

    // Labels exactly as the key's, each directly followed by its value, since prose too may precede a number.
    void read_bare() {
        for (std::size_t begin = skip_separators(0); begin < m_content.size(); begin = skip_separators(begin)) {
            std::size_t at = begin;
            while (at < m_content.size() && (at == begin || !is_soft(m_content[at - 1]) || !is_digit(m_content[at])))
                ++at;
            if (at >= m_content.size()) return;
            const std::string_view label = strip_marks(m_content.substr(begin, at - begin));
            auto key = metric_key(label);
            std::string name = key ? normalise_label(*key) : std::string();
            if (name.ends_with(" ms")) name.resize(name.size() - 3);
            const auto values = read_values(m_content, at);
            std::size_t end = 0;
            if (!values || name.empty() || name != normalise_label(label)) return;
            if (!add(label, std::move(key), *values, at, end)) return;
            begin = read_percent(end);
        }
    }

private:
    std::size_t skip_separators(std::size_t at) const {
        while (at < m_content.size() && (is_soft(m_content[at]) || m_content[at] == ',' || m_content[at] == ';')) ++at;
        return at;
    }

    // The next ':' or '=' that may end a label.
    std::size_t next_sign(std::size_t at) const {
        for (std::size_t i = at; i < m_content.size() && i < 4096; ++i) {
            const char c = m_content[i];
            const char next = i + 1 < m_content.size() ? m_content[i + 1] : ' ';
            if (c == ':' && is_soft(next)) return i;
            if (c == '=' && next != '=' && next != '>' && i > 0 && m_content[i - 1] != '=') return i;
        }
        return std::string_view::npos;
    }

    bool try_at(std::size_t begin, std::size_t sign, std::size_t& end) {
        const bool equals = m_content[sign] == '=';
        std::string_view label = strip_marks(m_content.substr(begin, sign - begin));
        const auto values = read_values(m_content, sign + 1);
        if (!values) return !equals && try_text(label, sign, end);
        if (equals) label = label.substr(label.find_last_of(" `*(,;") + 1);
        if (label.empty() || label.size() > 200 || label.starts_with("--") || is_source_position(label)) return false;
        auto key = metric_key(label);
        if (!key && !equals) {
            // "Throughput: throughput/mfu: 6.1 -> 6.2": use the last of several labels.
            const std::size_t colon = label.rfind(": ");
            if (colon != std::string_view::npos) {
                const std::string_view tail = strip_marks(label.substr(colon + 1));
                if (tail.find(' ') == std::string_view::npos && tail.find_first_of("_/") != std::string_view::npos) {
                    key = metric_key(tail);
                    if (key) label = tail;
                }
            }
        }
        if (!key && equals) return false;
        return add(label, std::move(key), *values, sign, end);
    }

    bool unit_in_name(std::string_view label) const {
        const std::string name = normalise_label(label);
        return name.ends_with(" ms");
    }

    // What may follow a single value; prose may not.
    bool is_complete(std::size_t end) const {
        end = skip_soft(m_content, end);
        if (end >= m_content.size()) return true;
        const char c = m_content[end];
        return c == ',' || c == ';' || c == '(' || (c == '.' && skip_soft(m_content, end + 1) >= m_content.size());
    }

    bool add(std::string_view label, std::optional<std::string> key, const Values& values, std::size_t sign,
             std::size_t& end) {
        Reading reading;
        reading.known = key.has_value();
        reading.label = label;
        reading.unit_in_name = unit_in_name(label);
        const bool null = values.first.null && (!values.second || values.second->null);
        const bool has_unit = values.first.scale.unit != Unit::none;
        const bool unitless_key = reading.known && !key->ends_with("_ms");
        if (!reading.known && (!has_unit || label.size() > 80)) return false;
        if (reading.known && !has_unit && !null && !reading.unit_in_name && !unitless_key) return false;
        if (!values.second && !is_complete(values.end)) return false;

        reading.key = key ? std::move(*key) : std::string(label);
        reading.form = null ? Reading::Form::absent : values.second ? Reading::Form::arrow : Reading::Form::single;
        set_values(reading, values, has_unit);
        reading.spelling = is_canonical(values, sign) ? Reading::Spelling::canonical : Reading::Spelling::other;
        finish(reading, values.begin, values.end);
        end = values.end;
        return true;
    }

    void set_values(Reading& reading, const Values& values, bool has_unit) const {
        double first = values.first.scale.factor;
        double second = values.second ? values.second->scale.factor : first;
        reading.unit = values.first.scale.unit;
        if (reading.key == "throughput/duration") {  // W&B logs it in seconds
            first = has_unit ? first * 1e-3 : 1;
            second = has_unit ? second * 1e-3 : 1;
            reading.unit = Unit::seconds;
        } else if (reading.key == "throughput/mfu" && reading.unit == Unit::fraction) {
            first = second = 1;  // W&B logs it in percent
            reading.unit = Unit::none;
        } else if (!has_unit && reading.key.ends_with("_ms")) {
            reading.unit = Unit::ms;
        } else if (!has_unit && reading.key.starts_with("gap_explained_by_")) {
            // Both 39.72 and 0.3972 occur; a share of a gap above 1.5 is a percentage.
            const bool percent =
                std::max(std::abs(values.first.value), values.second ? std::abs(values.second->value) : 0) > 1.5;
            first = second = percent ? 1e-2 : 1;
            reading.unit = Unit::fraction;
        }
        if (values.second) {
            reading.before = quantity(values.first, first);
            reading.after = quantity(*values.second, second);
        } else if (m_context.is_baseline) {
            reading.before = quantity(values.first, first);
        } else {
            reading.after = quantity(values.first, first);
        }
    }

    // label: `N ms -> N ms` after a `-`, with the label bare or in its own backticks.
    bool is_canonical(const Values& values, std::size_t sign) const {
        if (m_bullet.marker != '-' || m_content[sign] != ':') return false;
        const std::string_view head = m_content.substr(0, sign);
        if (std::count(head.begin(), head.end(), '`') % 2 != 0 || head.find('*') != std::string_view::npos)
            return false;
        const std::string_view between = m_content.substr(sign + 1, values.begin - sign - 1);
        if (between.find('`') == std::string_view::npos || between.find('*') != std::string_view::npos) return false;
        const std::string_view inner = m_content.substr(values.begin, values.end - values.begin);
        if (inner.find('`') != std::string_view::npos) return false;
        if (values.second && inner.find("->") == std::string_view::npos) return false;
        return values.end < m_content.size() && m_content[values.end] == '`';
    }

    // `CE backend selected: pallas_tpu -> xla`: a pair of words.
    bool try_text(std::string_view label, std::size_t sign, std::size_t& end) {
        const auto word_end = [&](std::size_t at) {
            while (at < m_content.size() &&
                   (is_word(m_content[at]) || m_content[at] == '.' || m_content[at] == '/' || m_content[at] == '+' ||
                    (m_content[at] == '-' && arrow_length(m_content, at) == 0))) {
                ++at;
            }
            return at;
        };
        const std::size_t first = skip_soft(m_content, sign + 1);
        const std::size_t first_end = word_end(first);
        const std::size_t arrow = skip_soft(m_content, first_end);
        const std::size_t length = first_end == first ? 0 : arrow_length(m_content, arrow);
        if (length == 0) return false;
        const std::size_t second = skip_soft(m_content, arrow + length);
        const std::size_t second_end = word_end(second);
        if (second_end == second || !is_complete(second_end) || label.empty() || label.size() > 80) return false;
        if (is_source_position(label) || metric_key(label)) return false;
        Reading reading;
        reading.key = std::string(label);
        reading.label = label;
        reading.form = Reading::Form::text;
        reading.before_text = m_content.substr(first, first_end - first);
        reading.after_text = m_content.substr(second, second_end - second);
        finish(reading, first, second_end);
        end = second_end;
        return true;
    }

    void finish(Reading& reading, std::size_t begin, std::size_t end) {
        reading.comparison = m_context.comparison;
        reading.arm = m_context.arm;
        reading.heading = m_context.heading;
        reading.is_baseline = m_context.is_baseline;
        reading.value = m_content.substr(begin, end - begin);
        reading.line = m_line;
        reading.number = m_number;
        m_readings.push_back(std::move(reading));
    }

    // (`+1.34%`) after the values.
    std::size_t read_percent(std::size_t at) {
        const std::size_t open = skip_soft(m_content, at);
        if (open >= m_content.size() || m_content[open] != '(') return at;
        const std::size_t close = m_content.find(')', open);
        if (close == std::string_view::npos) return at;
        const std::size_t begin = skip_soft(m_content, open + 1);
        if (const auto number = read_number(m_content, begin); number && number->end < m_content.size()) {
            if (m_content[number->end] == '%') {
                m_readings.back().percent = Quantity{number->value, number->half_digit, number->text};
            }
        }
        return close + 1;
    }

    std::string_view m_line, m_content;
    const Bullet& m_bullet;
    std::uint32_t m_number;
    const MetricContext& m_context;
    std::vector<Reading>& m_readings;
};

std::optional<TopK::Item> read_topk_item(std::string_view text) {
    text = strip_marks(text);
    // A share after the time: `5.21 ms` (`3.1%`).
    if (text.ends_with(')')) text = strip_marks(text.substr(0, text.rfind('(')));
    if (text.ends_with('.')) text = strip_marks(text.substr(0, text.size() - 1));
    const std::size_t unit = text.find_last_not_of("\xC2\xB5\xCE\xBCmus") + 1;
    const std::string_view amount = strip_marks(text.substr(0, unit));
    const std::size_t begin = amount.find_last_of(" :`*>") + 1;
    const auto values = read_values(text, begin);
    if (!values || values->second || values->first.null || values->end != text.size()) return std::nullopt;
    if (values->first.scale.unit != Unit::ms) return std::nullopt;
    std::string_view path = strip_marks(amount.substr(0, begin));
    for (const std::string_view arrow : {"->", "=>", "\xE2\x86\x92"}) {
        if (path.ends_with(arrow)) path = strip_marks(path.substr(0, path.size() - arrow.size()));
    }
    if (path.ends_with(':')) path = strip_marks(path.substr(0, path.size() - 1));
    // `path: 1.0 ms -> 2.0 ms` compares two times.
    const std::string_view count = path.ends_with("ms") ? strip_marks(path.substr(0, path.size() - 2)) : "";
    if (path.empty() || (!count.empty() && is_digit(count.back()))) return std::nullopt;
    const bool is_delta = !is_digit(amount[begin]) && amount[begin] != '.';
    return TopK::Item{path, values->first.value * values->first.scale.factor, is_delta};
}

// Parts between separators that are neither in code nor in parentheses.
std::vector<std::string_view> parts_of(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    bool code = false;
    int depth = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '`') code = !code;
        if (!code) depth += text[i] == '(' ? 1 : text[i] == ')' && depth > 0 ? -1 : 0;
        if (text[i] != separator || code || depth != 0) continue;
        parts.push_back(text.substr(begin, i - begin));
        begin = i + 1;
    }
    parts.push_back(text.substr(begin));
    return parts;
}

using Readings = std::vector<const Reading*>;

bool names(std::string_view arm, std::string_view word) { return contains_word(normalise_label(arm), word); }

void set_before(Metric& metric, const Quantity& q) {
    metric.before = q.value;
    metric.half_digit_before = q.half_digit;
}
void set_after(Metric& metric, const Quantity& q) {
    metric.after = q.value;
    metric.half_digit_after = q.half_digit;
}

void take(Metric& metric, const Reading& reading) {
    if (reading.before) set_before(metric, *reading.before);
    if (reading.after) set_after(metric, *reading.after);
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
                set_after(metric, *r->before);
                metric.before = before;
            }
            if (metric.comparison == Comparison::unknown) metric.comparison = Comparison::champion;
        } else if (names(r->arm, "baseline") || names(r->arm, "champion")) {
            const auto& q = r->after ? r->after : r->before;
            if (q) set_before(metric, *q);
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

std::size_t skip_soft(std::string_view s, std::size_t at) {
    while (at < s.size() && is_soft(s[at])) ++at;
    return at;
}

std::optional<Printed> read_number(std::string_view s, std::size_t at) {
    const std::size_t begin = at;
    std::string plain;
    if (s.substr(at).starts_with(k_minus)) {
        plain = "-";
        at += k_minus.size();
    } else if (at < s.size() && (s[at] == '-' || s[at] == '+')) {
        if (s[at] == '-') plain = "-";
        ++at;
    }
    const std::size_t sign = plain.size();
    at = parse_digits(s, at, true, plain);
    bool any = plain.size() > sign;
    int decimals = 0;
    if (at < s.size() && s[at] == '.' && (any || (at + 1 < s.size() && is_digit(s[at + 1])))) {
        std::string fraction;
        at = parse_digits(s, at + 1, false, fraction);
        decimals = static_cast<int>(std::min<std::size_t>(fraction.size(), 60));
        if (!fraction.empty()) plain += (any ? "." : "0.") + fraction;
        any = any || !fraction.empty();
    }
    if (!any || plain.size() > 60) return std::nullopt;
    int exponent = 0;
    if (const auto power = read_exponent(s, at)) {
        exponent = power->value;
        plain += 'e' + std::to_string(exponent);
        at = power->end;
    }
    const auto value = text::parse_double(plain);
    if (!value) return std::nullopt;
    Printed printed;
    printed.value = *value;
    printed.half_digit = 0.5 * std::pow(10.0, exponent - decimals);
    printed.text = s.substr(begin, at - begin);
    printed.end = at;
    return printed;
}

std::size_t arrow_length(std::string_view s, std::size_t at) {
    for (const std::string_view arrow : {std::string_view("->"), k_arrow_sign, std::string_view("=>")}) {
        if (s.substr(at).starts_with(arrow)) return arrow.size();
    }
    return 0;
}

std::optional<Values> read_values(std::string_view s, std::size_t at) {
    const std::size_t begin = skip_soft(s, at);
    auto first = read_value(s, begin);
    if (!first) return std::nullopt;
    Values values{*first, std::nullopt, begin, first->end};
    const std::size_t arrow = skip_soft(s, first->end);
    if (const std::size_t length = arrow_length(s, arrow); length != 0) {
        auto second = read_value(s, skip_soft(s, arrow + length));
        if (!second) return std::nullopt;
        values.end = second->end;
        // One unit applies to both.
        if (second->scale.unit == Unit::none) second->scale = first->scale;
        if (values.first.scale.unit == Unit::none) values.first.scale = second->scale;
        values.second = *second;
    }
    return values;
}

std::string normalise_label(std::string_view label) {
    std::string out;
    out.reserve(label.size());
    for (const char c : label) {
        if (c == '`' || c == '*') continue;
        const bool blank = is_blank(c) || c == '-' || c == '_' || c == '/';
        if (!blank) {
            out += lower(c);
        } else if (!out.empty() && out.back() != ' ') {
            out += ' ';
        }
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

std::optional<std::string> metric_key(std::string_view label) {
    if (label.size() > 300) return std::nullopt;
    const std::string name = normalise_label(label);
    // Snake-case keys are used as they are ("dispatch_shard_shell_delta_ms").
    if (name.ends_with(" ms")) {
        const std::string key = snake(name);
        for (const LabelRule& rule : k_labels) {
            if (rule.key == key) return key;
        }
    }
    const bool closed_call = name.find("closed call") != std::string::npos;
    for (const LabelRule& rule : k_labels) {
        if (rule.match == Match::anywhere && !closed_call) continue;
        const bool hit = rule.match == Match::anywhere ? contains_word(name, rule.label) : has_prefix(name, rule.label);
        if (hit) return std::string(rule.key);
    }
    if (auto key = explained_key(name)) return key;
    return throughput_key(name);
}

// Reads the metrics on a bullet line, whatever marks surround them.

void read_metrics(std::string_view line, const Bullet& bullet, std::uint32_t number, const MetricContext& context,
                  std::vector<Reading>& readings) {
    LineReader(line, bullet, number, context, readings).read();
}

void read_arm_metrics(std::string_view line, std::string_view value, std::uint32_t number, const MetricContext& context,
                      std::vector<Reading>& readings) {
    const Bullet bullet{.indent = 0, .content = value, .marker = '-'};
    LineReader(line, bullet, number, context, readings).read_bare();
}

std::string_view topk_key(std::string_view label) {
    label = strip_marks(label);
    if (label.ends_with(':')) label = strip_marks(label.substr(0, label.size() - 1));
    if (label.ends_with(')')) label = strip_marks(label.substr(0, label.rfind('(')));
    const bool list = label.ends_with("topk") || label.ends_with("top-k") || label.ends_with("top_k");
    return list && label.size() <= 80 ? label : std::string_view();
}

std::optional<TopK> read_topk(std::string_view label, std::string_view value, std::uint32_t number) {
    TopK topk;
    topk.key = topk_key(label);
    topk.number = number;
    if (topk.key.empty()) return std::nullopt;
    topk.items = read_topk_items(value);
    return topk;
}

std::vector<TopK::Item> read_topk_items(std::string_view text) {
    std::vector<TopK::Item> items;
    for (const std::string_view whole : text::split(text, ';')) {
        const auto parts = parts_of(whole, ',');
        // The comma of "a, b: 5 ms" belongs to the name.
        const bool several = parts.size() > 1 && read_topk_item(parts.front());
        for (const std::string_view part : several ? parts : std::vector{whole}) {
            if (const auto item = read_topk_item(part)) items.push_back(*item);
        }
    }
    return items;
}

// Merges what an entry says about each key, and adds derived values.

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

}  // namespace gdnctl::runlog
