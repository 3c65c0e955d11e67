// Relations between results of a kernel that hold for all values, without a reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

namespace gdnctl::oracle {

struct Relation {
    std::string name;   // "continuation"
    std::string about;  // one line
};

// In the order of checking.
const std::vector<Relation>& relations();

struct RelationResult {
    // The size of the difference between the two sides divided by that of the values, as root mean square or for the
    // largest element, whichever is worse.
    double error = 0;
    double tolerance = 0;  // 0: both sides must be identical
    std::string worst;     // where the difference is largest: "out after 41 of 70 tokens"; empty: nowhere
    std::optional<KernelFault> fault;
    bool applies = true;  // false: the kernel does not compute what the relation is about

    bool held() const { return !fault && error <= tolerance; }
};

// Whether relations can be checked on a kernel that is declared so. Usage error: it is declared to compute something
// else than their inputs ask for.
Status check_relations_apply(const Declared& declared);

// Tolerances are those of the declared precision. Usage error: no such relation.
Result<RelationResult> check_relation(const std::string& name, Kernel& kernel, int threads, std::uint64_t seed,
                                      const Declared& declared = {});

}  // namespace gdnctl::oracle
