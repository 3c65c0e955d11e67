// Every automatic hint, proven by injecting exactly that fault on G1 and on heads of 64 dimensions, and asking for
// exactly that hint: first, with nothing beside it but what fits as well.
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

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
