// gdnctl.lint/1 and SARIF 2.1.0.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "runlog/lint/lint.h"
#include "runlog/parse/block.h"

namespace gdnctl::runlog {

namespace {

Json finding_to_json(const Finding& finding) {
    Json item = {{"rule", finding.rule->id},
                 {"name", finding.rule->name},
                 {"severity", name_of(finding.severity)},
                 {"line", finding.line},
                 {"column", finding.column},
                 {"end_line", finding.end_line},
                 {"end_column", finding.end_column},
                 {"iteration", nullptr},
                 {"message", finding.message},
                 {"fix", nullptr}};
    if (!finding.iteration.empty()) item["iteration"] = finding.iteration;
    if (finding.fix && !finding.fix->edits.empty()) {
        item["fix"] = {{"safe", finding.fix->safe}, {"text", redact(finding.fix->edits.front().text)}};
    }
    return item;
}

const char* level_of(Severity severity) {
    return severity == Severity::error ? "error" : severity == Severity::warning ? "warning" : "note";
}

std::string with_period(std::string_view sentence) {
    std::string out(sentence);
    if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 'a' + 'A');
    if (!out.ends_with('.')) out += '.';
    return out;
}

Json sarif_rules() {
    Json rules = Json::array();
    for (const RuleInfo& rule : lint_rules()) {
        rules.push_back({{"id", rule.id},
                         {"name", rule.name},
                         {"shortDescription", {{"text", with_period(rule.summary)}}},
                         {"fullDescription", {{"text", with_period(rule.summary) + " " + std::string(rule.help)}}},
                         {"defaultConfiguration", {{"level", level_of(rule.severity)}}},
                         {"help", {{"text", rule.help}}}});
    }
    return rules;
}

// Percent-encodes what a relative URI may not contain.
std::string uri_of(std::string_view path) {
    std::string out;
    for (const char c : path) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           std::string_view("-._~/").find(c) != std::string_view::npos;
        if (plain) {
            out += c;
        } else {
            out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return out;
}

// Stays the same when lines move: made of the rule, the iteration and the text of the line.
std::string fingerprint(const Finding& finding) {
    std::string words;
    for (const char c : finding.source) {
        const bool blank = c == ' ' || c == '\t' || c == '`' || c == '*';
        if (!blank) {
            words += c;
        } else if (!words.empty() && words.back() != ' ') {
            words += ' ';
        }
    }
    return sha256_hex(fmt::format("{}\n{}\n{}", finding.rule->id, finding.iteration, text::trim(words))).substr(0, 16);
}

// Converts positions of edits to SARIF's.
class Places {
public:
    explicit Places(const Document& document) : m_document(document) {
        LineCursor cursor(document.text);
        Line line;
        while (cursor.next(line)) m_lines.push_back(line);
    }
    Json region(std::size_t offset, std::size_t length) const {
        Json region;
        const auto [line, column] = place(offset);
        const auto [end_line, end_column] = place(offset + length);
        region["startLine"] = line;
        region["startColumn"] = column;
        region["endLine"] = end_line;
        region["endColumn"] = end_column;
        return region;
    }

private:
    std::pair<std::uint32_t, std::size_t> place(std::size_t offset) const {
        const char* at = m_document.bytes.data() + offset;
        auto next = std::upper_bound(m_lines.begin(), m_lines.end(), at,
                                     [](const char* p, const Line& line) { return p < line.text.data(); });
        if (next == m_lines.begin()) return {1, 1};
        const Line& line = *std::prev(next);
        std::size_t column = 1;
        for (const char* p = line.text.data(); p < at; ++p)
            column += (static_cast<unsigned char>(*p) & 0xC0u) != 0x80u ? 1 : 0;
        return {line.number, column};
    }

    const Document& m_document;
    std::vector<Line> m_lines;
};

// Whether a fix shows no secret. One that does is left to --fix, since masking its text would change the log.
bool shows_no_secret(const Fix& fix) {
    return std::none_of(fix.edits.begin(), fix.edits.end(),
                        [](const Edit& edit) { return !find_secret_shapes(edit.text).empty(); });
}

Json sarif_fix(const Finding& finding, const Places& places, const std::string& uri) {
    Json replacements = Json::array();
    for (const Edit& edit : finding.fix->edits) {
        replacements.push_back(
            {{"deletedRegion", places.region(edit.offset, edit.length)}, {"insertedContent", {{"text", edit.text}}}});
    }
    Json change = {{"artifactLocation", {{"uri", uri}, {"uriBaseId", "%SRCROOT%"}}}, {"replacements", replacements}};
    return {{"description", {{"text", finding.message}}}, {"artifactChanges", Json::array({change})}};
}

}  // namespace

std::string lint_as_json(const LintReport& report, const LintOutput& output) {
    Json findings = Json::array();
    for (const Finding& finding : report.findings) findings.push_back(finding_to_json(finding));
    const Json object = {{"schema", "gdnctl.lint/1"},
                         {"tool", {{"name", "gdnctl"}, {"version", output.version}}},
                         {"file", output.path},
                         {"scope", output.scope},
                         {"entries", report.entries},
                         {"summary",
                          {{"error", report.count(Severity::error)},
                           {"warning", report.count(Severity::warning)},
                           {"note", report.count(Severity::note)},
                           {"fixed", report.fixed}}},
                         {"exit_code", output.exit_code},
                         {"findings", findings}};
    return to_text(object) + "\n";
}

std::string lint_as_sarif(const LintReport& report, const Document& document, const LintOutput& output) {
    const std::string uri = uri_of(output.path);
    const std::span<const RuleInfo> rules = lint_rules();
    std::optional<Places> places;
    Json results = Json::array();
    for (const Finding& finding : report.findings) {
        const auto index = static_cast<std::size_t>(finding.rule - rules.data());
        const Json region = {{"startLine", finding.line},
                             {"startColumn", finding.column},
                             {"endLine", finding.end_line},
                             {"endColumn", finding.end_column}};
        const Json location = {
            {"physicalLocation",
             {{"artifactLocation", {{"uri", uri}, {"uriBaseId", "%SRCROOT%"}}}, {"region", region}}}};
        Json result = {{"ruleId", finding.rule->id},
                       {"ruleIndex", index},
                       {"level", level_of(finding.severity)},
                       {"message", {{"text", finding.message}}},
                       {"locations", Json::array({location})},
                       {"partialFingerprints", {{"gdnctlEntry/v1", fingerprint(finding)}}}};
        if (finding.fix && finding.fix->safe && shows_no_secret(*finding.fix)) {
            if (!places) places.emplace(document);
            result["fixes"] = Json::array({sarif_fix(finding, *places, uri)});
        }
        results.push_back(std::move(result));
    }
    const Json driver = {{"name", "gdnctl"}, {"version", output.version}, {"rules", sarif_rules()}};
    const Json run = {{"tool", {{"driver", driver}}}, {"columnKind", "unicodeCodePoints"}, {"results", results}};
    const Json object = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                         {"version", "2.1.0"},
                         {"runs", Json::array({run})}};
    return to_text(object, 2) + "\n";
}

}  // namespace gdnctl::runlog
