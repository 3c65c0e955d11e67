// What every operator's verdict is made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::oracle {

enum class Verdict { ok, suspect, wrong, unstable_input, no_data };

std::string_view name_of(Verdict verdict);  // "OK", "UNSTABLE_INPUT"

// The element that is furthest off.
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

// A known mistake under which the dump becomes right.
struct Hint {
    std::string stage;       // one word of docs/oracle.md, "Stages"
    std::string text;        // "matches if the scale is missing"
    double improvement = 1;  // how many times smaller the error is under it
};

}  // namespace gdnctl::oracle
