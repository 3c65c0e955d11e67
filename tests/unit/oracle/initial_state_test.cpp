// Another initial state than the given one, of any kind, is named as that.
#include "oracle/tensor/random.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

GdnReference case_with(GdnDims dims, double state, const std::vector<std::int64_t>& offsets = {}) {
    GdnCase c;
    c.name = "states";
    c.dims = dims;
    c.seed = 17;
    c.state_scale = state;
    c.cu_seqlens = offsets;
    c.contract = {"head_map=interleaved"};
    return reference_for(make_inputs(c));
}

GdnReport with_stale_state(const GdnReference& r, bool with_final_state) {
    GdnProblem p = r.problem;
    Random random(5, 1);
    p.initial_state.resize(r.truth.final_state.size());
    for (double& x : p.initial_state) x = 0.4 * random.normal();
    TensorFile dump = outputs_of(r, run_recurrent64(p, r.contract.value, 2));
    if (!with_final_state) dump.tensors.pop_back();
    return judged(r, dump);
}

void expect_initial_state(const GdnReport& report) {
    REQUIRE(report.hints.size() == 1);
    CAPTURE(report.hints.front().text);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "carry");
    CHECK(report.hints.front().text.find("the initial state is not") != std::string::npos);
}

}  // namespace

TEST_CASE("hint: an arbitrary other initial state, within one chunk and over several") {
    expect_initial_state(with_stale_state(case_with({1, 20, 2, 2, 32, 32}, 0.3), true));
    expect_initial_state(with_stale_state(case_with({1, 150, 1, 2, 16, 24}, 0.3), true));
    expect_initial_state(with_stale_state(case_with({1, 60, 2, 2, 16, 16}, 0.3), false));
}

TEST_CASE("hint: a state that is not 0 although none was given") {
    const GdnReport report = with_stale_state(case_with({2, 30, 2, 2, 16, 16}, 0), true);
    expect_initial_state(report);
    CHECK(report.hints.front().text.find("is not 0") != std::string::npos);
}

TEST_CASE("hint: stale initial states of packed sequences, one of them empty") {
    expect_initial_state(with_stale_state(case_with({1, 70, 2, 4, 16, 8}, 0.3, {0, 20, 20, 70}), true));
}

TEST_CASE("hint: another value of the first token is no other initial state") {
    const GdnReference r = case_with({1, 40, 1, 1, 16, 16}, 0.3);
    GdnProblem p = r.problem;
    for (std::size_t j = 0; j < 16; ++j) p.v[j] += j % 2 == 0 ? 0.7 : -0.4;
    const GdnReport report = judged(r, outputs_of(r, run_recurrent64(p, r.contract.value, 1)));
    CHECK(report.verdict == Verdict::wrong);
    for (const Hint& h : report.hints) CHECK(h.text.find("the initial state is not") == std::string::npos);
}
