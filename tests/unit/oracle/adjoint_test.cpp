// The fp64 gradients: against goldens from outside this program, and against differences of the fp64 forward.
#include "oracle/gdn/kernels/adjoint.h"

#include "unit/oracle/gdn_fixtures.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct Golden {
    const char* name;
    std::vector<double> GdnGradients::* tensor;
    double sum, squares, largest;
};

const Golden k_g1[] = {
    {"dq", &GdnGradients::dq, .092056920127, 4.83853451368, .222946642357},
    {"dk", &GdnGradients::dk, -.0404356311807, 22.9194892263, .615804518228},
    {"dv", &GdnGradients::dv, .821549339455, 2.55934709145, .121699568611},
    {"da", &GdnGradients::d_gate, .33892540311, .0310515683654, .0322929143425},
    {"db", &GdnGradients::d_logit, .200459854179, .149087499587, .0765154319443},
    {"dg", &GdnGradients::dg, -3.72350292728, 3.13708799325, .446750087877},
    {"dbeta", &GdnGradients::dbeta, 1.54045871445, 5.4056556842, .548891171308},
    {"dA_log", &GdnGradients::dA_log, .557705712923, .220027167829, .394572818353},
    {"d dt_bias", &GdnGradients::ddt_bias, .33892540311, .10892432948, .279408911222},
    {"dS0", &GdnGradients::d_initial_state, -.0512156824976, 8.3285651558, .360593021546},
};

GdnCotangents g1_cotangents() {
    return {filled(70, 4, 8, [](double t, double h, double j) { return std::cos(.23 * t - .4 * h + .8 * j); }),
            filled(4, 16, 8, [](double h, double i, double j) { return .05 * std::cos(.3 * i + .2 * j - h); })};
}

// Sums cancel, so the twelfth digit is that of the largest element times their number at worst.
bool digits12(double value, double expected, double size) {
    return std::fabs(value - expected) <= 1e-11 * std::fabs(expected) + 1e-13 * size;
}

double loss_of(const GdnProblem& p, const GdnContract& c, const GdnCotangents& cotangents) {
    const GdnOutputs r = run_recurrent64(p, c, 1);
    double loss = 0;
    for (std::size_t i = 0; i < r.out.size(); ++i) loss += r.out[i] * cotangents.d_out[i];
    for (std::size_t i = 0; i < r.final_state.size(); ++i) loss += r.final_state[i] * cotangents.d_final_state[i];
    return loss;
}

// Every gradient of every input against (L(x + h) - L(x - h)) / 2h.
void check_differences(GdnProblem p, const GdnContract& c) {
    GdnCotangents cotangents;
    for (std::size_t i = 0; i < p.v.size(); ++i) cotangents.d_out.push_back(std::cos(0.7 * static_cast<double>(i)));
    const std::size_t state = p.sequences.size() * static_cast<std::size_t>(p.dims.Hv * p.dims.dk * p.dims.dv);
    for (std::size_t i = 0; i < state; ++i) cotangents.d_final_state.push_back(std::sin(0.3 * static_cast<double>(i)));
    if (p.initial_state.empty()) p.initial_state.assign(state, 0);
    const GdnGradients got = run_adjoint64(p, c, cotangents, 1);
    const auto check = [&](const char* name, std::vector<double> GdnProblem::* input,
                           const std::vector<double>& gradient) {
        CAPTURE(std::string(name));
        REQUIRE(gradient.size() == (p.*input).size());
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            CAPTURE(i);
            constexpr double h = 1e-5;
            GdnProblem moved = p;
            (moved.*input)[i] += h;
            const double above = loss_of(moved, c, cotangents);
            (moved.*input)[i] -= 2 * h;
            const double slope = (above - loss_of(moved, c, cotangents)) / (2 * h);
            CHECK(std::fabs(slope - gradient[i]) < 2e-8 * (1 + std::fabs(slope)));
        }
    };
    check("q", &GdnProblem::q, got.dq);
    check("k", &GdnProblem::k, got.dk);
    check("v", &GdnProblem::v, got.dv);
    check("gate", &GdnProblem::gate, got.d_gate);
    check("beta", &GdnProblem::beta, got.d_logit);
    check("S0", &GdnProblem::initial_state, got.d_initial_state);
    if (c.g_kind == GateKind::raw) {
        check("A_log", &GdnProblem::A_log, got.dA_log);
        check("dt_bias", &GdnProblem::dt_bias, got.ddt_bias);
    }
}

}  // namespace

TEST_CASE("G1: every gradient to 12 digits") {
    const GdnGradients got = run_adjoint64(g1_problem(), g1_contract(), g1_cotangents(), 2);
    for (const Golden& golden : k_g1) {
        CAPTURE(std::string(golden.name));
        const std::vector<double>& tensor = got.*(golden.tensor);
        CHECK(digits12(sum_of(tensor), golden.sum, golden.largest * static_cast<double>(tensor.size())));
        CHECK(digits12(sum_of_squares(tensor), golden.squares, 0));
        CHECK(digits12(max_abs(tensor), golden.largest, 0));
    }
}

TEST_CASE("adjoint: central differences, raw gates and logits, two value heads to a key head") {
    GdnProblem p = g1_problem();
    const auto cut = [](std::vector<double>& x, std::size_t n) { x.resize(n); };
    p.dims = {1, 5, 1, 2, 3, 2};
    p.sequences = {{0, 5}};
    cut(p.q, 15);
    cut(p.k, 15);
    cut(p.v, 20);
    cut(p.gate, 10);
    cut(p.beta, 10);
    cut(p.A_log, 2);
    cut(p.dt_bias, 2);
    cut(p.initial_state, 12);
    check_differences(p, g1_contract());
    GdnContract tiled = g1_contract();
    tiled.head_map = HeadMap::tiled;
    tiled.beta_kind = BetaKind::twice_logit;
    tiled.l2norm = L2Norm::off;
    tiled.scale = 0.3;
    check_differences(p, tiled);
}

TEST_CASE("adjoint: central differences, gates as alpha, sequences of 2, 0 and 3 tokens") {
    GdnProblem p;
    p.dims = {1, 5, 1, 1, 2, 3};
    p.sequences = {{0, 2}, {2, 2}, {2, 5}};
    p.has_cu_seqlens = true;
    p.q = filled(5, 1, 2, [](double t, double, double i) { return std::sin(t + 2 * i); });
    p.k = filled(5, 1, 2, [](double t, double, double i) { return std::cos(2 * t - i); });
    p.v = filled(5, 1, 3, [](double t, double, double j) { return std::sin(3 * t + j + 1); });
    p.gate = {.9, .5, .7, 1.1, .2};
    p.beta = {.5, 1, .2, 1.5, .8};
    GdnContract c;
    c.g_kind = GateKind::alpha;
    check_differences(p, c);
    c.empty = EmptySequence::zeros;
    check_differences(p, c);
}

TEST_CASE("adjoint: no gradient passes a gate that is clamped or closes altogether") {
    GdnProblem p = hand_problem(true);
    p.gate = {-0.5, -200, -0.1};
    GdnContract c = hand_contract();
    c.g_kind = GateKind::log;
    c.exp_clip = ExpClip{80};
    const GdnCotangents ones{std::vector<double>(9, 1), std::vector<double>(6, 1)};
    const GdnGradients clamped = run_adjoint64(p, c, ones, 1);
    CHECK(std::fabs(clamped.d_gate[1]) < 1e-34);  // in every sum that is cut; in the others it cancels
    CHECK(clamped.d_gate[0] != 0);
    c.exp_clip->of_gates = true;
    CHECK(run_adjoint64(p, c, ones, 1).d_gate[1] != 0);
    p.gate[1] = 81;
    CHECK(run_adjoint64(p, c, ones, 1).d_gate[1] == 0);
    p.gate[1] = -HUGE_VAL;
    c.exp_clip.reset();
    const GdnGradients closed = run_adjoint64(p, c, ones, 1);
    CHECK(closed.dg[1] == 0);
    CHECK(max_abs(closed.d_initial_state) > 0);  // through the first output
    for (const auto* x : {&closed.dq, &closed.dk, &closed.dv, &closed.dbeta, &closed.d_gate}) {
        CHECK(std::isfinite(sum_of(*x)));
    }
}

TEST_CASE("threads: fp64 gradients are bit-equal for every thread count and instruction set") {
    const GdnGradients one = run_adjoint64(g1_problem(), g1_contract(), g1_cotangents(), 1, Isa::scalar);
    for (const Isa isa : available_isas()) {
        for (const int threads : {1, 3, 16}) {
            const GdnGradients more = run_adjoint64(g1_problem(), g1_contract(), g1_cotangents(), threads, isa);
            for (const Golden& tensor : k_g1) CHECK(more.*(tensor.tensor) == one.*(tensor.tensor));
        }
    }
}
