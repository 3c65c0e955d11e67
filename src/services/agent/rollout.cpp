#include "services/agent/rollout.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "services/agent/attempt.h"
#include "services/agent/codex_events.h"

namespace gdnctl::codex {

namespace {

namespace fs = std::filesystem;

// The word after `key`, near the start of the line; empty: missing.
std::string_view word_in_head(std::string_view line, std::string_view key) {
    constexpr std::size_t k_head = 256;
    const std::string_view head = line.substr(0, k_head);
    const std::size_t at = head.find(key);
    if (at == std::string_view::npos) return {};
    const std::string_view rest = head.substr(at + key.size());
    return rest.substr(0, rest.find('"'));
}

// {"timestamp":…,"type":"…": the first one.
std::string_view type_in_head(std::string_view line) { return word_in_head(line, "\"type\":\""); }

void add(AgentTokens& sum, const AgentTokens& more) {
    sum.input += more.input;
    sum.cached_input += more.cached_input;
    sum.output += more.output;
    sum.reasoning += more.reasoning;
}

// A word, or an object with one member that may hold the status.
std::optional<ErrorInfo> error_info_of(const Json& info) {
    if (info.is_string()) return ErrorInfo{info.get<std::string>(), std::nullopt};
    if (!info.is_object() || info.empty()) return std::nullopt;
    ErrorInfo found{info.begin().key(), std::nullopt};
    if (const auto status = integer_field(info.begin().value(), "http_status_code")) {
        found.http_status = static_cast<int>(*status);
    }
    return found;
}

std::vector<AgentRateWindow> rate_windows_of(const Json& limits) {
    std::vector<AgentRateWindow> windows;
    for (const auto* name : {"primary", "secondary"}) {
        const Json& window = json::field(limits, name);
        const auto used = json::number(window, "used_percent");
        if (!used) continue;
        AgentRateWindow facts{*used, std::nullopt};
        if (const auto at = integer_field(window, "resets_at")) facts.resets_at = WallTime(std::chrono::seconds(*at));
        windows.push_back(facts);
    }
    return windows;
}

void take_event(const Json& payload, RolloutFacts& facts) {
    const std::string type = json::text(payload, "type");
    if (type == "task_started") {
        facts.error_info.reset();
        facts.error_message.clear();
        facts.aborted = false;
    } else if (type == "token_count") {
        if (const auto total = tokens_of(json::field(json::field(payload, "info"), "total_token_usage")))
            facts.thread_total = total;
        if (auto windows = rate_windows_of(json::field(payload, "rate_limits")); !windows.empty()) {
            facts.rate_windows = std::move(windows);
        }
    } else if (type == "task_complete") {
        facts.last_message = json::text(payload, "last_agent_message");
        const Json& error = json::field(payload, "error");
        facts.error_message = json::text(error, "message");
        facts.error_info = error_info_of(json::field(error, "codex_error_info"));
    } else if (type == "turn_aborted") {
        facts.aborted = true;
    }
}

std::vector<fs::path> folders_newest_first(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code ec;
    for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
        std::error_code of_entry;
        if (it->is_directory(of_entry)) found.push_back(it->path());
    }
    std::sort(found.rbegin(), found.rend());
    return found;
}

std::optional<fs::path> find_in_day(const fs::path& day, const std::string& ending) {
    std::error_code ec;
    for (fs::directory_iterator it(day, ec), end; !ec && it != end; it.increment(ec)) {
        const std::string name = it->path().filename().string();
        if (name.starts_with("rollout-") && name.ends_with(ending)) return it->path();
    }
    return std::nullopt;
}

}  // namespace

void RolloutReader::feed(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        const std::string_view piece = bytes.substr(0, end);
        const std::size_t room = k_longest_line - std::min(k_longest_line, m_line.size());
        m_too_long = m_too_long || piece.size() > room;
        m_line.append(piece.substr(0, room));
        if (end == std::string_view::npos) return;
        take(m_line);
        m_line.clear();
        m_too_long = false;
        bytes.remove_prefix(end + 1);
    }
}

void RolloutReader::take(std::string_view line) {
    const std::string_view type = type_in_head(line);
    if (type == "compacted") {
        ++m_facts.compactions;
        return;
    }
    // Most of a rollout is the conversation itself, of which only the speaker matters here.
    if (type == "response_item") return take_item(line);
    if (m_too_long || (type != "token_usage_record" && type != "turn_context" && type != "event_msg")) return;
    auto parsed = parse_json(line, "rollout");
    if (!parsed) return;
    const Json& payload = json::field(*parsed, "payload");
    if (type == "token_usage_record") {
        m_facts.requests = std::max(++m_records, m_answers);
        const auto usage = tokens_of(json::field(payload, "usage"));
        if (!usage) return;
        add(m_facts.tokens, *usage);
        ++m_facts.usages;
    } else if (type == "turn_context") {
        m_facts.model = json::text(payload, "model");
        m_facts.effort = json::text(payload, "effort");
    } else {
        take_event(payload, m_facts);
    }
}

// All tool results go to the model in one request. Its response has the next calls, with reasoning before them.
void RolloutReader::take_item(std::string_view line) {
    const std::string_view type = word_in_head(line, "\"payload\":{\"type\":\"");
    if (type.ends_with("_output")) {
        m_asks = false;
    } else if (!m_asks && (type.ends_with("_call") || type == "reasoning")) {
        m_asks = true;
        m_facts.requests = std::max(m_records, ++m_answers);
    }
}

std::optional<fs::path> find_rollout(const fs::path& codex_home, std::string_view thread_id, bool newest_only) {
    constexpr int k_newest_days = 3;
    if (thread_id.empty() || thread_id.find('/') != std::string_view::npos) return std::nullopt;
    const std::string ending = fmt::format("-{}.jsonl", thread_id);
    int days = 0;
    for (const auto& year : folders_newest_first(codex_home / "sessions")) {
        for (const auto& month : folders_newest_first(year)) {
            for (const auto& day : folders_newest_first(month)) {
                if (auto found = find_in_day(day, ending)) return found;
                if (newest_only && ++days >= k_newest_days) return std::nullopt;
            }
        }
    }
    return std::nullopt;
}

void RolloutFollower::skip_existing(std::string_view thread_id) {
    const auto path = find_rollout(m_home, thread_id, false);
    if (!path) return;
    m_path = *path;
    m_fd.reset(open(m_path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts{};
    if (m_fd.valid() && fstat(m_fd.get(), &facts) == 0) m_offset = static_cast<std::uint64_t>(facts.st_size);
}

bool RolloutFollower::poll(std::string_view thread_id) {
    if (!m_fd.valid()) {
        const auto path = find_rollout(m_home, thread_id, true);
        if (!path) return false;
        m_path = *path;
        m_fd.reset(open(m_path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!m_fd.valid()) return false;
    }
    bool grew = false;
    std::array<char, std::size_t{64} << 10> piece{};
    for (;;) {
        const ssize_t n = pread(m_fd.get(), piece.data(), piece.size(), static_cast<off_t>(m_offset));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return grew;
        m_offset += static_cast<std::uint64_t>(n);
        m_reader.feed({piece.data(), static_cast<std::size_t>(n)});
        grew = true;
    }
}

Status RolloutFollower::copy_to(const fs::path& path) const {
    if (!m_fd.valid() || path.empty()) return {};
    Transcript copy;
    GDNCTL_TRY(copy.open(path));
    std::array<char, std::size_t{64} << 10> piece{};
    std::string line;
    for (off_t offset = 0;;) {
        const ssize_t n = pread(m_fd.get(), piece.data(), piece.size(), offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        offset += n;
        std::string_view rest(piece.data(), static_cast<std::size_t>(n));
        for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
            line.append(rest.substr(0, end));
            copy.line(line);
            line.clear();
        }
        line.append(rest);
    }
    if (!line.empty()) copy.line(line);
    return copy.close();
}

}  // namespace gdnctl::codex
