// Reads the metrics on a bullet line, whatever marks surround them.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/text.h"
#include "runlog/metrics/values.h"
#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog::detail {

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

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

}  // namespace gdnctl::runlog::detail
