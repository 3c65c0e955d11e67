#include "loop/perf/state.h"

#include <chrono>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_fields.h"
#include "loop/perf/record.h"
#include "platform/fs.h"
#include "platform/lock.h"

namespace gdnctl::loop {

namespace {

constexpr std::int64_t k_perf_state_version = 2;

bool belongs(const Json& record, const std::string& key) {
    const std::string own = json::text(record, "fingerprint_key");
    return own.empty() || own == key;
}

std::optional<PerfVerdict> verdict_in(const Json& record) {
    const auto word = json::maybe_text(record, "decision");
    return word ? parse_perf_verdict(*word) : std::nullopt;
}

tl::unexpected<Error> damaged(std::string_view name, std::string_view what) {
    return fail(ErrorKind::config, std::string(name) + ": " + std::string(what),
                "it was left unchanged: repair it, or move it away to start without a champion");
}

}  // namespace

struct PerfState::Document {
    Json root;
};

PerfState::PerfState() : m_document(std::make_unique<Document>()) {
    m_document->root = {{"version", k_perf_state_version}, {"champion", nullptr}, {"history", Json::array()}};
}
PerfState::PerfState(std::unique_ptr<Document> document) : m_document(std::move(document)) {}
PerfState::PerfState(PerfState&&) noexcept = default;
PerfState& PerfState::operator=(PerfState&&) noexcept = default;
PerfState::~PerfState() = default;

Result<PerfState> PerfState::parse(std::string_view text, std::string_view name) {
    auto document = std::make_unique<Document>();
    Json& root = document->root;
    root = Json::parse(text, nullptr, false);
    if (root.is_discarded() || !root.is_object()) return damaged(name, "the performance state is not a JSON object");
    const auto version = json::integer(root, "version");
    if (!version || *version < 1 || *version > k_perf_state_version) {
        return damaged(name, "the performance state has a version that this gdnctl does not know");
    }
    if (!root.contains("champion")) root["champion"] = nullptr;
    if (!root.contains("history")) root["history"] = Json::array();
    if (!root["champion"].is_null() && !root["champion"].is_object()) {
        return damaged(name, "the champion is neither a record nor null");
    }
    if (root.contains("champions") && !root["champions"].is_object()) {
        return damaged(name, "`champions` is not an object");
    }
    if (!root["history"].is_array()) return damaged(name, "`history` is not a list");
    for (const Json& record : root["history"]) {
        if (!record.is_object()) return damaged(name, "a line of `history` is not a record");
    }
    root["version"] = k_perf_state_version;
    return PerfState(std::move(document));
}

std::string PerfState::text() const {
    using Sorted = nlohmann::json;  // the recipe's program writes its keys in order
    return Sorted(m_document->root).dump(2, ' ', false, Sorted::error_handler_t::replace) + "\n";
}

std::optional<PerfRecord> PerfState::champion(const std::string& key) const {
    const Json& root = m_document->root;
    const Json* champions = json::find(root, "champions");
    const Json* own = champions != nullptr ? json::find(*champions, key) : nullptr;
    if (own != nullptr && own->is_object()) {
        return parse_record(*own);
    }
    const Json& latest = root["champion"];
    if (latest.is_null() || !belongs(latest, key)) return std::nullopt;
    return parse_record(latest);
}

std::vector<std::string> PerfState::champion_keys() const {
    std::vector<std::string> keys;
    const auto all = m_document->root.find("champions");
    if (all == m_document->root.end()) return keys;
    for (const auto& [key, record] : all->items()) keys.push_back(key);
    return keys;
}

void PerfState::set_champion(const PerfRecord& record) {
    const Json value = record_json(record);
    m_document->root["champion"] = value;
    m_document->root["champions"][record.measured.fingerprint.key()] = value;
}

void PerfState::append(const PerfRecord& record) { m_document->root["history"].push_back(record_json(record)); }

std::vector<PerfRecord> PerfState::history() const {
    std::vector<PerfRecord> out;
    for (const Json& record : m_document->root["history"]) out.push_back(parse_record(record));
    return out;
}

std::vector<PerfRecord> PerfState::history(const std::string& key) const {
    std::vector<PerfRecord> out;
    for (const Json& record : m_document->root["history"]) {
        if (belongs(record, key)) out.push_back(parse_record(record));
    }
    return out;
}

int PerfState::mark_suspects(const std::string& key) {
    int marked = 0;
    Json& all = m_document->root["history"];
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
        if (!belongs(*it, key)) continue;
        const auto verdict = verdict_in(*it);
        if (verdict == PerfVerdict::aa_ok || verdict == PerfVerdict::baseline_shift ||
            verdict == PerfVerdict::baseline) {
            break;
        }
        if (!verdict || !is_rejection(*verdict)) continue;
        (*it)["suspect"] = true;
        ++marked;
    }
    return marked;
}

Result<PerfState> load_perf_state(const std::filesystem::path& path) {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path));
    if (!text) return PerfState();
    return PerfState::parse(*text, path.string());
}

Status update_perf_state(const std::filesystem::path& path, const std::function<Status(PerfState&)>& change) {
    constexpr std::chrono::seconds k_patience{10};
    std::filesystem::path lock = path;
    lock += ".lock";
    GDNCTL_TRY_ASSIGN(const FileLock held, FileLock::acquire(lock, {k_patience}));
    GDNCTL_TRY_ASSIGN(PerfState state, load_perf_state(path));
    GDNCTL_TRY(change(state));
    return atomic_replace(path, state.text(), 0600);
}

}  // namespace gdnctl::loop
