// A generated case as kernels take it.
#pragma once

#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle::testing {

struct LoadedCase {
    GdnProblem problem;
    GdnContract contract;
};

inline LoadedCase load_case(const GdnCase& c) {
    const TensorFile inputs = make_inputs(c);
    auto contract = resolve_contract("marin", inputs.metadata, {});
    REQUIRE(contract);
    auto problem = read_problem(inputs, *contract);
    REQUIRE(problem);
    return {std::move(*problem), contract->value};
}

inline LoadedCase load_case(std::string_view name) {
    const GdnCase* c = find_gdn_case(name);
    REQUIRE(c != nullptr);
    return load_case(*c);
}

}  // namespace gdnctl::oracle::testing
