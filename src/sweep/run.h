// Runs a plan: one process for each configuration. A sweep that ended early continues, and nothing finished runs twice.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "jobs/job_destination.h"
#include "jobs/submit.h"
#include "platform/clock.h"
#include "platform/journal.h"
#include "sweep/plan.h"

namespace gdnctl::sweep {

// What came of one run, whatever it was run by.
struct RunOutput {
    std::string text;  // its log, or the end of it
    bool timed_out = false;
    bool lost = false;  // by the machines: nothing is known of the configuration
    std::string lost_because;
    std::optional<int> exit_code;  // nullopt: not known, or a signal
    double wall_s = 0;
};

// Reads the output as the scripts of section "result lines" of docs/sweeps.md print it: the last result counts.
RunEnd judge_output(const RunOutput& output, const Plan& plan);

// Where runs take place.
struct RunPlace {
    // Runs a command line to its end. `on_start` is called before anything runs, with what has to be on record to find
    // it again. Errors end the sweep: interrupted and terminated among them, with the run ended.
    std::function<Result<RunOutput>(const std::vector<std::string>& argv, double limit_s,
                                    const std::function<Status(JournalEvent)>& on_start)>
        run;
    // Ends a run that an earlier process has started, or finds that it has ended.
    std::function<Status(const JournalEvent& start)> settle;
    // Waits before a run that the machines lost is tried again; empty: not at all. Errors: interrupted, terminated.
    std::function<Status(std::chrono::milliseconds)> rest = {};
    // Judges the outputs of a run: empty when they hold, else why not.
    std::function<Result<std::string>(const std::string& outputs)> check;
};

struct SweepOptions {
    std::optional<double> budget_s;
    bool prune_vmem = false;
    std::string libtpu_init_args;
    std::string outputs;  // where {outputs} of a configuration goes: FOLDER
    std::string inputs;   // absolute
};

enum class SweepEnd { complete, budget };

struct SweepResult {
    SweepEnd ended = SweepEnd::complete;
    std::vector<Record> records;  // of this plan's configurations
    bool all_have_outcomes = true, any_ok = false, infra_only = false;
};

// `history`: the records that the journal held. Says on stderr what runs and what came of it.
Result<SweepResult> run_sweep(const Plan& plan, const std::vector<Configuration>& configurations,
                              const SweepOptions& options, const std::vector<std::string>& history, Journal& journal,
                              const RunPlace& place, Clock& clock);

// Runs of a sweep as jobs of a backend: this machine, a cluster, or a held TPU's host.

struct JobRunOptions {
    std::string name;                             // of the sweep
    std::map<std::string, std::string> switches;  // that a job elsewhere must get, see switches_of()
    std::map<std::string, double> resources;      // of each job
    std::string beside, tpu_name;                 // the hold, if there is one
};

// `run` and `settle`; what is left of `check` is the caller's.
RunPlace run_as_jobs(JobBackend& backend, const JobRunOptions& options, Context& context);

}  // namespace gdnctl::sweep
