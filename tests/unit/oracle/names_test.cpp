// Which tensor of a dump is judged as what.
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct NamedDump {
    TensorFile inputs, dump;
};

// G1 or a case of its own, with every gradient under the names that gdnctl writes.
NamedDump named_dump(const char* case_name) {
    const GdnCase* c = find_gdn_case(case_name);
    REQUIRE(c != nullptr);
    NamedDump d;
    d.inputs = make_inputs(*c);
    const GdnReference r = reference_for(d.inputs);
    const GdnCotangents cotangents = random_cotangents(r.problem, 3);
    d.dump = outputs_of(r, r.truth);
    for (auto& t : cotangents_file(r.problem, r.contract.value, cotangents).tensors) d.dump.tensors.push_back(t);
    const GdnGradients g = run_adjoint64(r.problem, r.contract.value, cotangents, 1);
    for (auto& t : gradients_file(r.problem, r.contract.value, g, DType::f32, DType::f32).tensors) {
        d.dump.tensors.push_back(t);
    }
    return d;
}

void rename_tensor(TensorFile& file, std::string_view from, std::string_view to) {
    const auto found =
        std::find_if(file.tensors.begin(), file.tensors.end(), [&](const NamedTensor& t) { return t.name == from; });
    REQUIRE(found != file.tensors.end());
    found->name = to;
}

void negate_tensor(TensorFile& file, std::string_view name) {
    for (NamedTensor& t : file.tensors) {
        if (t.name != name) continue;
        std::vector<double> values = to_f64(t.tensor);
        for (double& x : values) x = -x;
        t.tensor = from_f64(values, t.tensor.shape, t.tensor.dtype);
    }
}

GdnReport report_on_names(const NamedDump& d) {
    GdnReference r = reference_for(d.inputs);
    REQUIRE(add_backward(r, d.inputs, d.dump, 2));
    return testing::judged(r, d.dump);
}

}  // namespace

TEST_CASE("names: the gradients of raw gates and of the state, as the literature names them") {
    NamedDump d = named_dump("g1");
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"d_initial_state", "dS0"},
                                                                                   {"d_a", "da"},
                                                                                   {"d_b", "db"},
                                                                                   {"d_A_log", "dA_log"},
                                                                                   {"d_dt_bias", "d dt_bias"},
                                                                                   {"final_state", "state"}}) {
        rename_tensor(d.dump, from, to);
    }
    const GdnReport right = report_on_names(d);
    CHECK(right.verdict == Verdict::ok);
    CHECK(right.tensors.size() == 12);
    CHECK(right.unknown.empty());
    CHECK(right.not_compared.empty());
    for (const char* name : {"dS0", "da", "db", "dA_log", "d dt_bias", "state"}) {
        CAPTURE(name);
        NamedDump wrong = d;
        negate_tensor(wrong.dump, name);
        const GdnReport report = report_on_names(wrong);
        CHECK(report.verdict == Verdict::wrong);
        CHECK(report.worst->tensor == name);
    }
}

TEST_CASE("names: db is the gradient of what the contract is given as beta") {
    NamedDump logit = named_dump("g1");
    rename_tensor(logit.dump, "dbeta", "db");
    const GdnReport both = report_on_names(logit);  // d_b is there: db can only be dbeta
    CHECK(both.verdict == Verdict::ok);
    NamedDump prob = named_dump("marin_16_C8");
    rename_tensor(prob.dump, "dbeta", "db");
    const GdnReport report = report_on_names(prob);
    CHECK(report.verdict == Verdict::ok);
    CHECK(report.not_compared.empty());
}

TEST_CASE("names: a gradient under a name that means nothing is not passed over in silence") {
    NamedDump d = named_dump("marin_16_C8");
    rename_tensor(d.dump, "dq", "grads/q");
    rename_tensor(d.dump, "dk", "key_grad");
    rename_tensor(d.dump, "dg", "d_logits");
    d.dump.tensors.push_back({"da", *d.dump.find("dbeta")});
    const GdnReport report = report_on_names(d);
    REQUIRE(report.unjudged_gradients.size() == 2);
    CHECK(report.unjudged_gradients[0].tensor == "grads/q");
    CHECK(report.unjudged_gradients[0].reason == "dq");
    CHECK(report.unjudged_gradients[1].reason == "dk");
    CHECK(report.unknown.size() == 3);
    REQUIRE_FALSE(report.not_compared.empty());
    CHECK(report.not_compared.back().tensor == "da");
    CHECK(report.not_compared.back().reason == "the contract has no such input");
}

TEST_CASE("names: state is the initial one beside inputs, or beside a final state") {
    NamedDump d = named_dump("marin_16_C8");
    const GdnContract contract;
    CHECK(name_in_dump(d.dump, "state", contract).canonical == "initial_state");
    std::erase_if(d.dump.tensors, [](const NamedTensor& t) { return t.name == "final_state"; });
    CHECK(name_in_dump(d.dump, "state", contract).canonical == "final_state");
    d.dump.tensors.push_back({"q", *d.inputs.find("q")});
    CHECK(name_in_dump(d.dump, "state", contract).canonical == "initial_state");
}
