// Common parts of every operator's verdict.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::oracle {

enum class Verdict { ok, suspect, wrong, unstable_input, no_data };

std::string_view name_of(Verdict verdict);  // "OK", "UNSTABLE_INPUT"

// The element with the largest error.
struct Worst {
    std::string tensor;
    std::string axes;                 // "b,t,h,v"
    std::vector<std::int64_t> index;  // in the dump's own layout
    double got = 0, want = 0;
};

struct NotCompared {
    std::string tensor;
    std::string reason;
};

// What a field of a contract says, and who said so.
struct ContractField {
    std::string name;    // "head_map"
    std::string value;   // "interleaved"
    std::string origin;  // "contract marin", "inputs metadata", "--set", "default"
};

// A known mistake that would explain the dump.
struct Hint {
    std::string stage;       // one word of docs/oracle.md, "Stages"
    std::string text;        // "matches if the scale is missing"
    double improvement = 1;  // how many times smaller the error is if this mistake is assumed
};

}  // namespace gdnctl::oracle
