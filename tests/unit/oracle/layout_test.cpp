// Files with heads before tokens, [B,H,T,D].
#include "oracle/gdn/compare/declare.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "unit/oracle/judging.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct Stored {
    TensorFile inputs, dump;
};

// Inputs and exact results, all with tokens before heads.
Stored stored_run(GdnCase c) {
    c.seed = 23;
    c.state_scale = 0.2;
    Stored s;
    s.inputs = make_inputs(c);
    const GdnReference r = reference_for(s.inputs);
    const GdnCotangents cotangents = random_cotangents(r.problem, 3);
    for (NamedTensor& t : cotangents_file(r.problem, r.contract.value, cotangents).tensors) {
        s.inputs.tensors.push_back(std::move(t));
    }
    s.dump = outputs_of(r, r.truth);
    const GdnGradients g = run_adjoint64(r.problem, r.contract.value, cotangents, 2);
    for (NamedTensor& t : gradients_file(r.problem, r.contract.value, g, DType::f32, DType::f32).tensors) {
        s.dump.tensors.push_back(std::move(t));
    }
    return s;
}

GdnCase sized(GdnDims dims, const std::vector<std::string>& contract, const std::vector<std::int64_t>& offsets = {}) {
    GdnCase c;
    c.name = "layout";
    c.dims = dims;
    c.contract = contract;
    c.cu_seqlens = offsets;
    return c;
}

const std::vector<std::string> k_heads_first = {"layout=B,H,T,D"};

}  // namespace

TEST_CASE("layout: heads before tokens are judged like tokens before heads, with all gradients") {
    for (const GdnCase& c : {sized({2, 37, 2, 4, 8, 12}, {"head_map=interleaved"}),
                             sized({1, 70, 2, 2, 16, 8}, {"g_kind=raw", "beta_kind=logit"}),
                             sized({1, 50, 2, 4, 8, 8}, {"head_map=tiled", "state_layout=B,H,V,K"}, {0, 13, 13, 50})}) {
        Stored s = stored_run(c);
        store_heads_first(s.inputs);
        store_heads_first(s.dump);
        GdnReference r = reference_for(s.inputs, "marin", k_heads_first);
        CHECK(r.problem.dims.T == c.dims.T);
        CHECK(r.problem.dims.Hv == c.dims.Hv);
        REQUIRE(add_backward(r, s.inputs, s.dump, 2));
        GdnReport report = judged(r, s.dump);
        CAPTURE(report.reason);
        CHECK(report.verdict == Verdict::ok);
        CHECK(report.tensors.size() >= 8);
        // What is written has that layout, too.
        const TensorFile written = outputs_of(r, r.truth);
        CHECK(written.find("out")->shape == s.dump.find("out")->shape);
        CHECK(written.find("out")->bytes == s.dump.find("out")->bytes);
        Tensor& out = s.dump.tensors.front().tensor;
        std::vector<double> values = to_f64(out);
        values[values.size() - 1] += 1;
        out = from_f64(values, out.shape, out.dtype);
        report = judged(r, s.dump);
        CHECK(report.verdict == Verdict::wrong);
        REQUIRE(report.worst);
        CHECK(report.worst->axes == "b,h,t,v");
        for (std::size_t axis = 0; axis < 4; ++axis) CHECK(report.worst->index[axis] == out.shape[axis] - 1);
    }
}

TEST_CASE("layout: it is found where shapes allow either, and named where they do not") {
    const Stored plain = stored_run(sized({1, 8, 8, 8, 16, 16}, {}));
    Stored swapped = plain;
    store_heads_first(swapped.inputs);
    store_heads_first(swapped.dump);
    for (const bool first : {true, false}) {
        const Stored& s = first ? swapped : plain;
        const std::vector<std::string> sets = first ? std::vector<std::string>{} : k_heads_first;
        GdnReference r = reference_for(s.inputs, "marin", sets);
        REQUIRE(add_backward(r, s.inputs, s.dump, 2));
        CHECK(judged(r, s.dump, {.hints = false}).verdict == Verdict::wrong);
        const auto found = find_operation(s.inputs, s.dump, r, sets, 2);
        REQUIRE(found);
        CHECK(found->sets == std::vector<std::string>{first ? "layout=B,H,T,D" : "layout=B,T,H,D"});
        CHECK(found->stage == "layout");
    }
    Stored other = stored_run(sized({1, 20, 2, 2, 16, 16}, {}));
    const GdnReference r = reference_for(other.inputs);
    store_heads_first(other.dump);
    const auto refused = judge(r, other.dump, {});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "tensor 'out': expected [1,20,2,16] float32, got [1,2,20,16] float32");
    CHECK(refused.error().hint.find("[B,H,T,D]") != std::string::npos);
    store_heads_first(other.inputs);
    auto contract = resolve_contract("marin", other.inputs.metadata, {});
    CHECK_FALSE(read_problem(other.inputs, *contract));
}
