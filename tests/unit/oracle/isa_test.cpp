// Every kernel exists once per instruction set; this machine's are compared with each other.
#include <algorithm>

#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/forward32.h"
#include "oracle/gdn/kernels/kernels.h"
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
