#include <algorithm>
#include <array>
#include <utility>

#include "core/text.h"
#include "runlog/parse/grammar.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

// "value <!-- note -->" -> "value": Markdown does not show the note. A comment in backticks is shown as code, and
// stays.
std::string_view without_trailing_comments(std::string_view content) {
    while (content.ends_with("-->")) {
        const std::size_t begin = content.rfind("<!--");
        if (begin == std::string_view::npos) break;
        const std::string_view before = content.substr(0, begin);
        if (std::count(before.begin(), before.end(), '`') % 2 != 0) break;
        content = text::trim(before);
    }
    return content;
}

// A colon that ends a label is followed by a blank, a mark or nothing (those in "12:55" and "a.py:7" do not end one).
bool ends_label(std::string_view s, std::size_t colon) {
    if (colon + 1 >= s.size()) return true;
    const char next = s[colon + 1];
    return is_blank(next) || next == '`' || next == '*' || next == '"';
}

std::size_t find_label_colon(std::string_view s, bool inside_code) {
    bool code = false;
    for (std::size_t i = 0; i < s.size() && i < 200; ++i) {
        if (s[i] == '`' && !inside_code) code = !code;
        if (s[i] == ':' && !code && i > 0 && ends_label(s, i)) return i;
    }
    return std::string_view::npos;
}

// The verdict, if it is the line's whole value: "OK", "verdict: WRONG", "FAILED (exit 1)", "`run` -> `OK`".
std::string_view read_verdict(std::string_view line) {
    constexpr std::array<std::string_view, 7> words = {"OK",     "WRONG", "SUSPECT",       "NO_DATA",
                                                       "FAILED", "FAIL",  "UNSTABLE_INPUT"};
    constexpr std::string_view name = "verdict";
    std::string_view value = line;
    if (const auto bullet = match_bullet(line)) value = bullet->content;
    if (const auto labelled = split_label(value)) value = labelled->value;
    if (const std::size_t arrow = value.rfind("->"); arrow != std::string_view::npos) value.remove_prefix(arrow + 2);
    value = strip_marks(value);
    if (text::to_lower(value.substr(0, name.size())) == name) {
        value = value.substr(std::min(value.find_first_not_of(":= `*", name.size()), value.size()));
    }
    const auto end = static_cast<std::size_t>(
        std::find_if_not(value.begin(), value.end(), [](char c) { return is_word(c); }) - value.begin());
    const std::string_view word = value.substr(0, end);
    if (std::find(words.begin(), words.end(), word) == words.end()) return {};
    const std::string_view rest = strip_marks(value.substr(end));
    return rest.empty() || std::string_view(".,;(").find(rest[0]) != std::string_view::npos ? word : std::string_view();
}

constexpr std::array<std::string_view, 7> k_not_measured = {
    "expected effect", "reject if",       "candidate shortlist", "command",
    "hypothesis",      "next hypothesis", "next bold hypothesis"};
constexpr std::array<std::string_view, 8> k_arm_words = {"candidate", "baseline",       "champion", "control",
                                                         "prototype", "attention-only", "hybrid",   "arm"};
constexpr std::array<std::string_view, 5> k_group_words = {"hotspot", "metrics", "delta", "deltas", "hotspots"};

bool compares(std::string_view lower_case) {
    return contains_word(lower_case, "vs") || lower_case.find("->") != std::string_view::npos ||
           lower_case.find("\xE2\x86\x92") != std::string_view::npos;
}

// The context of the bullets below a bullet (or below a line of text) that reads `heading`.
MetricContext below(const MetricContext& outer, std::string_view heading) {
    MetricContext inner = outer;
    if (outer.skip) return inner;
    for (const std::string_view name : k_not_measured) inner.skip = inner.skip || label_is(heading, name, true);
    const std::string lower_case = text::to_lower(heading.substr(0, 300));
    const bool group = std::any_of(k_group_words.begin(), k_group_words.end(),
                                   [&](std::string_view word) { return contains_word(lower_case, word); });
    const Comparison comparison = classify_comparison(heading);
    const bool compared = compares(lower_case);
    if (comparison != Comparison::unknown && (group || compared)) inner.comparison = comparison;
    if (group || compared) inner.heading = heading;
    const bool names_baseline = lower_case.find("carried in") != std::string::npos ||
                                (contains_word(lower_case, "baseline") && !contains_word(lower_case, "candidate"));
    if (!compared && names_baseline) inner.is_baseline = true;
    if (!compared && !group && !label_is(heading, "current validated baseline", true)) {
        const bool arm = std::any_of(k_arm_words.begin(), k_arm_words.end(),
                                     [&](std::string_view word) { return contains_word(lower_case, word); });
        if (arm && !metric_key(heading)) inner.arm = strip_marks(heading);
    }
    return inner;
}

class EntryReader {
public:
    explicit EntryReader(const EntryHead& head) { m_entry.head = head; }

    Entry read() {
        LineCursor cursor(m_entry.head.text, m_entry.head.line);
        BlockTracker tracker;
        Line line;
        cursor.next(line);  // the heading
        while (cursor.next(line)) {
            const bool inside = tracker.inside(line.text);
            if (tracker.commented() && !text::trim(line.text).starts_with("<!-- gdnctl")) {
                add_comment(line);
                continue;
            }
            const std::size_t ink = line.text.find_first_not_of(" \t");
            if (inside || ink == std::string_view::npos) continue;
            if (const auto bullet = match_bullet(line.text)) {
                add_bullet(line, *bullet, cursor.rest().data());
            } else {
                add_text(line, line.text[ink], tracker.in_list());
            }
        }
        close_from(0, m_entry.head.text.data() + m_entry.head.text.size());
        finish();
        return std::move(m_entry);
    }

private:
    struct Open {
        std::int32_t index;
        std::uint32_t indent;
        const char* body;
        std::string_view heading;
        std::optional<MetricContext> below;  // computed when the first nested bullet needs it
    };

    const MetricContext& context_at(std::size_t depth) {
        if (depth == 0) return m_root;
        Open& open = m_open[depth - 1];
        if (!open.below) open.below = below(context_at(depth - 1), open.heading);
        return *open.below;
    }

    void close_from(std::size_t depth, const char* end) {
        for (std::size_t i = depth; i < m_open.size(); ++i) {
            Field& field = m_entry.fields[static_cast<std::size_t>(m_open[i].index)];
            field.body = std::string_view(m_open[i].body, static_cast<std::size_t>(end - m_open[i].body));
        }
        m_open.resize(std::min(m_open.size(), depth));
    }

    // An indented comment is part of the bullet that contains it.
    void add_comment(const Line& line) {
        if (line.text.starts_with('<')) close_from(0, line.text.data());
        if (m_entry.comments.size() < k_max_fields) m_entry.comments.push_back(line);
    }

    void add_text(const Line& line, char first, bool in_list) {
        if (m_entry.verbatim.size() < k_max_fields) m_entry.verbatim.push_back(line);
        if (first == '#' || first == '<') close_from(0, line.text.data());
        const std::string_view trimmed = text::trim(line.text);
        if (m_open.empty() || !in_list) {
            const std::size_t words = std::min(trimmed.find_first_not_of("# "), trimmed.size());
            m_topk_above = add_topk(topk_key(trimmed.substr(words)), line.number);
        }
        // A short line that ends in a colon, or a sub-heading, applies to the bullets after it.
        if (first == '#' || (m_open.empty() && trimmed.size() < 120 && trimmed.ends_with(":"))) {
            m_root = below({}, trimmed);
        }
    }

    void add_bullet(const Line& line, const Bullet& bullet, const char* body) {
        if (m_entry.fields.size() >= k_max_fields) return;
        std::size_t depth = m_open.size();
        while (depth > 0 && m_open[depth - 1].indent >= bullet.indent) --depth;
        close_from(depth, line.text.data());

        const auto index = static_cast<std::int32_t>(m_entry.fields.size());
        Field field;
        field.line = line.text;
        field.number = line.number;
        field.indent = bullet.indent;
        field.parent = m_open.empty() ? -1 : m_open.back().index;
        if (const auto labelled = split_label(bullet.content)) {
            field.label = labelled->label;
            field.value = labelled->value;
        } else {
            field.value = bullet.content;
        }
        note_identity(field, index);
        m_entry.fields.push_back(field);
        m_open.push_back({index, bullet.indent, body, field.label.empty() ? bullet.content : field.label, {}});
        read_numbers(line, bullet, field);
    }

    void read_numbers(const Line& line, const Bullet& bullet, const Field& field) {
        const std::size_t depth = m_open.size() - 1;
        if (context_at(depth).skip || m_entry.readings.size() >= k_max_readings) return;
        if (read_topk_field(bullet, field)) return;
        const std::size_t first = m_entry.readings.size();
        read_metrics(line.text, bullet, line.number, context_at(depth), m_entry.readings);
        if (m_entry.readings.size() == first) {
            const MetricContext arm = field.label.empty() ? MetricContext() : context_at(depth + 1);
            if (!arm.arm.empty() && !arm.skip) {
                read_arm_metrics(line.text, field.value, line.number, arm, m_entry.readings);
            }
            return;
        }
        // The bullet's own label also applies to the values on its line.
        const MetricContext own = context_at(depth + 1);
        if (own.skip) m_entry.readings.resize(first);
        for (std::size_t i = first; i < m_entry.readings.size(); ++i) {
            m_entry.readings[i].is_baseline = own.is_baseline;
            m_entry.readings[i].comparison = own.comparison;
            m_entry.readings[i].heading = own.heading;
        }
    }

    // A top-k list on one line, its heading, or one of the bullets below such a heading.
    bool read_topk_field(const Bullet& bullet, const Field& field) {
        const bool has_label = !field.label.empty();
        if (auto topk = read_topk(has_label ? field.label : field.value, has_label ? field.value : "", field.number)) {
            m_entry.topk.push_back(std::move(*topk));
            return true;
        }
        const std::uint32_t above = field.parent < 0 ? m_topk_above : m_entry.field(field.parent)->number;
        if (m_entry.topk.empty() || m_entry.topk.back().number != above) return false;
        const auto items = read_topk_items(bullet.content);
        std::vector<TopK::Item>& list = m_entry.topk.back().items;
        list.insert(list.end(), items.begin(), items.end());
        return !items.empty();
    }

    // The line of a heading above bullets; 0: not such a line.
    std::uint32_t add_topk(std::string_view key, std::uint32_t number) {
        if (key.empty()) return 0;
        m_entry.topk.push_back({key, {}, number});
        return number;
    }

    void note_identity(const Field& field, std::int32_t index) {
        const std::array<std::pair<std::string_view, std::int32_t*>, 3> slots = {
            {{"date", &m_entry.date}, {"commit", &m_entry.commit}, {"starting commit", &m_entry.starting_commit}}};
        for (const auto& [name, slot] : slots) {
            if (!label_is(field.label, name)) continue;
            if (*slot < 0) {
                *slot = index;
            } else {
                m_entry.repeated.push_back(index);
            }
        }
    }

    void finish() {
        if (const Field* commit = m_entry.field(m_entry.commit)) m_entry.commit_value = classify_commit(commit->value);
        const char* done = nullptr;  // end of the last block that was read: nested blocks are read only once
        for (const Field& field : m_entry.fields) {
            if (!label_is(field.label, "correctness", true) || (done != nullptr && field.line.data() < done)) continue;
            read_tests(field);
            done = field.body.data() + field.body.size();
        }
        m_entry.metrics = resolve_metrics(m_entry.readings);
    }

    void read_tests(const Field& field) {
        const auto add = [&](std::string_view line, std::uint32_t number) {
            TestCounts counts = read_test_counts(line);
            counts.number = number;
            const bool room = m_entry.tests.size() < k_max_test_lines;
            if (room && (counts.any() || !counts.verdict.empty())) m_entry.tests.push_back(counts);
        };
        add(field.line, field.number);
        LineCursor cursor(field.body, field.number + 1);
        BlockTracker tracker;
        Line line;
        while (cursor.next(line)) {
            if (!tracker.inside(line.text) && !tracker.commented()) add(line.text, line.number);
        }
    }

    Entry m_entry;
    std::vector<Open> m_open;
    MetricContext m_root;
    std::uint32_t m_topk_above = 0;  // line of the heading of top-level bullets
};

}  // namespace

bool has_text(std::string_view part) {
    constexpr std::string_view no_text = " \t\r\n-*+`";
    if (part.find("<!--") == std::string_view::npos) return part.find_first_not_of(no_text) != std::string_view::npos;
    BlockTracker tracker;
    Line line;
    for (LineCursor cursor(part); cursor.next(line);) {
        tracker.inside(line.text);
        if (tracker.commented()) continue;
        const auto bullet = match_bullet(line.text);
        const std::string_view shown = bullet ? bullet->content : line.text;
        if (shown.find_first_not_of(no_text) != std::string_view::npos) return true;
    }
    return false;
}

std::optional<Bullet> match_bullet(std::string_view line) {
    Bullet bullet;
    std::size_t at = 0;
    for (; at < line.size() && is_blank(line[at]); ++at) bullet.indent += line[at] == '\t' ? 4 : 1;
    if (at >= line.size() || (line[at] != '-' && line[at] != '*' && line[at] != '+')) return std::nullopt;
    if (at + 1 >= line.size() || !is_blank(line[at + 1])) return std::nullopt;
    bullet.marker = line[at];
    bullet.content = without_trailing_comments(text::trim(line.substr(at + 1)));
    return bullet;
}

std::optional<Labelled> split_label(std::string_view content) {
    // `label: value` entirely in backticks.
    if (content.size() > 2 && content.front() == '`' && content.find('`', 1) == content.size() - 1) {
        content = content.substr(1, content.size() - 2);
    }
    const std::size_t colon = find_label_colon(content, false);
    if (colon == std::string_view::npos) return std::nullopt;
    std::string_view value = content.substr(colon + 1);
    while (!value.empty() && value.front() == '*') value.remove_prefix(1);
    const std::string_view label = strip_marks(content.substr(0, colon));
    if (label.empty()) return std::nullopt;
    return Labelled{label, text::trim(value)};
}

bool label_is(std::string_view label, std::string_view lower_case_name, bool prefix) {
    std::size_t at = 0;
    for (std::size_t i = 0; i < label.size(); ++i) {
        const char c = label[i];
        if (c == '`' || c == '*') continue;
        if (at == lower_case_name.size()) return prefix ? !is_word(c) : text::trim(label.substr(i)).starts_with("(");
        if (lower(c) != lower_case_name[at]) return false;
        ++at;
    }
    return at == lower_case_name.size();
}

bool contains_word(std::string_view text, std::string_view needle) {
    for (std::size_t at = text.find(needle); at != std::string_view::npos; at = text.find(needle, at + 1)) {
        const std::size_t end = at + needle.size();
        if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]))) return true;
    }
    return false;
}

// What a line says about a test run: counts and a verdict.

TestCounts read_test_counts(std::string_view line) {
    TestCounts counts;
    counts.line = line;
    const std::array<std::pair<std::string_view, std::optional<std::int64_t>*>, 11> words = {
        {{"passed", &counts.passed},
         {"failed", &counts.failed},
         {"errors", &counts.errors},
         {"error", &counts.errors},
         {"skipped", &counts.skipped},
         {"deselected", &counts.deselected},
         {"xfailed", &counts.xfailed},
         {"xpassed", &counts.xpassed},
         {"warnings", &counts.warnings},
         {"warning", &counts.warnings},
         {"rerun", &counts.rerun}}};
    for (std::size_t at = 0; at < line.size();) {
        if (!is_digit(line[at]) || (at > 0 && (is_word(line[at - 1]) || line[at - 1] == '.'))) {
            ++at;
            continue;
        }
        const std::size_t begin = at;
        while (at < line.size() && is_digit(line[at])) ++at;
        if (at - begin > 18 || at >= line.size() || line[at] != ' ') continue;
        const std::string_view rest = line.substr(at + 1);
        for (const auto& [word, slot] : words) {
            if (!rest.starts_with(word) || (rest.size() > word.size() && is_word(rest[word.size()]))) continue;
            const std::int64_t n = text::parse_int(strip_zeros(line.substr(begin, at - begin))).value_or(0);
            if (!slot->has_value()) *slot = n;
            break;
        }
    }
    counts.verdict = read_verdict(line);
    return counts;
}

Entry parse_entry(const EntryHead& head) { return EntryReader(head).read(); }

std::string_view strip_marks(std::string_view s) {
    const auto mark = [](char c) { return c == '`' || c == '*' || c == ' ' || c == '\t'; };
    while (!s.empty() && mark(s.front())) s.remove_prefix(1);
    while (!s.empty() && mark(s.back())) s.remove_suffix(1);
    return s;
}

CommitValue classify_commit(std::string_view value) {
    CommitValue commit;
    std::string_view s = strip_marks(value);
    while (!s.empty() && (s.back() == '.' || s.back() == '`' || s.back() == '*')) s.remove_suffix(1);
    s = strip_marks(s);
    commit.text = s;
    if (s.empty()) return commit;
    const std::string lower_case = text::to_lower(s.substr(0, 64));
    const bool hex = std::all_of(s.begin(), s.end(), [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
    if (hex && s.size() >= 7 && s.size() <= 40) {
        commit.kind = CommitKind::committed;
        commit.sha = s;
    } else if (lower_case.starts_with("none") && (s.size() == 4 || !is_word(s[4]))) {
        commit.kind = CommitKind::none;
        const std::size_t open = s.find('(');
        const std::size_t close = s.rfind(')');
        if (open != std::string_view::npos && close != std::string_view::npos && close > open) {
            commit.reason = s.substr(open + 1, close - open - 1);
        }
    } else if (lower_case == "this commit" || lower_case == "(this commit)") {
        commit.kind = CommitKind::self;
    } else if (lower_case == "pending" || lower_case == "(pending)") {
        commit.kind = CommitKind::pending;
    } else {
        commit.kind = CommitKind::other;
    }
    return commit;
}

Comparison classify_comparison(std::string_view heading) {
    const std::string s = text::to_lower(heading.substr(0, 300));
    const auto has = [&](std::string_view word) { return contains_word(s, word); };
    const bool pair = compares(s);
    if (has("control")) return Comparison::control;
    if (has("champion") || s.find("deployable baseline") != std::string::npos ||
        (has("baseline") && has("candidate"))) {
        return Comparison::champion;
    }
    if (has("previous") || has("prior") || s.find("vs iteration") != std::string::npos ||
        (has("before") && has("after"))) {
        return Comparison::previous;
    }
    if (s.find("a/b") != std::string::npos || (pair && (has("baseline") || has("prototype") || has("arm")))) {
        return Comparison::ab;
    }
    return Comparison::unknown;
}

const char* name_of(Comparison kind) {
    switch (kind) {
        case Comparison::champion: return "champion";
        case Comparison::previous: return "previous";
        case Comparison::control: return "control";
        case Comparison::ab: return "ab";
        case Comparison::unknown: break;
    }
    return "unknown";
}

const Field* Entry::find(std::string_view label) const {
    for (const Field& f : fields) {
        if (!f.label.empty() && label_is(f.label, label)) return &f;
    }
    return nullptr;
}

const Metric* Entry::metric(std::string_view key) const {
    const auto found = std::lower_bound(metrics.begin(), metrics.end(), key,
                                        [](const Metric& m, std::string_view k) { return m.key < k; });
    return found != metrics.end() && found->key == key ? &*found : nullptr;
}

}  // namespace gdnctl::runlog
