// Every kernel exists once per instruction set and reads and writes fp32 and bf16: they are compared with each other.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/decode32.h"
#include "oracle/gdn/kernels/forward32.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/simd/aligned.h"
#include "unit/oracle/gdn_fixtures.h"
#include "unit/oracle/judging.h"
#include "unit/oracle/loaded_case.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

TEST_CASE("isa: scalar is always there, and the best is the last") {
    const auto isas = available_isas();
    REQUIRE(!isas.empty());
    CHECK(isas.front() == Isa::scalar);
    CHECK(isas.back() == best_isa());
    CHECK(name_of(Isa::avx512) == "avx512");
}

TEST_CASE("isa: the recurrences give equal bits on every instruction set, fp64 and fp32") {
    for (const char* name :
         {"g1", "odd_dims", "marin_47_state", "gva_4", "varlen", "gate_inf", "beta_corners", "d128"}) {
        CAPTURE(std::string(name));
        const LoadedCase x = load_case(name);
        const GdnOutputs truth = run_recurrent64(x.problem, x.contract, 1, Isa::scalar);
        const GdnOutputs single = run_recurrent32(x.problem, x.contract, 1, Isa::scalar);
        for (const Isa isa : available_isas()) {
            CAPTURE(std::string(name_of(isa)));
            const GdnOutputs wide = run_recurrent64(x.problem, x.contract, 2, isa);
            CHECK(wide.out == truth.out);
            CHECK(wide.final_state == truth.final_state);
            CHECK(wide.max_abs_state == truth.max_abs_state);
            const GdnOutputs narrow = run_recurrent32(x.problem, x.contract, 2, isa);
            CHECK(narrow.out == single.out);
            CHECK(narrow.final_state == single.final_state);
        }
    }
}

// What this machine runs by itself is judged on the generated cases in honest_test.cpp.
TEST_CASE("isa: the fused and the chunked kernel are judged as expected on every case and instruction set") {
    std::vector<GdnCase> cases = gdn_cases();
    // Panels, blocks and segments that do not come out even.
    for (const GdnDims& dims : {GdnDims{2, 67, 2, 4, 24, 72}, {1, 64, 1, 3, 5, 33}, {1, 129, 1, 1, 130, 31}}) {
        GdnCase c = *find_gdn_case("gva_2");
        c.name = "uneven";
        c.dims = dims;
        cases.push_back(c);
    }
    for (const GdnCase& c : cases) {
        CAPTURE(c.name);
        const GdnReference r = reference_for(make_inputs(c));
        for (const Isa isa : available_isas()) {
            if (isa == best_isa() && c.name != "uneven") continue;
            CAPTURE(std::string(name_of(isa)));
            const GdnContract& contract = r.contract.value;
            for (const GdnOutputs& outputs : {run_fused32(r.problem, contract, 2, isa),
                                              run_chunk32(r.problem, contract, {contract.chunk}, 2, isa)}) {
                const GdnReport report = judged(r, outputs_of(r, outputs));
                CAPTURE(report.reason);
                CHECK(report.verdict == c.expected);
            }
        }
    }
}

TEST_CASE("isa: the fused kernel is as robust as the recurrence where gates are extreme") {
    for (const char* name : {"gate_1e4", "gate_1e30", "gate_inf", "gates_minus_30", "gates_strong", "gates_positive"}) {
        const LoadedCase x = load_case(name);
        const GdnOutputs truth = run_recurrent64(x.problem, x.contract, 2);
        const double recurrence = max_difference(run_recurrent32(x.problem, x.contract, 2).out, truth.out);
        for (const Isa isa : available_isas()) {
            CAPTURE(std::string(name));
            CAPTURE(std::string(name_of(isa)));
            CHECK(max_difference(run_fused32(x.problem, x.contract, 2, isa).out, truth.out) <= 2 * recurrence);
        }
    }
}

TEST_CASE("threads: the fused and the chunked kernel are bit-equal for every thread count and instruction set") {
    for (const char* name : {"g1", "d128", "odd_dims", "varlen"}) {
        const LoadedCase x = load_case(name);
        for (const Isa isa : available_isas()) {
            const GdnOutputs one = run_fused32(x.problem, x.contract, 1, isa);
            const GdnOutputs chunked = run_chunk32(x.problem, x.contract, {16}, 1, isa);
            for (const int threads : {2, 3, 16}) {
                const GdnOutputs more = run_fused32(x.problem, x.contract, threads, isa);
                CHECK(more.out == one.out);
                CHECK(more.final_state == one.final_state);
                CHECK(run_chunk32(x.problem, x.contract, {16}, threads, isa).out == chunked.out);
            }
        }
    }
}

TEST_CASE("fused: outputs written past the caches and through them are the same, in place or not") {
    Forward32 f;
    f.dims = {1, 1030, 1, 8, 32, 128};
    const std::vector<GdnSequence> sequences = {{0, 1030}};
    f.sequences = sequences;
    const auto pattern = [](std::size_t count, float size) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i)
            values[i] = size * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
        return values;
    };
    const std::vector<float> q = pattern(1030 * 32, 1);
    const std::vector<float> k = pattern(1030 * 32, 2);
    const std::vector<float> v = pattern(1030 * 8 * 128, 0.02F);
    const std::vector<float> g = pattern(1030 * 8, 0.001F);
    const std::vector<float> beta(1030 * 8, 0.5F);
    std::vector<float> state(8 * 32 * 128);
    f.q = q.data();
    f.k = k.data();
    f.v = v.data();
    f.g = g.data();
    f.beta = beta.data();
    f.final_state = state.data();
    f.scale = 0.25F;
    f.l2norm_eps = 1e-6F;
    // 64 bytes more, to have one address that is aligned and one that is not.
    std::vector<float> room(v.size() + 32);
    float* aligned = room.data();
    while (reinterpret_cast<std::uintptr_t>(aligned) % 64 != 0) ++aligned;
    for (const Isa isa : available_isas()) {
        f.initial_state = nullptr;
        f.out = aligned;
        fused_forward(f, 2, isa);
        const std::vector<float> streamed(aligned, aligned + v.size());
        const std::vector<float> state_before = state;
        f.out = aligned + 1;
        fused_forward(f, 2, isa);
        CHECK(std::equal(streamed.begin(), streamed.end(), aligned + 1));
        CHECK(state == state_before);
        std::fill(state.begin(), state.end(), 0.0F);
        f.initial_state = state.data();
        fused_forward(f, 1, isa);
        CHECK(state == state_before);
        CHECK(std::any_of(streamed.begin(), streamed.end(), [](float x) { return x != 0; }));
    }
}

TEST_CASE("chunk: the plain kernel and the one that rounds operands agree where nothing is rounded") {
    for (const char* name : {"g1", "odd_dims", "varlen", "gate_inf", "tail_17_C16"}) {
        CAPTURE(std::string(name));
        const LoadedCase x = load_case(name);
        for (const GateSum how : {GateSum::fp64_with_resets, GateSum::fp32}) {
            const ChunkOptions options{16, how, Matmul::f32};
            const GdnOutputs staged = run_chunk_rounded(x.problem, x.contract, options, 1);
            const double size = 1 + max_abs(staged.out);
            CHECK(max_difference(run_chunk32(x.problem, x.contract, options, 1).out, staged.out) < 2e-5 * size);
        }
    }
}

TEST_CASE("isa: gates that are clamped to at most a limit are those that were clamped before") {
    LoadedCase x = load_case("gates_positive");
    for (std::size_t i = 0; i < x.problem.gate.size(); ++i) x.problem.gate[i] = i % 3 == 0 ? 0.05 : -0.4;
    LoadedCase before = x;
    for (double& g : before.problem.gate) g = std::min(g, 0.03125);
    x.contract.exp_clip = ExpClip{0.03125, true};
    LoadedCase both = x;
    both.contract.exp_clip->of_gates = false;
    const GdnCotangents ones{std::vector<double>(x.problem.v.size(), 1), {}};
    for (const Isa isa : available_isas()) {
        CAPTURE(std::string(name_of(isa)));
        const auto runs = [isa](const LoadedCase& c) {
            return std::vector<GdnOutputs>{
                run_recurrent64(c.problem, c.contract, 2, isa), run_recurrent32(c.problem, c.contract, 2, isa),
                run_fused32(c.problem, c.contract, 2, isa), run_chunk32(c.problem, c.contract, {16}, 2, isa)};
        };
        const auto clamped = runs(x);
        const auto wanted = runs(before);
        const auto other = runs(both);
        for (std::size_t i = 0; i < clamped.size(); ++i) {
            CHECK(clamped[i].out == wanted[i].out);
            CHECK(clamped[i].final_state == wanted[i].final_state);
            CHECK(clamped[i].out != other[i].out);
        }
        const GdnGradients g = run_backward32(x.problem, x.contract, ones, 2, isa);
        const GdnGradients g_wanted = run_backward32(before.problem, before.contract, ones, 2, isa);
        CHECK(g.dq == g_wanted.dq);
        for (std::size_t i = 0; i < g.d_gate.size(); ++i) {
            CHECK(g.d_gate[i] == (i % 3 == 0 ? 0 : g_wanted.d_gate[i]));
        }
    }
}

// bf16 storage: a kernel that reads and writes bf16 must give, bit for bit, what it gives on fp32 arrays of the same
// values, rounded to nearest even at the end.

namespace {

// One tensor both ways, beginning at a cache line or an element beyond it.
struct Both {
    AlignedFloats wide;
    Aligned<Bf16> narrow;
    std::size_t size = 0;

    // Values that bf16 holds.
    explicit Both(const std::vector<double>& values) : Both(values.size()) {
        for (std::size_t i = 0; i < size; ++i) {
            narrow[i] = narrowed(static_cast<float>(values[i]));
            wide[i] = widened(narrow[i]);
        }
    }
    explicit Both(std::size_t count) : wide(aligned_floats(count + 1)), narrow(aligned<Bf16>(count + 1)), size(count) {
        std::fill_n(wide.get(), count + 1, std::numeric_limits<float>::quiet_NaN());
        std::fill_n(narrow.get(), count + 1, Bf16{0xffff});
    }

    // Whether the bf16 side is the fp32 side rounded.
    bool agree() const {
        for (std::size_t i = 0; i < size; ++i) {
            if (narrow[i] != narrowed(wide[i])) return false;
        }
        return true;
    }
    bool nothing_beyond() const { return narrow[size] == Bf16{0xffff}; }
};

GdnCase bf16_case(const GdnDims& dims, const std::vector<std::string>& contract) {
    GdnCase c = *find_gdn_case("gva_2");
    c.name = "bf16";
    c.dims = dims;
    c.dtype = DType::bf16;
    c.contract = contract;
    return c;
}

// Uneven in every direction: dk = 3, one token, whole and part panels, blocks and chunks.
const std::vector<GdnDims>& uneven() {
    static const std::vector<GdnDims> dims = {{1, 1, 1, 2, 3, 7},      {2, 67, 2, 4, 24, 72}, {1, 65, 1, 3, 3, 33},
                                              {1, 130, 1, 1, 130, 31}, {1, 97, 2, 2, 16, 48}, {1, 64, 1, 2, 64, 128}};
    return dims;
}

struct StoredArrays {
    LoadedCase x;
    Both q, k, v, out;
    std::vector<float> g, beta, state, final_state;
    Forward32 f;

    explicit StoredArrays(const GdnCase& c)
        : x(load_case(c)),
          q(x.problem.q),
          k(x.problem.k),
          v(x.problem.v),
          out(x.problem.v.size()),
          g(x.problem.gate.begin(), x.problem.gate.end()),
          beta(x.problem.beta.begin(), x.problem.beta.end()),
          state(x.problem.initial_state.begin(), x.problem.initial_state.end()) {
        const GdnProblem& p = x.problem;
        REQUIRE(p.in_bf16);
        state.resize(p.sequences.size() * static_cast<std::size_t>(p.dims.Hv * p.dims.dk * p.dims.dv));
        final_state.resize(state.size());
        f.dims = p.dims;
        f.sequences = p.sequences;
        f.head_map = x.contract.head_map;
        f.g = g.data();
        f.beta = beta.data();
        f.initial_state = state.data();
        f.final_state = final_state.data();
        f.scale = 1 / std::sqrt(static_cast<float>(p.dims.dk));
        if (x.contract.l2norm != L2Norm::off) f.l2norm_eps = static_cast<float>(x.contract.eps);
    }

    Forward32& with(Storage storage) {
        const bool wide = storage == Storage::f32;
        f.q = wide ? ConstValues(q.wide.get()) : ConstValues(q.narrow.get());
        f.k = wide ? ConstValues(k.wide.get()) : ConstValues(k.narrow.get());
        f.v = wide ? ConstValues(v.wide.get()) : ConstValues(v.narrow.get());
        f.out = wide ? Values(out.wide.get()) : Values(out.narrow.get());
        return f;
    }

    // run(forward, threads) once on fp32 and on bf16, and those agree.
    template <class Run>
    void check(const Run& run) {
        run(with(Storage::f32), 1);
        const std::vector<float> wide_state = final_state;
        run(with(Storage::bf16), 3);
        CHECK(out.agree());
        CHECK(out.nothing_beyond());
        CHECK(final_state == wide_state);
    }
};

}  // namespace

TEST_CASE("bf16: rounding is to nearest even, as files have it, NaN and infinity stay what they are") {
    std::vector<float> values = {0.0F, -0.0F, 1.0F, 1.00390625F, 1.01171875F, 3.4e38F, -3.4e38F, 1e-40F, 1.17e-38F};
    values.push_back(std::numeric_limits<float>::infinity());
    values.push_back(std::bit_cast<float>(0x7f800001U));
    values.push_back(std::bit_cast<float>(0xffc00000U));
    for (std::uint32_t bits = 0x3f800000U; bits < 0x3f840000U; bits += 0x1fffU) {
        values.push_back(std::bit_cast<float>(bits));
    }
    for (const float x : values) {
        CAPTURE(x);
        const double expected = rounded_to(static_cast<double>(x), DType::bf16);
        const auto got = static_cast<double>(widened(narrowed(x)));
        CHECK((got == expected || (std::isnan(got) && std::isnan(expected))));
    }
    CHECK(narrowed(1.00390625F) == Bf16{0x3f80});  // halfway: to the even one
    CHECK(narrowed(1.01171875F) == Bf16{0x3f82});
    for (std::uint32_t upper = 0; upper < 0x10000U; ++upper) {
        const auto x = static_cast<Bf16>(upper);
        if (!std::isnan(widened(x))) CHECK(narrowed(widened(x)) == x);
    }
}

TEST_CASE("bf16: fused and chunked forward, every instruction set, odd shapes, with and without the norm") {
    for (const GdnDims& dims : uneven()) {
        for (const char* norm : {"l2norm=rsqrt(sum+eps)", "l2norm=off"}) {
            GdnCase c = bf16_case(dims, {"head_map=interleaved", norm});
            c.keys = KeyRecipe::unit;
            StoredArrays a(c);
            for (const Isa isa : available_isas()) {
                CAPTURE(std::string(name_of(isa)));
                CAPTURE(dims.dv);
                a.check([&](const Forward32& f, int threads) { fused_forward(f, threads, isa); });
                a.check([&](const Forward32& f, int threads) {
                    chunk_forward(f, 16, GateSum::fp64_with_resets, threads, isa);
                });
            }
        }
    }
}

TEST_CASE("bf16: outputs written past the caches are the same") {
    StoredArrays a(bf16_case({1, 2100, 1, 8, 16, 128}, {"head_map=interleaved"}));
    for (const Isa isa : available_isas()) {
        CAPTURE(std::string(name_of(isa)));
        a.check([&](const Forward32& f, int threads) { fused_forward(f, threads, isa); });
        const std::vector<Bf16> streamed(a.out.narrow.get(), a.out.narrow.get() + a.out.size);
        a.f.out = a.out.narrow.get() + 1;
        fused_forward(a.f, 2, isa);
        CHECK(std::equal(streamed.begin(), streamed.end(), a.out.narrow.get() + 1));
        a.out.narrow[a.out.size] = Bf16{0xffff};
    }
}

TEST_CASE("bf16: decode steps") {
    for (const GdnDims& dims : uneven()) {
        StoredArrays a(bf16_case({dims.B, std::min<std::int64_t>(dims.T, 8), dims.Hk, dims.Hv, dims.dk, dims.dv},
                                 {"head_map=interleaved"}));
        for (const Isa isa : available_isas()) {
            CAPTURE(std::string(name_of(isa)));
            a.check([&](const Forward32& f, int threads) { decode_step(f, threads, isa); });
        }
    }
}

TEST_CASE("bf16: gradients") {
    for (GdnDims dims : uneven()) {
        if (dims.dv == 128) dims = {1, 1030, 1, 16, 16, 128};  // enough to be written past the caches
        StoredArrays a(bf16_case(dims, {"head_map=interleaved"}));
        const GdnProblem& p = a.x.problem;
        const GdnCotangents cotangents = random_cotangents(p, 3);
        Both d_out(cotangents.d_out);
        Both dq(p.q.size()), dk(p.k.size()), dv(p.v.size());
        const std::vector<float> d_state(cotangents.d_final_state.begin(), cotangents.d_final_state.end());
        std::vector<float> u(p.v.size()), dg(a.g.size()), dbeta(a.g.size()), d_initial(a.state.size());
        std::vector<float> states(segment_count(p.sequences, 2) * a.state.size() / p.sequences.size());
        for (const Isa isa : available_isas()) {
            CAPTURE(std::string(name_of(isa)));
            CAPTURE(dims.dv);
            std::vector<float> first;
            for (const Storage storage : {Storage::f32, Storage::bf16}) {
                const bool wide = storage == Storage::f32;
                Backward32 b;
                b.inputs = a.with(storage);
                b.saves = {u.data(), states.data(), 2};
                b.d_out = wide ? ConstValues(d_out.wide.get()) : ConstValues(d_out.narrow.get());
                b.d_final_state = d_state.data();
                b.dq = wide ? Values(dq.wide.get()) : Values(dq.narrow.get());
                b.dk = wide ? Values(dk.wide.get()) : Values(dk.narrow.get());
                b.dv = wide ? Values(dv.wide.get()) : Values(dv.narrow.get());
                b.dg = dg.data();
                b.dbeta = dbeta.data();
                b.d_initial_state = d_initial.data();
                saving_forward(b.inputs, b.saves, 2, isa);
                chunk_backward(b, wide ? 1 : 3, isa);
                if (wide) first = dg;
            }
            CHECK(dq.agree());
            CHECK(dk.agree());
            CHECK(dv.agree());
            CHECK(dq.nothing_beyond());
            CHECK(dv.nothing_beyond());
            CHECK(dg == first);
        }
    }
}

TEST_CASE("bf16: results stored as bf16 are judged OK against the fp64 truth, out in bf16 and in fp32") {
    for (const char* out : {"out_dtype=query", "out_dtype=f32"}) {
        for (const char* rounding : {"rounding=none", "rounding=input"}) {
            for (const GdnDims& dims : {GdnDims{2, 67, 2, 4, 24, 72}, {1, 129, 1, 3, 3, 7}, {1, 200, 2, 4, 64, 64}}) {
                const GdnCase c = bf16_case(dims, {"head_map=interleaved", out, rounding});
                const GdnReference r = reference_for(make_inputs(c));
                const GdnContract& contract = r.contract.value;
                const DType dtype = out_dtype_of(contract, r.problem);
                for (const Isa isa : available_isas()) {
                    for (const GdnOutputs& outputs :
                         {run_fused32(r.problem, contract, 2, isa, Storage::bf16),
                          run_chunk32(r.problem, contract, {32, GateSum::fp64_with_resets, Matmul::f32, Storage::bf16},
                                      2, isa)}) {
                        const GdnReport report = judged(r, outputs_of(r, outputs, dtype));
                        CAPTURE(report.reason);
                        CHECK(report.verdict == Verdict::ok);
                        // Not more than that one rounding: an output that is bf16 loses nothing in the file.
                        const auto& values = outputs.out;
                        if (dtype == DType::bf16) {
                            CHECK(std::all_of(values.begin(), values.end(),
                                              [](double x) { return x == rounded_to(x, DType::bf16); }));
                        }
                    }
                }
            }
        }
    }
}
