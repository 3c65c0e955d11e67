#include "oracle/compare/backward.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "gdnctl/oracle/backward32.h"
#include "gdnctl/oracle/gdn_gradients.h"
#include "oracle/compare/condition.h"
#include "oracle/compare/perturb.h"
#include "oracle/kernels/adjoint_chain.h"
#include "oracle/kernels/prepare.h"

namespace gdnctl::oracle {

namespace {

// What fp32 backward passes may cost beyond moving every input by one roundoff. Measured: tests/calibration.
constexpr double k_backward_allowance = 4;
// Keys of so few dimensions are never far from parallel: chunked forms lose more, by chance, than these measurements
// see. Seen honestly, in chunks of 64: 8.4 times the budget with dk = 3, 6.0 with 4, 3.8 with 8.
constexpr std::int64_t k_narrow_key = 8;
constexpr double k_narrow_widening = 3;
// How far our own fp32 backward may widen that: it sees what is lost inside the state, but it may have a defect.
constexpr double k_own_allowance = 30;

GdnGradients run_perturbed(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents,
                           double amount, std::uint64_t salt, int threads) {
    GdnProblem moved = problem;
    GdnCotangents pulled = cotangents;
    for (auto* values : {&moved.q, &moved.k, &moved.v, &moved.beta, &moved.gate, &moved.initial_state, &pulled.d_out,
                         &pulled.d_final_state}) {
        perturb(*values, amount, salt++ * 0x9E3779B97F4A7C15ULL);
    }
    return run_adjoint64(moved, contract, pulled, threads);
}

// Gates as chunked forms see them: differences of their fp32 sums inside a chunk. Beyond -2e4 the sum starts anew, as
// in the budget of the forward pass.
GdnGradients run_with_fp32_sums(const GdnProblem& problem, const GdnContract& contract, const GdnCotangents& cotangents,
                                int threads) {
    GdnProblem summed = problem;
    GdnContract log = contract;
    log.g_kind = GateKind::log;
    summed.gate = log_gates(problem, contract);
    const auto heads = static_cast<std::size_t>(problem.dims.Hv);
    for (const GdnSequence& s : problem.sequences) {
        for (std::size_t h = 0; h < heads; ++h) {
            float sum = 0;
            for (std::int64_t row = s.begin; row < s.end; ++row) {
                double& g = summed.gate[static_cast<std::size_t>(row) * heads + h];
                if ((row - s.begin) % contract.chunk == 0 || !(g > -2e4)) sum = 0;
                if (!(g > -2e4)) continue;
                const float next = sum + static_cast<float>(g);
                g = static_cast<double>(next) - static_cast<double>(sum);
                sum = next;
            }
        }
    }
    GdnGradients gradients = run_adjoint64(summed, log, cotangents, threads);
    // From there to gates as they were given.
    const auto given = prepare<double>(problem, contract, threads);
    finish_gradients(problem, contract, given.g, given.beta, gradients);
    return gradients;
}

// What each gradient that flows through a gate is measured against where it cancels: dg is a difference of large sums
// in every chunked form, and they are of the size of dbeta. That size, through the gates; sums over tokens in
// quadrature.
GdnGradients sizes_at_gates(const GdnProblem& problem, const GdnContract& contract, const GdnGradients& truth) {
    GdnGradients sizes;
    sizes.dg = truth.dbeta;
    const std::vector<double> g = log_gates(problem, contract);
    through_gates(problem, contract, g, sizes);
    std::fill(sizes.dA_log.begin(), sizes.dA_log.end(), 0);
    std::fill(sizes.ddt_bias.begin(), sizes.ddt_bias.end(), 0);
    for (std::size_t i = 0; i < sizes.d_gate.size() && !sizes.dA_log.empty(); ++i) {
        if (contract.exp_clip && contract.exp_clip->cuts(g[i])) continue;
        const std::size_t head = i % sizes.dA_log.size();
        const double at_decay = sizes.dg[i] * g[i];
        if (std::isfinite(at_decay)) sizes.dA_log[head] = std::hypot(sizes.dA_log[head], at_decay);
        if (std::isfinite(sizes.d_gate[i])) sizes.ddt_bias[head] = std::hypot(sizes.ddt_bias[head], sizes.d_gate[i]);
    }
    return sizes;
}

// What each value of dq or dk is measured against where the l2norm takes nearly all of it away: dy - y (y.dy) is of
// the size of what is left, and each of its two terms was rounded. `x`: the vectors as given; `along`: see
// GdnGradients.
std::vector<double> sizes_at_norm(const GdnContract& contract, std::size_t width, const std::vector<double>& x,
                                  const std::vector<double>& along, std::vector<double> gradient) {
    for (std::size_t at = 0; at < gradient.size() && !along.empty(); at += width) {
        if (along[at / width] == 0) continue;
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) squares += x[at + i] * x[at + i];
        const double factor = along[at / width] / std::sqrt(squares + contract.eps);
        for (std::size_t i = 0; i < width; ++i) gradient[at + i] = std::hypot(gradient[at + i], factor * x[at + i]);
    }
    return along.empty() ? std::vector<double>() : gradient;
}

struct Gradient {
    std::string_view name;
    std::string_view of;  // the input
    const std::vector<double>& (*values)(const GdnGradients&);
    std::string_view axes;
    bool at_inputs = false;  // of a gate or beta as given: judged where the dump has it, not missed where it has not
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

// Runs of a per-token tensor by (sequence, head); rows outside every sequence are the last group.
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
        Shape shape = p.packed ? Shape{p.dims.T} : Shape{p.dims.B, p.dims.T};
        shape.push_back(heads);
        if (width > 0) shape.push_back(width);
        t.shape = shape;
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

// `floors`: sums of the sizes that a gradient is measured against where it cancels; empty for one that does not.
TensorBudget budget_of(const std::vector<std::vector<GroupSums>>& runs, const std::vector<GroupSums>& own,
                       const std::vector<GroupSums>& floors, double roundoff) {
    TensorBudget budget;
    const std::size_t count = runs.front().size();
    const auto floor_of = [&](std::size_t g) { return floors.empty() ? 0 : floors[g].truth_rms(); };
    budget.groups.resize(count);
    double errors = 0;
    double squares = 0;
    double max_error = 0;
    double max_truth = 0;
    for (std::size_t g = 0; g < count; ++g) {
        GroupBudget& b = budget.groups[g];
        for (const auto& run : runs) {
            b.rms = std::max(b.rms, k_backward_allowance * run[g].error_rms());
            b.max_abs = std::max(b.max_abs, k_backward_allowance * run[g].max_error);
        }
        const double size = std::max(runs.front()[g].truth_rms(), floor_of(g));
        errors += b.rms * b.rms * static_cast<double>(runs.front()[g].count);
        squares += size * size * static_cast<double>(runs.front()[g].count);
        max_error = std::max(max_error, b.max_abs);
        max_truth = std::max({max_truth, runs.front()[g].max_truth, size});
    }
    budget.relative = squares > 0 ? std::sqrt(errors / squares) : 0;
    for (std::size_t g = 0; g < count; ++g) {
        const GroupSums& truth = runs.front()[g];
        const double floor = floor_of(g);
        const double size = std::max(truth.truth_rms(), floor);
        const double largest = std::max(truth.max_truth, 4 * floor);
        const double trace = 1e-37 + 0x1p-40 * max_truth;
        GroupBudget& b = budget.groups[g];
        if (truth.count < 256) {
            b.rms = std::max(b.rms, budget.relative * size);
            b.max_abs = std::max(b.max_abs, max_truth > 0 ? max_error / max_truth * largest : 0);
        }
        b.rms = std::max({b.rms, 4 * roundoff * size, trace});
        b.max_abs = std::max({b.max_abs, 8 * roundoff * largest, trace});
        // An error that is not finite is a defect.
        if (!std::isfinite(own[g].error_rms())) continue;
        b.rms = std::max(b.rms, std::min(own[g].error_rms(), k_own_allowance * b.rms));
        b.max_abs = std::max(b.max_abs, std::min(own[g].max_error, k_own_allowance * b.max_abs));
    }
    budget.relative = std::max(budget.relative, 4 * roundoff);
    return budget;
}

// The values of a cotangent in canonical axes; empty when neither file has it.
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
    return std::any_of(dump.tensors.begin(), dump.tensors.end(),
                       [](const NamedTensor& t) { return canonical_name(t.name).role == GdnRole::gradient; });
}

bool holds_gradient(const TensorFile& dump, std::string_view name, const GdnContract& c) {
    return std::any_of(dump.tensors.begin(), dump.tensors.end(),
                       [&](const NamedTensor& t) { return name_in_dump(dump, t.name, c).canonical == name; });
}

// Whether the contract has an input of which this is the gradient, and the dump holds it.
bool means_something(std::string_view name, const GdnContract& c, const TensorFile& dump) {
    const bool there = holds_gradient(dump, name, c);
    if (name == "d_alpha") return there && c.g_kind == GateKind::alpha;
    if (name == "d_b") return there && c.beta_kind != BetaKind::prob;
    return there && c.g_kind == GateKind::raw;
}

// An output in 16 bits had its cotangent rounded to them too; one with more digits than its contract gives it had not.
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

Status add_backward(GdnReference& r, const TensorFile& inputs, const TensorFile& dump, int threads) {
    if (!has_gradient(dump)) return {};
    const GdnProblem& p = r.problem;
    GDNCTL_TRY(check_gradients(p));
    GdnBackward b;
    GDNCTL_TRY_ASSIGN(b.cotangents.d_out, cotangent(inputs, dump, "d_out", out_shape(p)));
    GDNCTL_TRY_ASSIGN(b.cotangents.d_final_state,
                      cotangent(inputs, dump, "d_final_state", state_shape(p, r.contract.value.state_layout)));
    if (b.cotangents.d_out.empty() && b.cotangents.d_final_state.empty()) return {};
    if (b.cotangents.d_out.empty()) b.cotangents.d_out.assign(p.v.size(), 0.0);
    if (r.contract.value.state_layout == StateLayout::value_key) {
        GdnDims swapped = p.dims;
        std::swap(swapped.dk, swapped.dv);
        b.cotangents.d_final_state = to_layout(b.cotangents.d_final_state, swapped, StateLayout::value_key);
    }
    b.rounded_cotangent = round_cotangent(b.cotangents, dtype_of_out(r, dump));
    const GdnContract& c = r.contract.value;
    const double roundoff = roundoff_of(c.matmul);
    b.gradients = run_adjoint64(p, c, b.cotangents, threads);
    const std::array runs = {run_perturbed(p, c, b.cotangents, roundoff, 1, threads),
                             run_perturbed(p, c, b.cotangents, roundoff, 101, threads),
                             run_with_fp32_sums(p, c, b.cotangents, threads)};
    const GdnGradients own = run_backward32(p, c, b.cotangents, threads);
    GdnGradients sizes = sizes_at_gates(p, c, b.gradients);
    const auto width = static_cast<std::size_t>(p.dims.dk);
    sizes.dq = sizes_at_norm(c, width, p.q, b.gradients.q_along, b.gradients.dq);
    sizes.dk = sizes_at_norm(c, width, p.k, b.gradients.k_along, b.gradients.dk);
    // They pass through (I + M)^-1 and through its transpose: what a large one costs is met twice. Seen: levanter's
    // d_initial_state, on one key with beta = 2, 4.9 times beyond the budget on one processor and 19.8 on another.
    std::vector<double> widening = r.widening;
    for (double& factor : widening) factor = factor > 1 ? 2 * factor : factor;
    if (p.dims.dk < k_narrow_key) {
        for (double& factor : widening) factor *= k_narrow_widening;
    }
    for (const Gradient& gradient : k_gradients) {
        if (gradient.name == "d_initial_state" && p.initial_state.empty() && !holds_gradient(dump, gradient.name, c)) {
            continue;
        }
        if (gradient.at_inputs && !means_something(gradient.name, c, dump)) continue;
        GradientTruth t{std::string(gradient.name), gradient.axes, {}, gradient.values(b.gradients), {}, {}};
        GDNCTL_TRY_ASSIGN(const Tensor* input, find_gdn_tensor(inputs, gradient.of));
        if (input != nullptr) t.input = input->dtype;
        describe(t, r);
        std::vector<std::vector<GroupSums>> sums;
        for (const GdnGradients& run : runs) sums.push_back(sum_groups(t.groups, gradient.values(run), t.want));
        const std::vector<double>& size = gradient.values(sizes);
        t.budget = budget_of(sums, sum_groups(t.groups, gradient.values(own), t.want),
                             size.empty() ? std::vector<GroupSums>{} : sum_groups(t.groups, size, size), roundoff);
        const bool by_key_head = t.canonical == "dq" || t.canonical == "dk";
        widen(t.budget, widening, t.axes != "h" && (!by_key_head || p.dims.Hk == p.dims.Hv));
        b.truths.push_back(std::move(t));
    }
    r.backward = std::make_shared<const GdnBackward>(std::move(b));
    return {};
}

bool cotangent_rounded(const GdnReference& reference) {
    return reference.backward && reference.backward->rounded_cotangent;
}

}  // namespace gdnctl::oracle
