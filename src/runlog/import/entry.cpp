// Turns one hand-written entry into one record.
#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "runlog/import/detail.h"
#include "runlog/import/import.h"
#include "runlog/parse/detail.h"
#include "runlog/records/record.h"
#include "runlog/render/render.h"

namespace gdnctl::runlog {

namespace {

using detail::k_by_wording, detail::k_exact, detail::k_guess;

// Labels whose value is a single text of the record.
struct TextLabel {
    std::string_view label;  // normalised
    std::string_view pointer;
    double confidence;
    bool prose = false;  // may continue below the bullet
};
constexpr std::array<TextLabel, 16> k_texts = {{{"hypothesis", "/idea/hypothesis", k_exact, true},
                                                {"selected hypothesis", "/idea/hypothesis", k_exact, true},
                                                {"selected macro move category", "/idea/move", k_exact},
                                                {"coverage slot", "/coverage_slot", k_exact},
                                                {"change class", "/change_class", k_exact},
                                                {"decision", "/decision", k_exact},
                                                {"assessment", "/assessment", k_exact, true},
                                                {"next hypothesis", "/next_hypothesis", k_exact, true},
                                                {"next bold hypothesis", "/next_hypothesis", k_exact, true},
                                                {"next hypotheses", "/next_hypothesis", k_exact, true},
                                                {"next bold hypotheses", "/next_hypothesis", k_exact, true},
                                                {"starting commit", "/base/commit", k_exact},
                                                {"started", "/started_at", k_exact},
                                                {"finished", "/finished_at", k_exact},
                                                {"run id", "/loop/run_id", k_exact},
                                                {"outcome", "/outcome", k_by_wording}}};

std::string inside_marks(std::string_view value) { return std::string(strip_marks(value)); }

class Importer {
public:
    explicit Importer(const EntryHead& head)
        : m_entry(parse_entry(head)), m_iteration{head.number, std::string(head.suffix)} {}

    Json run() {
        const Field* date = m_entry.field(m_entry.date);
        const std::string written = date != nullptr ? inside_marks(date->value) : std::string();
        const auto time = parse_iso8601(written);
        m_record = empty_record("import", m_iteration, time.value_or(WallTime{}));
        m_record["id"] = time ? make_record_id(*time, m_iteration) : "import-" + m_iteration.text();
        if (!time) m_record["started_at"] = nullptr;
        m_record["source"] = "import";
        m_record["title"] = std::string(m_entry.head.title);
        m_record["raw"] = {{"heading", std::string(m_entry.head.heading)}, {"digest", entry_digest(m_entry.head.text)}};
        if (!written.empty()) m_record["raw"]["date"] = written;
        if (time) sure("started_at", k_exact);
        commit();
        for (std::size_t i = 0; i < m_entry.fields.size(); ++i) {
            if (m_entry.fields[i].parent < 0) top_level(m_entry.fields[i], static_cast<std::int32_t>(i));
        }
        headed_texts();
        if (m_record["checks"].empty()) nested_checks();
        m_record["raw"]["fields"] = std::move(m_kept);
        lines();
        metrics();
        verdict();
        m_record["confidence"] = std::move(m_confidence);
        return std::move(m_record);
    }

private:
    void sure(std::string_view field, double confidence) { m_confidence[std::string(field)] = confidence; }

    void keep(const Field& field) {
        std::string text(field.line);
        LineCursor cursor(field.body);
        Line line;
        std::string body;
        while (cursor.next(line)) {
            if (line.text.starts_with("<!-- gdnctl:")) break;
            body += '\n';
            body += line.text;
        }
        while (!body.empty() && (body.back() == '\n' || body.back() == ' ')) body.pop_back();
        m_kept.push_back(text + body);
    }

    void commit() {
        const CommitValue& value = m_entry.commit_value;
        const char* status = nullptr;
        switch (value.kind) {
            case CommitKind::missing: return;
            case CommitKind::committed:
                status = "committed";
                m_record["commits"].push_back(std::string(value.sha));
                break;
            case CommitKind::none:
                status = "none";
                if (!value.reason.empty()) m_record["commit_reason"] = std::string(value.reason);
                break;
            case CommitKind::self: status = "self"; break;
            case CommitKind::pending: status = "pending"; break;
            case CommitKind::other:
                status = "other";
                m_record["commit_reason"] = std::string(value.text);
                break;
        }
        m_record["commit_status"] = status;
        sure("commit_status", value.kind == CommitKind::other ? k_guess : k_exact);
    }

    // Every line of the field can be stored: nothing is nested that the record has no field for.
    bool plain(const Field& field) const { return !detail::has_text(field.body); }

    void top_level(const Field& field, std::int32_t index) {
        if (index == m_entry.date || index == m_entry.commit) {
            if (!plain(field)) keep(field);
            return;
        }
        // "Next bold hypothesis (escalation)"
        const std::string label = normalise_label(field.label.substr(0, field.label.find('(')));
        for (const TextLabel& known : k_texts) {
            if (label == known.label && take_text(known, field, index)) return;
        }
        if (label == "codex loop iteration" && take_loop(field)) return;
        if (label == "change summary" && take_list("changes", field, index)) return;
        if (label == "interpretation" && take_list("interpretation", field, index)) return;
        if (detail::label_is(field.label, "correctness", true)) checks(field);
        if (detail::label_is(field.label, "profile run", true) || detail::label_is(field.label, "profile runs", true)) {
            profile(index);
        }
        keep(field);
    }

    bool take_text(const TextLabel& known, const Field& field, std::int32_t index) {
        if (!plain(field) && !known.prose) return false;
        const std::string text = detail::text_of(m_entry, index);
        const std::string value = inside_marks(text);
        const Json::json_pointer at{std::string(known.pointer)};
        if (value.empty() || !m_record[at].is_null()) return false;  // the first occurrence counts
        if ((known.pointer == "/started_at" || known.pointer == "/finished_at") && !parse_iso8601(value)) return false;
        m_record[at] = known.prose ? text : value;
        sure(known.pointer.substr(1), known.confidence);
        if (plain(field)) return true;
        const std::string name(known.pointer.substr(known.pointer.rfind('/') + 1));
        m_record["raw"][name + "_in_fields"] = true;  // the lines are kept as they are
        return false;
    }

    // "#### Next bold hypothesis" above bullets or a paragraph. The lines are also kept as they are.
    void headed_texts() {
        for (std::size_t i = 0; i < m_entry.verbatim.size(); ++i) {
            const Line& heading = m_entry.verbatim[i];
            if (!heading.text.starts_with('#')) continue;
            std::string_view words = text::trim(heading.text.substr(heading.text.find_first_not_of('#')));
            if (words.ends_with(':')) words.remove_suffix(1);
            const std::string label = normalise_label(words.substr(0, words.find('(')));
            for (const TextLabel& known : k_texts) {
                const Json::json_pointer at{std::string(known.pointer)};
                if (label != known.label || !known.prose || !m_record[at].is_null()) continue;
                const std::string text = detail::text_below(m_entry, i, is_known);
                if (text.empty()) continue;
                m_record[at] = text;
                sure(known.pointer.substr(1), k_by_wording);
            }
        }
    }

    static bool is_known(std::string_view label) {
        const std::string name = normalise_label(label.substr(0, label.find('(')));
        const auto same = [&](const TextLabel& one) { return one.label == name; };
        return name == "date" || name == "commit" || std::any_of(k_texts.begin(), k_texts.end(), same);
    }

    // Numbers must stay where the parser looks for them.
    bool has_readings(const Field& field) const {
        const char* end = field.body.data() + field.body.size();
        return std::any_of(m_entry.readings.begin(), m_entry.readings.end(), [&](const Reading& reading) {
            return reading.line.data() >= field.line.data() && reading.line.data() < end;
        });
    }

    // `8 / 10`
    bool take_loop(const Field& field) {
        const std::string value = inside_marks(field.value);
        const auto slash = value.find('/');
        if (slash == std::string::npos || !plain(field)) return false;
        const auto index = text::parse_int(text::trim(std::string_view(value).substr(0, slash)));
        const auto total = text::parse_int(text::trim(std::string_view(value).substr(slash + 1)));
        if (!index || !total) return false;
        m_record["loop"]["index"] = *index;
        m_record["loop"]["total"] = *total;
        sure("loop", k_exact);
        return true;
    }

    // A text, or one level of bullets without nested bullets, and nothing else.
    bool take_list(const char* name, const Field& field, std::int32_t index) {
        if (!m_record[name].empty()) return false;
        Json items = Json::array();
        if (!field.value.empty()) items.push_back(std::string(field.value));
        std::size_t lines = 0;
        for (const Field& child : m_entry.fields) {
            if (child.parent != index) continue;
            if (!plain(child)) return false;
            items.push_back(std::string(detail::match_bullet(child.line)->content));
            ++lines;
        }
        std::size_t written = 0;
        LineCursor cursor(field.body);
        Line line;
        while (cursor.next(line)) {
            if (line.text.starts_with("<!-- gdnctl:")) break;
            if (!text::trim(line.text).empty()) ++written;
        }
        if (written != lines || items.empty() || (!field.value.empty() && lines > 0)) return false;
        if (has_readings(field)) return false;
        m_record[name] = std::move(items);
        sure(name, k_exact);
        return true;
    }

    void checks(const Field& field) {
        for (const TestCounts& counts : m_entry.tests) {
            if (counts.line.data() < field.line.data() || counts.line.data() > field.body.data() + field.body.size()) {
                continue;
            }
            const std::string ran = m_commands.of(counts);
            Json check = {{"name", nullptr}, {"command", ran.empty() ? Json() : Json(ran)}, {"exit", nullptr}};
            const auto put = [&](const char* name, const std::optional<std::int64_t>& n) {
                if (n) check[name] = *n;
            };
            put("passed", counts.passed);
            put("failed", counts.failed);
            put("skipped", counts.skipped);
            put("deselected", counts.deselected);
            put("xfailed", counts.xfailed);
            put("xpassed", counts.xpassed);
            put("errors", counts.errors);
            put("warnings", counts.warnings);
            put("rerun", counts.rerun);
            if (!counts.verdict.empty()) check["verdict"] = std::string(counts.verdict);
            m_record["checks"].push_back(std::move(check));
            m_record["raw"]["checks_in_fields"] = true;
            sure("checks", k_exact);
        }
    }

    // "Correctness" in an acceptance checklist, for an entry without a field of its own for it.
    void nested_checks() {
        for (const Field& field : m_entry.fields) {
            const bool nested = field.parent >= 0 && detail::label_is(field.label, "correctness", true);
            if (nested && m_record["checks"].empty()) checks(field);
        }
    }

    void profile(std::int32_t index) {
        Json profile = {{"arm", "candidate"}};
        struct Place {
            std::string_view label;  // normalised
            const char* pointer;
        };
        static constexpr std::array<Place, 12> k_places = {{{"command", "/command"},
                                                            {"job id", "/job_id"},
                                                            {"ray job", "/job_id"},
                                                            {"job/run", "/job_id"},
                                                            {"run", "/run_url"},
                                                            {"w&b run", "/run_url"},
                                                            {"profiler artifact", "/artifact"},
                                                            {"trace location", "/trace/path"},
                                                            {"downloaded trace", "/trace/path"},
                                                            {"output path", "/output"},
                                                            {"failure mode", "/failure"},
                                                            {"cluster", "/cluster"}}};
        bool any = false;
        for (const Field& child : m_entry.fields) {
            if (child.parent != index) continue;
            const std::string label = normalise_label(child.label);
            for (const Place& place : k_places) {
                const std::string value = inside_marks(child.value);
                if (label != normalise_label(place.label) || value.empty()) continue;
                const Json::json_pointer at{std::string(place.pointer)};
                if (profile.contains(at)) continue;
                profile[at] = value;
                any = true;
            }
        }
        if (!any) return;
        m_record["profiles"].push_back(std::move(profile));
        m_record["raw"]["profiles_in_fields"] = true;
        sure("profiles", k_by_wording);
    }

    // Headings and prose between bullets that do not continue a bullet.
    void lines() {
        Json kept = Json::array();
        for (const Line& line : m_entry.verbatim) {
            const bool in_field = std::any_of(m_entry.fields.begin(), m_entry.fields.end(), [&](const Field& field) {
                return line.text.data() >= field.body.data() &&
                       line.text.data() < field.body.data() + field.body.size();
            });
            if (!in_field && !line.text.starts_with("<!-- gdnctl:")) kept.push_back(std::string(line.text));
        }
        if (!kept.empty()) m_record["raw"]["lines"] = std::move(kept);
        Json comments = Json::array();
        for (const Line& line : m_entry.comments) comments.push_back(std::string(line.text));
        if (!comments.empty()) m_record["raw"]["comments"] = std::move(comments);
    }

    // Values of several arms, none of them the candidate's: stored by arm, and not as the iteration's own.
    void arm_values(const Metric& metric) {
        for (const Reading& reading : m_entry.readings) {
            const auto& value = reading.after ? reading.after : reading.before;
            if (reading.key != metric.key || !value || reading.arm.empty()) continue;
            const std::string arm = text::to_lower(reading.arm);
            Json& profiles = m_record["profiles"];
            auto profile = std::find_if(profiles.begin(), profiles.end(),
                                        [&](const Json& known) { return json::text(known, "arm") == arm; });
            if (profile == profiles.end()) {
                profiles.push_back({{"arm", arm}, {"metrics", Json::object()}});
                profile = profiles.end() - 1;
            }
            (*profile)["metrics"][metric.key] = value->value;
        }
        m_record["raw"]["profiles_in_fields"] = true;
        sure("profiles", k_by_wording);
    }

    void metrics() {
        Comparison kind = Comparison::unknown;
        for (const Metric& metric : m_entry.metrics) {
            if (metric.derived) continue;
            if (metric.ambiguous_arm) {
                arm_values(metric);
                continue;
            }
            const bool text = !metric.before_text.empty() || !metric.after_text.empty();
            const auto number = [](const std::optional<double>& n) { return n ? Json(*n) : Json(); };
            Json value = {{"before", text ? Json(std::string(metric.before_text)) : number(metric.before)},
                          {"after", text ? Json(std::string(metric.after_text)) : number(metric.after)},
                          {"source", "import"}};
            if (metric.comparison != Comparison::unknown) {
                value["comparison"] = name_of(metric.comparison);
                if (kind == Comparison::unknown) kind = metric.comparison;
            }
            if (!metric.known && metric.unit == Unit::ms) value["unit"] = "ms";
            if (!metric.known && metric.unit == Unit::fraction) value["unit"] = "fraction";
            const bool known = metric.known && !text;
            m_record[known ? "metrics" : "extra_metrics"][metric.key] = std::move(value);
            sure("metrics." + metric.key, known ? k_exact : k_by_wording);
        }
        for (const TopK& table : m_entry.topk) {
            Json items = Json::array();
            for (const TopK::Item& item : table.items) {
                Json one = {{"path", std::string(item.path)}, {"ms", item.ms}};
                if (item.is_delta) one["delta"] = true;
                items.push_back(std::move(one));
            }
            if (!items.empty()) m_record["topk"][std::string(table.key)] = std::move(items);
        }
        if (!m_entry.readings.empty() || !m_entry.topk.empty()) m_record["raw"]["metrics_in_fields"] = true;
        if (m_entry.readings.empty()) return;
        m_record["comparison"]["kind"] = name_of(kind);
        if (kind != Comparison::unknown) sure("comparison.kind", k_by_wording);
    }

    void verdict() {
        const std::string decision = json::text(m_record, "decision");
        const auto ruling = detail::ruling_of(m_entry, decision);
        if (!ruling) return;
        if (decision.empty()) {
            m_record["decision"] = ruling->decision;
            sure("decision", ruling->confidence);
        }
        if (!m_record["outcome"].is_null()) return;
        m_record["outcome"] = ruling->outcome;
        sure("outcome", ruling->confidence);
    }

    Entry m_entry;
    detail::CheckCommands m_commands{m_entry};
    IterationNumber m_iteration;
    Json m_record;
    Json m_kept = Json::array();
    Json m_confidence = Json::object();
};

}  // namespace

Json import_entry(const EntryHead& head) { return Importer(head).run(); }

}  // namespace gdnctl::runlog
