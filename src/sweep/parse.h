// One line of a log: what a process, Ray or a logger put before it, and what it says. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "sweep/record.h"

namespace gdnctl::sweep {

struct Line {
    std::string process;  // "main pid=4711" of Ray's prefix; empty: none
    std::string text;     // without prefixes, colours and Ray's "[repeated 3x across cluster]"
};
Line clean_line(std::string_view raw);

// A word and what follows its first blank.
struct KeyValue {
    std::string_view key, value;
};
KeyValue split_key(std::string_view text);

// Whether the value of this key of a result, of either script, is a number.
bool is_figure(std::string_view key);

// A number, NaN, inf, Infinity or -Infinity as Python prints them.
std::optional<double> parse_figure(std::string_view text);

// JSON as Python writes it: bare NaN, Infinity and -Infinity become strings of that name. nullopt: no object.
std::optional<Json> parse_python_json(std::string_view text);

// The integer of 'key' in a printed dict; nullopt: not there.
std::optional<std::int64_t> dict_number(std::string_view dict, std::string_view key);

// "BlockSizes(b_block_size=1024, h_block_size=512, v_block_size=1024)" anywhere in the text.
std::optional<BlockSizes> parse_block_sizes(std::string_view text);

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
