// Judging kernels of others: disguises that change no bit, and faults that only a second call shows.
#include "harness/engine/verify.h"

#include <algorithm>
#include <limits>

#include <doctest/doctest.h>

#include "harness/gdn/read.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "unit/oracle/changed_kernel.h"
#include "unit/oracle/judging.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

// Something done to the outputs of each call of a kernel of ours.
using Spoil = std::function<void(int call, KernelRun& run)>;

harness::Tried verdict_on(const std::string& name, const Spoil& spoil) {
    const TensorFile inputs = make_inputs(*find_gdn_case(name));
    int calls = 0;
    ChangedKernel kernel("builtin:fused", {}, [&](const GdnInputs&, KernelRun& run) { spoil(++calls, run); });
    const GdnReference reference = reference_for(inputs);
    const auto problem = harness::gdn_problem(inputs, reference);
    const harness::Question forward{.entry = entry_of(KernelPass::forward)};
    auto verdict = harness::try_kernel(kernel, *problem, {true, 2, {}, 1, true, forward}, 7);
    REQUIRE(verdict);
    return std::move(*verdict);
}

void add_to_first_value(KernelRun& run, double by) {
    Tensor& out = run.outputs.tensors[0].tensor;
    auto values = to_f64(out);
    values[0] += by;
    out = from_f64(values, out.shape, out.dtype);
}

}  // namespace

TEST_CASE("disguise: signs of head dimensions change no bit of an honest kernel's result") {
    for (const GdnCase& c : gdn_cases()) {
        if (c.expected != Verdict::ok || c.nan_padding) continue;
        CAPTURE(c.name);
        const TensorFile inputs = make_inputs(c);
        const auto contract = resolve_contract("marin", inputs.metadata, {});
        REQUIRE(contract);
        const Disguise disguise(c.dims, contract->value.head_map, 99);
        TensorFile other = inputs;
        apply(disguise, other, contract->value.state_layout);
        for (const std::string& name : builtin_kernel_names()) {
            CAPTURE(name);
            const auto kernel = find_builtin_kernel("builtin:" + name);
            REQUIRE(kernel);
            const auto plain = run_pass(**kernel, KernelPass::forward, inputs, *contract, 2);
            auto disguised = run_pass(**kernel, KernelPass::forward, other, *contract, 1);
            REQUIRE(plain);
            REQUIRE(disguised);
            const auto values = to_f64(plain->outputs.tensors[0].tensor);
            if (std::any_of(values.begin(), values.end(), [](double x) { return x != 0; })) {
                CHECK(to_f64(disguised->outputs.tensors[0].tensor) != values);
            }
            apply(disguise, disguised->outputs, contract->value.state_layout);
            for (std::size_t i = 0; i < 2; ++i) {
                // Bits but for the sign of zeros: -0 and 0 are one value.
                CHECK(to_f64(disguised->outputs.tensors[i].tensor) == to_f64(plain->outputs.tensors[i].tensor));
            }
        }
    }
}

TEST_CASE("try_kernel: an honest kernel is asked three times and is steady") {
    int calls = 0;
    const auto verdict = verdict_on("gva_2", [&](int call, KernelRun&) { calls = call; });
    CHECK(verdict.judgement.verdict == Verdict::ok);
    CHECK(!verdict.fault);
    CHECK(verdict.bit_equal);
    CHECK(calls == 3);
}

TEST_CASE("try_kernel: rounding that differs from call to call is noted, not a fault") {
    const auto verdict = verdict_on("gva_2", [](int call, KernelRun& run) {
        if (call == 3) add_to_first_value(run, 1e-9);
    });
    CHECK(!verdict.fault);
    CHECK(!verdict.bit_equal);
}

TEST_CASE("try_kernel: a wrong later call is UNSTEADY") {
    for (const int bad : {2, 3}) {
        const auto verdict = verdict_on("gva_2", [&](int call, KernelRun& run) {
            if (call == bad) add_to_first_value(run, 0.5);
        });
        REQUIRE(verdict.fault);
        CHECK(verdict.fault->kind == KernelFaultKind::unsteady);
    }
}

TEST_CASE("try_kernel: outputs of an earlier call given again are UNSTEADY") {
    TensorFile kept;
    const auto verdict = verdict_on("gva_2", [&](int call, KernelRun& run) {
        if (call == 1) kept = run.outputs;
        run.outputs = kept;
    });
    REQUIRE(verdict.fault);
    CHECK(verdict.fault->kind == KernelFaultKind::unsteady);
}

TEST_CASE("try_kernel: only out, a NaN, another shape: each has its own name") {
    const auto only_out = verdict_on("gva_2", [](int, KernelRun& run) { run.outputs.tensors.pop_back(); });
    REQUIRE(only_out.fault);
    CHECK(only_out.fault->kind == KernelFaultKind::incomplete);
    const auto one_gradient = verdict_on("gva_2", [](int, KernelRun& run) {
        Tensor zeros = run.outputs.tensors[0].tensor;
        run.outputs.tensors.push_back({"dv", std::move(zeros)});
    });
    REQUIRE(one_gradient.fault);
    CHECK(one_gradient.fault->kind == KernelFaultKind::incomplete);
    CHECK(one_gradient.fault->text == "dq was not returned at all");
    const auto nan = verdict_on(
        "gva_2", [](int, KernelRun& run) { add_to_first_value(run, std::numeric_limits<double>::quiet_NaN()); });
    REQUIRE(nan.fault);
    CHECK(nan.fault->kind == KernelFaultKind::non_finite);
    const auto shape =
        verdict_on("gva_2", [](int, KernelRun& run) { run.outputs.tensors[0].tensor.shape.push_back(1); });
    REQUIRE(shape.fault);
    CHECK(shape.fault->kind == KernelFaultKind::wrong_shape);
}

TEST_CASE("try_kernel: a wrong kernel is WRONG at once, without a fault") {
    int calls = 0;
    const auto verdict = verdict_on("gva_2", [&](int call, KernelRun& run) {
        calls = call;
        add_to_first_value(run, 0.5);
    });
    CHECK(verdict.judgement.verdict == Verdict::wrong);
    CHECK(!verdict.fault);
    CHECK(calls == 1);
}

TEST_CASE("try_kernel: nothing is asked of inputs that cannot be judged") {
    const auto verdict = verdict_on("unnormalised_keys", [](int call, KernelRun& run) {
        if (call > 1) add_to_first_value(run, 0.5);
    });
    CHECK(verdict.judgement.verdict == Verdict::unstable_input);
    CHECK(!verdict.fault);
}
