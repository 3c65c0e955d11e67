// Runs a command on the host of a held TPU: over the road to it, or as a job next to its holder.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/hold.h"
#include "jobs/run.h"

namespace gdnctl {

enum class Via { automatic, ssh, ray };

struct HostRun {
    std::string line;  // one /bin/sh line
    std::vector<JobEnv> env;
    std::chrono::milliseconds wall_limit{0}, idle_limit{0};  // 0: none
    std::function<void(std::string_view)> on_out, on_err;    // called with output as it arrives
    // What can be read from this descriptor is the command's standard input; -1: it has none.
    int stdin_fd = -1;
    // Standard input, output and error are this program's own, so that a person can type (over ssh, through a
    // terminal). Limits and on_out do not apply.
    bool interactive = false;
    // The TPU is its own: it waits for other commands that are alone or have synced a tree, and they wait for it.
    bool alone = false;
};

// How to reach the hold: over ssh if it answers now, else through jobs. Updates its ssh_ok. Errors: infrastructure
// (`--via ssh` without ssh; the hold is over), authentication (the host refuses the key).
Result<Via> choose_via(FoundHold& hold, Via wanted, Context& context);

// Runs it over the road and returns its exit code (128 + N for a signal; a command in a terminal that exits with 255
// gives 254), renewing the lease meanwhile. Errors: timeout (everything it started is ended), interrupted, terminated;
// infrastructure (the ssh connection was lost, or the hold has ended; the message says which); authentication; config;
// conflict (another command has used the TPU for half an hour). If another command has changed the tree that this one
// has synced, it is synced again first; while it runs, syncs that would change the tree wait.
Result<int> run_on_host(const FoundHold& hold, const HostRun& run, Context& context);

// Marks a run on the host and everything that it starts: begins with the hold's id, ends with a dot and a random part.
std::string new_run_id(const devtpu::HoldRecord& record);

// Why the hold has ended, or that its place has lost it; nullopt: it is still held, or this cannot be determined.
std::optional<Error> over_now(const FoundHold& hold, Context& context);

// The environment of a command on a TPU's host: the local variables that runs know, `env:` of the repository's
// .levanter.yaml, .marin.yaml and .config, then `extra`. With `all`: the whole environment. On this machine: only
// `extra`. Names may be shown to anyone; values are only for the host.
Result<std::vector<JobEnv>> host_environment(const FoundHold& hold, const std::vector<JobEnv>& extra, bool all,
                                             const Context& context);

// Reports on stderr which processes keep the chips busy: those that have /dev/accel* or /dev/vfio/* open.
void report_busy_chips(const FoundHold& hold, Context& context);

}  // namespace gdnctl
