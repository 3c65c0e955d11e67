// Reads results from a log: what a process, Ray or a logger put before a line, what the line says, and the outcome of a
// run. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sweep/record.h"

namespace gdnctl::sweep {

struct Line {
    std::string process;  // "main pid=4711" of Ray's prefix; empty: none
    std::string text;     // without prefixes, colours and Ray's "[repeated 3x across cluster]"
};

// A word and what follows its first blank.
struct KeyValue {
    std::string_view key, value;
};

// A number, NaN, inf, Infinity or -Infinity as Python prints them.
std::optional<double> parse_figure(std::string_view text);

// The integer of 'key' in a printed dict; nullopt: not there.
std::optional<std::int64_t> dict_number(std::string_view dict, std::string_view key);

// What a job's command line says about the script that it starts; missing options stay empty.
struct CommandLine {
    std::optional<std::int64_t> batch, pos, seq_len, embed, vocab, data_shards;
    std::optional<std::int64_t> b, h, v;
    std::string implementation, input_dtype, accum_dtype;
    bool shard_map = false, forward_only = false, benchmark_only = false, infer = false;
};
CommandLine parse_command_line(std::string_view command);

// The result lines of marin's tune and bench scripts, old and new, and of the journal of `sweep run`, from any mixture
// of logs. Pure.

// In the order of their first lines. Unknown lines are passed over, those of several processes (by Ray's
// "(name pid=N)") are kept apart. A job that ended before its first result, for a reason that is known, is one failed
// record without label.
std::vector<Record> parse_results(std::string_view text, std::string_view file, const Assumed& assumed = {});

}  // namespace gdnctl::sweep
