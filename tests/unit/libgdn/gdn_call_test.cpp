// How libgdn may be called: sizes that nothing holds, memory at any address, rows that no sequence has, several
// threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "unit/libgdn/problem.h"

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
