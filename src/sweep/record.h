// The record of one configuration: its time, or why it has none, judging by its messages. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracle/linear_ce/blocks/block_sizes.h"

namespace gdnctl::sweep {

// The first four are properties of the configuration, and so are the last three; `environment` is a matter of set-up,
// `infra` of the machines.
enum class FailureKind { vmem_oom, hbm_oom, lowering, unsupported, environment, infra, crashed, timed_out, no_result };
std::string_view to_text(FailureKind kind);
std::optional<FailureKind> parse_failure_kind(std::string_view text);
// Whether another run would end the same way.
bool is_own(FailureKind kind);

struct Failure {
    std::optional<FailureKind> kind;
    std::optional<double> vmem_used_bytes, vmem_limit_bytes;
};

// nullopt in `kind`: none of the known messages. A message of the kernel compiler stays `lowering` whatever words
// about memory it holds: smaller tiles would not mend it.
Failure classify_failure(std::string_view message);

// What one configuration's lines in a log say, before any of it is believed.

using oracle::linear_ce::BlockSizes;

// Which script printed it: marin's tune or bench script, or the journal of `sweep run`.
enum class Script { tune, bench, sweep };
enum class ResultStatus { ok, failed, wrong };
std::string_view to_text(Script script);
std::string_view to_text(ResultStatus status);

// A figure as the log has it. Not finite: Python's NaN and Infinity.
using Figure = std::pair<std::string, double>;

// Kept runs of one configuration: runs, median and median absolute deviation, in seconds.
struct Spread {
    std::int64_t runs = 0;
    double median_s = 0, mad_s = 0;
};

struct Record {
    std::string file;
    std::int64_t line = 0;  // of its first line, from 1
    Script script = Script::tune;
    std::string label, implementation;  // empty: nothing says it
    ResultStatus status = ResultStatus::ok;
    std::string error;          // all of it, as far as it goes
    Failure failure;            // of a failed one
    bool truncated = false;     // the log ends within it
    bool forward_only = false;  // steady_time_s is the time of a forward, and there is no step
    bool real_kernel = true;    // false: a benchmark-only kernel
    std::optional<BlockSizes> sizes;
    std::vector<Figure> figures;
    std::optional<Spread> spread;

    // Facts of the job that ran it.
    std::optional<std::int64_t> global_batch, kernel_batch, hidden, vocab;  // rows of all shards; of one kernel call
    std::optional<std::int64_t> chips;                                      // that the printed roofline counts
    std::string x_dtype, accum_dtype, device_kind;                          // empty: nothing says it

    const double* figure(std::string_view name) const {
        for (const Figure& f : figures) {
            if (f.first == name) return &f.second;
        }
        return nullptr;
    }
};

// Values that were not printed, from the command line.
struct Assumed {
    std::string device_kind, x_dtype;
    std::optional<std::int64_t> shards;
};

// "float32" of f32, "bfloat16" of bf16, "float16" of f16; anything else stays as it is.
std::string long_dtype(std::string_view name);

// b1024_h512_v1024, and back.
std::string label_of(const BlockSizes& sizes);
std::optional<BlockSizes> sizes_of_label(std::string_view label);

}  // namespace gdnctl::sweep
