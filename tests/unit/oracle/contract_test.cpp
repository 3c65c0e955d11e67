#include "oracle/gdn/contract/contract.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/gdn/compare/declare.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "unit/oracle/judging.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

std::string origin_of(const ResolvedContract& c, std::string_view field) {
    for (const ContractField& f : c.fields) {
        if (f.name == field) return f.value + " from " + f.origin;
    }
    return "";
}

// The message of read_problem on inputs with one change.
std::string contract_refusal(const std::function<void(TensorFile&)>& change,
                             const std::vector<std::string>& sets = {}) {
    TensorFile inputs = load_safetensors(vectors() / "gdn_base.inputs.safetensors");
    change(inputs);
    auto contract = resolve_contract("marin", inputs.metadata, sets);
    REQUIRE(contract);
    const auto problem = read_problem(inputs, *contract);
    if (problem) return {};
    CHECK(problem.error().kind == ErrorKind::bad_input);
    return problem.error().message;
}

Tensor& tensor_of(TensorFile& file, std::string_view name) {
    for (NamedTensor& t : file.tensors) {
        if (t.name == name) return t.tensor;
    }
    FAIL("no such tensor");
    return file.tensors.front().tensor;
}

}  // namespace

TEST_CASE("contract: named < metadata < --set, with origins") {
    const auto c = resolve_contract("hf", {{"l2norm", "rsqrt(sum+eps)"}, {"eps", "1e-5"}, {"producer", "x"}},
                                    std::vector<std::string>{"eps=1e-4"});
    REQUIRE(c);
    CHECK(origin_of(*c, "head_map") == "interleaved from contract hf");
    CHECK(origin_of(*c, "l2norm") == "rsqrt(sum+eps) from inputs metadata");
    CHECK(origin_of(*c, "eps") == "0.0001 from --set");
    CHECK(origin_of(*c, "chunk") == "64 from contract hf");
    CHECK(c->value.out_dtype == OutDType::query);
    CHECK(c->fields.size() == contract_field_names().size());
}

TEST_CASE("contract: every field of every named one") {
    // What each implementation means by its tensors, in the order of contract_field_names().
    struct Named {
        std::string_view name;
        std::vector<std::string_view> values;
        std::string_view state_dtype = "f32";
    };
    const std::string_view root = "dk^-0.5";
    const std::string_view norm = "rsqrt(sum+eps)";
    const std::vector<Named> all = {
        {"marin",
         {"equal", "B,H,K,V", "log", "prob", norm, "1e-06", root, "none", "f32", "f32", "passthrough", "none"}},
        {"marin-01d1",
         {"equal", "B,H,K,V", "log", "prob", norm, "1e-06", root, "input", "f32", "f32", "passthrough", "80"}},
        {"marin-654e",
         {"equal", "B,H,K,V", "log", "prob", norm, "1e-06", root, "none", "f32", "f32", "passthrough", "80"}},
        {"hf",
         {"interleaved", "B,H,K,V", "log", "prob", "off", "1e-06", root, "none", "query", "f32", "passthrough",
          "none"}},
        {"hf-old",
         {"equal", "B,H,K,V", "log", "prob", "off", "1e-06", root, "input", "query", "f32", "passthrough", "none"}},
        {"fla",
         {"interleaved", "B,H,K,V", "log", "prob", "off", "1e-06", root, "none", "query", "input", "passthrough",
          "none"}},
        {"fla-recurrent",
         {"interleaved", "B,H,K,V", "log", "prob", "off", "1e-06", root, "none", "query", "f32", "passthrough",
          "none"}},
        {"flashinfer",
         {"interleaved", "B,H,V,K", "raw", "logit", "off", "1e-06", root, "none", "query", "input", "zeros", "none"}},
        {"ggml",
         {"tiled", "B,H,V,K", "log", "prob", "off", "1e-06", root, "none", "f32", "f32", "passthrough", "none"}},
        {"ik",
         {"interleaved", "B,H,K,V", "log", "logit", "off", "1e-06", root, "none", "f32", "f32", "passthrough", "+50"}},
        {"sglang",
         {"interleaved", "B,H,K,V", "log", "prob", norm, "1e-06", root, "none", "query", "f32", "passthrough", "none"}},
        {"sglang-cpu",
         {"interleaved", "B,H,K,V", "log", "prob", "off", "1e-06", root, "none", "query", "bf16", "passthrough",
          "none"},
         "bf16"},
        {"maxtext",
         {"equal", "B,H,K,V", "log", "prob", norm, "1e-06", root, "none", "query", "input", "passthrough", "none"},
         "input"},
    };
    std::vector<std::string> names;
    for (const Named& named : all) {
        names.emplace_back(named.name);
        CAPTURE(names.back());
        const auto resolved = resolve_contract(named.name, {}, {});
        REQUIRE(resolved);
        std::vector<std::string> values(named.values.begin(), named.values.end());
        values.emplace_back("64");   // chunk
        values.emplace_back("f32");  // gate_sum
        values.emplace_back(named.state_dtype);
        values.emplace_back("B,T,H,D");  // layout
        REQUIRE(resolved->fields.size() == values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            CAPTURE(contract_field_names()[i]);
            CHECK(resolved->fields[i].name == contract_field_names()[i]);
            CHECK(resolved->fields[i].value == values[i]);
            CHECK(resolved->fields[i].origin == "contract " + names.back());
        }
    }
    CHECK(names == contract_names());
    CHECK(contract_field_names() == std::vector<std::string>{"head_map", "state_layout", "g_kind", "beta_kind",
                                                             "l2norm", "eps", "scale", "rounding", "out_dtype",
                                                             "matmul", "empty", "exp_clip", "chunk", "gate_sum",
                                                             "state_dtype", "layout"});
}

TEST_CASE("contract: mistakes are refused with what would be right") {
    const auto unknown = resolve_contract("marn", {}, {});
    REQUIRE_FALSE(unknown);
    CHECK(unknown.error().kind == ErrorKind::usage);
    CHECK(unknown.error().hint == "did you mean 'marin'?");
    CHECK(resolve_contract("torch", {}, {}).error().message == "unknown contract 'torch'");
    const auto set = [](std::string text) {
        return resolve_contract("marin", {}, std::vector<std::string>{std::move(text)});
    };
    CHECK(set("head_map").error().message == "--set head_map: expected FIELD=VALUE");
    CHECK(set("head_mop=tiled").error().hint == "did you mean 'head_map'?");
    CHECK(set("head_map=tile").error().message ==
          "contract field head_map: 'tile' is not one of equal, interleaved, tiled");
    CHECK(set("eps=-1").error().kind == ErrorKind::usage);
    CHECK(set("chunk=0").error().kind == ErrorKind::usage);
    CHECK(set("scale=0").error().kind == ErrorKind::usage);
    CHECK(set("scale=0.5")->value.scale == 0.5);
    CHECK(set("exp_clip=-3").error().kind == ErrorKind::usage);
    CHECK(set("exp_clip=+").error().kind == ErrorKind::usage);
    const ExpClip both = *set("exp_clip=50")->value.exp_clip;
    CHECK(both(-60) == -50);
    CHECK(both(60) == 50);
    const ExpClip upper = *set("exp_clip=+50")->value.exp_clip;
    CHECK(upper(-60) == -60);
    CHECK(upper(60) == 50);
    CHECK(set("exp_clip=+50")->as_metadata().at("exp_clip") == "+50");
    CHECK(resolve_contract("marin", {{"head_map", "odd"}}, {}).error().kind == ErrorKind::bad_input);
    CHECK(resolve_contract("marin", {{"op", "linear-ce"}}, {}).error().message ==
          "the inputs file is for op 'linear-ce', not gdn");
}

TEST_CASE("contract: what a run writes resolves to the same contract again") {
    const auto c =
        resolve_contract("flashinfer", {}, std::vector<std::string>{"scale=0.25", "exp_clip=+80", "matmul=bf16x3"});
    REQUIRE(c);
    const auto again = resolve_contract("marin", c->as_metadata(), {});
    REQUIRE(again);
    CHECK(again->text() == c->text());
}

TEST_CASE("inputs: missing tensors, wrong shapes and dtypes are named") {
    CHECK(contract_refusal([](TensorFile&) {}).empty());
    CHECK(contract_refusal([](TensorFile& f) {
              std::erase_if(f.tensors, [](const NamedTensor& t) { return t.name == "k"; });
          }) == "tensor 'k' is missing from the inputs");
    CHECK(contract_refusal([](TensorFile& f) { tensor_of(f, "k").shape = {2, 57, 8, 3}; }) ==
          "tensor 'k': expected [2,57,3,8] float32, got [2,57,8,3] float32");
    CHECK(contract_refusal([](TensorFile& f) {
              tensor_of(f, "g") = from_i64(std::vector<std::int64_t>(342), {2, 57, 3});
          }) == "tensor 'g': expected [2,57,3] of a floating dtype, got [2,57,3] int64");
    CHECK(contract_refusal([](TensorFile& f) { tensor_of(f, "q").shape = {114, 3, 8}; }) ==
          "tensor 'q': expected [B,T,Hk,dk], got [114,3,8] float32");
    CHECK(contract_refusal([](TensorFile& f) {
              f.tensors.push_back({"query", f.tensors[0].tensor});
          }).find("both mean q") != std::string::npos);
    CHECK(contract_refusal([](TensorFile& f) {
              tensor_of(f, "initial_state").shape = {2, 3, 64};
          }).find("tensor 'initial_state': expected [2,3,8,8]") == 0);
    CHECK(contract_refusal([](TensorFile&) {}, {"g_kind=raw"}) == "tensor 'a' is missing from the inputs");
}

TEST_CASE("inputs: a small file does not claim more rows without tokens than there is room for") {
    const auto problem_of = [](std::int64_t rows) {
        TensorFile file;
        const Tensor nothing = from_f64({}, {rows, 0, 1, 1}, DType::f32);
        for (const char* name : {"q", "k", "v"}) file.tensors.push_back({name, nothing});
        for (const char* name : {"g", "beta"}) {
            file.tensors.push_back({name, from_f64({}, {rows, 0, 1}, DType::f32)});
        }
        auto contract = resolve_contract("marin", {}, {});
        return read_problem(file, *contract);
    };
    CHECK(problem_of(1000)->sequences.size() == 1000);
    const auto refused = problem_of((1 << 29) + 3);
    REQUIRE(!refused);
    CHECK(refused.error().message.find("are too large") != std::string::npos);
}

TEST_CASE("inputs: g, alpha and beta count as what their names say if the contract only defaults to raw gates") {
    const auto kinds = [](const char* gate, std::vector<std::string> sets) {
        TensorFile file = load_safetensors(vectors() / "gdn_gva.inputs.safetensors");
        file.metadata.clear();
        std::erase_if(file.tensors, [](const NamedTensor& t) { return t.name == "initial_state"; });
        for (NamedTensor& t : file.tensors) {
            if (t.name == "g") t.name = gate;
        }
        auto contract = resolve_contract("flashinfer", {}, sets);
        REQUIRE(contract);
        const auto problem = read_problem(file, *contract);
        if (!problem) return problem.error().message;
        return origin_of(*contract, "g_kind") + ", " + origin_of(*contract, "beta_kind");
    };
    CHECK(kinds("g", {}) == "log from inputs tensor g, prob from inputs tensor beta");
    CHECK(kinds("alpha", {}) == "alpha from inputs tensor alpha, prob from inputs tensor beta");
    CHECK(kinds("g", {"g_kind=raw"}) == "tensor 'a' is missing from the inputs");
}

TEST_CASE("inputs: head counts must fit the head map") {
    TensorFile inputs = load_safetensors(vectors() / "gdn_gva.inputs.safetensors");
    auto equal = resolve_contract("marin", {}, {});
    CHECK(read_problem(inputs, *equal).error().message == "q has 2 heads and v has 6, but head_map=equal");
    auto metadata = resolve_contract("marin", inputs.metadata, {});
    CHECK(read_problem(inputs, *metadata));
}

TEST_CASE("inputs: cu_seqlens must rise within the tokens, and needs a batch of 1") {
    const auto with = [](std::vector<std::int64_t> offsets) {
        TensorFile file = make_inputs(*find_gdn_case("varlen"));
        file.tensors.back().tensor = from_i64(offsets, {static_cast<std::int64_t>(offsets.size())});
        std::erase_if(file.tensors, [](const NamedTensor& t) { return t.name == "initial_state"; });
        auto contract = resolve_contract("marin", file.metadata, {});
        const auto problem = read_problem(file, *contract);
        return problem ? std::string() : problem.error().message;
    };
    CHECK(with({0, 16, 120}).empty());
    CHECK(with({0, 16, 100}).empty());
    const std::string refused = "tensor 'cu_seqlens': must rise from 0 to at most the 120 tokens";
    CHECK(with({1, 16}) == refused);
    CHECK(with({0, 20, 10}) == refused);
    CHECK(with({0, 121}) == refused);
    CHECK(with({}) == "tensor 'cu_seqlens': expected [N+1] of an integer dtype, got [0] int64");
}

TEST_CASE("inputs: a scale tensor counts as metadata, 0 as the default, --set wins") {
    const auto scale_of = [](double value, const std::vector<std::string>& sets) {
        TensorFile file = load_safetensors(vectors() / "gdn_base.inputs.safetensors");
        file.tensors.push_back({"scale", from_f64(std::vector<double>{value}, {}, DType::f32)});
        auto contract = resolve_contract("marin", file.metadata, sets);
        REQUIRE(read_problem(file, *contract));
        return origin_of(*contract, "scale");
    };
    CHECK(scale_of(0.5, {}) == "0.5 from inputs tensor scale");
    CHECK(scale_of(0, {}) == "dk^-0.5 from inputs tensor scale");
    CHECK(scale_of(0.5, {"scale=2"}) == "2 from --set");
}

TEST_CASE("contract: other spellings of a value mean the same and are shown under its name") {
    const auto shown = [](const std::string& set, std::string_view field) {
        const auto contract = resolve_contract("marin", {}, std::vector<std::string>{set});
        REQUIRE_MESSAGE(contract, set);
        return origin_of(*contract, field);
    };
    CHECK(shown("l2norm=on", "l2norm") == "rsqrt(sum+eps) from --set");
    CHECK(shown("scale=dk^-.5", "scale") == "dk^-0.5 from --set");
    CHECK(shown("state_layout=V,K", "state_layout") == "B,H,V,K from --set");
    CHECK(shown("state_layout=K,V", "state_layout") == "B,H,K,V from --set");
    CHECK(shown("out_dtype=float32", "out_dtype") == "f32 from --set");
    CHECK(shown("out_dtype=bfloat16", "out_dtype") == "bf16 from --set");
    CHECK(shown("out_dtype=float16", "out_dtype") == "f16 from --set");
    CHECK(shown("rounding=marin-01d1", "rounding") == "input from --set");
    CHECK(shown("rounding=hf-old", "rounding") == "input from --set");
    CHECK(shown("rounding=marin-654e", "rounding") == "none from --set");
    CHECK(shown("rounding=hf", "rounding") == "none from --set");
}

TEST_CASE("cases: a name is found however it is spelt") {
    for (const char* name : {"G1", "g1", "T-hand", "t_hand", "Keys-Identical_BETA2"})
        CHECK(find_gdn_case(name) != nullptr);
    CHECK(find_gdn_case("g11") == nullptr);
    CHECK(find_gdn_case("") == nullptr);
}

// Which tensor of a dump is judged as what.

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

// `lengths` and `offsets`: batch rows that end before T. The tokens after the end are no-ops and their outputs are 0.

namespace {

GdnCase padded_case() {
    GdnCase c;
    c.name = "padded";
    c.dims = {2, 50, 2, 4, 16, 8};
    c.seed = 21;
    c.state_scale = 0.2;
    c.contract = {"head_map=interleaved", "chunk=16"};
    return c;
}

TensorFile with_sequences(std::string name, const std::vector<std::int64_t>& values, Shape shape) {
    TensorFile inputs = make_inputs(padded_case());
    inputs.tensors.push_back({std::move(name), from_i64(values, std::move(shape))});
    return inputs;
}

std::string error_of(const TensorFile& inputs) {
    auto contract = resolve_contract("marin", inputs.metadata, {});
    REQUIRE(contract);
    const auto problem = read_problem(inputs, *contract);
    return problem ? std::string() : problem.error().message;
}

// Results and gradients of one head against those of the case with that length for all heads of the row.
void check_head_alone(const GdnReference& r, const GdnCase& c, std::size_t head, std::int64_t length) {
    const auto Hv = static_cast<std::size_t>(c.dims.Hv);
    const std::size_t n = head / Hv;
    const std::size_t h = head % Hv;
    TensorFile alone = make_inputs(c);
    std::vector<std::int64_t> rows = {30, 30};
    rows[n] = length;
    alone.tensors.push_back({"lengths", from_i64(rows, {2})});
    const GdnReference one = reference_for(alone);
    const GdnCotangents cotangents = random_cotangents(r.problem, 5);
    const GdnGradients got = run_adjoint64(r.problem, r.contract.value, cotangents, 1);
    const GdnGradients want = run_adjoint64(one.problem, one.contract.value, cotangents, 1);
    const auto same = [](const std::vector<double>& x, const std::vector<double>& y, std::size_t at, std::size_t size) {
        for (std::size_t i = at * size; i < (at + 1) * size; ++i) {
            REQUIRE(x[i] == doctest::Approx(y[i]).epsilon(1e-11));
        }
    };
    same(r.truth.final_state, one.truth.final_state, head, 16UL * 8);
    for (std::size_t row = n * 30; row < n * 30 + 30; ++row) {
        const std::size_t key = row * 2 + h / (Hv / 2);
        same(r.truth.out, one.truth.out, row * Hv + h, 8);
        same(got.d_gate, want.d_gate, row * Hv + h, 1);
        same(got.dbeta, want.dbeta, row * Hv + h, 1);
        same(got.dq, want.dq, key, 16);
        same(got.dk, want.dk, key, 16);
        same(got.dv, want.dv, row * Hv + h, 8);
    }
}

}  // namespace

TEST_CASE("lengths: given by row, by head, flat, or as prefix sums, they are the same sequences") {
    const std::vector<TensorFile> all = {
        with_sequences("lengths", {50, 23}, {2}),
        with_sequences("lengths", {50, 50, 50, 50, 23, 23, 23, 23}, {2, 4}),
        with_sequences("lengths", {50, 50, 50, 50, 23, 23, 23, 23}, {8}),
        with_sequences("offsets", {50, 50, 50, 50, 23, 23, 23, 23}, {8}),
        with_sequences("offsets", {0, 50, 100, 150, 200, 223, 246, 269, 292}, {9}),
        with_sequences("offsets", {0, 50, 73}, {3}),
    };
    const GdnReference first = reference_for(all[0]);
    REQUIRE(first.problem.sequences.size() == 2);
    CHECK(first.problem.sequences[1].begin == 50);
    CHECK(first.problem.sequences[1].end == 73);
    for (const TensorFile& inputs : all) {
        const GdnReference r = reference_for(inputs);
        CHECK(r.truth.out == first.truth.out);
        CHECK(r.truth.final_state == first.truth.final_state);
    }
    for (std::size_t i = (50 + 23) * 4UL * 8; i < first.truth.out.size(); ++i) CHECK(first.truth.out[i] == 0);
}

TEST_CASE("lengths: the truth is that of zeroed tokens") {
    const GdnReference r = reference_for(with_sequences("lengths", {50, 23}, {2}));
    GdnProblem zeroed = r.problem;
    zeroed.sequences[1].end = 100;
    for (std::size_t row = 73; row < 100; ++row) {
        for (std::size_t h = 0; h < 4; ++h) zeroed.gate[row * 4 + h] = zeroed.beta[row * 4 + h] = 0;
    }
    const GdnOutputs x = run_recurrent64(zeroed, r.contract.value, 1);
    CHECK(x.final_state == r.truth.final_state);
}

TEST_CASE("lengths: what cannot be meant is refused") {
    CHECK(error_of(with_sequences("lengths", {50, 51}, {2})) ==
          "tensor 'lengths': length 51 of batch row 1 is not within the 50 tokens");
    CHECK(error_of(with_sequences("lengths", {1, 2, 3}, {3})).find("expected [B,Hv], [B*Hv] or [B]") !=
          std::string::npos);
    constexpr std::int64_t k_most = std::numeric_limits<std::int64_t>::max();
    for (const std::vector<std::int64_t>& offsets :
         {std::vector<std::int64_t>{0, 50, 23}, {-1, 50, 73}, {std::numeric_limits<std::int64_t>::min(), 0, k_most}}) {
        CHECK(error_of(with_sequences("offsets", offsets, {3})) ==
              "tensor 'offsets': prefix sums must rise, from 0 or more");
    }
    CHECK(error_of(with_sequences("offsets", {0, 50, k_most}, {3})).find("is not within the 50 tokens") !=
          std::string::npos);
    TensorFile both = with_sequences("lengths", {50, 23}, {2});
    both.tensors.push_back({"offsets", from_i64(std::vector<std::int64_t>{0, 50, 73}, {3})});
    CHECK(error_of(both) == "tensor 'offsets': the sequences are given twice");
}

TEST_CASE("lengths: of each head are zeros written out, in every form, for results and gradients") {
    for (const std::vector<std::string>& sets :
         {std::vector<std::string>{}, {"head_map=interleaved", "g_kind=raw", "beta_kind=logit"}, {"g_kind=alpha"}}) {
        CAPTURE(sets.size());
        GdnCase c = padded_case();
        c.dims = {2, 30, 2, sets.size() == 3 ? 4 : 2, 16, 8};
        c.contract = sets;
        if (sets.size() == 3) c.gate = GateRecipe::raw;
        c.contract.emplace_back("chunk=16");
        const bool grouped = c.dims.Hv == 4;
        const std::vector<std::int64_t> lengths =
            grouped ? std::vector<std::int64_t>{30, 30, 20, 20, 7, 7, 0, 0} : std::vector<std::int64_t>{30, 20, 7, 0};
        const auto count = static_cast<std::int64_t>(lengths.size());
        std::vector<std::int64_t> sums = {0};
        for (const std::int64_t x : lengths) sums.push_back(sums.back() + x);
        TensorFile inputs = make_inputs(c);
        inputs.tensors.push_back({"lengths", from_i64(lengths, {2, count / 2})});
        const GdnReference r = reference_for(inputs);
        REQUIRE(r.unstable_reason.empty());
        CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::ok);

        for (std::size_t head = 0; head < lengths.size(); ++head) check_head_alone(r, c, head, lengths[head]);
        for (const auto& [name, values] : {std::pair{"lengths", &lengths}, {"offsets", &lengths}, {"offsets", &sums}}) {
            TensorFile same = make_inputs(c);
            same.tensors.push_back({name, from_i64(*values, {static_cast<std::int64_t>(values->size())})});
            const GdnReference other = reference_for(same);
            CHECK(other.truth.out == r.truth.out);
            CHECK(other.truth.final_state == r.truth.final_state);
        }
    }
}

TEST_CASE("lengths: value heads of one key head that end apart are judged as with keys of their own") {
    for (const char* map : {"head_map=interleaved", "head_map=tiled"}) {
        CAPTURE(map);
        GdnCase c = padded_case();
        c.contract = {map, "chunk=16"};
        const std::vector<std::int64_t> lengths = {50, 50, 50, 50, 23, 7, 0, 23};
        const TensorFile inputs = [&] {
            TensorFile file = make_inputs(c);
            file.tensors.push_back({"lengths", from_i64(lengths, {2, 4})});
            return file;
        }();
        const GdnReference r = reference_for(inputs);
        CHECK(r.problem.dims.Hk == 4);
        CHECK(r.problem.repeated_keys);
        // The same with q and k written out.
        TensorFile repeated = inputs;
        for (NamedTensor& entry : repeated.tensors) {
            if (entry.name != "q" && entry.name != "k") continue;
            const auto values = to_f64(entry.tensor);
            std::vector<double> all;
            for (std::size_t row = 0; row < 100; ++row) {
                for (std::size_t h = 0; h < 4; ++h) {
                    const std::size_t key = std::string(map) == "head_map=tiled" ? h % 2 : h / 2;
                    for (std::size_t i = 0; i < 16; ++i) all.push_back(values[(row * 2 + key) * 16 + i]);
                }
            }
            entry.tensor = from_f64(all, {2, 50, 4, 16}, entry.tensor.dtype);
        }
        const GdnReference written = reference_for(repeated);
        CHECK_FALSE(written.problem.repeated_keys);
        CHECK(r.truth.out == written.truth.out);
        CHECK(r.truth.final_state == written.truth.final_state);
        for (std::size_t i = (50 + 7) * 4UL * 8 + 8; i < r.truth.out.size(); i += 4UL * 8) CHECK(r.truth.out[i] == 0);
        CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::ok);
        // Nothing masked is wrong.
        GdnOutputs ignored = reference_for(make_inputs(c)).truth;
        CHECK(judged(r, outputs_of(r, ignored)).verdict == Verdict::wrong);
        // Gradients of a key head belong to several value heads.
        GdnReference with = r;
        TensorFile gradients = outputs_of(r, r.truth);
        gradients.tensors.push_back({"dq", from_f64(std::vector<double>(3200), {2, 50, 2, 16}, DType::f32)});
        const auto refused = add_backward(with, inputs, gradients, 1);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().message ==
              "value heads that share a key head have different lengths: results are judged, gradients are not");
        CHECK_FALSE(read_cotangents(inputs, r.problem, r.contract.value));
        CHECK(read_cotangents(repeated, written.problem, written.contract.value));
    }
}

TEST_CASE("hint: masked tokens that still decay the state, and lengths that are ignored") {
    const GdnReference r = reference_for(with_sequences("lengths", {50, 23}, {2}));
    GdnOutputs decayed = r.truth;
    for (std::size_t h = 0; h < 4; ++h) {
        double sum = 0;
        for (std::size_t row = 73; row < 100; ++row) sum += r.problem.gate[row * 4 + h];
        for (std::size_t i = (4 + h) * 128; i < (5 + h) * 128; ++i) decayed.final_state[i] *= std::exp(sum);
    }
    const GdnReport report = judged(r, outputs_of(r, decayed));
    CHECK(report.stage == "padding");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints[0].text == "matches if masked tokens still decay the state");
    GdnProblem all = r.problem;
    all.sequences[1].end = 100;
    GdnOutputs ignored = r.truth;
    ignored.final_state = run_recurrent64(all, r.contract.value, 1).final_state;
    const GdnReport other = judged(r, outputs_of(r, ignored));
    CHECK(other.stage == "padding");
    REQUIRE_FALSE(other.hints.empty());
    CHECK(other.hints[0].text == "matches if tokens beyond the given lengths are not masked at all");
}

TEST_CASE("lengths: sizes may have any integer dtype") {
    for (const DType dtype :
         {DType::i64, DType::i32, DType::i16, DType::i8, DType::u64, DType::u32, DType::u16, DType::u8}) {
        CAPTURE(name_of(dtype));
        TensorFile inputs = make_inputs(padded_case());
        inputs.tensors.push_back({"lengths", from_f64(std::vector<double>{30, 17}, {2}, dtype)});
        auto contract = resolve_contract("marin", inputs.metadata, {});
        REQUIRE(contract);
        const auto problem = read_problem(inputs, *contract);
        REQUIRE(problem);
        CHECK(problem->sequences[0].end == 30);
        CHECK(problem->sequences[1].end == 67);
    }
    for (const DType dtype : {DType::f32, DType::boolean}) {
        TensorFile inputs = make_inputs(padded_case());
        inputs.tensors.push_back({"lengths", from_f64(std::vector<double>{1, 1}, {2}, dtype)});
        CHECK(error_of(inputs).find("tensor 'lengths': expected [B,Hv], [B*Hv] or [B] of an integer dtype") == 0);
    }
}

TEST_CASE("lengths: a size beyond int64 is refused with its value") {
    TensorFile inputs = make_inputs(padded_case());
    Tensor lengths = from_f64(std::vector<double>{3, 0}, {2}, DType::u64);
    std::fill(lengths.bytes.begin() + 8, lengths.bytes.end(), std::uint8_t{0xFF});
    inputs.tensors.push_back({"lengths", lengths});
    CHECK(error_of(inputs) == "tensor 'lengths': element 1 is 18446744073709551615, beyond the range of int64");
}

TEST_CASE("lengths: a tensor of an unreadable dtype is refused only where it is asked for") {
    TensorFile inputs = make_inputs(padded_case());
    inputs.unread = {{"scales", "F8_E8M0"}, {"out", "F4"}, {"b", "<U5"}};
    CHECK(error_of(inputs).empty());
    inputs.unread = {{"lengths", "F8_E4M3"}};
    CHECK(error_of(inputs) == "tensor 'lengths': gdnctl cannot read dtype F8_E4M3");
}

// Files with heads before tokens, [B,H,T,D].
using namespace gdnctl;

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
