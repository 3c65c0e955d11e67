// What is being optimised: a table [targets.NAME] of gdnctl.toml, merged over the built-in target of that name. Only
// target/*.cpp knows which targets are built in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/place_kind.h"
#include "core/result.h"

namespace gdnctl {

using EnvList = std::vector<std::pair<std::string, std::string>>;

// What a log entry must show of a test run for it to count; absent: any test counts are enough.
struct TargetEvidence {
    std::optional<std::int64_t> passed_min;
    std::optional<std::int64_t> skipped_max;
    bool empty() const { return !passed_min && !skipped_max; }
};

// `test` or `profile`. argv[0] == "gdnctl" means this binary.
struct TargetJob {
    std::vector<std::string> argv;
    // Replaces `argv` if the job stays on this machine: "{files}" stands for the folder of Target::files.
    std::vector<std::string> argv_here;
    EnvList env;
    std::string workdir;                      // relative to the repository root; empty: the root
    std::map<std::string, double> resources;  // "CPU", "TPU", "TPU-v5p-8-head", ...
    std::optional<std::int64_t> timeout_s;
    TargetEvidence evidence;
    // Of a profile. Where its trace is: a file or folder below `workdir`, "wandb" (the artifact of the run that its
    // output names), or "hf:NAMESPACE/NAME/PREFIX"; empty: it has none.
    std::string trace;
    std::string trace_device;  // as --device of `gdnctl trace`; empty: what the trace says

    // Whether `trace` is a path; and that path, relative to the repository root.
    bool trace_is_file() const { return !trace.empty() && trace != "wandb" && !trace.starts_with("hf:"); }
    std::string trace_path() const { return (std::filesystem::path(workdir) / trace).lexically_normal().string(); }
};

// `oracle verify` of the kernel, in the test's own job and before the tests.
struct TargetOracle {
    std::string op = "gdn", kernel;           // "py:levanter"
    std::vector<std::string> python;          // the kernel's interpreter; empty: the one that `oracle verify` finds
    std::string cases, dtype;                 // empty: as suits the kernel
    std::map<std::string, std::string> sets;  // fields of the contract
    EnvList env;                              // of the kernel's process
};

struct TargetMetric {
    std::string name;  // "throughput/mfu"
    std::string unit;  // may be empty
    bool lower_is_better = false;
    // "json:/pointer" into the last JSON object of the job's log, or "regex:..."; of the profile's trace: "trace:step",
    // "trace:kernel:GLOB".
    std::string from;
    bool from_trace() const { return from.starts_with("trace:"); }
};

// How a target's jobs are built. `argv` runs the commands of the table unchanged. `levanter` supports the test
// selection and profile settings below, and prints pytest counts and a device line.
enum class TargetStyle { argv, levanter };

struct Target {
    std::string name;
    TargetStyle style = TargetStyle::argv;
    std::string root_marker;                   // a file whose presence marks a checkout of this target
    std::vector<std::string> kernel;           // globs: files that an iteration works on
    std::vector<std::string> protected_paths;  // globs: files that an iteration must not change
    std::string log;                           // running log, relative to the repository root; empty: none
    std::string prompt;                        // iteration prompt; empty: searched for in the default locations
    std::vector<std::string> presets;          // directive presets added to every session
    std::optional<TargetJob> test;
    std::optional<TargetJob> profile;
    std::optional<TargetOracle> oracle;
    std::optional<TargetMetric> metric;
    // Where the profile prints the least that is physically possible, as the metric's `from` does; empty: nowhere.
    std::string floor;
    std::string kernel_op;              // name of the kernel's operation, which the profile's log must show; empty: any
    std::vector<std::string> validate;  // shell commands that must succeed before a candidate is measured
    ConfigTable gates;                  // gate policy, read by the loop
    std::string torch_index;            // wheel index of style `levanter`
    bool here = false;                  // its jobs run on this machine; set for a job, not configured
    // Only for built-in targets: their files, by name. The binary embeds them.
    std::vector<std::pair<std::string, std::string_view>> files;
};

// Names of all targets, built in and configured, sorted.
std::vector<std::string> target_names(const Config& config);

// The target named by `target` in `config` (from --target, the environment or gdnctl.toml); else the first built-in one
// whose root_marker exists under `root`; else the embedded default. Errors: config (unknown name, unknown key, wrong
// type; with file, line and a suggestion).
Result<Target> select_target(const Config& config, const std::filesystem::path& root);

// Whether --target, the environment or a configuration file names the target; otherwise select_target() detects it.
bool target_is_named(const Config& config);

// Reads every [targets.NAME], selected or not, passes it to `check`, and returns the first error.
Status check_configured_targets(const Config& config, Status (*check)(const Target&));

// ---- from a target to the commands of a job

struct TestSelection {
    enum class Suite { kernels, layer, both };
    Suite suite = Suite::both;
    std::string pytest_args;  // one POSIX-quoted line
    bool allow_cpu = false;   // do not fail when JAX finds no TPU
    enum class Oracle { off, first, alone };
    Oracle oracle = Oracle::off;  // whether the target's oracle judges the kernel first, or the job does nothing else
};

// Options of ray-profile. Names and defaults follow the recipe.
struct ProfileSettings {
    std::string tpu = "v5p-8";  // never "auto", already resolved; empty: the run gets no TPU type
    std::string size = "130m";
    std::int64_t num_steps = 20;
    std::int64_t profile_start_step = 2;
    std::int64_t profile_num_steps = 6;
    std::optional<std::int64_t> batch_size = 8;
    std::optional<std::int64_t> chunk_size;
    std::optional<std::int64_t> segment_size;
    std::string run_name_prefix = "gdn_tinyprof";
    std::string wandb_mode = "online";
    std::optional<std::int64_t> gdn_layers_per_block;
    std::optional<std::int64_t> gdn_block_size;
    bool all_transformer = false;
    std::string ce_implementation = "auto";
    std::string ce_bwd_mode = "pallas";
    EnvList extra_env;  // --profile-env
    bool dry_run = false;
    bool on_dev_tpu = false;  // on the host of a held TPU, whose environment dev-tpu-allocate has prepared

    bool operator==(const ProfileSettings&) const = default;
};

// The input of a backend: one /bin/sh command line, run in the root of the working directory.
struct JobCommand {
    std::string entrypoint;
    std::string workdir;  // folder below that root in which the command line runs; empty: none
    EnvList env;          // in a fixed order; later entries override earlier ones
    std::map<std::string, double> resources;
    std::optional<std::int64_t> timeout_s;
};

// `self`: path of this binary, which replaces "gdnctl" as the first word of argv. `there`: the shell words that run
// this program where the job runs; only used for the oracle. Errors: usage (no such job in this target, pytest
// arguments that do not parse or that the target does not accept, no oracle).
Result<JobCommand> test_command(const Target& target, const TestSelection& selection, std::string_view self,
                                std::string_view there = {});
Result<JobCommand> profile_command(const Target& target, const ProfileSettings& settings, std::string_view self);
// "oracle verify gdn --kernel py:levanter ..." without the interpreter.
std::vector<std::string> oracle_words(const TargetOracle& oracle);
// This program, run with these words in the root of the target's repository; it prints its JSON in one line at the end.
// In style `levanter` the environment is synced first. `python`: whether the words lack the interpreter of a Python
// kernel: in style `levanter` it is that of the environment, else the target's.
JobCommand oracle_command(const Target& target, std::string_view there, const std::vector<std::string>& words,
                          bool python);
// The variable that makes a command print its JSON on one line, after what it prints for people.
inline constexpr const char* k_verdict_line = "GDNCTL_VERDICT_LINE";

// Whether a job of the target refers to its files.
bool uses_files(const Target& target);
// The target with its files in `folder`, for jobs that stay on this machine.
Target with_files_in(Target target, const std::filesystem::path& folder);

// The start of a login shell's script that needs uv: if uv is not in PATH, adds the folder of uv's own installer.
std::string_view find_uv();

// The environment that the target's jobs need on a cluster of this kind, where nothing of the submitter's is available.
EnvList cluster_env(const Target& target, PlaceKind kind);

}  // namespace gdnctl
