#include "loop/evolve/journal.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "loop/evolve/status_index.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

std::string attempt_folder(int attempt) { return fmt::format("attempt-{:04}", attempt); }

Result<EvolveJournal> EvolveJournal::open(const fs::path& log_dir) {
    const fs::path file = log_dir / k_journal;
    State state;
    GDNCTL_TRY_ASSIGN(ChainJournal chain, ChainJournal::open(file, [&](const Json& record, std::size_t line) {
                          return state.apply(record, file.string(), line);
                      }));
    return EvolveJournal(std::move(chain), std::move(state), file.string());
}

Status EvolveJournal::add(std::string_view type, Json facts, WallTime now) {
    const std::string time = format_iso8601(now);
    GDNCTL_TRY(m_chain.append(type, facts, time));
    facts["type"] = type;
    facts["ts"] = time;
    GDNCTL_TRY(m_state.apply(facts, m_name, m_chain.records()));
    write_index(fs::path(m_name).parent_path(), m_state, m_chain.last_line());
    return {};
}

Status each_record(const fs::path& log_dir, const UseRecord& use) {
    const fs::path file = log_dir / k_journal;
    std::error_code problem;
    if (!fs::exists(file, problem)) {
        return fail(ErrorKind::remote_missing, fmt::format("no evolve run in {}", log_dir.string()),
                    "start one with `gdnctl codex-loop --mode evolve`, or name another directory with --log-dir");
    }
    GDNCTL_TRY_ASSIGN(const std::string last, read_chain_file(file, use));
    return last.empty() ? check_never_begun(file) : Status();
}

Result<State> load_state(const fs::path& log_dir) {
    State state;
    const std::string name = (log_dir / k_journal).string();
    GDNCTL_TRY(
        each_record(log_dir, [&](const Json& record, std::size_t line) { return state.apply(record, name, line); }));
    return state;
}

}  // namespace gdnctl::loop::evolve
