// Cases that a declared contract leaves out.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace gdnctl::harness {

struct SkippedCase {
    std::string name;
    std::string reason;  // "needs head_map=tiled"
};

// "skipped, not as declared: 23 cases", and a line for each reason with its count; or nothing.
std::string text_of(const std::vector<SkippedCase>& cases);
// [{name, reason}]
Json json_of(const std::vector<SkippedCase>& cases);

}  // namespace gdnctl::harness
