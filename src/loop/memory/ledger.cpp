#include "loop/memory/ledger.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "loop/engine/artefacts.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/journal.h"
#include "runlog/records/record.h"
#include "runlog/records/store.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t k_report_limit = std::size_t{64} << 10;
constexpr std::size_t k_ledger_limit = std::size_t{256} << 20;

fs::path ledger_path(const fs::path& log_dir) { return log_dir / "ledger.jsonl"; }

std::string without_blanks(std::string_view line) {
    std::string text;
    for (const char c : line) {
        if (c != ' ' && c != '\t' && c != '\r') text += c;
    }
    return text;
}

}  // namespace

Result<AgentReport> parse_agent_report(std::string_view text, std::string_view name) {
    GDNCTL_TRY_ASSIGN(const Json json, parse_json(text, name));
    if (!json.is_object()) return fail(ErrorKind::bad_input, fmt::format("{}: not a JSON object", name));
    const auto word = [&](const char* key) { return text::visible(text::trim(json::text(json, key))); };
    const auto words = [&](const char* key) {
        std::vector<std::string> list = json::texts(json, key);
        for (std::string& one : list) one = text::visible(one);
        return list;
    };
    AgentReport report;
    report.title = word("title");
    report.slot = word("slot");
    report.move = word("move");
    report.hypothesis = word("hypothesis");
    report.change_class = word("change_class");
    report.new_argument = word("new_argument");
    report.next_hypothesis = word("next_hypothesis");
    report.changes = words("changes");
    report.reject_if = words("reject_if");
    return report;
}

Result<AgentReport> read_agent_report(const fs::path& log_dir, int iteration) {
    const fs::path path = log_dir / (iteration_prefix(iteration) + "report.json");
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, k_report_limit));
    if (!text) return AgentReport();
    return parse_agent_report(*text, path.string());
}

Status append_ledger(const fs::path& log_dir, const Json& record) {
    GDNCTL_TRY(runlog::check_record(record, "ledger"));
    GDNCTL_TRY_ASSIGN(Journal journal, Journal::open(ledger_path(log_dir)));
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(ledger_path(log_dir), k_ledger_limit));
    // Only an append that is repeated after a kill can find its own record, and then it is the last one.
    const auto lines = parse_journal(text ? std::string_view(*text) : std::string_view()).records;
    if (!lines.empty()) {
        const Json last = Json::parse(lines.back(), nullptr, false);
        const bool same = last.is_object() &&
                          json::text_at(last, "/loop/run_id") == json::text_at(record, "/loop/run_id") &&
                          json::integer_at(last, "/loop/index") == json::integer_at(record, "/loop/index");
        if (same) return {};
    }
    return journal.append(gdnctl::to_text(record));
}

Result<std::vector<Json>> read_ledger(const fs::path& log_dir) {
    const fs::path path = ledger_path(log_dir);
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, k_ledger_limit));
    if (!text) return std::vector<Json>();
    GDNCTL_TRY_ASSIGN(auto lines, runlog::parse_records(*text, path.string()));
    return std::move(lines.records);
}

namespace {

// Hashes the changes of a patch line by line.
class PatchHash {
public:
    static Result<PatchHash> create() {
        GDNCTL_TRY_ASSIGN(Hasher hasher, Hasher::create(HashKind::sha256));
        return PatchHash(std::move(hasher));
    }
    void take(std::string_view line) {
        if (line.empty()) return;
        const bool names_file = line.starts_with("diff --git ");
        m_in_hunk = !names_file && (m_in_hunk || line.starts_with("@@"));
        m_in_binary = !names_file && (m_in_binary || line.starts_with("GIT binary patch"));
        const bool changes = m_in_hunk && (line.starts_with('+') || line.starts_with('-'));
        if ((!names_file && !changes && !m_in_binary) || !m_status) return;
        m_status = m_hasher.update(without_blanks(line) + "\n");
        m_empty = false;
    }
    Result<std::string> id() {
        GDNCTL_TRY(m_status);
        if (m_empty) return std::string();
        GDNCTL_TRY_ASSIGN(const std::string hash, m_hasher.hex());
        return hash.substr(0, 16);
    }

private:
    explicit PatchHash(Hasher hasher) : m_hasher(std::move(hasher)) {}
    Hasher m_hasher;
    Status m_status;
    bool m_in_hunk = false, m_in_binary = false, m_empty = true;
};

}  // namespace

Result<std::string> patch_id(std::string_view patch) {
    GDNCTL_TRY_ASSIGN(PatchHash hash, PatchHash::create());
    for (const std::string_view line : text::split(patch, '\n')) hash.take(line);
    return hash.id();
}

Result<std::string> patch_id(const GitCheckout& repository, std::string_view from, std::string_view to) {
    GDNCTL_TRY_ASSIGN(PatchHash hash, PatchHash::create());
    GDNCTL_TRY(repository.patch_lines(from, to, [&](std::string_view line) { hash.take(line); }));
    return hash.id();
}

}  // namespace gdnctl::loop
