#include "runlog/records/record.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "runlog/parse/grammar.h"

namespace gdnctl::runlog {

namespace {

constexpr std::string_view k_file_url = "file://";

bool is_name_char(char c) { return is_word(c) || c == '.' || c == '-'; }

// Where the path that contains a root begins; npos: the root is in the middle of another path.
std::size_t path_begin(std::string_view text, std::size_t root, bool windows) {
    if (windows) {
        const bool drive = root > 0 && is_alpha(text[root - 1]);
        return drive && (root == 1 || !is_name_char(text[root - 2])) ? root - 1 : std::string_view::npos;
    }
    if (text.substr(0, root).ends_with(k_file_url)) return root - k_file_url.size();
    const bool inside = root > 0 && (is_name_char(text[root - 1]) || text[root - 1] == '/' || text[root - 1] == '~');
    return inside ? std::string_view::npos : root;
}

enum class Shape { text, object, list, number };

struct KnownField {
    std::string_view name;
    Shape shape;
};

constexpr KnownField k_fields[] = {
    {"title", Shape::text},
    {"loop", Shape::object},
    {"started_at", Shape::text},
    {"finished_at", Shape::text},
    {"base", Shape::object},
    {"commits", Shape::list},
    {"commit_status", Shape::text},
    {"commit_reason", Shape::text},
    {"outcome", Shape::text},
    {"decision", Shape::text},
    {"decision_reasons", Shape::list},
    {"change_class", Shape::text},
    {"coverage_slot", Shape::text},
    {"idea", Shape::object},
    {"shortlist", Shape::list},
    {"changes", Shape::list},
    {"files", Shape::list},
    {"checks", Shape::list},
    {"profiles", Shape::list},
    {"comparison", Shape::object},
    {"metrics", Shape::object},
    {"extra_metrics", Shape::object},
    {"gain", Shape::object},
    {"topk", Shape::object},
    {"gates", Shape::list},
    {"infra", Shape::list},
    {"cost", Shape::object},
    {"assessment", Shape::text},
    {"interpretation", Shape::list},
    {"next_hypothesis", Shape::text},
    {"notes", Shape::list},
    {"raw", Shape::object},
    {"supersedes", Shape::text},
    {"kind", Shape::text},
    {"source", Shape::text},
    {"sections", Shape::object},
    {"confidence", Shape::object},
};

bool has_shape(const Json& value, Shape shape) {
    switch (shape) {
        case Shape::text: return value.is_string();
        case Shape::object: return value.is_object();
        case Shape::list: return value.is_array();
        case Shape::number: return value.is_number();
    }
    return false;
}

const char* name_of(Shape shape) {
    switch (shape) {
        case Shape::text: return "a string";
        case Shape::object: return "an object";
        case Shape::list: return "an array";
        case Shape::number: return "a number";
    }
    return "something else";
}

tl::unexpected<Error> bad(std::string_view what, std::string_view field, std::string_view needs) {
    return fail(ErrorKind::bad_input, fmt::format("{}: field `{}` is not {}", what, field, needs),
                "docs/reference/log-records.md describes the record");
}

// An id appears in HTML comments and commit trailers.
bool is_id(std::string_view id) {
    return !id.empty() && id.size() <= 200 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':' || c == '+';
    }) && id.find("--") == std::string_view::npos;
}

Status check_metrics(const Json& record, std::string_view what) {
    const Json* metrics = json::find(record, "metrics");
    if (metrics == nullptr) return {};
    for (const auto& [key, value] : metrics->items()) {
        if (!value.is_object()) return bad(what, "metrics." + key, "an object");
        for (const char* side : {"before", "after"}) {
            const Json* number = json::find(value, side);
            if (number != nullptr && !number->is_number()) {
                return bad(what, fmt::format("metrics.{}.{}", key, side), "a number or null");
            }
        }
    }
    return {};
}

std::string without_home(std::string text) {
    const std::vector<HomePath> paths = find_home_paths(text);
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) text.replace(path->offset, path->length, "~");
    return text;
}

struct Known {
    std::string_view outcome;
    OutcomeWords words;
};
constexpr std::array k_outcomes = {
    Known{"test-fail", {"rejected", "tests failed"}}, Known{"compile", {"rejected", "compile error"}},
    Known{"oom", {"rejected", "out of memory"}},      Known{"flaky", {"accepted", "flaky test"}},
    Known{"infra", {"parked", "infrastructure"}},     Known{"environment", {"parked", "environment"}},
    Known{"agent-error", {"failed", "agent error"}},  Known{"timeout", {"failed", "timed out"}},
    Known{"error", {"failed", "loop error"}}};

struct KnownDecision {
    std::string_view name, words;
};
constexpr std::array k_decisions = {KnownDecision{"within_threshold", "no clear gain"},
                                    KnownDecision{"control_flow_regression", "regression found by a gate"},
                                    KnownDecision{"promote_corrupt_champion", "promoted"},
                                    KnownDecision{"metric_missing", "no measurement"},
                                    KnownDecision{"incomparable", "not comparable"},
                                    KnownDecision{"common_factor", "not comparable"},
                                    KnownDecision{"quarantined", "not believed"},
                                    KnownDecision{"baseline_shift", "new baseline"},
                                    KnownDecision{"aa_ok", "base unchanged"}};

}  // namespace

std::vector<HomePath> find_home_paths(std::string_view text) {
    std::vector<HomePath> found;
    for (const std::string_view root : {"/Users/", "/home/", ":\\Users\\"}) {
        for (std::size_t at = text.find(root); at != std::string_view::npos; at = text.find(root, at + root.size())) {
            const std::size_t begin = path_begin(text, at, root[0] == ':');
            if (begin == std::string_view::npos) continue;
            const std::size_t name = at + root.size();
            std::size_t end = name;
            while (end < text.size() && is_name_char(text[end])) ++end;
            while (end > name && text[end - 1] == '.') --end;
            if (end > name) found.push_back({begin, end - begin});
        }
    }
    std::sort(found.begin(), found.end(), [](const HomePath& a, const HomePath& b) { return a.offset < b.offset; });
    return found;
}

std::string IterationNumber::text() const { return std::to_string(number) + suffix; }

bool IterationNumber::before(const IterationNumber& other) const {
    if (number != other.number) return number < other.number;
    if (suffix.size() != other.suffix.size()) return suffix.size() < other.suffix.size();
    return text::to_lower(suffix) < text::to_lower(other.suffix);
}

std::optional<IterationNumber> parse_iteration_number(std::string_view text) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const auto number = text::parse_int(text.substr(0, digits));
    const std::string_view suffix = text.substr(digits);
    const bool letters =
        std::all_of(suffix.begin(), suffix.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
    if (!number || !letters) return std::nullopt;
    return IterationNumber{*number, std::string(suffix)};
}

std::string make_record_id(WallTime started, const IterationNumber& iteration) {
    return fmt::format("{}Z-{}", format_compact_utc(started), iteration.text());
}

Json empty_record(std::string_view id, const IterationNumber& iteration, WallTime started) {
    const Json list = Json::array();
    const Json map = Json::object();
    Json record = {{"schema", k_record_schema},
                   {"id", id},
                   {"iteration", iteration.number},
                   {"suffix", iteration.suffix},
                   {"title", nullptr},
                   {"loop", {{"run_id", nullptr}, {"index", nullptr}, {"total", nullptr}}},
                   {"started_at", format_iso8601(started)},
                   {"finished_at", nullptr},
                   {"base", {{"commit", nullptr}, {"fingerprint", map}}},
                   {"commits", list},
                   {"commit_status", nullptr},
                   {"outcome", nullptr},
                   {"decision", nullptr},
                   {"decision_reasons", list},
                   {"change_class", nullptr},
                   {"coverage_slot", nullptr},
                   {"idea",
                    {{"id", nullptr},
                     {"move", nullptr},
                     {"title", nullptr},
                     {"hypothesis", nullptr},
                     {"expected", map},
                     {"reject_if", list}}},
                   {"shortlist", list},
                   {"changes", list},
                   {"files", list},
                   {"checks", list},
                   {"profiles", list},
                   {"comparison", {{"kind", nullptr}, {"before", nullptr}, {"after", nullptr}}},
                   {"metrics", map},
                   {"extra_metrics", map},
                   {"gain", nullptr},
                   {"topk", map},
                   {"gates", list},
                   {"infra", list},
                   {"cost", {{"wall_s", nullptr}, {"tpu_s", nullptr}, {"tokens", nullptr}, {"retries", nullptr}}},
                   {"assessment", nullptr},
                   {"interpretation", list},
                   {"next_hypothesis", nullptr},
                   {"notes", list},
                   {"raw", map}};
    return record;
}

Status check_record(const Json& value, std::string_view what) {
    if (!value.is_object()) return fail(ErrorKind::bad_input, fmt::format("{}: not a JSON object", what));
    if (json::text(value, "schema") != k_record_schema) {
        return bad(what, "schema", fmt::format("\"{}\"", k_record_schema));
    }
    if (!is_id(json::text(value, "id"))) return bad(what, "id", "an identifier");
    const bool experiment = is_experiment(value);
    const auto number = json::integer(value, "iteration");
    if (!experiment && (!number || *number < 0)) return bad(what, "iteration", "a number of 0 or more");
    const auto suffix = json::text(value, "suffix");
    const auto suffixed = parse_iteration_number("0" + suffix);
    if (!suffixed || suffixed->suffix != suffix) return bad(what, "suffix", "made of letters");
    for (const KnownField& field : k_fields) {
        const Json* found = json::find(value, field.name);
        if (found != nullptr && !has_shape(*found, field.shape)) return bad(what, field.name, name_of(field.shape));
    }
    return check_metrics(value, what);
}

std::string id_of(const Json& record) { return json::text(record, "id"); }

IterationNumber iteration_of(const Json& record) {
    return {json::integer(record, "iteration").value_or(0), json::text(record, "suffix")};
}

std::string replaced_id(const Json& record) { return json::text(record, "supersedes"); }

bool is_import(const Json& record) { return json::text(record, "source") == "import"; }

bool is_experiment(const Json& record) { return json::text(record, "kind") == "experiment"; }

Json superseding(const Json& old, WallTime at, std::string_view why) {
    Json record = old;
    const std::string id = id_of(old);
    // 20260310T165307Z-82 -> 20260310T165307Z-82.2 -> …-82.3
    const auto dot = id.rfind('.');
    const auto count = dot == std::string::npos ? std::nullopt : text::parse_int(std::string_view(id).substr(dot + 1));
    record["id"] = count ? fmt::format("{}.{}", id.substr(0, dot), *count + 1) : id + ".2";
    record["supersedes"] = id;
    if (!record.contains("notes") || !record["notes"].is_array()) record["notes"] = Json::array();
    record["notes"].push_back({{"at", format_iso8601(at)}, {"text", why}});
    return record;
}

std::vector<Json> current_records(const std::vector<Json>& all) {
    std::vector<Json> current;
    std::map<std::string, std::size_t> slot_of;  // id -> position in `current`
    for (const Json& record : all) {
        const std::string id = id_of(record);
        auto slot = slot_of.find(replaced_id(record));
        if (slot == slot_of.end()) slot = slot_of.find(id);  // the same line twice, as a union merge leaves it
        if (slot == slot_of.end()) {
            slot_of[id] = current.size();
            current.push_back(record);
        } else {
            current[slot->second] = record;
            slot_of[id] = slot->second;
        }
    }
    return current;
}

void make_public(Json& record) {
    if (record.is_string()) {
        record = text::visible(without_home(redact(record.get<std::string>())));
    } else if (record.is_object()) {
        Json out = Json::object();
        for (auto field = record.begin(); field != record.end(); ++field) {
            make_public(field.value());
            out[text::visible(field.key())] = std::move(field.value());
        }
        record = std::move(out);
    } else if (record.is_array()) {
        for (auto& item : record) make_public(item);
    }
}

OutcomeWords outcome_words(std::string_view outcome) {
    const auto at =
        std::find_if(k_outcomes.begin(), k_outcomes.end(), [&](const Known& one) { return one.outcome == outcome; });
    return at == k_outcomes.end() ? OutcomeWords{outcome, {}} : at->words;
}

std::string outcome_phrase(std::string_view outcome) {
    const OutcomeWords words = outcome_words(outcome);
    return words.cause.empty() ? std::string(words.result) : fmt::format("{} ({})", words.result, words.cause);
}

std::string_view decision_words(std::string_view decision) {
    const auto at = std::find_if(k_decisions.begin(), k_decisions.end(),
                                 [&](const KnownDecision& one) { return one.name == decision; });
    return at == k_decisions.end() ? decision : at->words;
}

std::string reason_words(std::string_view reason) {
    const std::size_t end = std::min(reason.find_first_of(":;"), reason.size());
    const std::string_view decision = reason.substr(0, end);
    if (decision == "promoted") return std::string(text::trim(reason.substr(std::min(end + 1, reason.size()))));
    return std::string(decision_words(decision)) + std::string(reason.substr(end));
}

namespace {

// "out, stage solve: the inverse is that of I - M; 12 cases, 312 x budget, smallest: d64"
std::string group_line(const Json& group) {
    std::string line = json::text(group, "tensor");
    if (line.empty()) line = json::text(group, "verdict");
    if (const auto stage = json::text(group, "stage"); !stage.empty()) line += ", stage " + stage;
    if (const auto hint = json::text(group, "hint"); !hint.empty()) line += ": " + hint;
    const Json* cases = json::find(group, "cases");
    const std::size_t n = cases != nullptr && cases->is_array() ? cases->size() : 1;
    line += fmt::format("; {} case{}", n, n == 1 ? "" : "s");
    if (const auto error = json::number_at(group, "/error_x_budget"); error && *error > 0) {
        line += fmt::format(", {} x budget", number_for_people(*error, 3));
    }
    return line + fmt::format("{}: {}", n == 1 ? "" : ", smallest", json::text(group, "case"));
}

}  // namespace

std::vector<std::string> oracle_lines(const Json& oracle) {
    constexpr std::size_t k_most_groups = 8;
    std::vector<std::string> lines;
    const Json* groups = json::find(oracle, "groups");
    if (groups == nullptr || !groups->is_array() || groups->empty()) return lines;
    const std::size_t shown = std::min(groups->size(), k_most_groups);
    for (std::size_t i = 0; i < shown; ++i) lines.push_back(group_line((*groups)[i]));
    const std::int64_t more =
        json::integer(oracle, "more_groups").value_or(0) + static_cast<std::int64_t>(groups->size() - shown);
    if (more > 0) lines.push_back(fmt::format("and {} more", more));
    if (const auto token = json::text(oracle, "first_wrong_token"); !token.empty()) {
        lines.push_back("first wrong token: " + token);
    }
    lines.push_back(
        fmt::format("reproduce: {} --case {}", json::text(oracle, "command"), json::text((*groups)[0], "case")));
    return lines;
}

}  // namespace gdnctl::runlog
