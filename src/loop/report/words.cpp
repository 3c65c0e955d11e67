#include "loop/report/words.h"

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/time.h"

namespace gdnctl::loop {

std::string_view word_of(LoopStatus status) {
    switch (status) {
        case LoopStatus::running: return "running";
        case LoopStatus::stopping: return "stopping";
        case LoopStatus::ended: return "ended";
        case LoopStatus::interrupted: break;
    }
    return "interrupted";
}

LoopStatus status_of(const LoadedRun& run) {
    if (run.holder) return run.stop_asked ? LoopStatus::stopping : LoopStatus::running;
    return run.view.stop_rc ? LoopStatus::ended : LoopStatus::interrupted;
}

std::string standing(const LoadedRun& run) {
    const auto& view = run.view;
    switch (status_of(run)) {
        case LoopStatus::running:
        case LoopStatus::stopping:
            return fmt::format("running, process {}{}{}", run.holder->pid,
                               run.holder->since.empty() ? "" : " since " + shown(local_time_of(run.holder->since), 40),
                               run.stop_asked ? "; STOP was requested" : "");
        case LoopStatus::ended:
            return fmt::format("ended: {} (exit code {}){}", or_dash(shown(view.stop_reason, 80)), *view.stop_rc,
                               view.open > 0 ? fmt::format("; --resume finishes iteration {}", view.open) : "");
        case LoopStatus::interrupted: break;
    }
    if (view.open > 0) return fmt::format("interrupted in iteration {}; --resume continues it", view.open);
    return "interrupted between two iterations; --resume continues";
}

std::string duration_text(std::int64_t ms) { return format_duration(std::chrono::milliseconds(ms)); }

std::string short_commit(std::string_view sha) { return shown(sha.substr(0, 12)); }

std::string or_dash(std::string text) { return text.empty() ? "-" : std::move(text); }

}  // namespace gdnctl::loop
