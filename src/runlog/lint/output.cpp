#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/json.h"
#include "core/redact.h"
#include "core/text.h"
#include "core/tone.h"
#include "runlog/lint/lint.h"
#include "runlog/parse/block.h"

namespace gdnctl::runlog {

namespace {

// Rules whose errors are printed as a block on stderr, with texts that scripts match.
struct Block {
    std::string_view rule;
    std::string_view title;
    bool with_message;  // false: with the line number
};
constexpr Block k_blocks[] = {{"L001", "unresolved `Commit: (pending)` entries in", false},
                              {"L002", "unresolved `Commit: this commit` entries in", false},
                              {"L003", "non-monotonic iteration headings in", true}};

bool in_block(const Finding& finding) {
    if (finding.severity != Severity::error) return false;
    for (const Block& block : k_blocks) {
        if (block.rule == finding.rule->id) return true;
    }
    return false;
}

// "3 errors, 14 warnings, 2 notes, 3 fixable"
std::string counts(const LintReport& report) {
    const auto many = [](std::size_t n, std::string_view word) {
        return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
    };
    std::string text =
        many(report.count(Severity::error), "error") + ", " + many(report.count(Severity::warning), "warning");
    if (report.count(Severity::note) != 0) text += ", " + many(report.count(Severity::note), "note");
    const auto fixable = std::count_if(report.findings.begin(), report.findings.end(),
                                       [](const Finding& finding) { return finding.fix && finding.fix->safe; });
    return fmt::format("{}, {} fixable", text, fixable);
}

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
class SarifRegions {
public:
    explicit SarifRegions(const Document& document) : m_document(document) {
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

Json sarif_fix(const Finding& finding, const SarifRegions& places, const std::string& uri) {
    Json replacements = Json::array();
    for (const Edit& edit : finding.fix->edits) {
        replacements.push_back(
            {{"deletedRegion", places.region(edit.offset, edit.length)}, {"insertedContent", {{"text", edit.text}}}});
    }
    Json change = {{"artifactLocation", {{"uri", uri}, {"uriBaseId", "%SRCROOT%"}}}, {"replacements", replacements}};
    return {{"description", {{"text", finding.message}}}, {"artifactChanges", Json::array({change})}};
}

constexpr std::size_t k_shown_per_kind = 10;       // GitHub does not display more
constexpr std::size_t k_summary_limit = 1u << 20;  // bytes that a step may write

std::string_view command_of(Severity severity) {
    return severity == Severity::error ? "error" : severity == Severity::warning ? "warning" : "notice";
}

std::string escape(std::string_view s, bool property) {
    std::string out;
    for (const char c : text::repair_utf8(s)) {
        switch (c) {
            case '%': out += "%25"; break;
            case '\r': out += "%0D"; break;
            case '\n': out += "%0A"; break;
            case ':': out += property ? "%3A" : ":"; break;
            case ',': out += property ? "%2C" : ","; break;
            default: out += c;
        }
    }
    return out;
}

std::string annotation(const Finding& finding, std::string_view path) {
    std::string where = fmt::format("file={},line={},endLine={}", escape(path, true), finding.line, finding.end_line);
    if (finding.end_line == finding.line) where += fmt::format(",col={}", finding.column);
    const std::string title = fmt::format("{} {}", finding.rule->id, finding.rule->name);
    const std::string subject = finding.iteration.empty()
                                    ? finding.message
                                    : fmt::format("iteration {}: {}", finding.iteration, finding.message);
    return fmt::format("::{} {},title={}::{}\n", command_of(finding.severity), where, escape(title, true),
                       escape(subject, false));
}

std::string cell(std::string_view s) {
    std::string out;
    for (const char c : text::repair_utf8(s)) {
        if (c == '|') out += '\\';
        out += c == '\n' || c == '\r' ? ' ' : c;
    }
    return out;
}

constexpr std::size_t k_context = 3;
constexpr std::size_t k_resync = 200;  // lines to search ahead for the next common one

// Lines with their endings, so that a changed ending counts as a change.
std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    LineCursor cursor(text);
    Line line;
    while (cursor.next(line)) lines.push_back({line.text.data(), line.text.size() + cursor.ending().size()});
    return lines;
}

// Replaces each secret by its first four characters and as many line ends as it has; never equal to a masked one
// (`***`).
std::string without_secrets(std::string_view text) {
    std::string shown;
    std::size_t done = 0;
    for (const SecretShape& shape : find_secret_shapes(text)) {
        const std::string_view secret = text.substr(shape.offset, shape.length);
        shown += text.substr(done, shape.offset - done);
        shown += secret.size() >= 16 ? secret.substr(0, 4) : std::string_view();
        shown += "…";
        shown.append(static_cast<std::size_t>(std::count(secret.begin(), secret.end(), '\n')), '\n');
        done = shape.offset + shape.length;
    }
    shown += text.substr(done);
    return shown;
}

// Old lines [a, a_end) became new lines [b, b_end).
struct Replacement {
    std::size_t a, a_end, b, b_end;
};

// The nearest position from which both texts continue alike.
Replacement next_change(const std::vector<std::string_view>& old_lines, const std::vector<std::string_view>& new_lines,
                        std::size_t a, std::size_t b) {
    for (std::size_t sum = 1; sum <= 2 * k_resync; ++sum) {
        for (std::size_t skip_a = sum > k_resync ? sum - k_resync : 0; skip_a <= std::min(sum, k_resync); ++skip_a) {
            const std::size_t i = a + skip_a, j = b + (sum - skip_a);
            if (i > old_lines.size() || j > new_lines.size()) continue;
            const bool both_end = i == old_lines.size() && j == new_lines.size();
            if (both_end || (i < old_lines.size() && j < new_lines.size() && old_lines[i] == new_lines[j])) {
                return {a, i, b, j};
            }
        }
    }
    return {a, old_lines.size(), b, new_lines.size()};
}

void append(std::string& out, char mark, std::string_view line) {
    const bool ended = line.ends_with('\n') || line.ends_with('\r');
    out += mark;
    out += line;
    if (line.ends_with('\r')) out += '\n';
    if (!ended) out += "\n\\ No newline at end of file\n";
}

std::string range(std::size_t begin, std::size_t count) {
    const std::size_t first = count == 0 ? begin : begin + 1;
    return count == 1 ? fmt::format("{}", first) : fmt::format("{},{}", first, count);
}

}  // namespace

LintText lint_as_text(const LintReport& report, std::string_view path, const LintTextOptions& options) {
    LintText text;
    for (const Block& block : k_blocks) {
        bool titled = false;
        for (const Finding& finding : report.findings) {
            if (finding.rule->id != block.rule || !in_block(finding)) continue;
            if (!titled) text.blocks += fmt::format("[gdnctl] {} {}:\n", block.title, path);
            titled = true;
            text.blocks += block.with_message ? fmt::format("[gdnctl]   {}\n", text::repair_utf8(finding.message))
                                              : fmt::format("[gdnctl]   line {}\n", finding.line);
        }
    }
    for (const Finding& finding : report.findings) {
        if (in_block(finding)) continue;
        const Tone tone = finding.severity == Severity::error ? Tone::bad : Tone::none;
        text.findings += fmt::format("{}:{}:{}: {} {} {}\n", path, finding.line, finding.column,
                                     toned(name_of(finding.severity), tone, options.color), finding.rule->id,
                                     text::repair_utf8(finding.message));
    }
    if (report.left_out != 0) {
        text.counts +=
            fmt::format("{}: {} more {}\n", path, report.left_out, report.left_out == 1 ? "finding" : "findings");
    }
    if (!text.findings.empty() || !text.counts.empty()) text.counts += counts(report) + "\n";
    if (!options.complete) return text;
    if (report.checked == 0) {
        text.verdict = options.since.empty()
                           ? fmt::format("[gdnctl] nothing was checked: no entry in {}\n", path)
                           : fmt::format("[gdnctl] nothing was checked: no entry in {} is new or changed since {}\n",
                                         path, options.since);
    } else if (!report.failed()) {
        text.verdict = fmt::format("[gdnctl] log lint passed: {}\n", path);
    }
    return text;
}

// gdnctl.lint/1 and SARIF 2.1.0.

std::string lint_as_json(const LintReport& report, const LintOutput& output, int indent) {
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
    return to_text(object, indent) + "\n";
}

std::string lint_as_sarif(const LintReport& report, const Document& document, const LintOutput& output) {
    const std::string uri = uri_of(output.path);
    const std::span<const RuleInfo> rules = lint_rules();
    std::optional<SarifRegions> places;
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

// Workflow commands, which GitHub shows as annotations, and the table of the step summary.

std::string lint_as_github(const LintReport& report, std::string_view path) {
    std::string out;
    for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
        std::size_t shown = 0;
        for (const Finding& finding : report.findings) {
            if (finding.severity != severity) continue;
            if (++shown > k_shown_per_kind) break;
            out += annotation(finding, path);
        }
    }
    std::array<std::size_t, 4> rest{};
    std::size_t total = 0;
    for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
        const std::size_t n = report.count(severity);
        rest[static_cast<std::size_t>(severity)] = n > k_shown_per_kind ? n - k_shown_per_kind : 0;
        total += rest[static_cast<std::size_t>(severity)];
    }
    if (total != 0) {
        out += fmt::format("{} more findings are not annotated: {} errors, {} warnings, {} notes\n", total, rest[3],
                           rest[2], rest[1]);
    }
    return out;
}

std::string lint_as_step_summary(const LintReport& report, std::string_view path) {
    std::string out = fmt::format("### gdnctl lint-log: {}\n\n{} entries, {} errors, {} warnings, {} notes\n",
                                  cell(path), report.entries, report.count(Severity::error),
                                  report.count(Severity::warning), report.count(Severity::note));
    if (report.findings.empty()) return out;
    out += "\n| line | iteration | severity | rule | message |\n|---|---|---|---|---|\n";
    std::size_t rows = 0;
    for (const Severity severity : {Severity::error, Severity::warning, Severity::note}) {
        for (const Finding& finding : report.findings) {
            if (finding.severity != severity) continue;
            const std::string row =
                fmt::format("| {} | {} | {} | {} {} | {} |\n", finding.line, cell(finding.iteration), name_of(severity),
                            finding.rule->id, finding.rule->name, cell(finding.message));
            if (out.size() + row.size() + 100 > k_summary_limit) {
                out += fmt::format("\n{} more findings\n", report.findings.size() - rows);
                return out;
            }
            out += row;
            ++rows;
        }
    }
    return out;
}

// A unified diff for texts that differ in few places.

std::string unified_diff(std::string_view before, std::string_view after, std::string_view path) {
    if (before == after) return {};
    const std::string shown_before = without_secrets(before), shown_after = without_secrets(after);
    const std::vector<std::string_view> a = lines_of(shown_before), b = lines_of(shown_after);
    std::vector<Replacement> changes;
    for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
        if (i < a.size() && j < b.size() && a[i] == b[j]) {
            ++i;
            ++j;
            continue;
        }
        changes.push_back(next_change(a, b, i, j));
        i = changes.back().a_end;
        j = changes.back().b_end;
    }
    std::string out = fmt::format("--- a/{}\n+++ b/{}\n", path, path);
    for (std::size_t first = 0; first < changes.size();) {
        std::size_t last = first;
        while (last + 1 < changes.size() && changes[last + 1].a - changes[last].a_end <= 2 * k_context) ++last;
        const std::size_t lead = std::min({changes[first].a, changes[first].b, k_context});
        const std::size_t begin_a = changes[first].a - lead, begin_b = changes[first].b - lead;
        const std::size_t tail = std::min(a.size() - changes[last].a_end, k_context);
        const std::size_t end_a = changes[last].a_end + tail, end_b = changes[last].b_end + tail;
        out += fmt::format("@@ -{} +{} @@\n", range(begin_a, end_a - begin_a), range(begin_b, end_b - begin_b));
        std::size_t at = begin_a;
        for (std::size_t c = first; c <= last; ++c) {
            for (; at < changes[c].a; ++at) append(out, ' ', a[at]);
            for (std::size_t i = changes[c].a; i < changes[c].a_end; ++i) append(out, '-', a[i]);
            for (std::size_t i = changes[c].b; i < changes[c].b_end; ++i) append(out, '+', b[i]);
            at = changes[c].a_end;
        }
        for (; at < end_a; ++at) append(out, ' ', a[at]);
        first = last + 1;
    }
    return out;
}

}  // namespace gdnctl::runlog
