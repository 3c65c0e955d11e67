// The verdict on a dump: the distance of each tensor from its truth in units of its budget, and what was not judged.
#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include <fmt/format.h>

#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/element_allowance.h"
#include "oracle/gdn/compare/groups.h"
#include "oracle/gdn/compare/localise.h"
#include "oracle/judge/metrics.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

// One tensor of the dump and its truth, both in canonical axis order.
struct Pair {
    DType judged = DType::f32;
    std::vector<double> got;
    const std::vector<double>* want = nullptr;
    const TensorBudget* budget = nullptr;
    Groups groups;

    // The allowance of an element by itself; infinity: unknown.
    double granted(std::size_t i) const {
        return budget->local.empty() ? HUGE_VAL : granted_locally(*budget, i, (*want)[i], judged);
    }
};

// Whether a finite value of the truth stays finite in the dtype that the dump stands for; fp64 counts as fp32.
bool fits(double want, DType judged) {
    if (std::fabs(want) < 6e4) return true;  // in every dtype
    return std::isfinite(rounded_to(want, judged == DType::f64 ? DType::f32 : judged));
}

// The budget of each group plus the rounding error of the stored dtype, which is the truth's distance to it.
std::vector<GroupBudget> with_output_rounding(const Pair& pair, int threads) {
    std::vector<GroupBudget> budgets = pair.budget->groups;
    if (pair.judged == DType::f64 || pair.judged == DType::f32) return budgets;
    std::vector<double> rounded(pair.want->size());
    // A value beyond the dtype's range is not rounding, and must not make the budget infinite.
    std::transform(pair.want->begin(), pair.want->end(), rounded.begin(),
                   [&](double y) { return fits(y, pair.judged) ? rounded_to(y, pair.judged) : y; });
    const auto sums = sum_groups(pair.groups, rounded, *pair.want, threads);
    // Terms that were rounded before they were added may round further than their sum does.
    const double of_terms = pair.budget->summed.empty() ? 0 : pair.judged == DType::bf16 ? 0x1p-9 : 0x1p-12;
    for (std::size_t g = 0; g < budgets.size(); ++g) {
        budgets[g].rms = std::hypot(budgets[g].rms, sums[g].error_rms());
        budgets[g].max_abs += sums[g].max_error + of_terms * sums[g].max_truth;
    }
    return budgets;
}

// For equal scores, the earlier element is worse.
using Scored = std::pair<double, std::size_t>;
bool worse(const Scored& a, const Scored& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
}

// The worst elements of some runs, unordered.
std::vector<Scored> worst_of_runs(const Pair& pair, const std::vector<GroupBudget>& budgets, std::size_t first,
                                  std::size_t last) {
    std::vector<Scored> worst;  // a heap with the least bad one in front
    for (std::size_t run = first; run < last; ++run) {
        const double of_group = budgets[pair.groups.of_run[run]].max_abs;
        for (std::size_t i = run * pair.groups.width; i < (run + 1) * pair.groups.width; ++i) {
            const double want = (*pair.want)[i];
            const double budget = std::min(of_group, pair.granted(i));
            const double error = std::fabs(pair.got[i] - want);
            const bool full = worst.size() == k_worst_elements;
            // Most are far below, so no quotient is needed.
            if (full && error < 0.999 * worst.front().first * budget) continue;
            if (!std::isfinite(want)) continue;
            double score = error / budget;
            if (!std::isfinite(pair.got[i])) {
                if (!fits(want, pair.judged)) continue;
                score = HUGE_VAL;
            }
            if (full && !worse({score, i}, worst.front())) continue;
            if (full) {
                std::pop_heap(worst.begin(), worst.end(), worse);
                worst.pop_back();
            }
            worst.emplace_back(score, i);
            std::push_heap(worst.begin(), worst.end(), worse);
        }
    }
    return worst;
}

// The dump's worst elements: values that are not finite where the truth is, then the largest errors in units of the
// allowances of their groups and of themselves. Worst first.
std::vector<std::size_t> worst_elements(const Pair& pair, const std::vector<GroupBudget>& budgets, int threads) {
    const Blocks blocks(pair.groups.of_run.size(), pair.groups.width);
    std::vector<std::vector<Scored>> parts(blocks.count);
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t b) { parts[b] = worst_of_runs(pair, budgets, blocks.begin(b), blocks.end(b)); };
    });
    std::vector<Scored> worst;
    for (const auto& part : parts) worst.insert(worst.end(), part.begin(), part.end());
    std::sort(worst.begin(), worst.end(), worse);
    worst.resize(std::min(worst.size(), k_worst_elements));
    std::vector<std::size_t> elements;
    for (const Scored& s : worst) elements.push_back(s.second);
    if (elements.empty()) elements.push_back(0);
    return elements;
}

// Of groups, and of the single element that exceeds its own allowance most.
double error_over_budget(const Pair& pair, const std::vector<GroupBudget>& budgets, int threads) {
    const auto sums = sum_groups(pair.groups, pair.got, *pair.want, threads);
    double score = 0;
    for (std::size_t g = 0; g < sums.size(); ++g) {
        if (sums[g].count == 0) continue;
        for (const double ratio : {sums[g].error_rms() / budgets[g].rms, sums[g].max_error / budgets[g].max_abs}) {
            score = std::isnan(ratio) ? HUGE_VAL : std::max(score, ratio);  // std::max would drop a NaN
        }
    }
    return score;
}

double local_error_over_budget(const Pair& pair, int threads) {
    if (pair.budget->local.empty()) return 0;
    const Blocks blocks(pair.got.size());
    std::vector<double> largest(blocks.count, 0);
    run_tasks(blocks.count, threads, [&] {
        return [&](std::size_t b) {
            for (std::size_t i = blocks.begin(b); i < blocks.end(b); ++i) {
                const double error = std::fabs(pair.got[i] - (*pair.want)[i]);
                const double granted = pair.granted(i);
                if (error > largest[b] * granted && std::isfinite(error)) largest[b] = error / granted;
            }
        };
    });
    return blocks.count == 0 ? 0 : *std::max_element(largest.begin(), largest.end());
}

void list_missing(const GdnReference& r, const TensorFile& dump, GdnReport& report) {
    for (const std::string_view wanted : {"out", "final_state"}) {
        const bool there = std::any_of(report.tensors.begin(), report.tensors.end(),
                                       [&](const TensorReport& t) { return t.canonical == wanted; });
        if (!there) report.not_compared.push_back({std::string(wanted), "not in the dump"});
    }
    for (const std::string_view wanted : gradient_names()) {
        const auto found = std::find_if(report.tensors.begin(), report.tensors.end(),
                                        [&](const TensorReport& t) { return t.canonical == wanted; });
        if (found != report.tensors.end()) continue;
        const bool there = dump.any_name(
            [&](std::string_view name) { return name_in_dump(dump, name, r.contract.value).canonical == wanted; });
        // The gradients of raw gates and logits say the same.
        const auto judged = [&](std::string_view name) {
            return std::any_of(report.tensors.begin(), report.tensors.end(),
                               [&](const TensorReport& t) { return t.canonical == name; });
        };
        if (!there && wanted == "dg" && (judged("d_a") || judged("d_alpha"))) continue;
        if (!there && wanted == "dbeta" && judged("d_b")) continue;
        // Without an initial state, its gradient is not missing.
        if (!there && wanted == "d_initial_state" && r.problem.initial_state.empty() && r.backward) continue;
        report.not_compared.push_back(
            {std::string(wanted), there ? "neither file contains d_out or d_final_state" : "not in the dump"});
    }
}

// Gradients with a known name, of inputs that the contract does not have.
void list_foreign(const GdnReference& r, const TensorFile& dump, GdnReport& report) {
    const auto usual = gradient_names();
    for (const NamedTensor& entry : dump.tensors) {
        const GdnName name = name_in_dump(dump, entry.name, r.contract.value);
        if (name.role != GdnRole::gradient || std::find(usual.begin(), usual.end(), name.canonical) != usual.end()) {
            continue;
        }
        const bool judged = std::any_of(report.tensors.begin(), report.tensors.end(),
                                        [&](const TensorReport& t) { return t.canonical == name.canonical; });
        if (judged) continue;
        report.not_compared.push_back({entry.name, r.backward ? "the contract has no such input"
                                                              : "neither file contains d_out or d_final_state"});
    }
}

}  // namespace

void list_left_alone(const TensorFile& file, GdnName (*meaning)(std::string_view), std::vector<std::string>& unknown,
                     std::vector<UnreadTensor>& unread) {
    const auto add_unknown = [&](const std::string& name) {
        if (meaning(name).role != GdnRole::unknown) return;
        if (std::find(unknown.begin(), unknown.end(), name) == unknown.end()) unknown.push_back(name);
    };
    for (const NamedTensor& entry : file.tensors) add_unknown(entry.name);
    for (const UnreadTensor& entry : file.unread) {
        add_unknown(entry.name);
        if (std::find(unread.begin(), unread.end(), entry) == unread.end()) unread.push_back(entry);
    }
}

void list_unjudged(const GdnReference& r, const TensorFile& dump, GdnReport& report) {
    list_left_alone(dump, canonical_name, report.unknown, report.unread);
    for (const NamedTensor& entry : dump.tensors) {
        const std::string_view like = gradient_that_resembles(entry.name);
        if (!like.empty()) report.unjudged_gradients.push_back({entry.name, std::string(like)});
    }
    list_missing(r, dump, report);
    list_foreign(r, dump, report);
}

bool is_written_truth(const TensorFile& dump, const GdnReport& report) {
    const auto exact = [](const TensorReport& t) { return t.stored == DType::f64; };
    const auto equal = [](const TensorReport& t) { return t.max_abs == 0 && t.nonfinite_got == t.nonfinite_want; };
    const auto& tensors = report.tensors;
    if (tensors.empty() || !std::all_of(tensors.begin(), tensors.end(), exact)) return false;
    const auto method = dump.metadata.find("method");
    return method != dump.metadata.end() ? method->second == "recurrent64"
                                         : std::all_of(tensors.begin(), tensors.end(), equal);
}

namespace {

// The dtype that values stand for if they are stored wider: for out, by the contract; for a gradient whose values are
// all exact in 16 bits, that of its input or of out.
DType judged_dtype(const Tensor& tensor, std::string_view canonical, const std::vector<double>& got,
                   const GdnReference& r) {
    if (tensor.dtype != DType::f32 && tensor.dtype != DType::f64) return tensor.dtype;
    const DType out = out_dtype_of(r.contract.value, r.problem);
    if (canonical == "out") return out;
    const GradientTruth* gradient = r.backward ? r.backward->find(canonical) : nullptr;
    if (gradient == nullptr) return DType::f32;
    for (const DType dtype : {gradient->input, out}) {
        if ((dtype == DType::bf16 || dtype == DType::f16) && held_by(got, dtype)) return dtype;
    }
    return DType::f32;
}

Worst place_of(std::size_t element, const Pair& pair, const TensorReport& report, const GdnReference& r) {
    Worst w;
    w.tensor = report.name;
    w.got = pair.got[element];
    w.want = (*pair.want)[element];
    const GdnDims& d = r.problem.dims;
    const bool state = report.canonical == "final_state" || report.canonical == "d_initial_state";
    const GradientTruth* gradient = r.backward ? r.backward->find(report.canonical) : nullptr;
    w.axes = gradient != nullptr ? std::string(gradient->axes) : "b,t,h,v";
    if (state) w.axes = r.problem.has_cu_seqlens ? "n,h,k,v" : "b,h,k,v";
    const Shape axes = state                 ? state_shape(r.problem, StateLayout::key_value)
                       : w.axes == "h"       ? Shape{d.Hv}
                       : w.axes == "b,t,h"   ? Shape{d.B, d.T, d.Hv}
                       : w.axes == "b,t,h,k" ? Shape{d.B, d.T, d.Hk, d.dk}
                                             : Shape{d.B, d.T, d.Hv, d.dv};
    auto rest = static_cast<std::int64_t>(element);
    w.index.resize(axes.size());
    for (std::size_t axis = axes.size(); axis-- > 0;) {
        w.index[axis] = rest % axes[axis];
        rest /= axes[axis];
    }
    if (!state && w.axes != "h" && r.problem.layout == TokenLayout::heads_first) {
        std::swap(w.index[1], w.index[2]);
        w.axes.replace(0, 5, "b,h,t");
    }
    if (!state && w.axes != "h" && r.problem.packed) {
        w.index.erase(w.index.begin());
        w.axes = w.axes.substr(2);
    }
    if (state && r.contract.value.state_layout == StateLayout::value_key) {
        std::swap(w.index[2], w.index[3]);
        w.axes = r.problem.has_cu_seqlens ? "n,h,v,k" : "b,h,v,k";
    }
    return w;
}

Verdict verdict_by_budget(const TensorReport& t, bool gradient) {
    if (!(t.error_over_budget <= (gradient ? k_wrong_gradient_band : k_wrong_band))) return Verdict::wrong;
    return t.error_over_budget <= k_ok_band ? Verdict::ok : Verdict::suspect;
}

Status check_tensor(const NamedTensor& entry, const Shape& expected, const GdnProblem& p) {
    const Tensor& tensor = entry.tensor;
    if (tensor.shape == expected && is_floating(tensor.dtype)) return {};
    Shape swapped = tensor.shape;
    const std::size_t tokens = p.packed ? 0 : 1;
    if (swapped.size() > tokens + 1) std::swap(swapped[tokens], swapped[tokens + 1]);
    const std::string_view other = p.layout == TokenLayout::heads_first ? "B,T,H,D" : "B,H,T,D";
    const std::string hint =
        swapped != expected || tensor.shape == expected
            ? std::string()
            : fmt::format("its axes look like [{}]: one layout holds for all tensors (--set layout={})", other, other);
    return fail(ErrorKind::bad_input,
                fmt::format("tensor '{}': expected {} {}, got {} {}", entry.name, text_of(expected),
                            is_floating(tensor.dtype) ? name_of(tensor.dtype) : "float32", text_of(tensor.shape),
                            name_of(tensor.dtype)),
                hint);
}

// A kernel may leave rows of out outside all sequences as they are, so NaN there is no error.
void skip_unwritten_rows(Pair& pair) {
    for (std::size_t run = 0; run < pair.groups.of_run.size(); ++run) {
        if (pair.groups.of_run[run] + 1 != pair.groups.count) continue;
        for (std::size_t i = run * pair.groups.width; i < (run + 1) * pair.groups.width; ++i) {
            if (std::isnan(pair.got[i])) pair.got[i] = (*pair.want)[i];
        }
    }
}

Result<Pair> pair_up(const NamedTensor& entry, std::string_view canonical, const GdnReference& r) {
    const bool out = canonical == "out";
    const bool state = canonical == "final_state" || canonical == "d_initial_state";
    const StateLayout layout = r.contract.value.state_layout;
    const GradientTruth* gradient = out || canonical == "final_state" ? nullptr : r.backward->find(canonical);
    GDNCTL_TRY(check_tensor(entry,
                            gradient != nullptr ? gradient->shape
                            : out               ? out_shape(r.problem)
                                                : state_shape(r.problem, layout),
                            r.problem));
    Pair pair;
    pair.got = to_f64(entry.tensor);
    if (out || (gradient != nullptr && has_tokens(*gradient))) {
        const bool keys = canonical == "dq" || canonical == "dk";
        pair.got = from_file_order(r.problem, std::move(pair.got), keys ? r.problem.dims.Hk : r.problem.dims.Hv);
    }
    if (state && layout == StateLayout::value_key) {
        GdnDims swapped = r.problem.dims;
        std::swap(swapped.dk, swapped.dv);
        pair.got = to_layout(pair.got, swapped, StateLayout::value_key);
    }
    pair.want = gradient != nullptr ? &gradient->want : out ? &r.truth.out : &r.truth.final_state;
    pair.budget = gradient != nullptr ? &gradient->budget : out ? &r.out : &r.final_state;
    pair.groups = gradient != nullptr ? gradient->groups : out ? groups_of_out(r.problem) : groups_of_state(r.problem);
    if (out) skip_unwritten_rows(pair);
    return pair;
}

// The report was made from `pair` and `evidence`.
Result<TensorReport> judge_tensor(const NamedTensor& entry, std::string_view canonical, const GdnReference& r,
                                  const CompareOptions& options, Pair& pair, Evidence& evidence) {
    GDNCTL_TRY_ASSIGN(pair, pair_up(entry, canonical, r));
    TensorReport report;
    report.name = entry.name;
    report.canonical = canonical;
    report.shape = entry.tensor.shape;
    report.stored = entry.tensor.dtype;
    report.judged = judged_dtype(entry.tensor, canonical, pair.got, r);
    pair.judged = report.judged;
    const auto budgets = with_output_rounding(pair, options.threads);
    measure(pair.got, *pair.want, {options.rtol.value_or(1e-4), options.atol.value_or(1e-4)}, report, options.threads);
    report.budget_relative = pair.budget->relative;
    report.local_error_over_budget = local_error_over_budget(pair, options.threads);
    report.error_over_budget =
        std::max(error_over_budget(pair, budgets, options.threads), report.local_error_over_budget);
    report.by_budget = verdict_by_budget(report, canonical != "out" && canonical != "final_state");
    report.verdict = !options.rtol ? report.by_budget : report.numpy_rule.count > 0 ? Verdict::wrong : Verdict::ok;
    report.beyond_range = static_cast<std::size_t>(std::count_if(
        pair.want->begin(), pair.want->end(), [&](double y) { return std::isfinite(y) && !fits(y, report.judged); }));
    if (!pair.got.empty()) {
        for (const std::size_t i : worst_elements(pair, budgets, options.threads)) {
            report.worst_elements.push_back(place_of(i, pair, report, r));
        }
        report.worst = report.worst_elements.front();
    }
    evidence = {&pair.got, pair.want, budgets, pair.judged, pair.budget};
    return report;
}

// The worst element that is not finite is the earliest one. Where unstable inputs have brought the truth near the end
// of fp32's range, the state or a chunk's sums have left it before.
constexpr double k_far_from_overflow = 0x1p64;

bool has_device_fault(const GdnReference& r, const TensorReport& t) {
    if (std::isfinite(t.worst.got) || !std::isfinite(t.worst.want) || !fits(t.worst.want, t.judged)) return false;
    return r.unstable_reason.empty() || std::abs(t.worst.want) < k_far_from_overflow;
}

// A wrong tensor that the inputs' condition does not excuse, or one with a wrong element that nothing unstable affects;
// nullptr: none.
const TensorReport* wrong_in_spite(const GdnReference& r, const GdnReport& report) {
    const auto is_wrong = [&](const TensorReport& t) {
        const bool out = t.canonical == "out";
        if (t.verdict != Verdict::wrong || (!out && t.canonical != "final_state")) return false;
        const bool judged = can_judge(out ? r.out : r.final_state);
        return t.local_error_over_budget > k_wrong_band || (r.ill_conditioned && judged);
    };
    const auto found = std::find_if(report.tensors.begin(), report.tensors.end(), is_wrong);
    return found != report.tensors.end() ? &*found : nullptr;
}

void conclude(const GdnReference& r, const CompareOptions& options, GdnReport& report) {
    const auto severity = [](const TensorReport& t) {
        return std::pair(t.verdict == Verdict::wrong     ? 2
                         : t.verdict == Verdict::suspect ? 1
                                                         : 0,
                         std::isnan(t.error_over_budget) ? HUGE_VAL : t.error_over_budget);
    };
    const auto worst =
        std::max_element(report.tensors.begin(), report.tensors.end(),
                         [&](const TensorReport& a, const TensorReport& b) { return severity(a) < severity(b); });
    report.worst = worst->worst;
    const auto fault = std::find_if(report.tensors.begin(), report.tensors.end(),
                                    [&](const TensorReport& t) { return has_device_fault(r, t); });
    const auto beyond = std::find_if(report.tensors.begin(), report.tensors.end(),
                                     [](const TensorReport& t) { return t.nonfinite_want > 0 || t.beyond_range > 0; });
    const bool doubted = !r.unstable_reason.empty() || beyond != report.tensors.end();
    const TensorReport* wrong = doubted ? wrong_in_spite(r, report) : nullptr;
    if (fault != report.tensors.end()) {
        report.verdict = Verdict::wrong;
        report.worst = fault->worst;
        report.reason =
            fmt::format("{} values of {} are not finite where the truth is", fault->nonfinite_got, fault->name);
    } else if (wrong != nullptr) {
        report.verdict = Verdict::wrong;
        report.worst = wrong->worst;
        const double error = r.ill_conditioned ? wrong->error_over_budget : wrong->local_error_over_budget;
        report.reason =
            fmt::format("{} is off by {:.3g} times its error budget{}", wrong->name, error,
                        r.unstable_reason.empty() ? std::string() : fmt::format(" ({})", r.unstable_reason));
    } else if (!r.unstable_reason.empty()) {
        report.verdict = Verdict::unstable_input;
        report.reason = r.unstable_reason;
    } else if (beyond != report.tensors.end()) {
        report.verdict = Verdict::unstable_input;
        report.reason =
            beyond->nonfinite_want > 0
                ? fmt::format("{} values of the exact {} are not finite", beyond->nonfinite_want, beyond->canonical)
                : fmt::format("{} values of the exact {} do not fit {}", beyond->beyond_range, beyond->canonical,
                              name_of(beyond->judged));
    } else {
        report.verdict = worst->verdict;
        if (worst->verdict != Verdict::ok && options.rtol) {
            report.reason = fmt::format("{} values of {} are outside rtol {} and atol {}", worst->numpy_rule.count,
                                        worst->name, *options.rtol, options.atol.value_or(0));
        } else if (worst->verdict != Verdict::ok) {
            report.reason =
                fmt::format("{} is off by {:.3g} times its error budget", worst->name, worst->error_over_budget);
        } else if (worst->by_budget != Verdict::ok) {
            report.reason = fmt::format(
                "within rtol {} and atol {}; by the error budget it would be {}: {} is off by {:.3g} times its budget",
                *options.rtol, options.atol.value_or(0), name_of(worst->by_budget), worst->name,
                worst->error_over_budget);
        }
    }
}

// The tensors of a dump and their truths.
struct Compared {
    std::deque<Pair> pairs;  // a deque, because evidence points into them
    ForwardEvidence forward;
    std::vector<GradientEvidence> gradients;
};

Status compare_tensors(const GdnReference& r, const TensorFile& dump, const CompareOptions& options, Compared& all,
                       GdnReport& report) {
    std::vector<std::string_view> names = {"out", "final_state"};
    if (r.backward) {
        for (const GradientTruth& t : r.backward->truths) names.emplace_back(t.canonical);
    }
    for (const std::string_view canonical : names) {
        GDNCTL_TRY_ASSIGN(const NamedTensor* entry, find_in_dump(dump, canonical, r.contract.value));
        if (entry == nullptr) continue;
        Evidence evidence;
        GDNCTL_TRY_ASSIGN(auto tensor, judge_tensor(*entry, canonical, r, options, all.pairs.emplace_back(), evidence));
        if (canonical == "out") {
            all.forward.out = std::move(evidence);
        } else if (canonical == "final_state") {
            all.forward.state = std::move(evidence);
        } else {
            all.gradients.push_back({r.backward->find(canonical), std::move(evidence), tensor.verdict != Verdict::ok});
        }
        report.tensors.push_back(std::move(tensor));
    }
    return {};
}

// Whether the inputs are unstable only because they are declared wrongly, and the dump is right under the correct
// declaration.
bool matches_declared_otherwise(const GdnReference& r, const ForwardEvidence& forward, const GdnReport& report,
                                const CompareOptions& options) {
    if (r.unstable_reason.empty() || std::any_of(report.tensors.begin(), report.tensors.end(),
                                                 [&](const TensorReport& t) { return has_device_fault(r, t); })) {
        return false;
    }
    const auto hint = hint_for_unstable(r, forward, options.threads);
    return hint && hint->text.starts_with("matches");
}

// Finds where and why. Skips unstable inputs, and dumps within the budget. A wrong forward pass makes gradients wrong,
// so they are only examined if it is right.
void locate(const GdnReference& r, const Compared& all, const CompareOptions& options, GdnReport& report) {
    report.errors = map_errors(r, all.forward, options.threads);
    report.token_errors = map_token_errors(r, all.forward, 0, options.threads);
    report.gradient_errors = map_gradient_errors(r, all.gradients);
    report.gradient_token_errors = map_gradient_token_errors(r, all.gradients, 0);
    if (report.verdict == Verdict::unstable_input && options.hints) {
        if (auto hint = hint_for_unstable(r, all.forward, options.threads)) {
            report.stage = hint->stage;
            report.stages = {hint->stage};
            report.hints.push_back(std::move(*hint));
        }
    }
    if (report.verdict != Verdict::wrong && report.verdict != Verdict::suspect) return;
    report.place = locate_fault(r, all.forward, report.errors);
    const bool forward = std::any_of(report.tensors.begin(), report.tensors.end(), [](const TensorReport& t) {
        return t.verdict != Verdict::ok && (t.canonical == "out" || t.canonical == "final_state");
    });
    if (!forward && !report.place) {
        report.backward_fault = true;
        report.place = locate_gradient_fault(r, all.gradients);
    }
    if (report.place && report.place->first_sequence > 0) {
        const auto sequence = static_cast<std::size_t>(report.place->first_sequence);
        report.token_errors = map_token_errors(r, all.forward, sequence, options.threads);
        report.gradient_token_errors = map_gradient_token_errors(r, all.gradients, sequence);
    }
    if (!options.hints) return;
    Diagnosis d;
    if (report.backward_fault) {
        d = diagnose_backward(r, all.gradients, report.place.has_value(), options.threads);
    } else if (report.place) {
        d = diagnose(r, all.forward, report.errors, *report.place, options.threads);
    } else if (report.verdict == Verdict::wrong && !options.rtol) {
        d = {"padding", {"padding"}, {{"padding", "rows outside every sequence are written", 1}}};
    }
    report.stage = d.stage;
    report.stages = d.stages;
    report.hints = std::move(d.hints);
    constexpr std::size_t k_most_hints = 3;
    if (report.hints.size() > k_most_hints) report.hints.resize(k_most_hints);
}

}  // namespace

Result<GdnReport> judge(const GdnReference& reference, const TensorFile& dump, const CompareOptions& options) {
    GdnReport report;
    Compared all;
    GDNCTL_TRY(compare_tensors(reference, dump, options, all, report));
    list_unjudged(reference, dump, report);
    const bool any_value = std::any_of(report.tensors.begin(), report.tensors.end(),
                                       [](const TensorReport& t) { return element_count(t.shape).value_or(0) > 0; });
    if (!any_value) {
        report.reason = dump.tensors.empty()
                            ? "the dump is empty"
                            : "the dump contains no value of out, final_state or a gradient that can be judged";
        return report;
    }
    conclude(reference, options, report);
    if (report.verdict == Verdict::wrong && matches_declared_otherwise(reference, all.forward, report, options)) {
        report.verdict = Verdict::unstable_input;
        report.reason = reference.unstable_reason;
    }
    locate(reference, all, options, report);
    return report;
}

}  // namespace gdnctl::oracle
