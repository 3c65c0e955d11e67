// Every kernel exists once per instruction set; this machine's are compared with each other.
#include <doctest/doctest.h>

#include "gdnctl/oracle/gdn_cases.h"
#include "unit/oracle/gdn_fixtures.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct Loaded {
    GdnProblem problem;
    GdnContract contract;
};

Loaded load(std::string_view name) {
    const GdnCase* c = find_gdn_case(name);
    REQUIRE(c != nullptr);
    const TensorFile inputs = make_inputs(*c);
    auto contract = resolve_contract("marin", inputs.metadata, {});
    REQUIRE(contract);
    auto problem = read_problem(inputs, *contract);
    REQUIRE(problem);
    return {std::move(*problem), contract->value};
}

}  // namespace

TEST_CASE("isa: scalar is always there, and the best is the last") {
    const auto isas = available_isas();
    REQUIRE(!isas.empty());
    CHECK(isas.front() == Isa::scalar);
    CHECK(isas.back() == best_isa());
    CHECK(name_of(Isa::avx512) == "avx512");
}

TEST_CASE("isa: the recurrences give equal bits on every instruction set, fp64 and fp32") {
    for (const char* name :
         {"g1", "odd_dims", "marin_47_state", "gva_4", "varlen", "gate_inf", "beta_corners", "d128"}) {
        CAPTURE(std::string(name));
        const Loaded x = load(name);
        const GdnOutputs truth = run_recurrent64(x.problem, x.contract, 1, Isa::scalar);
        const GdnOutputs single = run_recurrent32(x.problem, x.contract, 1, Isa::scalar);
        for (const Isa isa : available_isas()) {
            CAPTURE(std::string(name_of(isa)));
            const GdnOutputs wide = run_recurrent64(x.problem, x.contract, 2, isa);
            CHECK(wide.out == truth.out);
            CHECK(wide.final_state == truth.final_state);
            CHECK(wide.max_abs_state == truth.max_abs_state);
            const GdnOutputs narrow = run_recurrent32(x.problem, x.contract, 2, isa);
            CHECK(narrow.out == single.out);
            CHECK(narrow.final_state == single.final_state);
        }
    }
}
