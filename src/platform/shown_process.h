// Keeps people from waiting in silence for gcloud, which often takes many seconds and prints nothing.
#pragma once

#include <thread>

#include "platform/clock.h"
#include "platform/process.h"
#include "platform/terminal.h"

namespace gdnctl {

// Runs programs as `inner` does. While gcloud runs on the thread that created this, stderr shows which of its commands
// and for how long. `quiet`: it does not. All must outlive it.
class ShownProcess final : public Process {
public:
    ShownProcess(Process& inner, Terminal& terminal, const Clock& clock, bool quiet)
        : m_inner(inner), m_terminal(terminal), m_clock(clock), m_quiet(quiet) {}
    Result<ProcessResult> run(const ProcessSpec& spec) override;

private:
    Process& m_inner;
    Terminal& m_terminal;
    const Clock& m_clock;
    bool m_quiet;
    std::thread::id m_owner = std::this_thread::get_id();
};

}  // namespace gdnctl
