#include "oracle/gdn/compare/backward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "oracle/gdn/compare/backward_budget.h"
#include "oracle/gdn/contract/gradients.h"

namespace gdnctl::oracle {

namespace {

struct Gradient {
    std::string_view name;
    std::string_view of;  // the input
    const std::vector<double>& (*values)(const GdnGradients&);
    std::string_view axes;
    bool at_inputs = false;  // of a gate or beta as given: judged if the dump has it, not reported as missing otherwise
};

constexpr std::array k_gradients = {
    Gradient{"dq", "q", [](const GdnGradients& g) -> const std::vector<double>& { return g.dq; }, "b,t,h,k"},
    Gradient{"dk", "k", [](const GdnGradients& g) -> const std::vector<double>& { return g.dk; }, "b,t,h,k"},
    Gradient{"dv", "v", [](const GdnGradients& g) -> const std::vector<double>& { return g.dv; }, "b,t,h,v"},
    Gradient{"dg", "g", [](const GdnGradients& g) -> const std::vector<double>& { return g.dg; }, "b,t,h"},
    Gradient{"dbeta", "beta", [](const GdnGradients& g) -> const std::vector<double>& { return g.dbeta; }, "b,t,h"},
    Gradient{"d_initial_state", "initial_state",
             [](const GdnGradients& g) -> const std::vector<double>& { return g.d_initial_state; }, "b,h,k,v"},
    Gradient{"d_alpha", "g", [](const GdnGradients& g) -> const std::vector<double>& { return g.d_gate; }, "b,t,h",
             true},
    Gradient{"d_a", "a", [](const GdnGradients& g) -> const std::vector<double>& { return g.d_gate; }, "b,t,h", true},
    Gradient{"d_b", "b", [](const GdnGradients& g) -> const std::vector<double>& { return g.d_logit; }, "b,t,h", true},
    Gradient{"d_A_log", "A_log", [](const GdnGradients& g) -> const std::vector<double>& { return g.dA_log; }, "h",
             true},
    Gradient{"d_dt_bias", "dt_bias", [](const GdnGradients& g) -> const std::vector<double>& { return g.ddt_bias; },
             "h", true},
};

// Runs of a per-token tensor by (sequence, head); rows outside all sequences are the last group.
Groups token_groups(const GdnProblem& p, std::size_t heads, std::size_t width) {
    const std::size_t outside = p.sequences.size() * heads;
    Groups groups{std::vector<std::size_t>(static_cast<std::size_t>(p.rows()) * heads, outside), width, outside + 1};
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        const auto begin = static_cast<std::size_t>(p.sequences[n].begin);
        const auto end = static_cast<std::size_t>(p.sequences[n].end);
        for (std::size_t run = begin * heads; run < end * heads; ++run) groups.of_run[run] = n * heads + run % heads;
    }
    return groups;
}

void describe(GradientTruth& t, const GdnReference& r) {
    const GdnProblem& p = r.problem;
    const auto tokens = [&](std::int64_t heads, std::int64_t width) {
        t.shape = width > 0 ? token_shape(p, {heads, width}) : token_shape(p, {heads});
        t.groups = token_groups(p, static_cast<std::size_t>(heads),
                                static_cast<std::size_t>(std::max<std::int64_t>(width, 1)));
    };
    if (t.canonical == "dq" || t.canonical == "dk") {
        tokens(p.dims.Hk, p.dims.dk);
    } else if (t.canonical == "dv") {
        tokens(p.dims.Hv, p.dims.dv);
    } else if (t.canonical == "d_A_log" || t.canonical == "d_dt_bias") {
        t.shape = {p.dims.Hv};
        t.groups = {std::vector<std::size_t>(static_cast<std::size_t>(p.dims.Hv), 0), 1, 1};
    } else if (t.canonical == "d_initial_state") {
        t.shape = state_shape(p, r.contract.value.state_layout);
        t.groups = groups_of_state(p);
    } else {
        tokens(p.dims.Hv, 0);
    }
}

// The values of a cotangent in canonical axes; empty if neither file has it.
Result<std::vector<double>> cotangent(const TensorFile& inputs, const TensorFile& dump, std::string_view name,
                                      const Shape& shape) {
    GDNCTL_TRY_ASSIGN(const Tensor* tensor, find_gdn_tensor(inputs, name));
    if (tensor == nullptr) {
        GDNCTL_TRY_ASSIGN(tensor, find_gdn_tensor(dump, name));
    }
    if (tensor == nullptr) return std::vector<double>{};
    if (tensor->shape != shape || !is_floating(tensor->dtype)) {
        return fail(ErrorKind::bad_input, fmt::format("tensor '{}': expected {} {}, got {} {}", name, text_of(shape),
                                                      is_floating(tensor->dtype) ? name_of(tensor->dtype) : "float32",
                                                      text_of(tensor->shape), name_of(tensor->dtype)));
    }
    return to_f64(*tensor);
}

bool has_gradient(const TensorFile& dump) {
    return dump.any_name([](std::string_view name) { return canonical_name(name).role == GdnRole::gradient; });
}

bool holds_gradient(const TensorFile& dump, std::string_view name, const GdnContract& c) {
    return dump.any_name([&](std::string_view other) { return name_in_dump(dump, other, c).canonical == name; });
}

// Whether the contract has an input for this gradient, and the dump contains it.
bool means_something(std::string_view name, const GdnContract& c, const TensorFile& dump) {
    const bool there = holds_gradient(dump, name, c);
    if (name == "d_alpha") return there && c.g_kind == GateKind::alpha;
    if (name == "d_b") return there && c.beta_kind != BetaKind::prob;
    return there && c.g_kind == GateKind::raw;
}

// If an output has 16 bits, so had its cotangent; if it has more digits than its contract gives it, its cotangent was
// not rounded.
DType dtype_of_out(const GdnReference& r, const TensorFile& dump) {
    const DType declared = out_dtype_of(r.contract.value, r.problem);
    const auto found = find_gdn_tensor(dump, "out");
    if (!found || *found == nullptr) return declared;
    if ((*found)->dtype == DType::bf16 || (*found)->dtype == DType::f16) return (*found)->dtype;
    return held_by(to_f64(**found), declared) ? declared : DType::f32;
}

}  // namespace

std::vector<std::string_view> gradient_names() {
    std::vector<std::string_view> names;
    for (const Gradient& g : k_gradients) {
        if (!g.at_inputs) names.push_back(g.name);
    }
    return names;
}

bool held_by(const std::vector<double>& values, DType dtype) {
    return std::all_of(values.begin(), values.end(),
                       [&](double x) { return !std::isfinite(x) || rounded_to(x, dtype) == x; });
}

const GradientTruth* GdnBackward::find(std::string_view canonical) const {
    for (const GradientTruth& t : truths) {
        if (t.canonical == canonical) return &t;
    }
    return nullptr;
}

double rms_difference(const std::vector<double>& got, const std::vector<double>& want) {
    double sum = 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        if (!std::isfinite(want[i])) continue;
        const double error = got[i] - want[i];
        sum += std::isfinite(error) ? error * error : HUGE_VAL;
        ++count;
    }
    return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

namespace {

Result<GdnCotangents> read_cotangents_of(const GdnReference& r, const TensorFile& inputs, const TensorFile& dump) {
    const GdnProblem& p = r.problem;
    GdnCotangents c;
    GDNCTL_TRY_ASSIGN(auto d_out, cotangent(inputs, dump, "d_out", out_shape(p)));
    c.d_out = from_file_order(p, std::move(d_out), p.dims.Hv);
    GDNCTL_TRY_ASSIGN(c.d_final_state,
                      cotangent(inputs, dump, "d_final_state", state_shape(p, r.contract.value.state_layout)));
    if (c.d_out.empty() && !c.d_final_state.empty()) c.d_out.assign(p.v.size(), 0.0);
    if (r.contract.value.state_layout == StateLayout::value_key) {
        GdnDims swapped = p.dims;
        std::swap(swapped.dk, swapped.dv);
        c.d_final_state = to_layout(c.d_final_state, swapped, StateLayout::value_key);
    }
    return c;
}

Result<GdnBackward> backward_of(const GdnReference& r, const TensorFile& inputs, const TensorFile& dump,
                                GdnCotangents cotangents, int threads) {
    const GdnProblem& p = r.problem;
    const GdnContract& c = r.contract.value;
    GdnBackward b;
    b.cotangents = std::move(cotangents);
    b.gradients = run_adjoint64(p, c, b.cotangents, threads);
    for (const Gradient& gradient : k_gradients) {
        if (gradient.name == "d_initial_state" && p.initial_state.empty() && !holds_gradient(dump, gradient.name, c)) {
            continue;
        }
        if (gradient.at_inputs && !means_something(gradient.name, c, dump)) continue;
        GradientTruth t{std::string(gradient.name), gradient.axes, {}, gradient.values(b.gradients), {}, {}};
        GDNCTL_TRY_ASSIGN(const Tensor* input, find_gdn_tensor(inputs, gradient.of));
        if (input != nullptr) t.input = input->dtype;
        describe(t, r);
        b.truths.push_back(std::move(t));
    }
    std::vector<MeasuredGradient> measured;
    for (GradientTruth& t : b.truths) {
        const auto gradient = std::find_if(k_gradients.begin(), k_gradients.end(),
                                           [&](const Gradient& g) { return g.name == t.canonical; });
        measured.push_back({&t, gradient->values});
    }
    budget_gradients(r, b, measured, threads);
    return b;
}

// How well the gradients in the dump agree with the truth.
struct Agreement {
    std::size_t right = 0;  // how many are OK
    double error = 0;       // of all together, in budgets; ignores those that are not finite

    bool better_than(const Agreement& other) const {
        return right != other.right ? right > other.right : error < other.error;
    }
};

Agreement agreement_with(const GdnReference& r, const TensorFile& dump, int threads) {
    CompareOptions options;
    options.hints = false;
    options.threads = threads;
    const auto report = judge(r, dump, options);
    Agreement agreement;
    for (std::size_t i = 0; report && i < report->tensors.size(); ++i) {
        const TensorReport& t = report->tensors[i];
        if (r.backward->find(t.canonical) == nullptr) continue;
        if (t.verdict == Verdict::ok) ++agreement.right;
        if (std::isfinite(t.error_over_budget)) agreement.error += t.error_over_budget;
    }
    return agreement;
}

}  // namespace

Status add_backward(GdnReference& r, const TensorFile& inputs, const TensorFile& dump, int threads) {
    if (!has_gradient(dump)) return {};
    GDNCTL_TRY(check_gradients(r.problem));
    GDNCTL_TRY_ASSIGN(auto given, read_cotangents_of(r, inputs, dump));
    if (given.d_out.empty()) return {};
    const DType out = dtype_of_out(r, dump);
    GdnCotangents rounded = given;
    if (!round_cotangent(rounded, out)) {
        GDNCTL_TRY_ASSIGN(auto only, backward_of(r, inputs, dump, std::move(given), threads));
        r.backward = std::make_shared<const GdnBackward>(std::move(only));
        return {};
    }
    // Automatic differentiation rounds d_out if out was rounded; a custom backward pass may use it unrounded.
    GDNCTL_TRY_ASSIGN(auto narrow, backward_of(r, inputs, dump, std::move(rounded), threads));
    narrow.d_out = CotangentUse::rounded;
    narrow.d_out_dtype = out;
    r.backward = std::make_shared<const GdnBackward>(std::move(narrow));
    const Agreement agreement = agreement_with(r, dump, threads);
    GDNCTL_TRY_ASSIGN(auto wide, backward_of(r, inputs, dump, std::move(given), threads));
    wide.d_out = CotangentUse::as_given;
    const auto before = std::exchange(r.backward, std::make_shared<const GdnBackward>(std::move(wide)));
    if (!agreement_with(r, dump, threads).better_than(agreement)) r.backward = before;
    return {};
}

bool cotangent_rounded(const GdnReference& reference) {
    return reference.backward && reference.backward->d_out == CotangentUse::rounded;
}

std::string cotangent_used(const GdnReference& reference) {
    if (!reference.backward || reference.backward->d_out == CotangentUse::no_choice) return {};
    if (reference.backward->d_out == CotangentUse::as_given) return "d_out as given";
    return fmt::format("d_out rounded to {}", name_of(reference.backward->d_out_dtype));
}

}  // namespace gdnctl::oracle
