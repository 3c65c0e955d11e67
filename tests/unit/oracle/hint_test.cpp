// Every hint, proven by injecting exactly that fault and asking for exactly that hint, first.
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/prepare.h"
#include "unit/oracle/judging.h"
#include "unit/oracle/quirks.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

using Text = std::string;

enum class Size { g1, wide };
// How the problem gives its gates and betas: as it is (raw and logits for G1, log and probabilities for the wide one),
// or converted. `tiny`: log, with keys and queries of length 1e-3, where eps = 1e-6 counts.
enum class Form { given, raw, log, alpha, tiny };

GdnReference wide_as_raw() {
    GdnCase c;
    c.name = "wide";
    c.dims = {1, 80, 2, 4, 64, 64};
    c.seed = 11;
    c.state_scale = 0.3;
    c.gate = GateRecipe::raw;
    c.contract = {"head_map=interleaved", "g_kind=raw", "beta_kind=logit"};
    const TensorFile inputs = make_inputs(c);
    auto contract = resolve_contract("marin", inputs.metadata, {});
    REQUIRE(contract);
    auto p = read_problem(inputs, *contract);
    REQUIRE(p);
    p->A_log = {-3, -2.5, -2, -1.5};  // decays that leave something of a state after a chunk
    return make_reference(std::move(*p), std::move(*contract), 2);
}

GdnReference converted(const GdnReference& r, Form form) {
    GdnProblem p = r.problem;
    ResolvedContract c = r.contract;
    p.gate = log_gates(r.problem, r.contract.value);
    if (form == Form::alpha) {
        for (double& g : p.gate) g = std::exp(g);
    }
    for (double& b : p.beta) b = 1 / (1 + std::exp(-b));
    REQUIRE(set_field(c, "g_kind", form == Form::alpha ? "alpha" : "log", "test"));
    REQUIRE(set_field(c, "beta_kind", "prob", "test"));
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    for (auto* x : {&p.q, &p.k}) {
        for (auto row = x->begin(); form == Form::tiny && row != x->end(); row += p.dims.dk) {
            const double length = std::sqrt(std::inner_product(row, row + p.dims.dk, row, 0.0));
            for (std::size_t i = 0; i < dk; ++i) row[static_cast<std::ptrdiff_t>(i)] *= 1e-3 / length;
        }
    }
    return make_reference(std::move(p), std::move(c), 2);
}

const GdnReference& reference(Size size, Form form) {
    static std::map<std::pair<Size, Form>, GdnReference> known;
    if (form == Form::given) form = size == Size::g1 ? Form::raw : Form::log;
    const auto found = known.find({size, form});
    if (found != known.end()) return found->second;
    GdnReference r = form != Form::raw    ? converted(reference(size, Form::raw), form)
                     : size == Size::wide ? wide_as_raw()
                                          : reference_for(make_inputs(*find_gdn_case("g1")));
    return known.emplace(std::pair{size, form}, std::move(r)).first->second;
}

// What a fault does to the outputs, and what must be said about it.
struct Fault {
    Text stage, text;
    std::function<GdnOutputs(const GdnReference&)> outputs;
    Form form = Form::given;
    std::vector<Text> also = {};    // what fits as well, and is named after it
    std::vector<Text> stages = {};  // that are listed; empty: that stage alone
};

void expect_exactly(const Fault& fault, const GdnReference& r) {
    const GdnReport report = judged(r, outputs_of(r, fault.outputs(r)));
    const Text hints = std::accumulate(report.hints.begin(), report.hints.end(), Text(),
                                       [](Text text, const Hint& h) { return text + h.stage + ": " + h.text + "\n"; });
    CAPTURE(fault.text);
    CAPTURE(r.problem.dims.dk);
    CAPTURE(hints);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.place);
    CHECK(report.stage == fault.stage);
    CHECK(report.stages == (fault.stages.empty() ? std::vector<Text>{fault.stage} : fault.stages));
    REQUIRE(report.hints.size() == 1 + fault.also.size());
    CHECK(report.hints.front().stage == fault.stage);
    CHECK(report.hints.front().text.find(fault.text) != Text::npos);
    for (std::size_t i = 0; i < fault.also.size(); ++i) {
        CHECK(report.hints[i + 1].text.find(fault.also[i]) != Text::npos);
    }
}

void expect_exactly(const std::vector<Fault>& faults) {
    for (const Fault& fault : faults) {
        for (const Size size : {Size::g1, Size::wide}) expect_exactly(fault, reference(size, fault.form));
    }
}

Fault contract_fault(Text stage, Text text, std::function<void(GdnContract&)> change, Form form = Form::given) {
    return {std::move(stage), std::move(text),
            [change](const GdnReference& r) {
                GdnContract wrong = r.contract.value;
                change(wrong);
                return quirky_recurrence(r.problem, wrong, {});
            },
            form};
}

Fault scaled(Text text, std::function<double(double dk)> scale) {
    return {"scale", std::move(text), [scale](const GdnReference& r) {
                GdnContract wrong = r.contract.value;
                wrong.scale = scale(static_cast<double>(r.problem.dims.dk));
                return quirky_recurrence(r.problem, wrong, {});
            }};
}

Fault quirk(Text stage, Text text, Quirks quirks, Form form = Form::given) {
    return {std::move(stage), std::move(text),
            [quirks](const GdnReference& r) { return quirky_recurrence(r.problem, r.contract.value, quirks); }, form};
}

Fault prepared(Text stage, Text text, std::function<void(Prepared<double>&)> change, Form form = Form::given) {
    return {std::move(stage), std::move(text),
            [change](const GdnReference& r) { return quirky_recurrence(r.problem, r.contract.value, {}, change); },
            form};
}

Fault problem_fault(Text stage, Text text, std::function<void(GdnProblem&)> change, Form form = Form::given) {
    return {std::move(stage), std::move(text),
            [change](const GdnReference& r) {
                GdnProblem wrong = r.problem;
                change(wrong);
                return quirky_recurrence(wrong, r.contract.value, {});
            },
            form};
}

Fault finished(Text stage, Text text, std::function<void(GdnOutputs&, const GdnReference&)> change) {
    return {std::move(stage), std::move(text), [change](const GdnReference& r) {
                GdnOutputs x = r.truth;
                change(x, r);
                return x;
            }};
}

void normalise(Prepared<double>& in, double eps, bool outside) {
    const auto dk = static_cast<std::size_t>(in.problem->dims.dk);
    if (outside) {
        in.q = in.problem->q;
        in.k = in.problem->k;
    }
    for (auto* x : {&in.q, &in.k}) {
        for (std::size_t at = 0; at < x->size(); at += dk) {
            double squares = 0;
            for (std::size_t i = 0; i < dk; ++i) squares += (*x)[at + i] * (*x)[at + i];
            const double divisor = outside ? std::sqrt(squares) + eps : std::sqrt(squares + eps);
            for (std::size_t i = 0; i < dk; ++i) (*x)[at + i] /= divisor;
        }
    }
}

std::vector<Fault> layouts_heads_and_scales() {
    std::vector<Fault> all;
    all.push_back(finished("layout", "the state is transposed", [](GdnOutputs& x, const GdnReference& r) {
        x.final_state = to_layout(x.final_state, r.problem.dims, StateLayout::value_key);
    }));
    all.push_back(problem_fault("layout", "the initial state is read transposed", [](GdnProblem& p) {
        // What was written as [dk, dv] is read as [dv, dk].
        GdnDims swapped = p.dims;
        std::swap(swapped.dk, swapped.dv);
        p.initial_state = to_layout(p.initial_state, swapped, StateLayout::value_key);
    }));
    all.push_back(
        contract_fault("head_map", "the head map is tiled", [](GdnContract& c) { c.head_map = HeadMap::tiled; }));
    all.push_back(finished("head_map", "the value heads of out are permuted: they hold those of 1,2,3,0",
                           [](GdnOutputs& x, const GdnReference& r) {
                               const std::ptrdiff_t dv = r.problem.dims.dv;
                               for (auto row = x.out.begin(); row != x.out.end(); row += 4 * dv) {
                                   std::rotate(row, row + dv, row + 4 * dv);
                               }
                           }));
    all.push_back(scaled("the scale is missing", [](double) { return 1.0; }));
    all.push_back(scaled("the scale is applied twice", [](double dk) { return 1 / dk; }));
    all.back().also = {"the scale is 1/dk instead of 1/sqrt(dk)"};
    all.push_back(scaled("the scale is sqrt(dk)", [](double dk) { return std::sqrt(dk); }));
    all.push_back(scaled("the scale is dk instead", [](double dk) { return dk; }));
    return all;
}

std::vector<Fault> norms_betas_and_gates() {
    const auto sigmoid = [](double b) { return 1 / (1 + std::exp(-b)); };
    std::vector<Fault> all;
    for (const Form form : {Form::given, Form::tiny}) {
        all.push_back(contract_fault(
            "l2norm", "q and k are not l2-normalised", [](GdnContract& c) { c.l2norm = L2Norm::off; }, form));
    }
    all.push_back(prepared("l2norm", "l2-normalised twice", [](auto& in) { normalise(in, 1e-6, false); }, Form::tiny));
    all.push_back(prepared(
        "l2norm", "eps is added outside of the root", [](auto& in) { normalise(in, 1e-6, true); }, Form::tiny));
    all.push_back(contract_fault(
        "beta", "beta is used as given, without the sigmoid", [](GdnContract& c) { c.beta_kind = BetaKind::prob; },
        Form::raw));
    for (const Form form : {Form::raw, Form::log}) {
        all.push_back(prepared(
            "beta", "the sigmoid is applied once more",
            [sigmoid](auto& in) { std::transform(in.beta.begin(), in.beta.end(), in.beta.begin(), sigmoid); }, form));
    }
    all.push_back(problem_fault(
        "gate", "dt_bias is not added", [](GdnProblem& p) { std::fill(p.dt_bias.begin(), p.dt_bias.end(), 0.0); },
        Form::raw));
    all.push_back(
        contract_fault("gate", "alpha is taken for g", [](GdnContract& c) { c.g_kind = GateKind::log; }, Form::alpha));
    all.back().also = {"exp is applied twice to g"};
    for (const Form form : {Form::raw, Form::log}) {
        all.push_back(quirk("gate", "g is taken for alpha", {.gate_is_factor = true}, form));
        all.push_back(prepared(
            "gate", "exp is applied twice to g",
            [](auto& in) {
                for (double& g : in.g) g = std::exp(g);
            },
            form));
        all.push_back(prepared(
            "gate", "g has the wrong sign",
            [](auto& in) {
                for (double& g : in.g) g = -g;
            },
            form));
        if (form == Form::raw) all.back().also = {"the minus sign before exp(A_log) is missing"};
    }
    all.push_back(quirk("gate", "the sum of gates is exclusive", {.exclusive_sums = true}));
    all.push_back(quirk("gate", "does not restart at each chunk", {.sums_never_restart = true}));
    return all;
}

std::vector<Fault> orders_states_and_roundings() {
    std::vector<Fault> all;
    all.push_back(quirk("order", "the decay is applied after the write", {.decay_after_write = true}));
    all.push_back(quirk("order", "out is read from the old state", {.read_old_state = true}));
    all.push_back(quirk("order", "r is computed from the undecayed state", {.undecayed_residual = true}));
    all.push_back(prepared("carry", "the initial state is ignored",
                           [](auto& in) { std::fill(in.state.begin(), in.state.end(), 0.0); }));
    all.push_back(quirk("carry", "the state is not carried from chunk to chunk", {.no_handover = true}));
    all.push_back(quirk("rounding", "the state is rounded to bf16 after each chunk", {.bf16_state_per_chunk = true}));
    all.push_back(quirk("order", "out is read from the decayed old state", {.strict_mask = true}));
    all.back().also = {"P lacks its diagonal"};
    all.back().stages = {"order", "intra"};
    all.push_back(finished("rounding", "out is rounded to bfloat16 (declare it: --set out_dtype=bf16)",
                           [](GdnOutputs& x, const GdnReference&) {
                               for (double& o : x.out) o = rounded_to(o, DType::bf16);
                           }));
    return all;
}

}  // namespace

TEST_CASE("hint: layouts, head maps and scales are named exactly, on G1 and with 64 dimensions") {
    expect_exactly(layouts_heads_and_scales());
}

TEST_CASE("hint: l2norm, beta and gates are named exactly, on G1 and with 64 dimensions") {
    expect_exactly(norms_betas_and_gates());
}

TEST_CASE("hint: orders, states and roundings are named exactly, on G1 and with 64 dimensions") {
    expect_exactly(orders_states_and_roundings());
}

TEST_CASE("hint: undeclared bf16 operands, on G1 and with 64 dimensions") {
    GdnCase few;
    few.name = "few";
    few.dims = {1, 20, 1, 1, 64, 64};
    for (const GdnReference& r : {reference(Size::g1, Form::given), reference_for(make_inputs(few))}) {
        expect_exactly({.stage = "rounding",
                        .text = "consistent with operands of products in bf16",
                        .outputs =
                            [](const GdnReference& honest) {
                                const ChunkOptions passes = {64, GateSum::fp64_with_resets, Matmul::bf16};
                                return run_chunk32(honest.problem, honest.contract.value, passes, 2);
                            },
                        .stages = {"rounding", "intra", "decay"}},
                       r);
    }
}

TEST_CASE("hint: the policy for sequences without tokens, either way") {
    for (const Size size : {Size::g1, Size::wide}) {
        GdnProblem p = reference(size, Form::given).problem;
        const std::vector<double> state = p.initial_state;
        for (int more = 0; more < 2; ++more) p.initial_state.insert(p.initial_state.end(), state.begin(), state.end());
        p.sequences = {{0, 0}, {0, p.dims.T}, {p.dims.T, p.dims.T}};
        p.has_cu_seqlens = true;
        for (const bool zeros : {true, false}) {
            ResolvedContract c = reference(size, Form::given).contract;
            REQUIRE(set_field(c, "empty", zeros ? "zeros" : "passthrough", "test"));
            GdnContract other = c.value;
            other.empty = zeros ? EmptySequence::passthrough : EmptySequence::zeros;
            const GdnReference r = make_reference(p, c, 2);
            expect_exactly({"carry",
                            zeros ? "sequences without tokens pass the initial state through (empty=passthrough)"
                                  : "sequences without tokens end in zeros (empty=zeros)",
                            [&](const GdnReference&) { return run_recurrent64(p, other, 1); }},
                           r);
            const GdnReport report = judged(r, outputs_of(r, run_recurrent64(p, other, 1)));
            REQUIRE(report.place);
            CHECK(report.place->sequences == std::vector<std::int64_t>{0, 2});
        }
    }
}

TEST_CASE("hint: masked tokens that still decay the state, and masks that are ignored") {
    for (const Size size : {Size::g1, Size::wide}) {
        const GdnReference& whole = reference(size, Form::given);
        GdnProblem p = whole.problem;
        const std::int64_t end = p.dims.T - 20;
        p.sequences.front().end = end;
        const std::vector<double> gates = log_gates(p, whole.contract.value);
        const GdnReference r = make_reference(p, whole.contract, 2);
        expect_exactly({"padding", "masked tokens still decay the state",
                        [&](const GdnReference&) {
                            GdnOutputs x = r.truth;
                            const auto heads = static_cast<std::size_t>(p.dims.Hv);
                            const std::size_t size_of_state = x.final_state.size() / heads;
                            for (std::size_t i = 0; i < x.final_state.size(); ++i) {
                                double sum = 0;
                                for (std::size_t t = static_cast<std::size_t>(end); t < gates.size() / heads; ++t)
                                    sum += gates[t * heads + i / size_of_state];
                                x.final_state[i] *= std::exp(sum);
                            }
                            return x;
                        }},
                       r);
        expect_exactly({"padding", "tokens beyond the given lengths are not masked at all",
                        [&](const GdnReference&) {
                            GdnOutputs x = r.truth;
                            x.final_state = whole.truth.final_state;
                            return x;
                        }},
                       r);
    }
}

TEST_CASE("place: one head from one chunk on, without a search for the mistake") {
    ResolvedContract c = reference(Size::g1, Form::given).contract;
    REQUIRE(set_field(c, "chunk", "16", "test"));
    const GdnReference r = make_reference(reference(Size::g1, Form::given).problem, c, 2);
    GdnOutputs x = r.truth;
    for (std::size_t t = 40; t < 70; ++t) {
        for (std::size_t j = 0; j < 8; ++j) x.out[(t * 4 + 2) * 8 + j] *= 1.5;
    }
    CompareOptions quiet;
    quiet.hints = false;
    const GdnReport report = judged(r, outputs_of(r, x), quiet);
    CHECK(report.hints.empty());
    REQUIRE(report.place);
    CHECK(report.place->heads == std::vector<std::int64_t>{2});
    CHECK(report.place->chunks == std::vector<std::int64_t>{2, 3, 4});
    CHECK(report.place->first_token == 40);
    CHECK(report.place->first_head == 2);
    CHECK(report.place->first_chunk == 2);
    REQUIRE(report.errors.size() == 4);
    REQUIRE(report.errors[2].chunks.size() == 5);
    CHECK(report.errors[2].chunks[1] < k_ok_band);
    CHECK(report.errors[2].chunks[3] > k_wrong_band);
    CHECK(report.errors[1].chunks[3] < k_ok_band);
}

TEST_CASE("place: an honest dump has none, and there is nothing to name") {
    const GdnReference& r = reference(Size::g1, Form::given);
    const GdnReport honest = judged(r, outputs_of(r, r.truth));
    CHECK_FALSE(honest.place);
    CHECK(honest.stage.empty());
    CHECK(honest.hints.empty());
}

// Hints where a fault explodes, has gates that no exp can give, or strikes at one boundary alone. The faulty results
// come from a token-by-token recurrence of this file.

namespace {

struct Change {
    std::function<double(double)> decay = [](double g) { return std::exp(g); };  // of g as given
    std::function<bool(std::size_t)> lost = [](std::size_t) { return false; };   // the state, before that token
    std::function<double(double)> kept = [](double s) { return s; };             // of the state, after each token
};

GdnOutputs changed_recurrence(const GdnProblem& p, const GdnContract& c, const Change& change) {
    const Prepared<double> in = prepare<double>(p, c, 1);
    const auto T = static_cast<std::size_t>(p.dims.T);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    GdnOutputs result{std::vector<double>(p.v.size()), in.state, 0};
    for (std::size_t task = 0; task < static_cast<std::size_t>(p.dims.B) * Hv * T; ++task) {
        const std::size_t sequence_head = task / T;
        const std::size_t t = task % T;
        const std::size_t h = sequence_head % Hv;
        const std::size_t row = sequence_head / Hv * T + t;
        double* S = result.final_state.data() + sequence_head * dk * dv;
        if (change.lost(t)) std::fill_n(S, dk * dv, 0.0);
        const double* q = in.q.data() + (row * Hk + in.key_head[h]) * dk;
        const double* k = in.k.data() + (row * Hk + in.key_head[h]) * dk;
        const double alpha = change.decay(in.g[row * Hv + h]);
        for (std::size_t j = 0; j < dv; ++j) {
            double kS = 0;
            for (std::size_t x = 0; x < dk; ++x) kS += k[x] * S[x * dv + j];
            const double d = in.beta[row * Hv + h] * (in.v[(row * Hv + h) * dv + j] - alpha * kS);
            double read = 0;
            for (std::size_t x = 0; x < dk; ++x) {
                S[x * dv + j] = change.kept(alpha * S[x * dv + j] + k[x] * d);
                read += q[x] * S[x * dv + j];
            }
            result.out[(row * Hv + h) * dv + j] = in.scale * read;
        }
    }
    return result;
}

GdnReference real_size(std::int64_t tokens, const std::vector<std::string>& sets = {}) {
    GdnCase c;
    c.name = "real";
    c.dims = {1, tokens, 2, 4, 64, 64};
    c.seed = 17;
    c.state_scale = 0.1;
    c.contract = {"head_map=interleaved"};
    return reference_for(make_inputs(c), "marin", sets);
}

GdnReport expect_hint(const GdnReference& r, const GdnOutputs& wrong, std::string_view stage, std::string_view text) {
    const GdnReport report = judged(r, outputs_of(r, wrong));
    const std::string hints = std::accumulate(report.hints.begin(), report.hints.end(), std::string(),
                                              [](std::string all, const Hint& h) { return all + h.text + "\n"; });
    CAPTURE(hints);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == stage);
    CHECK(hints.find(text) != std::string::npos);
    CHECK(hints.find("transposed") == std::string::npos);
    CHECK(hints.find("rounded") == std::string::npos);
    return report;
}

}  // namespace

TEST_CASE("hint: a fault that explodes is named from the tokens before") {
    for (const std::int64_t tokens : {100, 130, 200}) {
        CAPTURE(tokens);
        const GdnReference r = real_size(tokens);
        GdnContract off = r.contract.value;
        off.l2norm = L2Norm::off;
        expect_hint(r, changed_recurrence(r.problem, off, {}), "l2norm", "q and k are not l2-normalised");
        expect_hint(
            r,
            changed_recurrence(r.problem, r.contract.value, {.decay = [](double g) { return std::exp(std::exp(g)); }}),
            "gate", "exp is applied twice to g");
    }
}

TEST_CASE("hint: a dump that is not finite from its first token on shows a pattern at most") {
    const GdnReference r = real_size(130);
    GdnOutputs nothing = r.truth;
    std::fill(nothing.out.begin(), nothing.out.end(), NAN);
    std::fill(nothing.final_state.begin(), nothing.final_state.end(), NAN);
    expect_hint(r, nothing, "solve", "values are not finite on ordinary gates");
}

TEST_CASE("hint: a negative g that is taken for alpha") {
    for (const std::int64_t tokens : {40, 130}) {
        const GdnReference r = real_size(tokens);
        REQUIRE(*std::max_element(r.problem.gate.begin(), r.problem.gate.end()) <= 0);
        expect_hint(r, changed_recurrence(r.problem, r.contract.value, {.decay = [](double g) { return g; }}), "gate",
                    "g is taken for alpha: its exp is never computed");
    }
}

TEST_CASE("hint: a state that is kept in bf16 from token to token") {
    GdnCase c;
    c.name = "long";
    c.dims = {1, 1000, 1, 1, 64, 64};
    c.seed = 5;
    c.gate = GateRecipe::constant;
    c.gate_value = -1e-4;
    const GdnReference r = reference_for(make_inputs(c));
    const auto kept =
        changed_recurrence(r.problem, r.contract.value, {.kept = [](double s) { return rounded_to(s, DType::bf16); }});
    expect_hint(r, kept, "rounding", "the state is kept in bf16 from token to token");
}

TEST_CASE("hint: a state that is lost, or S0 again, where a segment begins") {
    const GdnReference r = real_size(700);
    const auto lost = changed_recurrence(r.problem, r.contract.value, {.lost = [](std::size_t t) { return t == 512; }});
    expect_hint(r, lost, "carry", "chunk 8 is the first of a segment of 8 chunks");
    const auto sooner =
        changed_recurrence(r.problem, r.contract.value, {.lost = [](std::size_t t) { return t == 448; }});
    const GdnReport report = expect_hint(r, sooner, "carry", "the state is not carried");
    for (const Hint& hint : report.hints) CHECK(hint.text.find("segment") == std::string::npos);
}

TEST_CASE("hint: an out that is a multiple of the truth in some of the chunks") {
    const GdnReference r = real_size(200);
    GdnOutputs x = r.truth;
    const auto columns = r.truth.out.size() / 200;
    for (std::size_t i = 128 * columns; i < x.out.size(); ++i) x.out[i] *= 1.03;
    expect_hint(r, x, "scale", "out is 1.03 times the truth");
}

TEST_CASE("hint: a g that is taken for alpha where gates are raw, on G1") {
    const GdnReference r = reference_for(make_inputs(*find_gdn_case("g1")));
    REQUIRE(r.contract.value.g_kind == GateKind::raw);
    expect_hint(r, changed_recurrence(r.problem, r.contract.value, {.decay = [](double g) { return g; }}), "gate",
                "g is taken for alpha: its exp is never computed");
}

TEST_CASE("hint: a state that is lost at one boundary") {
    const GdnReference r = real_size(300);
    for (const std::size_t token : {64U, 128U, 256U}) {
        CAPTURE(token);
        const auto lost =
            changed_recurrence(r.problem, r.contract.value, {.lost = [token](std::size_t t) { return t == token; }});
        const GdnReport report =
            expect_hint(r, lost, "carry", "the state is not carried from chunk to chunk (0 again)");
        REQUIRE(report.place);
        CHECK(report.place->first_token == static_cast<std::int64_t>(token));
    }
}

TEST_CASE("hint: gates of the next token, in more chunks than are acted out") {
    const GdnReference r = real_size(400);
    GdnProblem moved = r.problem;
    const auto heads = static_cast<std::size_t>(moved.dims.Hv);
    std::copy(r.problem.gate.begin() + static_cast<std::ptrdiff_t>(heads), r.problem.gate.end(), moved.gate.begin());
    std::fill(moved.gate.end() - static_cast<std::ptrdiff_t>(heads), moved.gate.end(), 0.0);
    expect_hint(r, run_recurrent64(moved, r.contract.value, 2), "gate", "g is that of the next token");
}

namespace {

std::vector<double> exchanged(const std::vector<double>& x, std::int64_t tokens, std::int64_t heads,
                              std::int64_t width) {
    std::vector<double> moved;
    for (std::int64_t b = 0; b < static_cast<std::int64_t>(x.size()) / (tokens * heads * width); ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t t = 0; t < tokens; ++t) {
                for (std::int64_t i = 0; i < width; ++i)
                    moved.push_back(x[static_cast<std::size_t>(((b * tokens + t) * heads + h) * width + i)]);
            }
        }
    }
    return moved;
}

}  // namespace

TEST_CASE("hint: bytes with heads before tokens, in out and in inputs") {
    GdnCase batched;
    batched.name = "batched";
    batched.dims = {2, 70, 2, 4, 16, 8};
    batched.seed = 5;
    batched.contract = {"head_map=interleaved"};
    for (const GdnReference& r : {reference_for(make_inputs(batched)), real_size(130)}) {
        const GdnProblem& p = r.problem;
        const GdnDims& d = p.dims;
        CAPTURE(d.B);
        GdnOutputs written = r.truth;
        written.out = exchanged(r.truth.out, d.T, d.Hv, d.dv);
        expect_hint(r, written, "layout", "out is written as [B,H,T,D], heads before tokens");
        // Read so: what the kernel takes for token t of head h lies where the bytes of another are.
        const auto read = [&](std::vector<double>& x, std::int64_t heads, std::int64_t width) {
            x = exchanged(x, heads, d.T, width);
        };
        GdnProblem all = p;
        read(all.q, d.Hk, d.dk);
        read(all.k, d.Hk, d.dk);
        GdnProblem keys = all;
        read(all.v, d.Hv, d.dv);
        read(all.gate, d.Hv, 1);
        read(all.beta, d.Hv, 1);
        GdnProblem values = p;
        read(values.v, d.Hv, d.dv);
        const GdnContract& c = r.contract.value;
        expect_hint(r, run_recurrent64(keys, c, 2), "layout", "q and k are read as [B,H,T,D], heads before tokens");
        expect_hint(r, run_recurrent64(values, c, 2), "layout", "v is read as [B,H,T,D], heads before tokens");
        GdnOutputs both = run_recurrent64(all, c, 2);
        expect_hint(r, both, "layout", "q, k, v, g and beta are read as [B,H,T,D]");
        both.out = exchanged(both.out, d.T, d.Hv, d.dv);
        expect_hint(r, both, "layout", "heads before tokens, and out is written so");
    }
}

// Hints and places where some heads or sequences alone are wrong.

namespace {

GdnReference sized_heads(GdnDims dims, const std::vector<std::int64_t>& lengths = {}, double state = 0.3) {
    GdnCase c;
    c.name = "heads";
    c.dims = dims;
    c.seed = 61;
    c.state_scale = state;
    c.contract = {"head_map=interleaved"};
    for (const std::int64_t n : lengths) {
        if (c.cu_seqlens.empty()) c.cu_seqlens = {0};
        c.cu_seqlens.push_back(c.cu_seqlens.back() + n);
    }
    return reference_for(make_inputs(c));
}

std::string hint_lines(const GdnReport& report) {
    std::string text;
    for (const Hint& h : report.hints) text += h.text + "\n";
    return text;
}

// The wrong dump must be named so, at that stage.
void expect_named(const GdnReference& r, const GdnOutputs& wrong, std::string_view stage, std::string_view text) {
    const GdnReport report = judged(r, outputs_of(r, wrong));
    const std::string hints = hint_lines(report);
    CAPTURE(hints);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == stage);
    CHECK(hints.find(text) != std::string::npos);
}

std::size_t size_of_state(const GdnReference& r) {
    return static_cast<std::size_t>(r.problem.dims.dk * r.problem.dims.dv);
}

// An element of out (row: token) or of final_state.
struct Site {
    std::int64_t sequence, head, row, column;
};

// The results if the initial state of head i were that of head from[i].
GdnOutputs with_states_of(const GdnReference& r, const std::vector<std::size_t>& from) {
    GdnProblem p = r.problem;
    const std::size_t size = size_of_state(r);
    for (std::size_t head = 0; head < from.size(); ++head) {
        std::copy_n(r.problem.initial_state.begin() + static_cast<std::ptrdiff_t>(from[head] * size), size,
                    p.initial_state.begin() + static_cast<std::ptrdiff_t>(head * size));
    }
    return run_recurrent64(p, r.contract.value, 2);
}

}  // namespace

TEST_CASE("hint: packed sequences whose state is never reset") {
    for (const std::vector<std::int64_t>& lengths :
         std::vector<std::vector<std::int64_t>>{{16, 32, 8}, {16, 32, 8, 64}, {100, 100, 100}}) {
        for (const double state : {0.0, 0.3}) {
            std::int64_t total = 0;
            for (const std::int64_t n : lengths) total += n;
            const GdnReference r = sized_heads({1, total, 2, 4, 16, 8}, lengths, state);
            GdnProblem p = r.problem;
            GdnOutputs leaked = r.truth;
            const std::size_t row = size_of_state(r) * 4;
            p.initial_state.resize(row * lengths.size(), 0);
            for (std::size_t n = 0; n < lengths.size(); ++n) {
                leaked = run_recurrent64(p, r.contract.value, 2);
                if (n + 1 == lengths.size()) break;
                std::copy_n(leaked.final_state.begin() + static_cast<std::ptrdiff_t>(n * row), row,
                            p.initial_state.begin() + static_cast<std::ptrdiff_t>((n + 1) * row));
            }
            const GdnReport report = judged(r, outputs_of(r, leaked));
            const std::string hints = hint_lines(report);
            CAPTURE(hints);
            CHECK(report.stage == "carry");
            const bool named = hints.find("the state is carried through the whole pack") != std::string::npos ||
                               hints.find("starts from the final state of the one before") != std::string::npos;
            CHECK(named);
        }
    }
}

TEST_CASE("hint: initial states of other heads and sequences") {
    const std::string_view text = "the initial state is that of another head or sequence";
    for (const std::int64_t tokens : {40, 200}) {
        const GdnReference heads = sized_heads({1, tokens, 4, 4, 16, 16});
        expect_named(heads, with_states_of(heads, {1, 0, 2, 3}), "carry", text);
        expect_named(heads, with_states_of(heads, {1, 2, 3, 0}), "carry", text);
        expect_named(heads, with_states_of(heads, {0, 0, 0, 0}), "carry", text);
        expect_named(heads, with_states_of(heads, {0, 1, 2, 1}), "carry", "(value head 1)");
    }
    const GdnReference rows = sized_heads({3, 40, 2, 2, 16, 16});
    expect_named(rows, with_states_of(rows, {2, 3, 4, 5, 0, 1}), "carry", text);
    expect_named(rows, with_states_of(rows, {0, 1, 4, 3, 4, 5}), "carry", "(sequence 2, value head 0)");
}

TEST_CASE("hint: a final state that is transposed in some heads alone") {
    for (const std::int64_t dv : {16, 8}) {
        const GdnReference r = sized_heads({2, 70, 2, 4, 16, dv});
        const std::size_t dk = 16;
        const auto width = static_cast<std::size_t>(dv);
        for (const std::vector<std::size_t>& heads : std::vector<std::vector<std::size_t>>{{6}, {4, 5, 6, 7}}) {
            GdnOutputs wrong = r.truth;
            for (const std::size_t head : heads) {
                for (std::size_t i = 0; i < dk; ++i) {
                    for (std::size_t j = 0; j < width; ++j) {
                        wrong.final_state[head * dk * width + j * dk + i] =
                            r.truth.final_state[head * dk * width + i * width + j];
                    }
                }
            }
            expect_named(r, wrong, "layout",
                         heads.size() == 1 ? "(sequence/head) 1/2 alone" : "1/0, 1/1, 1/2, 1/3 alone");
        }
    }
}

TEST_CASE("place: of a gradient that is wrong in one value head of a group, that head is named") {
    GdnReference r = sized_heads({1, 100, 2, 8, 16, 16});
    TensorFile dump = outputs_of(r, r.truth);
    const GdnCotangents cotangents = random_cotangents(r.problem, 7);
    const TensorFile given = cotangents_file(r.problem, r.contract.value, cotangents);
    // Value head 6 without its decay, in the backward pass alone.
    GdnProblem undecayed = r.problem;
    for (std::size_t i = 6; i < undecayed.gate.size(); i += 8) undecayed.gate[i] = 0;
    const GdnGradients wrong = run_adjoint64(undecayed, r.contract.value, cotangents, 2);
    const GdnGradients right = run_adjoint64(r.problem, r.contract.value, cotangents, 2);
    const auto judged_with = [&](bool value_heads) {
        GdnGradients g = value_heads ? wrong : right;
        g.dq = wrong.dq;
        g.dk = wrong.dk;
        TensorFile all = dump;
        for (auto& t : gradients_file(r.problem, r.contract.value, g, DType::f32, DType::f32).tensors) {
            all.tensors.push_back(t);
        }
        GdnReference with = r;
        REQUIRE(add_backward(with, given, all, 2));
        return judged(with, all);
    };
    const GdnReport report = judged_with(true);
    REQUIRE(report.place);
    CHECK(report.backward_fault);
    CHECK(report.place->heads == std::vector<std::int64_t>{6});
    CHECK(report.place->first_head == 6);
    const bool of_key_head = report.place->tensor == "dq" || report.place->tensor == "dk";
    CHECK_FALSE(of_key_head);
    const GdnReport keys = judged_with(false);
    REQUIRE(keys.place);
    CHECK(keys.place->heads == std::vector<std::int64_t>{4, 5, 6, 7});
    CHECK(keys.place->first_head == 1);
}

TEST_CASE("hint: a tensor of zeros is called that") {
    const GdnReference r = sized_heads({1, 100, 2, 4, 16, 16});
    GdnOutputs zeros = r.truth;
    std::fill(zeros.out.begin(), zeros.out.end(), 0.0);
    expect_named(r, zeros, "output", "out is exactly 0 throughout");
    zeros = r.truth;
    std::fill(zeros.final_state.begin(), zeros.final_state.end(), 0.0);
    expect_named(r, zeros, "carry", "final_state is exactly 0 throughout");
    std::fill(zeros.out.begin(), zeros.out.end(), 0.0);
    expect_named(r, zeros, "output", "out and final_state are exactly 0 throughout");
}

TEST_CASE("hint: what is exactly 0 of out and final_state is named, before any theory") {
    const auto clear = [](GdnOutputs& x, const GdnReference& r, const std::function<bool(Site)>& out,
                          const std::function<bool(Site)>& state) {
        const auto& d = r.problem.dims;
        for (std::size_t i = 0; i < x.out.size(); ++i) {
            const auto n = static_cast<std::int64_t>(i);
            const std::int64_t row = n / d.dv / d.Hv;
            if (out({row / d.T, n / d.dv % d.Hv, row % d.T, n % d.dv})) x.out[i] = 0;
        }
        for (std::size_t i = 0; i < x.final_state.size(); ++i) {
            const auto n = static_cast<std::int64_t>(i);
            const std::int64_t sequence_head = n / d.dv / d.dk;
            if (state({sequence_head / d.Hv, sequence_head % d.Hv, n / d.dv % d.dk, n % d.dv})) x.final_state[i] = 0;
        }
    };
    struct Zeros {
        std::string_view text, stage;
        std::function<bool(Site)> out, state;
    };
    const auto never = [](Site) { return false; };
    const auto head_1 = [](Site l) { return l.head == 1; };
    const auto batch_1 = [](Site l) { return l.sequence == 1; };
    const GdnReference r = sized_heads({2, 130, 2, 4, 16, 16});
    for (const Zeros& z : {
             Zeros{"out and final_state of value head 1 are exactly 0", "tile", head_1, head_1},
             {"out and final_state of batch row 1 are exactly 0", "tile", batch_1, batch_1},
             {"out of batch row 1 is exactly 0", "tile", batch_1, never},
             {"final_state of value head 1 is exactly 0", "carry", never, head_1},
             {"final_state is exactly 0 in 1 of 16 rows (row 15)", "tile", never, [](Site l) { return l.row == 15; }},
             {"out is exactly 0 in 8 of 16 columns of v (columns 8 to 15)", "tile",
              [](Site l) { return l.column >= 8; }, never},
             {"out is exactly 0 in 520 rows (first in sequence 0, value head 0, tokens t with t % 2 = 0)", "tile",
              [](Site l) { return l.row % 2 == 0; }, never},
             {"out is exactly 0 in 256 rows (first in sequence 0, value head 0, tokens t with t % 64 from 48 to 63)",
              "tile", [](Site l) { return l.row % 64 >= 48; }, never},
             {"tokens 3, 10 to 12, 77): consistent with rows that were never written", "tile",
              [](Site l) { return l.row == 3 || (l.row >= 10 && l.row <= 12) || l.row == 77; }, never},
         }) {
        CAPTURE(z.text);
        GdnOutputs x = r.truth;
        clear(x, r, z.out, z.state);
        expect_named(r, x, z.stage, z.text);
        CHECK(judged(r, outputs_of(r, x)).hints.front().text.find("exactly 0") != std::string::npos);
    }
}

TEST_CASE("hint: alpha in the place of g makes the inputs unstable, and is recognised") {
    for (const GateRecipe recipe : {GateRecipe::both_signs, GateRecipe::constant}) {
        GdnCase c;
        c.name = "alpha";
        c.dims = {1, 200, 2, 2, 16, 16};
        c.contract = {"g_kind=alpha"};
        c.gate = recipe;  // both_signs: some factors are above 1
        c.gate_value = -0.05;
        const TensorFile inputs = make_inputs(c);
        const GdnReference right = reference_for(inputs);
        const GdnReference wrong = reference_for(inputs, "marin", {"g_kind=log"});
        const GdnReport report = judged(wrong, outputs_of(wrong, right.truth));
        CHECK(report.verdict == Verdict::unstable_input);
        CHECK(hint_lines(report).find("matches if g is alpha") == 0);
        const std::string other = hint_lines(judged(wrong, outputs_of(wrong, wrong.truth)));
        if (recipe == GateRecipe::constant) CHECK(other.starts_with("every g lies within 0 and 1"));
    }
}
