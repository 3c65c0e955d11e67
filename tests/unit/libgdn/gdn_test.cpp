// A generated case as arrays of a caller of libgdn.
#include "gdn/gdn.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/adjoint.h"

namespace gdnctl::libgdn_testing {

namespace {

using Floats = std::vector<float>;

inline Floats narrowed(const std::vector<double>& values) { return {values.begin(), values.end()}; }

// A generated case as arrays of the caller.
struct Problem {
    oracle::ResolvedContract contract;
    oracle::GdnProblem problem;
    Floats q, k, v, g, beta, state, out, final_state;
    std::vector<std::int64_t> cu_seqlens;
    gdn_call call{};

    explicit Problem(std::string_view name) {
        const auto inputs = oracle::make_inputs(*oracle::find_gdn_case(name));
        contract = *oracle::resolve_contract("marin", inputs.metadata, {});
        problem = *oracle::read_problem(inputs, contract);
        q = narrowed(problem.q);
        k = narrowed(problem.k);
        v = narrowed(problem.v);
        g = narrowed(problem.gate);
        beta = narrowed(problem.beta);
        state = narrowed(problem.initial_state);
        out.resize(v.size());
        const auto& d = problem.dims;
        final_state.resize(problem.sequences.size() * static_cast<std::size_t>(d.Hv * d.dk * d.dv));
        gdn_call_init(&call, d.B, d.T, d.Hk, d.Hv, d.dk, d.dv);
        if (problem.has_cu_seqlens) {
            cu_seqlens.push_back(0);
            for (const auto& s : problem.sequences) cu_seqlens.push_back(s.end);
            call.cu_seqlens = cu_seqlens.data();
            call.sequences = static_cast<std::int64_t>(problem.sequences.size());
        }
        gdn_call_arrays(&call, q.data(), k.data(), v.data(), g.data(), beta.data(),
                        state.empty() ? nullptr : state.data(), out.data(), final_state.data());
        call.l2norm = contract.value.l2norm == oracle::L2Norm::off ? 0 : 1;
        call.l2norm_eps = contract.value.eps;
        call.head_map = contract.value.head_map == oracle::HeadMap::tiled ? GDN_HEADS_TILED : GDN_HEADS_INTERLEAVED;
    }

    oracle::GdnReport judged() const {
        const auto reference = oracle::make_reference(problem, contract, 2);
        const oracle::GdnOutputs outputs{{out.begin(), out.end()}, {final_state.begin(), final_state.end()}, 0};
        return *oracle::judge(
            reference, oracle::outputs_file(problem, contract.value, outputs, oracle::DType::f32, oracle::DType::f32),
            {});
    }
};

}  // namespace

}  // namespace gdnctl::libgdn_testing

// libgdn's C interface: its results are the oracle's, and a call that makes no sense is refused.
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

TEST_CASE("libgdn: decode takes bf16 arrays and packed sequences") {
    Problem p("varlen");
    const Halves q = halved(p.q), k = halved(p.k), v = halved(p.v);
    REQUIRE(gdn_forward(&p.call) == GDN_OK);
    // Tokens of each sequence, three a step: the sequences end after different steps.
    const auto& d = p.problem.dims;
    Floats state = p.state;
    state.resize(p.final_state.size());
    Floats narrow_state = state;
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
        gdn_call_arrays(&call, wide_q.data(), wide_k.data(), wide_v.data(), g.data(), beta.data(), state.data(),
                        part.data(), state.data());
        REQUIRE(gdn_decode(&call) == GDN_OK);
        const Halves narrow_q = picked(q, d.Hk * d.dk), narrow_k = picked(k, d.Hk * d.dk);
        const Halves narrow_v = picked(v, d.Hv * d.dv);
        gdn_call_arrays_bf16(&call, narrow_q.data(), narrow_k.data(), narrow_v.data(), g.data(), beta.data(),
                             narrow_state.data(), part_halves.data(), narrow_state.data());
        REQUIRE(gdn_decode(&call) == GDN_OK);
        put_back(part, d.Hv * d.dv, out);
        put_back(part_halves, d.Hv * d.dv, out_halves);
    }
    CHECK(relative_error(out, {p.out.begin(), p.out.end()}) < 1e-6);
    CHECK(is_rounded(out_halves, out));
    CHECK(relative_error(state, {p.final_state.begin(), p.final_state.end()}) < 1e-6);
    CHECK(state == narrow_state);
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

// How libgdn may be called: sizes that nothing holds, memory at any address, rows that no sequence has, several
// threads.
using namespace gdnctl;
using namespace gdnctl::libgdn_testing;

namespace {

// Cotangents of a problem and room for its gradients.
struct Gradients {
    Floats d_out, d_state, dq, dk, dv, dg, dbeta, d_initial;

    explicit Gradients(Problem& p)
        : d_out(p.out.size()),
          d_state(p.final_state.size()),
          dq(p.q.size()),
          dk(p.k.size()),
          dv(p.v.size()),
          dg(p.g.size()),
          dbeta(p.beta.size()),
          d_initial(p.final_state.size()) {
        for (std::size_t i = 0; i < d_out.size(); ++i) d_out[i] = std::cos(0.23F * static_cast<float>(i));
        for (std::size_t i = 0; i < d_state.size(); ++i) d_state[i] = 0.05F * std::sin(0.3F * static_cast<float>(i));
        gdn_call_gradients(&p.call, d_out.data(), d_state.data(), dq.data(), dk.data(), dv.data(), dg.data(),
                           dbeta.data(), d_initial.data());
    }
    std::vector<Floats> all() const { return {dq, dk, dv, dg, dbeta, d_initial}; }
    std::vector<Floats*> results() { return {&dq, &dk, &dv, &dg, &dbeta, &d_initial}; }
};

// NaN, by its bits: what a row holds that nothing has written.
bool untouched(float x) { return std::isnan(x); }

}  // namespace

TEST_CASE("libgdn: sizes that no memory holds are refused by every entry point") {
    constexpr std::int64_t k_large = (std::int64_t{1} << 30) - 1;
    float nothing = 0;
    const auto check = [&](std::int64_t batch, std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
        gdn_call call;
        gdn_call_init(&call, batch, tokens, heads, heads, dim, dim);
        gdn_call_arrays(&call, &nothing, &nothing, &nothing, &nothing, &nothing, nullptr, &nothing, &nothing);
        gdn_call_gradients(&call, &nothing, nullptr, &nothing, &nothing, &nothing, &nothing, &nothing, nullptr);
        CHECK(gdn_forward(&call) == GDN_INVALID);
        CHECK(gdn_decode(&call) == GDN_INVALID);
        CHECK(gdn_backward(&call) == GDN_INVALID);
        CHECK(gdn_workspace(&call, GDN_BACKWARD) == 0);
    };
    check(k_large, k_large, k_large, k_large);
    check(1, k_large, k_large, 8);
    check(1, 1, k_large, k_large);  // the states
    check(k_large, 1, 1, 1 << 12);
    check(1, std::numeric_limits<std::int64_t>::max(), 1, 8);
    check(1, std::numeric_limits<std::int64_t>::min(), 1, 8);
}

TEST_CASE("libgdn: entries of a tensor beyond its rank mean nothing") {
    Problem p("gva_2");
    REQUIRE(gdn_forward(&p.call) == GDN_OK);
    const Floats out = p.out;
    for (gdn_tensor* t : {&p.call.g, &p.call.beta}) {
        t->shape[3] = 77;
        t->strides[3] = -5;
    }
    p.out.assign(p.out.size(), 0);
    CHECK(gdn_forward(&p.call) == GDN_OK);
    CHECK(p.out == out);
}

TEST_CASE("libgdn: arrays and workspaces may begin at any address of a float") {
    for (const char* name : {"gva_2", "odd_dims", "d128"}) {
        CAPTURE(name);
        Problem p(name);
        Gradients gradients(p);
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        REQUIRE(gdn_backward(&p.call) == GDN_OK);
        const Floats out = p.out, state = p.final_state;
        const auto all = gradients.all();
        const std::size_t size = gdn_workspace(&p.call, GDN_BACKWARD);
        std::vector<Floats> moved;  // the arrays of every shift: the next one's are copied from them
        for (const std::size_t shift : {1UL, 3UL, 7UL}) {
            CAPTURE(shift);
            for (gdn_tensor* t : {&p.call.q, &p.call.k, &p.call.v, &p.call.g, &p.call.beta, &p.call.out,
                                  &p.call.final_state, &p.call.d_out, &p.call.dq, &p.call.dk, &p.call.dv, &p.call.dg}) {
                std::int64_t count = 1;
                for (std::uint32_t axis = 0; axis < t->rank; ++axis) count *= t->shape[axis];
                Floats& room = moved.emplace_back(static_cast<std::size_t>(count) + shift);
                std::copy_n(static_cast<float*>(t->data), count, room.data() + shift);
                t->data = room.data() + shift;
            }
            std::vector<float> space(size / sizeof(float) + 64);
            p.call.workspace = space.data() + shift;
            p.call.workspace_size = size;
            REQUIRE(gdn_forward(&p.call) == GDN_OK);
            REQUIRE(gdn_backward(&p.call) == GDN_OK);
            const auto same = [&](const gdn_tensor& t, const Floats& want) {
                return std::equal(want.begin(), want.end(), static_cast<const float*>(t.data));
            };
            CHECK(same(p.call.out, out));
            CHECK(same(p.call.final_state, state));
            CHECK(same(p.call.dq, all[0]));
            CHECK(same(p.call.dk, all[1]));
            CHECK(same(p.call.dv, all[2]));
            CHECK(same(p.call.dg, all[3]));
        }
    }
}

TEST_CASE("libgdn: the final state may take the initial one's place, also in a forward") {
    for (const char* name : {"gva_2", "gva_tiled", "odd_dims", "varlen"}) {
        CAPTURE(name);
        Problem p(name);
        p.state.resize(p.final_state.size(), 0.25F);
        p.call.initial_state = p.call.final_state;
        p.call.initial_state.data = p.state.data();
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        const Floats out = p.out;
        p.call.final_state.data = p.state.data();
        p.call.threads = 3;
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        CHECK(p.out == out);
        CHECK(p.state == p.final_state);
    }
}

TEST_CASE("libgdn: rows outside all sequences are neither read nor written") {
    Problem p("varlen");
    const auto& d = p.problem.dims;
    const auto end = static_cast<std::size_t>(p.cu_seqlens.back() - 5);
    p.cu_seqlens.back() -= 5;
    const auto spoil = [&](Floats& x, std::size_t begin) {
        std::fill(x.begin() + static_cast<std::ptrdiff_t>(begin), x.end(), std::numeric_limits<float>::quiet_NaN());
    };
    const auto keys = static_cast<std::size_t>(d.Hk * d.dk), values = static_cast<std::size_t>(d.Hv * d.dv);
    const auto heads = static_cast<std::size_t>(d.Hv);
    Gradients gradients(p);
    spoil(p.q, end * keys);
    spoil(p.k, end * keys);
    spoil(p.v, end * values);
    spoil(p.g, end * heads);
    spoil(p.beta, end * heads);
    spoil(gradients.d_out, end * values);
    spoil(p.out, 0);
    for (Floats* result : gradients.results()) spoil(*result, 0);
    REQUIRE(gdn_forward(&p.call) == GDN_OK);
    REQUIRE(gdn_backward(&p.call) == GDN_OK);
    const auto written_until = [&](const Floats& x, std::size_t count) {
        const auto bound = x.begin() + static_cast<std::ptrdiff_t>(count);
        return std::none_of(x.begin(), bound, untouched) && std::all_of(bound, x.end(), untouched);
    };
    CHECK(written_until(p.out, end * values));
    CHECK(written_until(gradients.dq, end * keys));
    CHECK(written_until(gradients.dk, end * keys));
    CHECK(written_until(gradients.dv, end * values));
    CHECK(written_until(gradients.dg, end * heads));
    CHECK(written_until(gradients.dbeta, end * heads));
    CHECK(written_until(gradients.d_initial, gradients.d_initial.size()));
}

TEST_CASE("libgdn: any number of threads will do") {
    Problem p("varlen");
    Gradients gradients(p);
    REQUIRE(gdn_forward(&p.call) == GDN_OK);
    REQUIRE(gdn_backward(&p.call) == GDN_OK);
    const Floats out = p.out;
    const auto all = gradients.all();
    for (const std::int32_t threads : {0, -1, std::numeric_limits<std::int32_t>::min(), 1000}) {
        p.call.threads = threads;
        REQUIRE(gdn_forward(&p.call) == GDN_OK);
        REQUIRE(gdn_backward(&p.call) == GDN_OK);
        CHECK(p.out == out);
        CHECK(gradients.all() == all);
    }
}

TEST_CASE("libgdn: several threads of a program may call at once") {
    struct Result {
        Floats out, state, decoded;
        std::vector<Floats> gradients;
        bool operator==(const Result&) const = default;
    };
    const auto compute = [](const char* name) {
        Problem p(name);
        Gradients gradients(p);
        p.call.threads = 2;
        Result r;
        if (gdn_forward(&p.call) != GDN_OK || gdn_backward(&p.call) != GDN_OK) return r;
        r.out = p.out;
        r.state = p.final_state;
        r.gradients = gradients.all();
        const auto& d = p.problem.dims;
        gdn_call step;
        gdn_call_init(&step, 1, 4, d.Hk, d.Hv, d.dk, d.dv);
        gdn_call_arrays(&step, p.q.data(), p.k.data(), p.v.data(), p.g.data(), p.beta.data(), nullptr, p.out.data(),
                        p.final_state.data());
        if (gdn_decode(&step) == GDN_OK) r.decoded = p.final_state;
        return r;
    };
    const std::vector<const char*> names = {"gva_2", "d128", "odd_dims", "varlen"};
    std::vector<Result> alone, together(names.size());
    for (const char* name : names) alone.push_back(compute(name));
    {
        std::vector<std::jthread> callers;
        for (std::size_t i = 0; i < names.size(); ++i) {
            callers.emplace_back([&, i] {
                for (int round = 0; round < 3; ++round) together[i] = compute(names[i]);
            });
        }
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
        CAPTURE(std::string(names[i]));
        CHECK(!alone[i].decoded.empty());
        CHECK(together[i] == alone[i]);
    }
}

TEST_CASE("libgdn: a decode step of packed sequences, one of them empty, without an initial state") {
    Problem p("gva_2");
    const auto& d = p.problem.dims;
    const std::vector<std::int64_t> offsets = {0, 3, 3, 8};
    gdn_call call;
    gdn_call_init(&call, 1, 8, d.Hk, d.Hv, d.dk, d.dv);
    call.cu_seqlens = offsets.data();
    call.sequences = 3;
    const auto one = static_cast<std::size_t>(d.Hv * d.dk * d.dv);
    const auto row = static_cast<std::size_t>(d.Hv * d.dv);
    Floats decoded(8 * row), computed(8 * row), states(3 * one, 7), expected(3 * one, 7);
    gdn_call_arrays(&call, p.q.data(), p.k.data(), p.v.data(), p.g.data(), p.beta.data(), nullptr, computed.data(),
                    expected.data());
    REQUIRE(gdn_forward(&call) == GDN_OK);
    call.out.data = decoded.data();
    call.final_state.data = states.data();
    REQUIRE(gdn_decode(&call) == GDN_OK);
    // Keys are not normalised, so the rounding error is that of the largest values.
    const auto largest = [](const Floats& values) {
        return std::fabs(*std::max_element(values.begin(), values.end(),
                                           [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
    };
    const float near_out = 1e-6F * largest(computed), near_state = 1e-6F * largest(expected);
    for (std::size_t i = 0; i < decoded.size(); ++i) CHECK(std::fabs(decoded[i] - computed[i]) < near_out);
    for (std::size_t i = 0; i < states.size(); ++i) CHECK(std::fabs(states[i] - expected[i]) < near_state);
    CHECK(std::all_of(states.begin() + static_cast<std::ptrdiff_t>(one),
                      states.begin() + static_cast<std::ptrdiff_t>(2 * one), [](float x) { return x == 0; }));
}
