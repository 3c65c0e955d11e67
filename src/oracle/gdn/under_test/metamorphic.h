// What must hold between results of a kernel, whatever the values: no reference is computed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::oracle {

struct Relation {
    std::string name;   // "continuation"
    std::string about;  // one line
};

// In the order in which they are checked.
const std::vector<Relation>& relations();

struct RelationResult {
    // Size of the difference between the two sides over that of the values: the root mean square or the largest
    // element, whichever is worse.
    double error = 0;
    double tolerance = 0;  // 0: the two sides must be the same numbers
    std::string worst;     // where the difference is largest: "out after 41 of 70 tokens"; empty: nowhere
    std::optional<KernelFault> fault;
    bool applies = true;  // false: it is about something that the kernel does not give

    bool held() const { return !fault && error <= tolerance; }
};

// Usage error: no relation has this name.
Result<RelationResult> check_relation(const std::string& name, KernelUnderTest& kernel, int threads,
                                      std::uint64_t seed);

}  // namespace gdnctl::oracle
