// The rollout: the file in which codex stores a thread. It is written during the turn, so it shows work, tokens and
// causes that the events do not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "platform/fs.h"
#include "services/agent/agent.h"

namespace gdnctl::codex {

// Why a turn failed, as classified by codex: "usage_limit_exceeded", "http_connection_failed", ...
struct ErrorInfo {
    std::string name;
    std::optional<int> http_status;
};

struct RolloutFacts {
    AgentTokens tokens;  // of the records read so far
    int usages = 0;      // model responses with usage
    int requests = 0;    // all model responses, also from servers that do not report usage
    int compactions = 0;
    std::string model, effort;
    std::string error_message;
    std::optional<ErrorInfo> error_info;  // of the last turn, if it failed
    std::string last_message;
    bool aborted = false;
    std::vector<AgentRateWindow> rate_windows;
    std::optional<AgentTokens> thread_total;  // from the last token_count, for programs that write no usage records
};

// Pure; takes bytes in pieces of any size. For a line of more than k_longest_line bytes, only its type is read.
class RolloutReader {
public:
    static constexpr std::size_t k_longest_line = std::size_t{1} << 20;
    void feed(std::string_view bytes);
    const RolloutFacts& facts() const { return m_facts; }

private:
    void take(std::string_view line);
    void take_item(std::string_view line);
    RolloutFacts m_facts;
    std::string m_line;
    bool m_too_long = false;
    int m_records = 0;    // of usage
    int m_answers = 0;    // responses inferred from the model's calls
    bool m_asks = false;  // the last item was from the model, not from a tool
};

// sessions/YYYY/MM/DD/rollout-<time>-<thread_id>.jsonl below `codex_home`. `newest_only`: only in the last three
// existing days, for threads that have just started.
std::optional<std::filesystem::path> find_rollout(const std::filesystem::path& codex_home, std::string_view thread_id,
                                                  bool newest_only);

// Follows the rollout of a thread while codex writes it.
class RolloutFollower {
public:
    explicit RolloutFollower(std::filesystem::path codex_home) : m_home(std::move(codex_home)) {}
    // Ignores what the thread has written so far, before this attempt.
    void skip_existing(std::string_view thread_id);
    // Reads new data. True: there was some.
    bool poll(std::string_view thread_id);
    const RolloutFacts& facts() const { return m_reader.facts(); }
    bool found() const { return m_fd.valid(); }
    // Copies it line by line with secrets masked. Does nothing if there is no rollout.
    Status copy_to(const std::filesystem::path& path) const;

private:
    std::filesystem::path m_home;
    std::filesystem::path m_path;
    UniqueFd m_fd;
    std::uint64_t m_offset = 0;
    RolloutReader m_reader;
};

}  // namespace gdnctl::codex
