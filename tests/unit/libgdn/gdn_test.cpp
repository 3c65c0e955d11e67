// libgdn's C interface: its results are the oracle's, and a call that makes no sense is refused.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "oracle/gdn/kernels/adjoint.h"
#include "unit/libgdn/problem.h"

using namespace gdnctl;
using namespace gdnctl::libgdn_testing;

namespace {

double relative_error(const Floats& got, const std::vector<double>& want) {
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return std::sqrt(error / size);
}

}  // namespace

TEST_CASE("libgdn: forward is right, whatever the number of threads") {
    for (const char* name : {"gva_2", "gva_tiled", "odd_dims", "varlen", "d128", "random_normed", "gate_inf",
                             "no_tokens", "varlen_empty_passthrough"}) {
        CAPTURE(name);
        Problem p(name);
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        const auto report = p.judged();
        CAPTURE(report.reason);
        CHECK(report.verdict == oracle::Verdict::ok);
        const Floats one = p.out;
        p.call.threads = 5;
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        CHECK(p.out == one);
    }
}

TEST_CASE("libgdn: a final state that nobody wants need not be given") {
    Problem p("gva_2");
    REQUIRE(gdn_forward(&p.call) == GDN_OK);
    const Floats out = p.out;
    p.call.final_state = {};
    p.out.assign(p.out.size(), 0);
    REQUIRE(gdn_forward(&p.call) == GDN_OK);
    CHECK(p.out == out);
}

TEST_CASE("libgdn: decoding in place, token by token and a few at once, is the forward") {
    for (const std::int64_t step : {1, 3, 8}) {
        CAPTURE(step);
        Problem p("gva_2");
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        const auto& d = p.problem.dims;
        Floats state = p.state;
        Floats out;
        for (std::int64_t t = 0; t < d.T; t += step) {
            const std::int64_t n = std::min(step, d.T - t);
            Floats part(static_cast<std::size_t>(n * d.Hv * d.dv));
            gdn_call call;
            gdn_call_init(&call, 1, n, d.Hk, d.Hv, d.dk, d.dv);
            gdn_call_arrays(&call, p.q.data() + t * d.Hk * d.dk, p.k.data() + t * d.Hk * d.dk,
                            p.v.data() + t * d.Hv * d.dv, p.g.data() + t * d.Hv, p.beta.data() + t * d.Hv, state.data(),
                            part.data(), state.data());
            call.l2norm = 1;
            call.l2norm_eps = 1e-6;
            REQUIRE(gdn_decode(&call) == GDN_OK);
            out.insert(out.end(), part.begin(), part.end());
        }
        CHECK(relative_error(out, {p.out.begin(), p.out.end()}) < 1e-6);
        CHECK(relative_error(state, {p.final_state.begin(), p.final_state.end()}) < 1e-6);
    }
    Problem p("gva_2");
    CHECK(gdn_decode(&p.call) == GDN_UNSUPPORTED);  // 45 tokens
    p.call.final_state = {};
    CHECK(gdn_decode(&p.call) == GDN_INVALID);
}

TEST_CASE("libgdn: a cache decodes what the forward gives, whatever the number of threads and the lengths of steps") {
    for (const char* name : {"gva_2", "gva_tiled"}) {
        CAPTURE(name);
        Problem p(name);
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        const auto& d = p.problem.dims;
        gdn_cache* cache = nullptr;
        REQUIRE(gdn_cache_new(&p.call, &cache) == GDN_OK);
        Floats state(p.final_state.size());
        if (!p.state.empty()) REQUIRE(gdn_cache_load(cache, p.state.data(), 2) == GDN_OK);
        Floats out;
        for (std::int64_t t = 0, step = 1; t < d.T; t += step, step = step % 8 + 1) {
            const std::int64_t n = std::min(step, d.T - t);
            Floats part(static_cast<std::size_t>(n * d.Hv * d.dv));
            gdn_call call;
            gdn_call_init(&call, 1, n, d.Hk, d.Hv, d.dk, d.dv);
            gdn_call_arrays(&call, p.q.data() + t * d.Hk * d.dk, p.k.data() + t * d.Hk * d.dk,
                            p.v.data() + t * d.Hv * d.dv, p.g.data() + t * d.Hv, p.beta.data() + t * d.Hv, nullptr,
                            part.data(), nullptr);
            call.l2norm = p.call.l2norm;
            call.l2norm_eps = p.call.l2norm_eps;
            call.head_map = p.call.head_map;
            call.threads = static_cast<int>(t % 3) + 1;
            REQUIRE(gdn_cache_step(cache, &call) == GDN_OK);
            out.insert(out.end(), part.begin(), part.end());
        }
        REQUIRE(gdn_cache_store(cache, state.data(), 1) == GDN_OK);
        gdn_cache_free(cache);
        CHECK(relative_error(out, {p.out.begin(), p.out.end()}) < 1e-6);
        CHECK(relative_error(state, {p.final_state.begin(), p.final_state.end()}) < 1e-6);
    }
}

TEST_CASE("libgdn: a cache refuses calls of other sizes, and nothing of it changes") {
    Problem p("gva_2");
    gdn_cache* cache = nullptr;
    REQUIRE(gdn_cache_new(&p.call, &cache) == GDN_OK);
    gdn_call call;
    const auto& d = p.problem.dims;
    gdn_call_init(&call, 1, 1, d.Hk, d.Hv, d.dk, d.dv);
    gdn_call_arrays(&call, p.q.data(), p.k.data(), p.v.data(), p.g.data(), p.beta.data(), nullptr, p.out.data(),
                    nullptr);
    REQUIRE(gdn_cache_step(cache, &call) == GDN_OK);
    Floats before(p.final_state.size()), after(before.size());
    REQUIRE(gdn_cache_store(cache, before.data(), 1) == GDN_OK);
    CHECK(gdn_cache_step(cache, &p.call) == GDN_UNSUPPORTED);  // 45 tokens
    gdn_call other = call;
    other.head_map = GDN_HEADS_TILED;
    CHECK(gdn_cache_step(cache, &other) == GDN_INVALID);
    gdn_call_init(&other, 1, 1, d.Hk, d.Hv, d.dk, d.dv / 2);
    gdn_call_arrays(&other, p.q.data(), p.k.data(), p.v.data(), p.g.data(), p.beta.data(), nullptr, p.out.data(),
                    nullptr);
    CHECK(gdn_cache_step(cache, &other) == GDN_INVALID);
    other = call;
    other.out = {};
    CHECK(gdn_cache_step(cache, &other) == GDN_INVALID);
    REQUIRE(gdn_cache_store(cache, after.data(), 1) == GDN_OK);
    CHECK(after == before);
    gdn_cache_free(cache);
    gdn_cache_free(nullptr);

    CHECK(gdn_cache_step(nullptr, &call) == GDN_INVALID);
    CHECK(gdn_cache_new(&call, nullptr) == GDN_INVALID);
    CHECK(gdn_cache_load(nullptr, before.data(), 1) == GDN_INVALID);
    call.key_heads = 3;
    CHECK(gdn_cache_new(&call, &cache) == GDN_INVALID);
    CHECK(cache == nullptr);
}

TEST_CASE("libgdn: gradients are those of the recurrence's adjoint") {
    for (const char* name : {"gva_2", "gva_tiled", "odd_dims", "varlen", "marin_57_C16"}) {
        for (const bool workspace : {false, true}) {
            CAPTURE(name);
            Problem p(name);
            Floats d_out(p.out.size());
            for (std::size_t i = 0; i < d_out.size(); ++i) d_out[i] = std::cos(0.23F * static_cast<float>(i));
            Floats d_state(p.final_state.size());
            for (std::size_t i = 0; i < d_state.size(); ++i)
                d_state[i] = 0.05F * std::cos(0.3F * static_cast<float>(i));
            Floats dq(p.q.size()), dk(p.k.size()), dv(p.v.size()), dg(p.g.size()), dbeta(p.beta.size());
            Floats d_initial(p.final_state.size());
            gdn_call_gradients(&p.call, d_out.data(), d_state.data(), dq.data(), dk.data(), dv.data(), dg.data(),
                               dbeta.data(), d_initial.data());
            std::vector<char> space(gdn_workspace(&p.call, GDN_BACKWARD) + 64);
            CHECK(space.size() > 64);
            if (workspace) {
                const auto at = reinterpret_cast<std::uintptr_t>(space.data());
                p.call.workspace = space.data() + (64 - at % 64);
                p.call.workspace_size = space.size() - 64;
            }
            REQUIRE(gdn_backward(&p.call) == GDN_OK);
            const auto want = oracle::run_adjoint64(
                p.problem, p.contract.value, {{d_out.begin(), d_out.end()}, {d_state.begin(), d_state.end()}}, 2);
            CHECK(relative_error(dq, want.dq) < 1e-5);
            CHECK(relative_error(dk, want.dk) < 1e-5);
            CHECK(relative_error(dv, want.dv) < 1e-5);
            CHECK(relative_error(dg, want.dg) < 1e-4);
            CHECK(relative_error(dbeta, want.dbeta) < 1e-5);
            CHECK(relative_error(d_initial, want.d_initial_state) < 1e-5);
        }
    }
}

namespace {

using Halves = std::vector<std::uint16_t>;

// The upper halves, and the values that are left of `values` then.
Halves halved(Floats& values) {
    Halves halves;
    for (float& x : values) {
        halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
        x = std::bit_cast<float>(std::uint32_t{halves.back()} << 16);
    }
    return halves;
}

std::uint16_t rounded(float x) {
    const oracle::Tensor t = oracle::from_f64(std::vector<double>{static_cast<double>(x)}, {1}, oracle::DType::bf16);
    return static_cast<std::uint16_t>(t.bytes[0] | t.bytes[1] << 8);
}

bool is_rounded(const Halves& got, const Floats& wide) {
    return std::equal(got.begin(), got.end(), wide.begin(), wide.end(),
                      [](std::uint16_t a, float b) { return a == rounded(b); });
}

}  // namespace

TEST_CASE("libgdn: bf16 arrays give what fp32 arrays of the same values give, rounded") {
    for (const char* name : {"gva_2", "odd_dims", "gva_tiled"}) {
        CAPTURE(name);
        Problem p(name);
        const Halves q = halved(p.q), k = halved(p.k), v = halved(p.v);
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        const Floats state = p.final_state;
        gdn_call narrow = p.call;
        Halves out(p.out.size());
        const float* initial = p.state.empty() ? nullptr : p.state.data();
        gdn_call_arrays_bf16(&narrow, q.data(), k.data(), v.data(), p.g.data(), p.beta.data(), initial, out.data(),
                             p.final_state.data());
        REQUIRE(gdn_forward(&narrow) == GDN_OK);
        CHECK(is_rounded(out, p.out));
        CHECK(p.final_state == state);
        // Any mixture: bf16 in, fp32 out.
        const Floats wide = p.out;
        narrow.out = p.call.out;
        p.out.assign(p.out.size(), 0);
        REQUIRE(gdn_forward(&narrow) == GDN_OK);
        CHECK(p.out == wide);

        Floats d_out(p.out.size());
        for (std::size_t i = 0; i < d_out.size(); ++i) d_out[i] = std::cos(0.23F * static_cast<float>(i));
        const Halves d_out_halves = halved(d_out);
        Floats dq(p.q.size()), dk(p.k.size()), dv(p.v.size()), dg(p.g.size()), dbeta(p.beta.size());
        gdn_call_gradients(&p.call, d_out.data(), nullptr, dq.data(), dk.data(), dv.data(), dg.data(), dbeta.data(),
                           nullptr);
        REQUIRE(gdn_backward(&p.call) == GDN_OK);
        const Floats wide_dg = dg;
        Halves dq_halves(dq.size()), dk_halves(dk.size()), dv_halves(dv.size());
        gdn_call_gradients_bf16(&narrow, d_out_halves.data(), nullptr, dq_halves.data(), dk_halves.data(),
                                dv_halves.data(), dg.data(), dbeta.data(), nullptr);
        REQUIRE(gdn_backward(&narrow) == GDN_OK);
        CHECK(is_rounded(dq_halves, dq));
        CHECK(is_rounded(dk_halves, dk));
        CHECK(is_rounded(dv_halves, dv));
        CHECK(dg == wide_dg);
    }
}

TEST_CASE("libgdn: a cache takes bf16 arrays and packed sequences") {
    Problem p("varlen");
    const Halves q = halved(p.q), k = halved(p.k), v = halved(p.v);
    REQUIRE(gdn_forward(&p.call) == GDN_OK);
    // Tokens of each sequence, three a step: the sequences end after different steps.
    const auto& d = p.problem.dims;
    gdn_cache *wide = nullptr, *narrow = nullptr;
    REQUIRE(gdn_cache_new(&p.call, &wide) == GDN_OK);
    REQUIRE(gdn_cache_new(&p.call, &narrow) == GDN_OK);
    if (!p.state.empty()) {
        REQUIRE(gdn_cache_load(wide, p.state.data(), 1) == GDN_OK);
        REQUIRE(gdn_cache_load(narrow, p.state.data(), 1) == GDN_OK);
    }
    Floats out(p.out.size());
    Halves out_halves(out.size());
    bool left = true;
    for (std::int64_t first = 0; left; first += 3) {
        left = false;
        for (const auto& s : p.problem.sequences) left = left || s.begin + first < s.end;
        // The step's tokens are packed anew, as a server's batch is.
        std::vector<std::int64_t> rows, cu_seqlens{0};
        for (const auto& s : p.problem.sequences) {
            for (std::int64_t t = s.begin + first; t < std::min(s.end, s.begin + first + 3); ++t) rows.push_back(t);
            cu_seqlens.push_back(static_cast<std::int64_t>(rows.size()));
        }
        const auto picked = [&rows]<class Value>(const std::vector<Value>& from, std::int64_t width) {
            std::vector<Value> to;
            for (const std::int64_t row : rows) {
                to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
            }
            return to;
        };
        const auto put_back = [&rows]<class Value>(const std::vector<Value>& from, std::int64_t width,
                                                   std::vector<Value>& to) {
            for (std::size_t i = 0; i < rows.size(); ++i) {
                std::copy_n(from.begin() + static_cast<std::int64_t>(i) * width, width, to.begin() + rows[i] * width);
            }
        };
        const Floats g = picked(p.g, d.Hv), beta = picked(p.beta, d.Hv);
        Floats part(rows.size() * static_cast<std::size_t>(d.Hv * d.dv));
        Halves part_halves(part.size());
        gdn_call call;
        gdn_call_init(&call, 1, static_cast<std::int64_t>(rows.size()), d.Hk, d.Hv, d.dk, d.dv);
        call.cu_seqlens = cu_seqlens.data();
        call.sequences = p.call.sequences;
        call.l2norm = p.call.l2norm;
        call.l2norm_eps = p.call.l2norm_eps;
        call.head_map = p.call.head_map;
        const Floats wide_q = picked(p.q, d.Hk * d.dk), wide_k = picked(p.k, d.Hk * d.dk);
        const Floats wide_v = picked(p.v, d.Hv * d.dv);
        gdn_call_arrays(&call, wide_q.data(), wide_k.data(), wide_v.data(), g.data(), beta.data(), nullptr, part.data(),
                        nullptr);
        REQUIRE(gdn_cache_step(wide, &call) == GDN_OK);
        const Halves narrow_q = picked(q, d.Hk * d.dk), narrow_k = picked(k, d.Hk * d.dk);
        const Halves narrow_v = picked(v, d.Hv * d.dv);
        gdn_call_arrays_bf16(&call, narrow_q.data(), narrow_k.data(), narrow_v.data(), g.data(), beta.data(), nullptr,
                             part_halves.data(), nullptr);
        REQUIRE(gdn_cache_step(narrow, &call) == GDN_OK);
        put_back(part, d.Hv * d.dv, out);
        put_back(part_halves, d.Hv * d.dv, out_halves);
    }
    CHECK(relative_error(out, {p.out.begin(), p.out.end()}) < 1e-6);
    CHECK(is_rounded(out_halves, out));
    Floats state(p.final_state.size()), narrow_state(state.size());
    REQUIRE(gdn_cache_store(wide, state.data(), 2) == GDN_OK);
    REQUIRE(gdn_cache_store(narrow, narrow_state.data(), 1) == GDN_OK);
    CHECK(relative_error(state, {p.final_state.begin(), p.final_state.end()}) < 1e-6);
    CHECK(state == narrow_state);
    gdn_cache_free(wide);
    gdn_cache_free(narrow);
}

TEST_CASE("libgdn: calls that make no sense are refused, others told that they are not supported") {
    const auto status = [](const auto& spoil) {
        Problem p("gva_2");
        spoil(p.call);
        return gdn_forward(&p.call);
    };
    CHECK(gdn_forward(nullptr) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.abi_version = 2; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.struct_size = 8; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.value_heads = 3; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.key_dim = 0; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.tokens = -1; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.sequences = 7; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.head_map = 9; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.q.data = nullptr; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.out.shape[1] = 1; }) == GDN_INVALID);
    CHECK(status([](gdn_call& c) { c.q.dtype = GDN_F16; }) == GDN_UNSUPPORTED);
    CHECK(status([](gdn_call& c) { c.g.dtype = GDN_BF16; }) == GDN_UNSUPPORTED);
    CHECK(status([](gdn_call& c) { c.final_state.dtype = GDN_BF16; }) == GDN_UNSUPPORTED);
    CHECK(status([](gdn_call& c) { c.v.strides[1] *= 2; }) == GDN_UNSUPPORTED);
    Problem p("varlen");
    p.cu_seqlens[1] = 999;
    CHECK(gdn_forward(&p.call) == GDN_INVALID);
    CHECK(gdn_backward(&p.call) == GDN_INVALID);
    for (int code = GDN_OK; code <= GDN_FAILED + 1; ++code) {
        CHECK(std::string(gdn_status_text(code)).size() > 3);
    }
    CHECK(std::string(gdn_version()).find('.') != std::string::npos);
}

TEST_CASE("libgdn: it is a kernel that the oracle can load") {
    CHECK(gdn_kernel.abi_version == GDN_ABI_VERSION);
    CHECK(gdn_kernel.struct_size == sizeof(gdn_kernel_info));
    CHECK(gdn_kernel.dtypes == (1U << GDN_F32 | 1U << GDN_BF16));
    CHECK((gdn_kernel.forward == gdn_forward));
    CHECK((gdn_kernel.backward == gdn_backward));
    CHECK((gdn_kernel.decode == gdn_decode));
}
