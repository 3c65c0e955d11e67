// Relations between a kernel's own results, and how a kernel under test is called and judged.
#include "oracle/gdn/under_test/metamorphic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "unit/oracle/changed_kernel.h"
#include "unit/oracle/judging.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using oracle::testing::ChangedKernel;

namespace {

using Edit = std::function<void(TensorFile&)>;

ChangedKernel faulty(const Edit& inputs, const Edit& outputs) {
    return {"builtin:fused", inputs, [outputs](const GdnInputs&, KernelRun& run) {
                if (outputs) outputs(run.outputs);
            }};
}

void edit(TensorFile& file, std::string_view name, const std::function<void(std::vector<double>&, const Shape&)>& how) {
    for (NamedTensor& entry : file.tensors) {
        if (entry.name != name) continue;
        auto values = to_f64(entry.tensor);
        how(values, entry.tensor.shape);
        entry.tensor = from_f64(values, entry.tensor.shape, entry.tensor.dtype);
    }
}

void scale(TensorFile& file, std::string_view name, double factor) {
    edit(file, name, [&](std::vector<double>& values, const Shape&) {
        for (double& x : values) x *= factor;
    });
}

bool holds(const std::string& relation, const Edit& inputs, const Edit& outputs) {
    ChangedKernel mutant = faulty(inputs, outputs);
    const auto result = check_relation(relation, mutant, 2, 1);
    REQUIRE(result);
    if (!result->held() && !result->fault) CHECK(!result->worst.empty());
    return result->held();
}

}  // namespace

TEST_CASE("metamorphic: every relation holds for our kernels, whatever the seed") {
    std::uint64_t turn = 0;  // sanitizers make each slow: one of three seeds, in turn
    for (const std::string& name : builtin_kernel_names()) {
        const auto kernel = find_builtin_kernel("builtin:" + name);
        REQUIRE(kernel);
        for (const Relation& relation : relations()) {
            const std::uint64_t seed = 1 + turn++ % 3;
            CAPTURE(name);
            CAPTURE(relation.name);
            CAPTURE(seed);
            const auto result = check_relation(relation.name, **kernel, 2, seed);
            REQUIRE(result);
            const bool backward = name == "chunk" || name == "recurrent64";
            CHECK(result->applies == (backward || relation.name != "gradient"));
            CAPTURE(result->worst);
            CAPTURE(result->error);
            CHECK(result->held());
            // Honest arithmetic has room: a tenth of the tolerance is enough.
            CHECK(result->error <= 0.75 * result->tolerance);
        }
    }
}

TEST_CASE("metamorphic: planted faults break the relations that name them") {
    const Edit no_state = [](TensorFile& file) { scale(file, "initial_state", 0); };
    CHECK_FALSE(holds("continuation", no_state, {}));
    CHECK_FALSE(holds("beta_zero", no_state, {}));
    CHECK(holds("causality", no_state, {}));

    const Edit wrong_scale = [](TensorFile& file) { scale(file, "out", 4); };
    CHECK_FALSE(holds("beta_zero", {}, wrong_scale));
    CHECK_FALSE(holds("identical_keys", {}, wrong_scale));

    const Edit beta_twice = [](TensorFile& file) { scale(file, "beta", 0.5); };
    CHECK_FALSE(holds("perfect_fit", beta_twice, {}));
    CHECK_FALSE(holds("orthonormal_keys", beta_twice, {}));

    const Edit slow_decay = [](TensorFile& file) { scale(file, "g", 0.5); };
    CHECK_FALSE(holds("orthonormal_keys", slow_decay, {}));
    CHECK_FALSE(holds("beta_zero", slow_decay, {}));

    const Edit offset = [](TensorFile& file) {
        edit(file, "v", [](std::vector<double>& v, const Shape&) {
            for (double& x : v) x += 0.01;
        });
    };
    CHECK_FALSE(holds("linearity", offset, {}));
    CHECK_FALSE(holds("signs", offset, {}));

    const Edit first_head_differs = [](TensorFile& file) {
        edit(file, "v", [](std::vector<double>& v, const Shape& shape) {
            const auto row = static_cast<std::size_t>(shape[shape.size() - 2] * shape.back());
            for (std::size_t i = 0; i < v.size(); i += row) v[i] *= 1.01;
        });
    };
    CHECK_FALSE(holds("head_order", first_head_differs, {}));

    const Edit first_row_differs = [](TensorFile& file) {
        edit(file, "v", [](std::vector<double>& v, const Shape&) { v[0] *= 1.01; });
    };
    CHECK_FALSE(holds("batch_order", first_row_differs, {}));

    // Each token sees the one after it.
    const Edit looks_ahead = [](TensorFile& file) {
        edit(file, "v", [](std::vector<double>& v, const Shape& shape) {
            const auto row = static_cast<std::size_t>(shape[shape.size() - 2] * shape.back());
            for (std::size_t i = 0; i + row < v.size(); ++i) v[i] += 1e-3 * v[i + row];
        });
    };
    CHECK_FALSE(holds("causality", looks_ahead, {}));
    CHECK_FALSE(holds("prefixes", looks_ahead, {}));
    CHECK_FALSE(holds("packed", looks_ahead, {}));
    CHECK_FALSE(holds("padding", looks_ahead, {}));
}

TEST_CASE("metamorphic: a state stored in bf16 between calls breaks continuation") {
    const Edit bf16_state = [](TensorFile& file) {
        edit(file, "final_state", [](std::vector<double>& s, const Shape&) {
            for (double& x : s) x = rounded_to(x, DType::bf16);
        });
    };
    CHECK_FALSE(holds("continuation", {}, bf16_state));
}

TEST_CASE("metamorphic: NaN, missing outputs and other sizes are faults or violations, never held") {
    CHECK_FALSE(holds("prefixes", {}, [](TensorFile& file) {
        edit(file, "out", [](std::vector<double>& out, const Shape&) { out.back() = std::nan(""); });
    }));
    CHECK_FALSE(holds("prefixes", {}, [](TensorFile& file) { file.tensors.pop_back(); }));
    CHECK_FALSE(holds("prefixes", {}, [](TensorFile& file) { file.tensors[0].tensor.bytes.resize(4); }));
    ChangedKernel mutant = faulty({}, {});
    CHECK_FALSE(check_relation("causalty", mutant, 1, 1));
}

namespace {

// A kernel with a backward, whose gradients are changed.
ChangedKernel wrong_gradients(const Edit& edit) {
    return {"builtin:chunk", {}, [edit](const GdnInputs& of, KernelRun& run) {
                if (of.pass() == KernelPass::backward) edit(run.outputs);
            }};
}

}  // namespace

TEST_CASE("metamorphic: each wrong gradient is found by differences of the forward") {
    for (const char* name : {"dq", "dk", "dv", "dg", "dbeta", "d_initial_state"}) {
        for (const double factor : {1.01, -1.0, 0.0}) {
            CAPTURE(name);
            CAPTURE(factor);
            ChangedKernel kernel = wrong_gradients([&](TensorFile& file) { scale(file, name, factor); });
            const auto result = check_relation("gradient", kernel, 2, 1);
            REQUIRE(result);
            CHECK_FALSE(result->held());
            CHECK(result->worst.starts_with(name));
        }
    }
    // One head of one token in 560.
    ChangedKernel one = wrong_gradients([](TensorFile& file) {
        edit(file, "dv", [](std::vector<double>& x, const Shape&) {
            for (std::size_t i = 0; i < 8; ++i) x[i] = 0;
        });
    });
    CHECK_FALSE(check_relation("gradient", one, 2, 1)->held());
    ChangedKernel nan = wrong_gradients(
        [](TensorFile& file) { edit(file, "dk", [](std::vector<double>& x, const Shape&) { x[0] = std::nan(""); }); });
    CHECK_FALSE(check_relation("gradient", nan, 2, 1)->held());
}
