#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/text.h"
#include "runlog/parse/block.h"
#include "runlog/parse/log.h"
#include "runlog/records/gain.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

namespace {

std::string shortest(double value) {
    std::array<char, 64> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
    return end.ec == std::errc() ? std::string(buffer.data(), end.ptr) : fmt::format("{}", value);
}

// At least `decimals` decimals, and more only if fewer would change the number.
std::string with_decimals(double value, int decimals) {
    std::string text = shortest(value);
    if (text.find('e') != std::string::npos) return text;
    const auto dot = text.find('.');
    if (dot == std::string::npos) text += '.';
    const auto have = dot == std::string::npos ? std::size_t{0} : text.size() - dot - 1;
    if (have < static_cast<std::size_t>(decimals)) text.append(static_cast<std::size_t>(decimals) - have, '0');
    return text;
}

// A percentage whose text, divided by 100, gives the same fraction.
std::string percent(double fraction) {
    for (int decimals = 2; decimals <= 15; ++decimals) {
        const std::string text = fmt::format("{:.{}f}", fraction * 100, decimals);
        if (text::parse_double(text).value_or(0) * 1e-2 == fraction) return text;
    }
    return shortest(fraction * 100);
}

enum class Kind { ms, seconds, fraction, plain };

Kind kind_of(std::string_view key, std::string_view unit) {
    if (unit == "ms" || (unit.empty() && key.ends_with("_ms"))) return Kind::ms;
    if (unit == "s" || key == "throughput/duration") return Kind::seconds;
    if (unit == "fraction" || key.starts_with("gap_explained_by_")) return Kind::fraction;
    return Kind::plain;
}

std::string number(double value, Kind kind) {
    switch (kind) {
        case Kind::ms: return with_decimals(value, 6) + " ms";
        case Kind::seconds: return with_decimals(value, 6) + " s";
        case Kind::fraction: return percent(value) + "%";
        case Kind::plain: break;
    }
    return shortest(value);
}

template <class Number>
std::string side(const Json& value, const char* name, const Number& number_text) {
    const Json* found = json::find(value, name);
    if (found == nullptr) return "n/a";
    if (found->is_string()) return found->get<std::string>();
    return found->is_number() ? number_text(found->get<double>()) : std::string("n/a");
}

// "before -> after", or the only one that exists.
template <class Number>
std::string sides(const Json& value, const Number& number_text) {
    const bool has_before = json::find(value, "before") != nullptr;
    const bool has_after = json::find(value, "after") != nullptr;
    if (!has_before && !has_after) return "n/a";
    if (!has_before) return side(value, "after", number_text);
    return side(value, "before", number_text) + (has_after ? " -> " + side(value, "after", number_text) : "");
}

// The spelling that people use, if it is read back as the same key.
std::string label_of(std::string_view key, std::string_view unit) {
    std::string words(key);
    if (words.ends_with("_ms")) words.resize(words.size() - 3);
    for (char& c : words) {
        if (c == '_') c = ' ';
    }
    if (unit.empty() && metric_key(words) == key) return words;
    return std::string(key);
}

// "14 cases, 6 recorded vectors: 18 OK, 2 WRONG": what the oracle judged, with its verdicts.
std::string render_judged(const Json& check) {
    std::string items;
    for (const auto& [pointer, one, many] :
         {std::tuple{"/cases", "case", "cases"}, {"/vectors", "recorded vector", "recorded vectors"}}) {
        const auto count = json::integer_at(check, pointer);
        if (!count || *count == 0) continue;
        items += fmt::format("{}{} {}", items.empty() ? "" : ", ", *count, *count == 1 ? one : many);
    }
    std::string verdicts;
    if (const Json* counts = json::object(check, "verdicts")) {
        for (const auto& [word, count] : counts->items()) {
            if (!count.is_number_integer()) continue;
            verdicts += fmt::format("{}{} {}", verdicts.empty() ? "" : ", ", count.get<std::int64_t>(), word);
        }
    }
    return items + (items.empty() || verdicts.empty() ? "" : ": ") + verdicts;
}

// How much of long lists and texts an entry shows.
struct Limits {
    std::size_t items;
    std::size_t bytes;
};
constexpr std::size_t k_no_limit = std::size_t(-1);
constexpr std::array<Limits, 7> k_steps = {
    {{k_no_limit, k_no_limit}, {24, 800}, {12, 400}, {8, 240}, {5, 160}, {3, 100}, {1, 60}}};

// One line of Markdown: white space collapsed, marker comments broken up.
std::string one_line(std::string_view text, std::size_t limit) {
    std::string line;
    bool blank = false;
    for (const char c : text) {
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            blank = !line.empty();
            continue;
        }
        if (blank) line += ' ';
        blank = false;
        line += c;
    }
    if (line.size() > limit) {
        std::size_t end = limit;
        while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;  // not inside a character
        line.resize(end);
        if (std::count(line.begin(), line.end(), '`') % 2 != 0) line += '`';
        line += "…";
    }
    return line;
}

class EntryWriter {
public:
    EntryWriter(const Json& record, const Limits& limits) : m_record(record), m_limits(limits) {}

    std::string write() {
        heading();
        identity();
        idea();
        list("Change summary", "/changes");
        checks();
        profiles();
        infra();
        metrics();
        verdict();
        raw();
        return std::move(m_text);
    }

private:
    std::string shown(std::string_view text) const { return one_line(text, m_limits.bytes); }

    void bullet(int depth, std::string_view label, std::string_view value) {
        m_text += std::string(static_cast<std::size_t>(depth) * 2, ' ') + "- ";
        m_text += label;
        if (!label.empty()) m_text += value.empty() ? ":" : ": ";
        m_text += value;
        m_text += '\n';
    }

    void field(std::string_view label, std::string_view pointer, int depth = 0) {
        if (stands_in_raw(pointer.substr(pointer.rfind('/') + 1))) return;
        const std::string value = json::text_at(m_record, pointer);
        if (!value.empty()) bullet(depth, label, shown(value));
    }

    static std::string code(const std::string& text) {
        return text.empty() || text.find('`') != std::string::npos ? text : fmt::format("`{}`", text);
    }

    void more(std::size_t hidden, int depth) {
        if (hidden > 0) bullet(depth, "", fmt::format("({} more in the record)", hidden));
    }

    void list(std::string_view label, std::string_view pointer) {
        const auto items = json::texts_at(m_record, pointer);
        if (items.empty()) return;
        if (items.size() == 1) return bullet(0, label, shown(items[0]));
        bullet(0, label, "");
        const std::size_t n = std::min(items.size(), m_limits.items);
        for (std::size_t i = 0; i < n; ++i) bullet(1, "", shown(items[i]));
        more(items.size() - n, 1);
    }

    void heading() {
        const std::string title = one_line(json::text(m_record, "title"), std::min<std::size_t>(m_limits.bytes, 200));
        m_text = fmt::format("### Iteration {}", iteration_of(m_record).text());
        m_text += title.empty() ? "\n\n" : fmt::format(" - {}\n\n", title);
    }

    void identity() {
        const std::string written = json::text_at(m_record, "/raw/date");  // as written in an imported entry
        bullet(0, "Date", written.empty() ? json::text(m_record, "started_at") : written);
        const std::string commit = render_commit(m_record);
        if (!commit.empty()) bullet(0, "Commit", commit);
        field("Starting commit", "/base/commit");
        const auto index = json::integer_at(m_record, "/loop/index");
        const auto total = json::integer_at(m_record, "/loop/total");
        if (index && total) bullet(0, "Codex loop iteration", fmt::format("{} / {}", *index, *total));
        field("Coverage slot", "/coverage_slot");
        field("Change class", "/change_class");
        const std::string decision = json::text(m_record, "decision");
        const auto reasons = json::texts(m_record, "decision_reasons");
        if (!decision.empty()) {
            bullet(0, "Decision",
                   reasons.empty() ? decision : fmt::format("{} ({})", decision, shown(text::join(reasons, "; "))));
        }
    }

    void idea() {
        field("Selected macro-move category", "/idea/move");
        field("Hypothesis", "/idea/hypothesis");
        if (const Json* expected = json::object_at(m_record, "/idea/expected")) {
            for (const auto& [key, value] : expected->items()) {
                if (value.is_string())
                    bullet(0, fmt::format("Expected effect on `{}`", key), shown(value.get<std::string>()));
            }
        }
        list("Reject if", "/idea/reject_if");
    }

    // An imported entry keeps its original fields verbatim, so they must not be written again.
    bool stands_in_raw(std::string_view what) const {
        return json::find_at(m_record, fmt::format("/raw/{}_in_fields", what)) != nullptr;
    }

    void checks() {
        const Json* checks = json::find(m_record, "checks");
        if (checks == nullptr || checks->empty() || stands_in_raw("checks")) return;
        bullet(0, "Correctness checks", "");
        const std::size_t n = std::min(checks->size(), m_limits.items);
        for (std::size_t i = 0; i < n; ++i) {
            const Json& check = (*checks)[i];
            const std::string command = json::text(check, "command");
            if (!command.empty()) bullet(1, "Command", code(shown(command)));
            const std::string result = render_check_result(check);
            if (!result.empty()) bullet(1, "Result", code(shown(result)));
            for (const std::string& line : oracle_lines(check.value("oracle", Json()))) {
                bullet(1, "Oracle", code(shown(line)));
            }
            for (const auto& [label, pointer] : {std::pair{"Job ID", "/job_id"},
                                                 {"Cluster", "/cluster"},
                                                 {"Backend", "/backend"},
                                                 {"Evidence", "/evidence"}}) {
                const std::string value = json::text_at(check, pointer);
                if (!value.empty()) bullet(1, label, code(shown(value)));
            }
        }
        more(checks->size() - n, 1);
    }

    void profiles() {
        const Json* profiles = json::find(m_record, "profiles");
        if (profiles == nullptr || profiles->empty() || stands_in_raw("profiles")) return;
        const std::size_t n = std::min(profiles->size(), m_limits.items);
        for (std::size_t i = 0; i < n; ++i) {
            const Json& profile = (*profiles)[i];
            const std::string arm = json::text(profile, "arm");
            bullet(0, arm.empty() || arm == "candidate" ? "Profile run" : fmt::format("Profile run ({})", arm), "");
            for (const auto& [label, pointer] : {std::pair{"Command", "/command"},
                                                 {"Job ID", "/job_id"},
                                                 {"Cluster", "/cluster"},
                                                 {"TPU", "/tpu"},
                                                 {"W&B run", "/run_url"},
                                                 {"Profiler artifact", "/artifact"},
                                                 {"Trace location", "/trace/path"},
                                                 {"Output path", "/output"},
                                                 {"Failure mode", "/failure"}}) {
                const std::string value = json::text_at(profile, pointer);
                if (!value.empty()) bullet(1, label, code(shown(value)));
            }
            other_settings(profile);
        }
        more(profiles->size() - n, 0);
    }

    // Settings that took effect with a value other than the requested one, for L507.
    void other_settings(const Json& profile) {
        const Json* requested = json::find(profile, "requested");
        const Json* effective = json::find(profile, "effective");
        if (requested == nullptr || effective == nullptr || !requested->is_object()) return;
        const auto words = [](const Json& value) {
            return value.is_string() ? value.get<std::string>() : value.dump();
        };
        for (const auto& [name, asked] : requested->items()) {
            const Json* taken = json::find(*effective, name);
            if (taken == nullptr || *taken == asked) continue;
            bullet(1, "Setting",
                   fmt::format("{}, requested {}, effective {}", code(shown(name)), code(shown(words(asked))),
                               code(shown(words(*taken)))));
        }
    }

    void infra() {
        const Json* failures = json::find(m_record, "infra");
        if (failures == nullptr) return;
        for (std::size_t i = 0; i < std::min(failures->size(), m_limits.items); ++i) {
            const Json& failure = (*failures)[i];
            bullet(0, "Infra failure", json::text(failure, "class"));
            const std::string command = json::text(failure, "command");
            if (!command.empty()) bullet(1, "Command", code(shown(command)));
            const std::string error = json::text(failure, "signature");
            if (!error.empty()) bullet(1, "Error", shown(error));
        }
    }

    // Heading words that the parser reads back as the same kind of comparison.
    std::string compared() const {
        const std::string kind = json::text_at(m_record, "/comparison/kind");
        if (kind == "champion") return " (champion vs candidate)";
        if (kind == "previous") return " (previous vs this iteration)";
        if (kind == "control") return " (control vs candidate)";
        if (kind == "ab") return " (A/B)";
        return "";
    }

    static bool only_before(const Json& value) {
        return json::find(value, "before") != nullptr && json::find(value, "after") == nullptr;
    }

    // Values measured by a loop have too many digits to read; the record keeps them.
    std::string metric_line(const std::string& key, const Json& value) const {
        const auto gain = gain_of(m_record, key, false);
        const bool own = json::text_at(m_record, "/gain/metric") == key && gain && gain->after;
        return own ? fmt::format("{}: `{}`", key, compared_text(*gain)) : render_measured(key, value);
    }

    // Lines of the profiles' traces, except for numbers that the record has measured otherwise.
    std::vector<std::string> trace_lines() const {
        std::vector<std::string> lines;
        const Json* metrics = json::object(m_record, "metrics");
        const Json* profiles = json::array(m_record, "profiles");
        for (const Json& profile : profiles == nullptr ? Json::array() : *profiles) {
            for (const std::string& text : json::texts(profile, "hotspots")) {
                std::string_view line = text;
                if (line.starts_with("- ")) line.remove_prefix(2);
                const auto key = metric_key(line.substr(0, line.find(':')));
                if (key && metrics != nullptr && metrics->contains(*key)) continue;
                lines.push_back(shown(std::string(line)));
            }
        }
        return lines;
    }

    template <class Wanted>
    void metric_group(std::string_view heading, Wanted wanted, const std::vector<std::string>& more_lines = {}) {
        std::vector<std::string> lines;
        for (const char* table : {"/metrics", "/extra_metrics"}) {
            const Json* metrics = json::object_at(m_record, table);
            if (metrics == nullptr) continue;
            for (const auto& [key, value] : metrics->items()) {
                if (value.is_object() && wanted(key, value)) lines.push_back(metric_line(key, value));
            }
        }
        for (const std::string& line : more_lines) lines.push_back(line);
        if (lines.empty()) return;
        bullet(0, heading, "");
        const std::size_t n = std::min(lines.size(), std::max<std::size_t>(m_limits.items, 8));
        for (std::size_t i = 0; i < n; ++i) bullet(1, "", lines[i]);
        more(lines.size() - n, 1);
    }

    void metrics() {
        if (stands_in_raw("metrics")) return;
        const auto throughput = [](std::string_view key) { return key.starts_with("throughput/"); };
        metric_group("Current validated baseline carried in",
                     [&](const auto&, const Json& value) { return only_before(value); });
        metric_group(
            "Hotspots observed" + compared(),
            [&](const auto& key, const Json& value) { return !throughput(key) && !only_before(value); }, trace_lines());
        topk();
        metric_group("MFU/throughput delta" + compared(),
                     [&](const auto& key, const Json& value) { return throughput(key) && !only_before(value); });
        gain();
    }

    void gain() {
        const Json* found = json::find(m_record, "gain");
        const auto gain = found == nullptr ? std::nullopt : parse_gain(*found);
        if (!gain) return;
        const std::string words = gain_text(*gain);
        if (!words.empty()) bullet(0, "Gain over the " + gain->against, words);
        if (!gain->busy.empty()) bullet(0, "Busy machine", shown(gain->busy));
        if (gain->lone_baseline) {
            bullet(0, "Lone baseline",
                   fmt::format("{}, recorded when it became the {}; not used for the gain",
                               quantity(*gain->lone_baseline, gain->unit), gain->against));
        }
    }

    void topk() {
        const Json* tables = json::object(m_record, "topk");
        if (tables == nullptr) return;
        for (const auto& [key, items] : tables->items()) {
            std::string line;
            const std::size_t n = items.is_array() ? std::min(items.size(), m_limits.items) : 0;
            for (std::size_t i = 0; i < n; ++i) {
                const auto ms = json::number(items[i], "ms");
                if (!ms) continue;
                const bool delta = json::find(items[i], "delta") != nullptr && *ms >= 0;
                line += fmt::format("{}{}: {}{} ms", line.empty() ? "" : "; ", json::text(items[i], "path"),
                                    delta ? "+" : "", *ms);
            }
            if (!line.empty()) bullet(0, key, line);
        }
    }

    // Gates that judged nothing appear only in the record.
    void gates() {
        const Json* gates = json::find(m_record, "gates");
        if (gates == nullptr) return;
        std::vector<const Json*> judged;
        for (const Json& gate : *gates) {
            if (json::text(gate, "result") != "skip") judged.push_back(&gate);
        }
        if (judged.empty()) return;
        bullet(0, "Acceptance gate checklist", "");
        const std::size_t n = std::min(judged.size(), m_limits.items);
        for (std::size_t i = 0; i < n; ++i) {
            const std::string reason = json::text(*judged[i], "reason");
            const std::string result = json::text(*judged[i], "result");
            bullet(1, json::text(*judged[i], "id"),
                   reason.empty() ? result : fmt::format("{} ({})", result, shown(reason)));
        }
        more(gates->size() - n, 1);
    }

    void verdict() {
        gates();
        field("Assessment", "/assessment");
        list("Interpretation", "/interpretation");
        field("Next hypothesis", "/next_hypothesis");
        const Json* notes = json::find(m_record, "notes");
        for (std::size_t i = 0; notes != nullptr && i < std::min(notes->size(), m_limits.items); ++i) {
            bullet(0, fmt::format("Note ({})", json::text((*notes)[i], "at")), shown(json::text((*notes)[i], "text")));
        }
    }

    // Lines of an imported entry without a field of their own, verbatim.
    void raw() {
        const auto keep = [&](const std::string& text) {
            for (const auto line : text::split(text, '\n')) {
                if (line.find("<!-- gdnctl:") != std::string_view::npos) continue;
                m_text += line;
                m_text += '\n';
            }
        };
        const auto fields = json::texts_at(m_record, "/raw/fields");
        const std::size_t n = std::min(fields.size(), m_limits.items);
        for (std::size_t i = 0; i < n; ++i) keep(fields[i]);
        more(fields.size() - n, 0);
        const auto lines = json::texts_at(m_record, "/raw/lines");
        if (!lines.empty() && m_limits.items == k_no_limit) {
            m_text += '\n';
            for (const auto& line : lines) keep(line);
        }
    }

    const Json& m_record;
    const Limits& m_limits;
    std::string m_text;
};

std::string render_experiment(const Json& record) {
    std::string text = fmt::format("## {} - {}\n", json::text(record, "started_at").substr(0, 10),
                                   one_line(json::text(record, "title"), 200));
    const Json* sections = json::find(record, "sections");
    if (sections == nullptr) return text;
    for (const auto& [name, body] : sections->items()) {
        if (!body.is_string()) continue;
        text += fmt::format("\n### {}\n", name);
        const auto written = body.get<std::string>();
        for (const auto line : text::split(written, '\n')) {
            if (line.find("<!-- gdnctl:") != std::string_view::npos) continue;
            // A heading of level 1 or 2 would end the entry.
            text += line.starts_with("# ") || line.starts_with("## ") ? "###" + std::string(line.substr(line.find(' ')))
                                                                      : std::string(line);
            text += '\n';
        }
    }
    return text;
}

}  // namespace

std::string render_metric(std::string_view key, const Json& value) {
    const std::string unit = json::text(value, "unit");
    const Kind kind = kind_of(key, unit);
    return fmt::format("{}: `{}`", label_of(key, unit), sides(value, [&](double n) { return number(n, kind); }));
}

std::string render_measured(std::string_view key, const Json& value) {
    const auto after = json::number(value, "after");
    const std::string unit = json::text(value, "unit");
    if (json::text(value, "source") != "profile" || unit.empty() || !after || json::find(value, "before") != nullptr) {
        return render_metric(key, value);
    }
    if (metric_key(key) && kind_of(key, "") == Kind::ms) {
        return fmt::format("{}: `{:.6f} ms`", label_of(key, ""), *after);
    }
    return fmt::format("{}: `{}`", key, quantity(*after, unit));
}

std::string metric_for_people(std::string_view key, const Json& value) {
    const Kind kind = kind_of(key, json::text(value, "unit"));
    const std::string unit = kind == Kind::fraction ? "%" : kind == Kind::ms ? "ms" : shown_unit(key, &value);
    const auto number_text = [&](double n) { return quantity(kind == Kind::fraction ? n * 100 : n, unit); };
    return fmt::format("{}: `{}`", label_of(key, json::text(value, "unit")), sides(value, number_text));
}

std::string render_check_result(const Json& check) {
    std::string counts;
    for (const char* name : {"failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "errors", "warnings"}) {
        const auto count = json::integer(check, name);
        const bool matters = count && (*count != 0 || std::string_view(name) == "passed");
        if (matters) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", *count, name);
    }
    if (!counts.empty()) return counts;
    const std::string verdict = json::text(check, "verdict");
    const std::string judged = render_judged(check);
    const auto exit = json::integer(check, "exit");
    if (exit && *exit != 0) {
        return verdict.empty() ? fmt::format("FAILED (exit {})", *exit)
                               : fmt::format("FAILED (exit {}, verdict {}{}{})", *exit, verdict,
                                             judged.empty() ? "" : ": ", judged);
    }
    if (!verdict.empty()) return judged.empty() ? verdict : fmt::format("{} ({})", verdict, judged);
    return exit ? "OK" : json::text(check, "result");
}

std::string render_commit(const Json& record) {
    const std::string status = json::text(record, "commit_status");
    const std::string reason = json::text(record, "commit_reason");
    const auto commits = json::texts(record, "commits");
    if (status == "self") return "this commit";
    if (status == "pending") return "(pending)";
    if (status == "none") return reason.empty() ? "none" : fmt::format("none ({})", reason);
    if (status == "other") return reason;
    return commits.empty() ? std::string() : commits.back();
}

// The Markdown entry of a record.

std::string render_entry(const Json& record, const RenderOptions& options) {
    if (is_experiment(record)) return text::visible(render_experiment(record));
    std::string text;
    for (const Limits& limits : k_steps) {
        text = text::visible(EntryWriter(record, limits).write());
        if (options.max_bytes == 0 || text.size() <= options.max_bytes) break;
    }
    return text;
}

std::string render_block(const Json& record, const RenderOptions& options) {
    const std::string body = render_entry(record, options);
    return fmt::format("<!-- gdnctl:begin {} sha256={} -->\n{}<!-- gdnctl:end -->\n", id_of(record), block_digest(body),
                       body);
}

}  // namespace gdnctl::runlog
