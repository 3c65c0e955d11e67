// Precision that a contract declares, and what is said of one that nobody declared.
#include <cmath>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/clipped.h"
#include "oracle/gdn/kernels/kernels.h"
#include "unit/oracle/judging.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

using Texts = std::vector<std::string>;

// As a server dumps it: bf16 inputs, out in bf16 and the final state in fp32.
GdnCase serving(std::vector<std::string> contract = {}) {
    GdnCase c;
    c.name = "serving";
    c.dims = {1, 200, 1, 2, 32, 32};
    c.seed = 5;
    c.dtype = DType::bf16;
    c.contract = std::move(contract);
    c.contract.emplace_back("head_map=interleaved");
    c.contract.emplace_back("out_dtype=query");
    return c;
}

TensorFile served(const GdnReference& r, const GdnOutputs& x, DType out = DType::bf16) {
    return outputs_of(r, x, out, DType::f32);
}

void expect_rounding(const GdnReport& report, const std::string& declaration) {
    CAPTURE(declaration);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "rounding");
    REQUIRE_FALSE(report.hints.empty());
    CAPTURE(report.hints.front().text);
    CHECK(report.hints.front().text.find(declaration) != std::string::npos);
    for (const Hint& h : report.hints) CHECK(h.text.find("hand-over") == std::string::npos);
}

GdnOutputs with_operands(const GdnReference& r, Matmul matmul) {
    return run_chunk32(r.problem, r.contract.value, {64, GateSum::fp32, matmul}, 2);
}

}  // namespace

TEST_CASE("precision: rounded operands are told by final_state where out hides them, and declared they are right") {
    struct Class {
        Matmul matmul;
        std::string word;
    };
    for (const Class& k : {Class{Matmul::bf16, "bf16"}, Class{Matmul::f16, "f16"}, Class{Matmul::tf32, "tf32"}}) {
        for (const DType out : {DType::bf16, DType::f32}) {
            if (out == DType::f32 && k.matmul == Matmul::tf32) continue;  // as f16, and slow
            const TensorFile inputs = make_inputs(serving());
            Texts sets = out == DType::f32 ? Texts{"out_dtype=f32"} : Texts{};
            const GdnReference strict = reference_for(inputs, "marin", sets);
            const TensorFile dump = served(strict, with_operands(strict, k.matmul), out);
            expect_rounding(judged(strict, dump), "matmul=" + k.word);
            sets.push_back("matmul=" + k.word);
            const GdnReport declared = judged(reference_for(inputs, "marin", sets), dump);
            CAPTURE(declared.reason);
            CHECK(declared.verdict == Verdict::ok);
        }
    }
}

TEST_CASE("precision: rounded operands are no tile where few values of out are wrong beside its own rounding") {
    for (const std::int64_t seed : {1, 5, 7, 23}) {
        CAPTURE(seed);
        GdnCase c = serving();
        c.dims = {1, 50, 2, 2, 16, 32};
        c.seed = static_cast<std::uint64_t>(seed);
        const GdnReference strict = reference_for(make_inputs(c));
        const GdnReport report = judged(strict, served(strict, with_operands(strict, Matmul::bf16)));
        CHECK(report.verdict == Verdict::wrong);
        CHECK(report.stage == "rounding");
    }
}

TEST_CASE("precision: normalised q and k that are rounded are told, with the field that declares it") {
    const TensorFile inputs = make_inputs(serving());
    const GdnReference declared = reference_for(inputs, "marin", {"rounding=input"});
    const GdnOutputs x = run_recurrent64(declared.problem, declared.contract.value, 2);
    for (const DType out : {DType::f32, DType::bf16}) {
        const GdnReference strict = reference_for(inputs, "marin", {out == DType::f32 ? "out_dtype=f32" : "chunk=64"});
        expect_rounding(judged(strict, served(strict, x, out)), "--set rounding=input");
    }
}

namespace {

// Normalised and rounded, as another kernel may have them: values within two roundoffs of the middle between their
// neighbours are rounded to the other one. `count`: how many.
std::vector<double> rounded_otherwise(const std::vector<double>& x, std::size_t width, double eps, int& count) {
    std::vector<double> result(x.size());
    for (std::size_t at = 0; at < x.size(); at += width) {
        double squares = eps;
        for (std::size_t i = at; i < at + width; ++i) squares += x[i] * x[i];
        for (std::size_t i = at; i < at + width; ++i) {
            const double exact = x[i] / std::sqrt(squares);
            const double usual = rounded_to(exact, DType::bf16);
            result[i] = usual;
            for (const double factor : {1 - 0x1p-23, 1 + 0x1p-23}) {
                const double other = rounded_to(exact * factor, DType::bf16);
                if (other != usual) result[i] = other;
            }
            count += result[i] != usual ? 1 : 0;
        }
    }
    return result;
}

}  // namespace

TEST_CASE("precision: normalised q and k may be rounded to either neighbour where they lie between the two") {
    int count = 0;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        GdnCase c = serving();
        c.dims = {1, 90, 1, 2, 64, 8};
        c.seed = seed;
        TensorFile inputs = make_inputs(c);
        const Texts sets = {"rounding=input", "out_dtype=f32"};
        GdnReference r = reference_for(inputs, "marin", sets);
        const GdnCotangents cotangents = random_cotangents(r.problem, seed);
        for (NamedTensor& t : cotangents_file(r.problem, r.contract.value, cotangents).tensors)
            inputs.tensors.push_back(t);
        GdnProblem other = r.problem;
        GdnContract normalised = r.contract.value;
        normalised.l2norm = L2Norm::off;
        other.q = rounded_otherwise(r.problem.q, 64, r.contract.value.eps, count);
        other.k = rounded_otherwise(r.problem.k, 64, r.contract.value.eps, count);
        const GdnOutputs x = run_recurrent64(other, normalised, 2);
        const GdnGradients g = run_adjoint64(other, normalised, cotangents, 2);
        TensorFile dump = outputs_of(r, x);
        for (NamedTensor& t : gradients_file(r.problem, r.contract.value, g, DType::f32, DType::f32).tensors) {
            if (t.name != "dq" && t.name != "dk") dump.tensors.push_back(t);  // those are of the normalised ones
        }
        REQUIRE(add_backward(r, inputs, dump, 2));
        const GdnReport report = judged(r, dump, {.hints = false});
        CAPTURE(report.reason);
        CHECK(report.verdict == Verdict::ok);
        GdnOutputs off = x;
        for (double& value : off.out) value *= 1.01;
        CHECK(judged(r, outputs_of(r, off), {.hints = false}).verdict == Verdict::wrong);
    }
    CHECK(count > 0);
}

TEST_CASE("contract: maxtext rounds as its inputs are stored") {
    for (const DType dtype : {DType::bf16, DType::f32}) {
        GdnCase c = serving();
        c.dtype = dtype;
        TensorFile inputs = make_inputs(c);
        for (const char* field : {"matmul", "state_dtype"}) inputs.metadata.erase(field);
        const GdnReference r = reference_for(inputs, "maxtext");
        CHECK(r.contract.value.matmul == (dtype == DType::bf16 ? Matmul::bf16 : Matmul::f32));
        CHECK(r.contract.value.state_dtype == (dtype == DType::bf16 ? StateDType::bf16 : StateDType::f32));
    }
}

TEST_CASE("precision: A_log in bf16 is told, and how to declare it") {
    GdnCase c = serving({"g_kind=raw", "beta_kind=logit"});
    c.gate = GateRecipe::raw;
    const TensorFile inputs = make_inputs(c);
    const GdnReference r = reference_for(inputs);
    REQUIRE(r.problem.A_log.size() == 2);
    GdnProblem rounded = r.problem;
    rounded.A_log = {-2.0877, -0.3877};
    const GdnReference given = make_reference(rounded, r.contract, 2);
    for (double& a : rounded.A_log) a = rounded_to(a, DType::bf16);
    const GdnOutputs x = run_recurrent64(rounded, r.contract.value, 2);
    expect_rounding(judged(given, served(given, x)), "A_log is rounded to bf16 (store it as bf16");
    CHECK(judged(make_reference(rounded, r.contract, 2), served(r, x)).verdict == Verdict::ok);
}

TEST_CASE("precision: a state in bf16 is told, by token and by chunk, and declared it is right") {
    const TensorFile inputs = make_inputs(serving());
    for (const std::string word : {"bf16", "bf16-token"}) {
        CAPTURE(word);
        const GdnReference declared = reference_for(inputs, "marin", {"state_dtype=" + word});
        const GdnOutputs x = word == "bf16" ? with_operands(declared, Matmul::f32)
                                            : run_recurrent_rounded(declared.problem, declared.contract.value, 2);
        const GdnReference strict = reference_for(inputs);
        expect_rounding(judged(strict, served(strict, x)), "state_dtype=" + word);
        CHECK(judged(declared, served(declared, x)).verdict == Verdict::ok);
        GdnOutputs wrong = x;
        for (double& s : wrong.final_state) s *= 1.2;
        CHECK(judged(declared, served(declared, wrong)).verdict == Verdict::wrong);
    }
}

TEST_CASE("contract: fla takes operands in the dtype of its inputs") {
    for (const auto& [dtype, word] : {std::pair(DType::bf16, "bf16"), std::pair(DType::f16, "f16")}) {
        GdnCase c = serving();
        c.keys = KeyRecipe::unit;
        TensorFile inputs = make_inputs(c);
        if (dtype == DType::f16) REQUIRE(store_as(inputs, dtype));
        std::erase_if(inputs.metadata, [](const auto& entry) { return entry.first == "matmul"; });
        const GdnReference r = reference_for(inputs, "fla");
        const auto shown = std::find_if(r.contract.fields.begin(), r.contract.fields.end(),
                                        [](const ContractField& f) { return f.name == "matmul"; });
        CHECK(shown->value == word);
        CHECK(shown->origin == "contract fla: matmul=input");
        const GdnOutputs x = with_operands(r, r.contract.value.matmul);
        CHECK(judged(r, served(r, x, dtype)).verdict == Verdict::ok);
        GdnOutputs wrong = x;
        for (double& s : wrong.final_state) s *= 1.2;
        CHECK(judged(r, served(r, wrong, dtype)).verdict == Verdict::wrong);
    }
    // Its recurrent kernel takes fp32 and computes in it.
    GdnCase wide = serving();
    wide.dtype = DType::f32;
    wide.keys = KeyRecipe::unit;
    TensorFile inputs = make_inputs(wide);
    std::erase_if(inputs.metadata, [](const auto& entry) { return entry.first == "matmul"; });
    const GdnReference r = reference_for(inputs, "fla");
    CHECK(r.contract.value.matmul == Matmul::f32);
    CHECK(judged(r, served(r, with_operands(r, Matmul::bf16), DType::f32)).verdict == Verdict::wrong);
}

TEST_CASE("contract: a clip of sums, and its gradient") {
    GdnCase c;
    c.dims = {1, 21, 1, 2, 4, 3};
    c.state_scale = 0.5;
    c.gate = GateRecipe::soft;
    c.contract = {"chunk=8", "head_map=interleaved", "exp_clip=1e6"};
    const GdnReference loose = reference_for(make_inputs(c));
    GdnProblem p = loose.problem;
    for (std::size_t i = 0; i < p.gate.size(); ++i) p.gate[i] = -0.1 - 0.15 * static_cast<double>(i % 5);
    GdnContract contract = loose.contract.value;
    // Where nothing is cut it is the recurrence.
    const GdnOutputs same = run_clipped64(p, contract, 1);
    const GdnOutputs recurrent = run_recurrent64(p, contract, 1);
    for (std::size_t i = 0; i < same.out.size(); ++i)
        CHECK(same.out[i] == doctest::Approx(recurrent.out[i]).epsilon(1e-12));

    contract.exp_clip = ExpClip{1.03, false};
    REQUIRE(clips_sums(p, contract));
    const GdnOutputs clipped = run_recurrent64(p, contract, 1);
    CHECK(std::fabs(clipped.out.back() - recurrent.out.back()) > 1e-3);
    GdnCotangents pull;
    for (std::size_t i = 0; i < clipped.out.size(); ++i) pull.d_out.push_back(std::cos(0.7 * static_cast<double>(i)));
    for (std::size_t i = 0; i < clipped.final_state.size(); ++i)
        pull.d_final_state.push_back(std::sin(0.3 * static_cast<double>(i)));
    const auto loss = [&](const GdnProblem& at) {
        const GdnOutputs x = run_recurrent64(at, contract, 1);
        double sum = 0;
        for (std::size_t i = 0; i < x.out.size(); ++i) sum += pull.d_out[i] * x.out[i];
        for (std::size_t i = 0; i < x.final_state.size(); ++i) sum += pull.d_final_state[i] * x.final_state[i];
        return sum;
    };
    const GdnGradients g = run_adjoint64(p, contract, pull, 1);
    const auto check = [&](std::vector<double> GdnProblem::* input, const std::vector<double>& gradient) {
        for (std::size_t i = 0; i < gradient.size(); i += 3) {
            constexpr double k_step = 1e-6;
            GdnProblem up = p;
            GdnProblem down = p;
            (up.*input)[i] += k_step;
            (down.*input)[i] -= k_step;
            CHECK(gradient[i] == doctest::Approx((loss(up) - loss(down)) / (2 * k_step)).epsilon(1e-5).scale(1));
        }
    };
    check(&GdnProblem::q, g.dq);
    check(&GdnProblem::k, g.dk);
    check(&GdnProblem::v, g.dv);
    check(&GdnProblem::gate, g.dg);
    check(&GdnProblem::beta, g.dbeta);
    check(&GdnProblem::initial_state, g.d_initial_state);
}
