// The journal of an evolve run: records on the climb's chain, folded into a State as they come.
#pragma once

#include <filesystem>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "loop/engine/chain.h"
#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

inline constexpr std::string_view k_journal = "journal.jsonl";
// "attempt-0007": the folder of an attempt in the log directory.
std::string attempt_folder(int attempt);

class EvolveJournal {
public:
    // Errors: those of ChainJournal and State::apply().
    static Result<EvolveJournal> open(const std::filesystem::path& log_dir);
    const State& state() const { return m_state; }
    const std::string& cut_off() const { return m_chain.cut_off(); }
    // Returns when it is on the disk.
    Status add(std::string_view type, Json facts, WallTime now);

private:
    EvolveJournal(ChainJournal chain, State state, std::string name)
        : m_chain(std::move(chain)), m_state(std::move(state)), m_name(std::move(name)) {}
    ChainJournal m_chain;
    State m_state;
    std::string m_name;
};

// A run as its log directory has it, for views. Errors: remote_missing (exit 6: no journal there), those of open().
Result<State> load_state(const std::filesystem::path& log_dir);
// Every record of it, in order.
Status each_record(const std::filesystem::path& log_dir, const UseRecord& use);

}  // namespace gdnctl::loop::evolve
