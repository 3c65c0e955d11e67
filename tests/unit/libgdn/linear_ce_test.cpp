// The fused linear cross-entropy of libgdn against the truth, and calls that it refuses.
#include "gdn/linear_ce.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/compare.h"

namespace gdnctl::oracle::linear_ce {

namespace {

struct Arrays {
    explicit Arrays(const Problem& p)
        : loss(p.batch),
          lse(p.batch),
          d_loss(p.d_loss.begin(), p.d_loss.end()),
          gx(p.x.bytes.size()),
          gw(p.w.bytes.size()),
          argmax(p.batch) {}

    linear_ce_call call(const Problem& p) {
        linear_ce_call c;
        gdn_linear_ce_init(&c, static_cast<std::int64_t>(p.batch), static_cast<std::int64_t>(p.hidden),
                           static_cast<std::int64_t>(p.vocab), p.x.dtype == DType::bf16 ? GDN_BF16 : GDN_F32,
                           p.x.bytes.data(), p.w.bytes.data(), p.labels.data(), loss.data(), lse.data(), argmax.data());
        gdn_linear_ce_gradient_arrays(&c, d_loss.data(), nullptr, gx.data(), gw.data());
        c.soft_cap = p.c().soft_cap;
        c.logsumexp_weight = p.c().logsumexp_weight;
        c.threads = 2;
        return c;
    }

    std::vector<float> loss, lse, d_loss;
    std::vector<std::uint8_t> gx, gw;
    std::vector<std::int64_t> argmax;
};

Problem listed(const char* name) {
    const TensorFile inputs = make_inputs(*find_case(name));
    auto contract = resolve(inputs.metadata, {});
    REQUIRE(contract);
    auto problem = read_problem(inputs, std::move(*contract));
    REQUIRE(problem);
    return std::move(*problem);
}

}  // namespace

TEST_CASE("libgdn: linear cross-entropy is right in fp32 and bf16") {
    for (const char* name : {"odd_sizes", "cap_penalty_weights", "bf16_cap_penalty_weights", "one_of_all"}) {
        const Problem p = listed(name);
        Arrays arrays(p);
        const linear_ce_call call = arrays.call(p);
        REQUIRE(gdn_linear_ce_gradients(&call) == GDN_OK);
        const auto B = static_cast<std::int64_t>(p.batch);
        TensorFile dump;
        dump.tensors.push_back(
            {"loss", from_f64(std::vector<double>(arrays.loss.begin(), arrays.loss.end()), {B}, DType::f32)});
        dump.tensors.push_back(
            {"lse", from_f64(std::vector<double>(arrays.lse.begin(), arrays.lse.end()), {B}, DType::f32)});
        dump.tensors.push_back({"argmax", from_i64(arrays.argmax, {B})});
        dump.tensors.push_back({"gx", {p.x.dtype, p.x.shape, arrays.gx}});
        dump.tensors.push_back({"gw", {p.w.dtype, p.w.shape, arrays.gw}});
        CompareOptions exact;
        exact.level = Level::exact;
        const auto report = compare(p, dump, exact);
        REQUIRE(report);
        CHECK_MESSAGE(report->verdict == Verdict::ok, name << ": " << report->reason);
    }
}

TEST_CASE("libgdn: linear cross-entropy refuses labels out of range, other dtypes and missing arrays") {
    Problem p = listed("odd_sizes");
    Arrays arrays(p);
    const linear_ce_call right = arrays.call(p);
    p.labels[3] = static_cast<std::int64_t>(p.vocab);
    CHECK(gdn_linear_ce_forward(&right) == GDN_INVALID);
    p.labels[3] = -1;
    CHECK(gdn_linear_ce_forward(&right) == GDN_INVALID);
    p.labels[3] = 0;
    CHECK(gdn_linear_ce_forward(&right) == GDN_OK);
    linear_ce_call call = right;
    call.x.dtype = GDN_F64;
    CHECK(gdn_linear_ce_forward(&call) == GDN_UNSUPPORTED);
    call = right;
    call.gw.data = nullptr;
    CHECK(gdn_linear_ce_gradients(&call) == GDN_INVALID);
    call = right;
    call.w.shape[0] += 1;
    CHECK(gdn_linear_ce_forward(&call) == GDN_INVALID);
    CHECK(gdn_linear_ce_forward(nullptr) == GDN_INVALID);
}

}  // namespace gdnctl::oracle::linear_ce
