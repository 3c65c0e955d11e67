// The plan of a sweep: which kernel calls, which block sizes, and the command line that times one of them. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "sweep/journal.h"

namespace gdnctl::sweep {

enum class Check { none, sampled, exact };
std::string_view to_text(Check check);

struct Plan {
    std::string name, device_kind, x_dtype, w_dtype, accum_dtype, implementation;
    std::optional<std::string> source_revision;  // absent: HEAD of the working directory
    std::vector<Shape> shapes;
    std::optional<double> soft_cap;
    double logsumexp_weight = 0;
    std::vector<std::int64_t> b, h, v;
    std::vector<std::string> command, infer_command;
    std::int64_t repeats = 3;  // kept runs; one more, the first, is discarded
    std::int64_t retries = 2;  // of a run that the machines lost
    double time_limit_s = 900;
    std::optional<double> budget_s;
    std::string inputs;
    Check check = Check::none;
};

// Error: config (unknown key, wrong type, a value that makes no sense), with file and line.
Result<Plan> parse_plan(const ConfigTable& table, std::string_view source);

struct Configuration {
    std::string key, label;
    Shape shape;
    std::optional<BlockSizes> sizes;  // nullopt: the kernel picks them
    bool infer = false;
};

// What may change a kernel without a word on its command line: LIBTPU_INIT_ARGS, XLA_FLAGS, LEVANTER_*.
std::map<std::string, std::string> switches_of(const std::map<std::string, std::string>& environment);

// Every configuration of the plan, shape by shape. The key covers everything that the time depends on. `found`: what
// that is besides the plan, by name: the content of files, the device. Error: infrastructure (no libcrypto).
Result<std::vector<Configuration>> configurations_of(const Plan& plan, const std::string& revision,
                                                     const std::map<std::string, std::string>& switches,
                                                     const std::map<std::string, std::string>& found = {});

// The words of its command with {batch} {hidden} {vocab} {b} {h} {v} {label} {outputs} {inputs} replaced; other braces
// stay.
std::vector<std::string> command_of(const Plan& plan, const Configuration& configuration, const std::string& outputs,
                                    const std::string& inputs);

// The larger of the estimates of forward and backward: scratch, and double-buffered x and w (docs/sweeps.md).
double estimated_vmem_bytes(const Plan& plan, const BlockSizes& sizes);
// 16 MiB, or what LIBTPU_INIT_ARGS says.
double scoped_vmem_limit_bytes(std::string_view libtpu_init_args);

}  // namespace gdnctl::sweep
