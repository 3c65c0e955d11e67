// Roundings that kernels do: declared ones are OK, others are named; storage in 16 bits widens only what it touches.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <doctest/doctest.h>

#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/probe.h"
#include "oracle/linear_ce/judge/selftest.h"
#include "oracle/tensor/formats.h"

namespace gdnctl::oracle::linear_ce {

namespace {

TensorFile recorded(const std::string& name) {
    const auto path = std::filesystem::path(GDNCTL_FIXTURES) / "linear_ce" / "judged" / (name + ".safetensors");
    std::ifstream in(path, std::ios::binary);
    const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
    auto file = parse_safetensors(bytes, path.string());
    REQUIRE(file);
    return std::move(*file);
}

Problem problem_under(const TensorFile& inputs, const std::vector<std::string>& sets) {
    Overrides overrides;
    for (const std::string& set : sets) REQUIRE(set_field(set, overrides));
    auto contract = resolve(inputs.metadata, overrides);
    REQUIRE(contract);
    auto problem = read_problem(inputs, std::move(*contract));
    REQUIRE(problem);
    return std::move(*problem);
}

Report judged_under(const TensorFile& inputs, const TensorFile& dump, const std::vector<std::string>& sets,
                    Level level = Level::sampled) {
    CompareOptions options;
    options.level = level;
    const auto report = compare(problem_under(inputs, sets), dump, options);
    REQUIRE(report);
    return *report;
}

Tensor& tensor_of(TensorFile& file, std::string_view name) {
    for (NamedTensor& entry : file.tensors) {
        if (entry.name == name) return entry.tensor;
    }
    REQUIRE_MESSAGE(false, "no such tensor");
    return file.tensors.front().tensor;
}

void scale(Tensor& tensor, double by) {
    std::vector<double> values = to_f64(tensor);
    for (double& x : values) x *= by;
    tensor = from_f64(values, tensor.shape, tensor.dtype);
}

}  // namespace

TEST_CASE("linear-ce: logits rounded to bf16 are named, and OK once declared, with gradients of either logits") {
    const TensorFile inputs = recorded("ce_bf16_huge.inputs");
    for (const char* kernel : {"liger", "lev_batched_xla"}) {
        CAPTURE(kernel);
        TensorFile dump = recorded(std::string("ce_bf16_huge.") + kernel + ".outputs");
        for (const Level level : {Level::exact, Level::sampled}) {
            const Report undeclared = judged_under(inputs, dump, {}, level);
            CHECK(undeclared.verdict == Verdict::wrong);
            CHECK(undeclared.stage == "rounding");
            CHECK(undeclared.declare == std::vector<std::string>{"--set", "logits=bf16"});
            REQUIRE(undeclared.hints.size() == 1);
            CHECK(undeclared.hints[0].text == "the logits are rounded to bf16 (declare it: --set logits=bf16)");
            const Report declared = judged_under(inputs, dump, {"logits=bf16"}, level);
            CHECK_MESSAGE(declared.verdict == Verdict::ok, declared.reason);
            CHECK(declared.declare.empty());
        }
        // 8 % of a gradient is more than the roundings of either form.
        scale(tensor_of(dump, "gx"), 1.08);
        CHECK(judged_under(inputs, dump, {"logits=bf16"}).verdict == Verdict::wrong);
        CHECK(judged_under(inputs, dump, {}).declare.empty());
    }
}

TEST_CASE("linear-ce: a kernel with exact logits is not OK where rounded ones are declared") {
    const TensorFile inputs = make_inputs(*find_case("unit_normal"));
    const TensorFile dump = kernel_outputs(problem_under(inputs, {}), {});
    CHECK(judged_under(inputs, dump, {}).verdict == Verdict::ok);
    CHECK(judged_under(inputs, dump, {"logits=bf16"}).verdict == Verdict::wrong);
    CHECK(judged_under(inputs, dump, {"matmul=tf32"}).verdict == Verdict::wrong);
}

TEST_CASE("linear-ce: only the label's products rounded, as cut-cross-entropy does, is a form of rounded logits") {
    const TensorFile inputs = make_inputs(*find_case("unit_normal"));
    const Problem problem = problem_under(inputs, {});
    TensorFile dump = kernel_outputs(problem, {});
    std::vector<double> loss = to_f64(tensor_of(dump, "lse"));
    for (std::size_t i = 0; i < loss.size(); ++i) loss[i] -= label_products_of(problem, i);
    tensor_of(dump, "loss") = from_f64(loss, {static_cast<std::int64_t>(loss.size())}, DType::f32);
    std::erase_if(dump.tensors, [](const NamedTensor& t) { return t.name == "reduced"; });
    const Report report = judged_under(inputs, dump, {});
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "rounding");
    CHECK(judged_under(inputs, dump, {"logits=bf16"}).verdict == Verdict::ok);
}

TEST_CASE("linear-ce: operands rounded to tf32 are named, and OK once declared") {
    for (const char* name : {"unit_normal", "huge_30", "cap_penalty_weights"}) {
        CAPTURE(name);
        const TensorFile inputs = make_inputs(*find_case(name));
        const Problem tf32 = problem_under(inputs, {"matmul=tf32"});
        TensorFile dump = kernel_outputs(tf32, {});
        CHECK(judged_under(inputs, dump, {"matmul=tf32"}).verdict == Verdict::ok);
        const Report undeclared = judged_under(inputs, dump, {});
        CHECK(undeclared.verdict == Verdict::wrong);
        CHECK(undeclared.stage == "rounding");
        CHECK(undeclared.declare == std::vector<std::string>{"--set", "matmul=tf32"});
        scale(tensor_of(dump, "gw"), 1.01);
        CHECK(judged_under(inputs, dump, {"matmul=tf32"}).verdict == Verdict::wrong);
        CHECK(judged_under(inputs, dump, {}).declare.empty());
    }
}

TEST_CASE("linear-ce: loss or lse stored in bf16 is no fault of what is derived from them") {
    for (const char* name : {"ce_bf16_loss", "ce_bf16_lse"}) {
        CAPTURE(name);
        for (const Level level : {Level::exact, Level::sampled}) {
            const Report report = judged_under(recorded(std::string(name) + ".inputs"),
                                               recorded(std::string(name) + ".outputs"), {}, level);
            CHECK_MESSAGE(report.verdict == Verdict::ok, report.reason);
        }
    }
    // All of it is still compared.
    const TensorFile inputs = recorded("ce_bf16_lse.inputs");
    for (const char* name : {"reduced", "gw", "gx"}) {
        TensorFile dump = recorded("ce_bf16_lse.outputs");
        scale(tensor_of(dump, name), std::string_view(name) == "reduced" ? 1.2 : 1.01);
        CHECK_MESSAGE(judged_under(inputs, dump, {}).verdict == Verdict::wrong, name);
    }
}

TEST_CASE("linear-ce: gradients stored in bf16 of fp32 inputs may be off by their storage, not by 4 %") {
    const TensorFile inputs = recorded("ce_gradient_stored_bf16_off_by_4_percent.inputs");
    TensorFile dump = recorded("ce_gradient_stored_bf16_off_by_4_percent.outputs");
    CHECK(judged_under(inputs, dump, {}, Level::exact).verdict == Verdict::wrong);
    const TensorFile exact = kernel_outputs(problem_under(inputs, {}), {});
    for (const DType narrow : {DType::bf16, DType::f16}) {
        for (const char* name : {"gx", "gw"}) {
            const Tensor* right = exact.find(name);
            tensor_of(dump, name) = from_f64(to_f64(*right), right->shape, narrow);
        }
        const Report report = judged_under(inputs, dump, {}, Level::exact);
        CHECK_MESSAGE(report.verdict == Verdict::ok, report.reason);
    }
}

TEST_CASE("linear-ce: ignored rows have no gradient, whatever d_loss and d_lse say there") {
    TensorFile inputs = make_inputs(*find_case("unit_normal"));
    const std::vector<double> ones(64, 1);
    inputs.tensors.push_back({"d_loss", from_f64(ones, {64}, DType::f32)});
    inputs.tensors.push_back({"d_lse", from_f64(ones, {64}, DType::f32)});
    std::vector<std::int64_t> labels = to_i64(tensor_of(inputs, "labels"));
    labels[3] = labels[40] = -100;
    tensor_of(inputs, "labels") = from_i64(labels, {64});
    Overrides ignore;
    ignore.ignore_index = -100;
    const auto contract = resolve(inputs.metadata, ignore);
    const auto problem = read_problem(inputs, *contract);
    REQUIRE(problem);
    CHECK(problem->d_loss[3] == 0);
    CHECK((*problem->d_lse)[40] == 0);
    CHECK(problem->d_loss[4] == 1);
    TensorFile dump = kernel_outputs(*problem, {});
    CHECK(compare(*problem, dump, {})->verdict == Verdict::ok);
    std::vector<double> gx = to_f64(tensor_of(dump, "gx"));
    gx[3 * 32] = 0.5;
    tensor_of(dump, "gx") = from_f64(gx, {64, 32}, DType::f32);
    CHECK(compare(*problem, dump, {})->verdict == Verdict::wrong);
}

TEST_CASE("linear-ce: a gradient that is wrong widens no invariant, and what is shown is what failed") {
    const TensorFile inputs = make_inputs(*find_case("bf16"));
    const Problem problem = problem_under(inputs, {});
    TensorFile dump = kernel_outputs(problem, {});
    scale(tensor_of(dump, "gx"), 1.4);
    const Report wrong = judged_under(inputs, dump, {});
    CHECK(wrong.verdict == Verdict::wrong);
    REQUIRE(wrong.worst);
    CHECK(wrong.worst->tensor == "gx");
    CHECK(wrong.reason.starts_with("gx is "));
    for (const CheckReport& c : wrong.checks) {
        if (c.name != "I1") continue;
        CHECK(c.verdict == "WRONG");
        CHECK(c.limit < 0.01);
    }
}

TEST_CASE("linear-ce: an invariant that fails alone shows its two sums") {
    const TensorFile inputs = make_inputs(*find_case("unit_normal"));
    TensorFile dump = kernel_outputs(problem_under(inputs, {}), {});
    scale(tensor_of(dump, "gw"), 1.2);
    CompareOptions options;
    options.level = Level::invariants;
    const auto report = compare(problem_under(inputs, {}), dump, options);
    REQUIRE(report);
    CHECK(report->verdict == Verdict::wrong);
    REQUIRE(report->worst);
    CHECK(report->worst->tensor == "I1");
    CHECK(std::fabs(report->worst->want / report->worst->got - 1.2) < 1e-3);
}

}  // namespace gdnctl::oracle::linear_ce
