#include "oracle/gdn/contract/contract.h"

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
