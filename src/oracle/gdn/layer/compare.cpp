// The verdict on a layer's tensors. Truths and correct variants are files with the same tensors, so that one rule
// judges all: an error is measured group by group, in units of the variants' errors.
#include <algorithm>

#include <fmt/format.h>

#include "oracle/gdn/compare/groups.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/layer_inputs/layer_parts.h"
#include "oracle/judge/metrics.h"

namespace gdnctl::oracle {

namespace {

struct Kind {
    std::string_view name, stage, axes;
    int group_axes;  // leading axes across which no error is averaged, except tokens
};

// In the order of computation; the first wrong one shows the place. Gradients in the order in which they are computed.
constexpr Kind k_kinds[] = {
    {"conv_out", "conv", "b,t,c", 1},
    {"final_conv_state", "conv_state", "b,c,j", 1},
    {"g", "gate", "b,t,h", 0},
    {"beta", "beta", "b,t,h", 0},
    {"core_out", "core", "b,t,h,v", 2},
    {"final_state", "core", "b,h,k,v", 2},
    {"out", "norm", "b,t,h,v", 2},
    {"dz", "dz", "b,t,h,v", 2},
    {"d_norm_weight", "d_norm_weight", "v", 0},
    {"d_initial_state", "core_backward", "b,h,k,v", 2},
    {"d_b", "core_backward", "b,t,h", 0},
    {"d_a", "core_backward", "b,t,h", 0},
    {"d_ba", "core_backward", "b,t,h", 0},
    {"d_A_log", "d_A_log", "h", 0},
    {"d_dt_bias", "d_dt_bias", "h", 0},
    {"dq", "conv_backward", "b,t,h,k", 2},
    {"dk", "conv_backward", "b,t,h,k", 2},
    {"dv", "conv_backward", "b,t,h,v", 2},
    {"d_qkvz", "conv_backward", "b,t,c", 1},
    {"d_conv_weight", "d_conv_weight", "c,j", 0},
    {"d_conv_bias", "d_conv_bias", "c", 0},
    {"d_initial_conv_state", "d_conv_state", "b,c,j", 1},
};

bool is_gradient(std::string_view name) { return name.starts_with("d_") || name == "dz" || name.size() == 2; }

// One group per batch row and head if the tensor has them: [b, t, h, v] and [b, h, k, v].
Groups groups_of(const Shape& shape, const Kind& kind) {
    Groups groups;
    const auto total = element_count(shape).value_or(0);
    const auto size = [&](std::size_t axis) { return static_cast<std::size_t>(shape[axis]); };
    if (kind.group_axes == 0 || total == 0) {
        groups.count = 1;
        groups.width = std::max<std::size_t>(total, 1);
        groups.of_run.assign(1, 0);
        return groups;
    }
    groups.width = size(shape.size() - 1);
    const std::size_t runs = total / groups.width;
    const bool tokens = kind.axes.starts_with("b,t");
    const std::size_t heads = kind.group_axes == 2 ? size(tokens ? 2 : 1) : 1;
    const std::size_t per_row = runs / size(0);
    groups.count = size(0) * heads;
    for (std::size_t run = 0; run < runs; ++run) {
        const std::size_t in_row = run % per_row;
        const std::size_t head = tokens ? in_row % heads : in_row / (per_row / heads);
        groups.of_run.push_back(run / per_row * heads + head);
    }
    return groups;
}

struct Expected {
    const Kind* kind = nullptr;
    Shape shape;
    std::vector<double> want;
    Groups groups;
    std::vector<GroupBudget> budgets;
    double relative = 0;
};

// The errors of correct variants, and at least a few roundoffs of the tensor's size.
void add_budget(Expected& e, const std::vector<TensorFile>& variants) {
    constexpr double k_roundoff = 0x1p-24;
    const double gradient = is_gradient(e.kind->name) ? 3 : 1;
    Groups whole;
    whole.count = 1;
    whole.width = std::max<std::size_t>(e.want.size(), 1);
    whole.of_run.assign(1, 0);
    e.budgets.resize(e.groups.count);
    double whole_rms = 0;
    double truth_rms = 0;
    for (const TensorFile& variant : variants) {
        const Tensor* tensor = variant.find(e.kind->name);
        if (tensor == nullptr) continue;
        const auto values = to_f64(*tensor);
        const auto sums = sum_groups(e.groups, values, e.want);
        const auto all = sum_groups(whole, values, e.want);
        truth_rms = all[0].truth_rms();
        whole_rms = std::max(whole_rms, gradient * all[0].error_rms());
        for (std::size_t g = 0; g < sums.size(); ++g) {
            GroupBudget& budget = e.budgets[g];
            budget.rms = std::max({budget.rms, gradient * sums[g].error_rms(), 2 * k_roundoff * sums[g].truth_rms()});
            budget.max_abs =
                std::max({budget.max_abs, gradient * sums[g].max_error, 4 * k_roundoff * sums[g].max_truth});
        }
    }
    e.relative = truth_rms > 0 ? whole_rms / truth_rms : 0;
    // A few elements say little about the size of errors, so their group uses the whole tensor's relative budget.
    constexpr std::size_t k_enough = 256;
    const auto truth = sum_groups(e.groups, e.want, e.want);
    for (std::size_t g = 0; g < truth.size(); ++g) {
        if (truth[g].count >= k_enough) continue;
        e.budgets[g].rms = std::max(e.budgets[g].rms, e.relative * truth[g].truth_rms());
        e.budgets[g].max_abs = std::max(e.budgets[g].max_abs, e.relative * truth[g].max_truth);
    }
    // If the truth is 0 everywhere, only 0, or values too small to matter, are right.
    for (GroupBudget& budget : e.budgets) {
        budget.rms = std::max(budget.rms, 1e-37);
        budget.max_abs = std::max(budget.max_abs, 1e-37);
    }
}

std::vector<Expected> expectations(const TensorFile& truth, const std::vector<TensorFile>& variants) {
    std::vector<Expected> all;
    for (const Kind& kind : k_kinds) {
        const Tensor* tensor = truth.find(kind.name);
        if (tensor == nullptr) continue;
        Expected e;
        e.kind = &kind;
        e.shape = tensor->shape;
        e.want = to_f64(*tensor);
        e.groups = groups_of(e.shape, kind);
        add_budget(e, variants);
        all.push_back(std::move(e));
    }
    return all;
}

// The budget plus the rounding error of the stored dtype.
std::vector<GroupBudget> with_rounding(const Expected& e, DType judged) {
    std::vector<GroupBudget> budgets = e.budgets;
    if (judged == DType::f64 || judged == DType::f32) return budgets;
    std::vector<double> rounded(e.want.size());
    std::transform(e.want.begin(), e.want.end(), rounded.begin(), [&](double y) {
        const double x = rounded_to(y, judged);
        return std::isfinite(x) ? x : y;
    });
    const auto sums = sum_groups(e.groups, rounded, e.want);
    for (std::size_t g = 0; g < budgets.size(); ++g) {
        budgets[g].rms = std::hypot(budgets[g].rms, sums[g].error_rms());
        budgets[g].max_abs += sums[g].max_error;
    }
    return budgets;
}

Worst worst_of(const Expected& e, const std::vector<double>& got, const std::vector<GroupBudget>& budgets,
               std::string_view name) {
    std::size_t at = 0;
    double most = -1;
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (!std::isfinite(e.want[i])) continue;
        const double ratio = std::fabs(got[i] - e.want[i]) / budgets[e.groups.of(i)].max_abs;
        const double score = std::isnan(ratio) ? HUGE_VAL : ratio;
        if (score <= most) continue;
        most = score;
        at = i;
    }
    Worst w;
    w.tensor = name;
    w.axes = e.kind->axes;
    w.got = got[at];
    w.want = e.want[at];
    w.index.resize(e.shape.size());
    auto rest = static_cast<std::int64_t>(at);
    for (std::size_t axis = e.shape.size(); axis-- > 0;) {
        w.index[axis] = rest % e.shape[axis];
        rest /= e.shape[axis];
    }
    // qkvz and conv_weight may have one axis more than usual.
    while (w.axes.size() + 1 < 2 * w.index.size()) w.axes += ",i";
    return w;
}

double error_over_budget(const Expected& e, const std::vector<double>& got, const std::vector<GroupBudget>& budgets) {
    const auto sums = sum_groups(e.groups, got, e.want);
    double score = 0;
    for (std::size_t g = 0; g < sums.size(); ++g) {
        if (sums[g].count == 0) continue;
        for (const double ratio : {sums[g].error_rms() / budgets[g].rms, sums[g].max_error / budgets[g].max_abs}) {
            score = std::isnan(ratio) ? HUGE_VAL : std::max(score, ratio);
        }
    }
    return score;
}

Result<TensorReport> judge_one(const Expected& e, const NamedTensor& entry, DType narrow, int threads) {
    TensorReport t;
    t.name = entry.name;
    t.canonical = e.kind->name;
    t.shape = entry.tensor.shape;
    t.stored = entry.tensor.dtype;
    GDNCTL_TRY_ASSIGN(const auto got, floating_values(entry.tensor, entry.name, e.shape));
    const bool wide = t.stored == DType::f32 || t.stored == DType::f64;
    t.judged = !wide ? t.stored : e.kind->name == "out" ? narrow : DType::f32;
    const auto budgets = with_rounding(e, t.judged);
    measure(got, e.want, {}, t, threads);
    t.budget_relative = e.relative;
    t.error_over_budget = error_over_budget(e, got, budgets);
    t.verdict = !(t.error_over_budget <= k_wrong_band) ? Verdict::wrong
                : t.error_over_budget <= k_ok_band     ? Verdict::ok
                                                       : Verdict::suspect;
    if (!got.empty()) t.worst = worst_of(e, got, budgets, entry.name);
    return t;
}

// Truths and correct variants: of the forward pass, then of the gradients if there are cotangents.
struct Reference {
    TensorFile truth;
    std::vector<TensorFile> variants;
};

void append(TensorFile& to, TensorFile more) {
    for (NamedTensor& entry : more.tensors) to.tensors.push_back(std::move(entry));
}

Reference make_layer_reference(const GdnLayer& p, const LayerContract& c,
                               const std::optional<LayerCotangents>& cotangents, int threads) {
    const LayerOperator exact = [threads](const GdnProblem& q, const GdnContract& k) {
        return run_recurrent64(q, k, threads);
    };
    const LayerOperator chunked = [threads](const GdnProblem& q, const GdnContract& k) {
        return run_chunk32(q, k, {k.chunk, GateSum::fp32, k.matmul}, threads);
    };
    const LayerOperator recurrent = [threads](const GdnProblem& q, const GdnContract& k) {
        return run_recurrent32(q, k, threads);
    };
    Reference r;
    r.truth = layer_outputs_file(p, c, run_layer(p, c, exact, {}), true);
    std::uint64_t seed = 0;
    for (const LayerOperator* op : {&chunked, &recurrent}) {
        r.variants.push_back(layer_outputs_file(p, c, run_layer(p, c, *op, {p.dtype, ++seed}), true));
    }
    if (!cotangents) return r;
    append(r.truth, layer_gradients_file(p, c, run_layer_adjoint64(p, c, *cotangents, threads)));
    for (TensorFile& variant : r.variants) {
        append(variant,
               layer_gradients_file(
                   p, c, run_layer_adjoint(p, c, *cotangents, layer_adjoint64(threads), {p.dtype, ++seed}, threads)));
    }
    return r;
}

// The cotangents of either file. If `out` is narrow, its cotangent is rounded too, as in automatic differentiation.
Result<std::optional<LayerCotangents>> cotangents_of(const GdnLayer& p, const LayerContract& c,
                                                     const TensorFile& inputs, const TensorFile& dump) {
    const bool gradients = std::any_of(dump.tensors.begin(), dump.tensors.end(), [](const NamedTensor& t) {
        return layer_name(t.name).role == GdnRole::gradient;
    });
    std::optional<LayerCotangents> found;
    if (!gradients) return found;
    GDNCTL_TRY_ASSIGN(found, read_layer_cotangents(inputs, p, c));
    if (!found) {
        GDNCTL_TRY_ASSIGN(found, read_layer_cotangents(dump, p, c));
    }
    GDNCTL_TRY_ASSIGN(const Tensor* out, find_layer_tensor(dump, "out"));
    if (found && out != nullptr && is_floating(out->dtype)) {
        for (double& x : found->d_out) x = rounded_to(x, out->dtype);
    }
    return found;
}

void conclude(LayerReport& report) {
    for (const TensorReport& t : report.tensors) {
        if (t.nonfinite_want > 0) {
            report.verdict = Verdict::unstable_input;
            report.reason = fmt::format("{} values of the exact {} are not finite", t.nonfinite_want, t.canonical);
            return;
        }
    }
    const TensorReport* gravest = nullptr;
    for (const TensorReport& t : report.tensors) {
        if (element_count(t.shape).value_or(0) == 0) continue;
        if (gravest == nullptr || t.error_over_budget > gravest->error_over_budget) gravest = &t;
        if (t.verdict != Verdict::ok && report.stage.empty()) {
            const auto* kind = std::find_if(std::begin(k_kinds), std::end(k_kinds),
                                            [&](const Kind& k) { return k.name == t.canonical; });
            report.stage = kind->stage;
        }
    }
    if (gravest == nullptr) {
        report.reason = "the dump contains no value that can be judged";
        return;
    }
    report.verdict = gravest->verdict;
    report.worst = gravest->worst;
    if (report.verdict == Verdict::ok) return;
    report.reason =
        gravest->nonfinite_got > 0
            ? fmt::format("{} values of {} are not finite where the truth is", gravest->nonfinite_got, gravest->name)
            : fmt::format("{} is off by {:.3g} times its error budget", gravest->name, gravest->error_over_budget);
}

}  // namespace

Result<LayerReport> judge_layer(const GdnLayer& layer, const LayerContract& contract, const TensorFile& inputs,
                                const TensorFile& dump, int threads) {
    LayerReport report;
    GDNCTL_TRY_ASSIGN(const auto cotangents, cotangents_of(layer, contract, inputs, dump));
    const Reference reference = make_layer_reference(layer, contract, cotangents, threads);
    const auto expected = expectations(reference.truth, reference.variants);
    GdnProblem stored;
    stored.qk_dtype = layer.dtype;
    const DType narrow = out_dtype_of(contract.resolved.value, stored);
    for (const Expected& e : expected) {
        GDNCTL_TRY_ASSIGN(const Tensor* found, find_layer_tensor(dump, e.kind->name));
        const bool part =
            e.kind->stage == "conv" || e.kind->stage == "gate" || e.kind->stage == "beta" || e.kind->name == "core_out";
        if (found == nullptr) {
            if (!part) report.not_compared.push_back({std::string(e.kind->name), "not in the dump"});
            continue;
        }
        const auto entry = std::find_if(dump.tensors.begin(), dump.tensors.end(), [&](const NamedTensor& t) {
            return layer_name(t.name).canonical == e.kind->name;
        });
        GDNCTL_TRY_ASSIGN(auto tensor, judge_one(e, *entry, narrow, threads));
        report.tensors.push_back(std::move(tensor));
    }
    for (const TensorFile* file : {&inputs, &dump}) list_left_alone(*file, layer_name, report.unknown, report.unread);
    for (const NamedTensor& entry : dump.tensors) {
        if (layer_name(entry.name).role != GdnRole::gradient || cotangents) continue;
        report.not_compared.push_back({entry.name, "neither file contains d_out, d_final_conv_state or d_final_state"});
    }
    conclude(report);
    return report;
}

}  // namespace gdnctl::oracle
