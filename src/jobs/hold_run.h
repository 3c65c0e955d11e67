// Running a command on the host of a held TPU: by the road to it, or as a job beside its holder.
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
    std::function<void(std::string_view)> on_out, on_err;    // bytes as they come
    // Standard input, output and error are this program's own: what a person types goes there (over ssh, through a
    // terminal). Limits and on_out do not apply.
    bool interactive = false;
};

// How the hold is reached: by ssh where it answers, else through jobs. Error: infrastructure (`--via ssh`, no ssh).
Result<Via> choose_via(const devtpu::HoldRecord& record, Via wanted);

// Runs it by the road and returns its exit code (254 for a remote 255; 128 + N for a signal), while the lease is
// renewed. Errors: timeout (what it has started is ended), interrupted, terminated; infrastructure (ssh is lost, or the
// hold is over: said as such); authentication; config.
Result<int> run_on_host(const FoundHold& hold, const HostRun& run, Context& context);

// Marks a run on the host and everything that it starts: begins with the hold's id, ends with a dot and a random part.
std::string new_run_id(const devtpu::HoldRecord& record);

// Why the hold is over, where it is; nullopt: it is still held, or nobody can say.
std::optional<Error> over_now(const FoundHold& hold, Context& context);

// The environment of a command on a TPU's host: the variables of this environment that runs know, `env:` of
// .levanter.yaml, .marin.yaml and .config of the repository, then `extra`. With `all`: the whole environment. On this
// machine: `extra` alone. Names are for everybody, values for the host alone.
Result<std::vector<JobEnv>> host_environment(const FoundHold& hold, const std::vector<JobEnv>& extra, bool all,
                                             const Context& context);

// Whom a person blames for busy chips: processes that have /dev/accel* or /dev/vfio/* open, on stderr.
void report_busy_chips(const FoundHold& hold, Context& context);

}  // namespace gdnctl
