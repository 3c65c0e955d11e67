#include "oracle/gdn/compare/declare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "oracle/gdn/compare/groups.h"
#include "oracle/gdn/kernels/kernels.h"

namespace gdnctl::oracle {

namespace {

struct Candidate {
    std::string set;      // "field=value"
    std::string meaning;  // what the kernel does
};

// A relative error of this size is that of the precision of some kernel; a larger one means another operation.
constexpr double k_same_operation = 0.05;
// How much nearer a declaration must bring a dump that is farther off than that.
constexpr double k_nearer = 4;
// The part of the budget of a declared precision that a kernel of that precision uses.
constexpr double k_least_used = 0.25;
// How much more of it one head may use than another.
constexpr double k_uneven = 10;
// How many times smaller the error is under a mistake that explains it all.
constexpr double k_found = 100;

// Other meanings of the same tensors.
std::vector<Candidate> operations(const GdnReference& r) {
    const GdnContract& c = r.contract.value;
    const GdnDims& d = r.problem.dims;
    std::vector<Candidate> all;
    const auto add = [&](std::string set, std::string meaning) { all.push_back({std::move(set), std::move(meaning)}); };
    if (c.l2norm == L2Norm::off) {
        add("l2norm=rsqrt(sum+eps)", "q and k are normalised in the kernel");
    } else {
        add("l2norm=off", "q and k are not normalised in the kernel");
    }
    const bool usual_scale = !c.scale || std::fabs(*c.scale * std::sqrt(static_cast<double>(d.dk)) - 1) < 1e-6;
    if (usual_scale) {
        add("scale=1", "there is no scale");
    } else {
        add("scale=dk^-0.5", "the scale is dk^-0.5");
    }
    if (c.g_kind == GateKind::log) add("g_kind=alpha", "g is alpha, the decay itself");
    if (c.g_kind == GateKind::alpha) add("g_kind=log", "g is the log of the decay");
    if (c.beta_kind != BetaKind::prob) add("beta_kind=prob", "beta is used as it is");
    if (c.beta_kind != BetaKind::logit) add("beta_kind=logit", "beta is the sigmoid of what is given");
    if (c.beta_kind != BetaKind::twice_logit) add("beta_kind=2*logit", "beta is twice the sigmoid of what is given");
    if (d.Hv > d.Hk) {
        if (c.head_map == HeadMap::tiled) add("head_map=interleaved", "the head map is interleaved (key head h div r)");
        if (c.head_map != HeadMap::tiled) add("head_map=tiled", "the head map is tiled (key head h mod Hk)");
    }
    if (c.layout == TokenLayout::tokens_first) {
        add("layout=B,H,T,D", "the tensors are [B,H,T,D], heads before tokens");
    } else {
        add("layout=B,T,H,D", "the tensors are [B,T,H,D], tokens before heads");
    }
    if (d.dk == d.dv) {
        const bool key_value = c.state_layout == StateLayout::key_value;
        add(key_value ? "state_layout=B,H,V,K" : "state_layout=B,H,K,V",
            key_value ? "states are stored transposed, as V x K" : "states are stored as K x V");
    }
    return all;
}

// From the narrowest allowance to the widest.
std::vector<Candidate> precisions(const GdnContract& c) {
    std::vector<Candidate> all;
    if (c.out_dtype == OutDType::f32) {
        all.push_back({"out_dtype=bf16", "out is rounded to bf16"});
        all.push_back({"out_dtype=f16", "out is rounded to fp16"});
    }
    if (c.matmul == Matmul::f32) all.push_back({"matmul=bf16x3", "products take three passes of bf16 operands"});
    if (c.matmul == Matmul::f32 || c.matmul == Matmul::bf16x3) {
        all.push_back({"matmul=tf32", "operands of products are rounded to tf32"});
    }
    if (c.rounding == NormRounding::none && c.l2norm != L2Norm::off) {
        all.push_back({"rounding=input", "the normalised q and k are rounded to their input dtype"});
    }
    if (c.matmul != Matmul::bf16) all.push_back({"matmul=bf16", "operands of products are rounded to bf16"});
    if (c.gate_sum == SumDType::f32) all.push_back({"gate_sum=g", "gates are summed in their own dtype"});
    if (c.state_dtype == StateDType::f32) {
        all.push_back({"state_dtype=bf16", "the state is rounded to bf16 after each chunk"});
    }
    return all;
}

class DeclarationSearch {
public:
    DeclarationSearch(const TensorFile& inputs, const TensorFile& dump, const GdnReference& as_declared,
                      std::span<const std::string> sets, int threads)
        : m_inputs(inputs), m_dump(dump), m_r(as_declared), m_sets(sets), m_threads(threads) {}

    // A rounding that has been found exactly (`hint`) is no other one that allows as much.
    std::optional<Declaration> precision(const Hint& hint) const {
        const bool found = hint.improvement >= k_found;
        const auto asked = [&](const Candidate& c) { return !found || hint.text.find(c.set) != std::string::npos; };
        return distance_under({}) <= k_same_operation ? with_precision({}, asked) : std::nullopt;
    }

    std::optional<Declaration> operation() const {
        const double distance = distance_under({});
        const std::vector<Candidate> all = operations(m_r);
        std::vector<std::pair<double, std::vector<Candidate>>> near;
        const auto look = [&](std::vector<Candidate> chosen) {
            const double d = distance_under(chosen);
            if (d <= k_same_operation && d * k_nearer < distance) near.emplace_back(d, std::move(chosen));
        };
        for (const Candidate& one : all) look({one});
        for (std::size_t i = 0; near.empty() && i < all.size(); ++i) {
            for (std::size_t j = i + 1; j < all.size(); ++j) {
                if (field_of(all[i]) != field_of(all[j])) look({all[i], all[j]});
            }
        }
        std::sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        constexpr std::size_t k_tried = 3;
        for (std::size_t i = 0; i < std::min(near.size(), k_tried); ++i) {
            if (auto found = with_precision(near[i].second)) {
                found->improvement = std::min(distance / std::max(near[i].first, 1e-12), 1e12);
                return found;
            }
        }
        return std::nullopt;
    }

private:
    static std::string_view field_of(const Candidate& c) { return std::string_view(c.set).substr(0, c.set.find('=')); }

    static std::string stage_of(std::string_view field) {
        if (field == "g_kind") return "gate";
        if (field == "beta_kind") return "beta";
        return std::string(field == "state_layout" ? "layout" : field);
    }

    // nullopt: these tensors cannot have that meaning.
    std::optional<std::pair<ResolvedContract, GdnProblem>> problem_under(const std::vector<Candidate>& chosen) const {
        std::vector<std::string> sets(m_sets.begin(), m_sets.end());
        for (const Candidate& c : chosen) sets.push_back(c.set);
        auto contract = resolve_contract(m_r.contract.name, m_inputs.metadata, sets);
        if (!contract) return std::nullopt;
        auto problem = read_problem(m_inputs, *contract);
        if (!problem) return std::nullopt;
        return std::pair(std::move(*contract), std::move(*problem));
    }

    // The largest relative distance of out and the final state from the exact result; infinity: not finite, or none.
    double distance_under(const std::vector<Candidate>& chosen) const {
        const auto under = problem_under(chosen);
        if (!under) return HUGE_VAL;
        const auto& [contract, problem] = *under;
        const GdnOutputs truth = run_recurrent64(problem, contract.value, m_threads);
        double largest = -1;
        for (const std::string_view name : {"out", "final_state"}) {
            const auto entry = find_in_dump(m_dump, name, contract.value);
            if (!entry || *entry == nullptr) continue;
            std::vector<double> got = to_f64((*entry)->tensor);
            if (name == "out" && got.size() != truth.out.size()) return HUGE_VAL;
            if (name == "out") got = from_file_order(problem, std::move(got), problem.dims.Hv);
            if (name == "final_state" && contract.value.state_layout == StateLayout::value_key) {
                GdnDims swapped = problem.dims;
                std::swap(swapped.dk, swapped.dv);
                if (got.size() != truth.final_state.size()) return HUGE_VAL;
                got = to_layout(got, swapped, StateLayout::value_key);
            }
            largest = std::max(largest, relative(got, name == "out" ? truth.out : truth.final_state));
        }
        return largest < 0 ? HUGE_VAL : largest;
    }

    static double relative(const std::vector<double>& got, const std::vector<double>& want) {
        if (got.size() != want.size()) return HUGE_VAL;
        double error = 0, size = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
            if (std::isnan(got[i]) && want[i] == 0) continue;
            if (!std::isfinite(want[i]) || !std::isfinite(got[i])) return HUGE_VAL;
            error += (got[i] - want[i]) * (got[i] - want[i]);
            size += want[i] * want[i];
        }
        return size > 0 ? std::sqrt(error / size) : error > 0 ? HUGE_VAL : 0;
    }

    std::optional<Declaration> with_precision(
        const std::vector<Candidate>& chosen,
        const std::function<bool(const Candidate&)>& asked = [](const Candidate&) { return true; }) const {
        std::optional<GdnReference> plain;
        if (!chosen.empty()) {
            plain = reference_under(chosen);
            if (!plain) return std::nullopt;
            if (is_ok(*plain, false)) return declared(chosen);
        }
        const GdnReference& narrow = plain ? *plain : m_r;
        for (const Candidate& precision : precisions(narrow.contract.value)) {
            if (!asked(precision)) continue;
            std::vector<Candidate> all = chosen;
            all.push_back(precision);
            auto wide = reference_under(all);
            if (!wide || !is_ok(*wide, true)) continue;
            Declaration d = declared(all);
            d.widens = widened(narrow, *wide);
            if (chosen.empty()) d.stage = "rounding";
            return d;
        }
        return std::nullopt;
    }

    static Declaration declared(const std::vector<Candidate>& chosen) {
        Declaration d;
        for (const Candidate& c : chosen) {
            d.sets.push_back(c.set);
            d.meaning += (d.meaning.empty() ? "" : "; ") + c.meaning;
        }
        d.stage = stage_of(field_of(chosen.front()));
        return d;
    }

    std::optional<GdnReference> reference_under(const std::vector<Candidate>& chosen) const {
        auto under = problem_under(chosen);
        if (!under) return std::nullopt;
        return make_reference(std::move(under->second), std::move(under->first), m_threads);
    }

    bool is_ok(GdnReference& r, bool precision) const {
        CompareOptions options;
        options.hints = false;
        options.threads = m_threads;
        const auto forward = judge(r, m_dump, options);
        if (!forward || forward->verdict != Verdict::ok) return false;
        if (precision && !is_used(r, *forward)) return false;
        if (!m_r.backward) return true;
        if (!add_backward(r, m_inputs, m_dump, m_threads)) return false;
        const auto whole = judge(r, m_dump, options);
        return whole && whole->verdict == Verdict::ok;
    }

    // Whether the dump's errors are those of the declared precision: near the budget, and in every head alike.
    static bool is_used(const GdnReference& r, const GdnReport& forward) {
        double used = 0;
        for (const TensorReport& t : forward.tensors) used = std::max(used, t.error_over_budget);
        if (used < k_least_used) return false;
        double least = HUGE_VAL, most = 0;
        for (const HeadErrors& head : forward.errors) {
            double error = head.final_state.value_or(0);
            for (const double chunk : head.chunks) error = std::max(error, chunk);
            if (head.chunks.empty()) continue;  // a sequence without tokens
            least = std::min(least, error);
            most = std::max(most, error);
        }
        return r.unstable_reason.empty() && most <= k_uneven * least;
    }

    const TensorFile& m_inputs;
    const TensorFile& m_dump;
    const GdnReference& m_r;
    std::span<const std::string> m_sets;
    int m_threads;
};

}  // namespace

std::string widened(const GdnReference& narrow, const GdnReference& wide) {
    const auto ratio = [](const TensorBudget& before, const TensorBudget& after) {
        double largest = 0;
        for (std::size_t g = 0; g < std::min(before.groups.size(), after.groups.size()); ++g) {
            if (before.groups[g].rms > 0) largest = std::max(largest, after.groups[g].rms / before.groups[g].rms);
        }
        return largest;
    };
    const double out = ratio(narrow.out, wide.out);
    const double state = ratio(narrow.final_state, wide.final_state);
    if (std::max(out, state) < 1.1) return {};
    // Two digits are enough.
    double times = std::max(out, state);
    const double unit = std::max(0.1, std::pow(10, std::floor(std::log10(times)) - 1));
    times = std::round(times / unit) * unit;
    return fmt::format("widens the budget of {} {} times", out >= state ? "out" : "final_state",
                       times < 10 ? fmt::format("{:.1f}", times) : fmt::format("{:.0f}", times));
}

std::optional<Declaration> find_operation(const TensorFile& inputs, const TensorFile& dump,
                                          const GdnReference& as_declared, std::span<const std::string> sets,
                                          int threads) {
    return DeclarationSearch(inputs, dump, as_declared, sets, threads).operation();
}

std::optional<Declaration> find_precision(const TensorFile& inputs, const TensorFile& dump,
                                          const GdnReference& as_declared, std::span<const std::string> sets,
                                          const Hint& hint, int threads) {
    return DeclarationSearch(inputs, dump, as_declared, sets, threads).precision(hint);
}

namespace {

constexpr int k_longest_chunk = 512;
// How near the budget of its own chunk length a correct kernel is. Seen: 1.1.
constexpr double k_near = 2;
// A longer chunk widens no budget further than this: chunked forms count up to 30 times the other measurements.
constexpr double k_most_widened = 30;

bool declares_chunk(const ResolvedContract& contract) {
    // `oracle run` writes the default into its files.
    if (contract.value.chunk != GdnContract().chunk) return true;
    return std::any_of(contract.fields.begin(), contract.fields.end(), [](const ContractField& f) {
        return f.name == "chunk" && (f.origin == "--set" || f.origin == "--chunk");
    });
}

double worst_error(const GdnReport& report) {
    double worst = 0;
    for (const TensorReport& t : report.tensors) {
        // NaN is no error that a budget could allow.
        worst = t.error_over_budget <= HUGE_VAL ? std::max(worst, t.error_over_budget) : HUGE_VAL;
    }
    return worst;
}

}  // namespace

std::optional<LongerChunks> judge_with_longer_chunks(const GdnReference& r, const GdnReport& report,
                                                     const TensorFile& inputs, const TensorFile& dump, int threads) {
    if (report.verdict != Verdict::suspect && report.verdict != Verdict::wrong) return std::nullopt;
    if (declares_chunk(r.contract) || !r.unstable_reason.empty()) return std::nullopt;
    if (!(worst_error(report) <= k_near * k_most_widened)) return std::nullopt;
    std::int64_t tokens = 0;
    for (const GdnSequence& s : r.problem.sequences) tokens = std::max(tokens, s.end - s.begin);
    const CompareOptions plain{.hints = false, .threads = threads};
    for (int chunk = 2 * r.contract.value.chunk; chunk <= k_longest_chunk && tokens > chunk / 2; chunk *= 2) {
        ResolvedContract contract = r.contract;
        if (!set_field(contract, "chunk", fmt::format("{}", chunk), "found")) return std::nullopt;
        LongerChunks longer{make_reference(r.problem, std::move(contract), threads), {}, chunk};
        const auto near = [&] {
            auto judged = judge(longer.reference, dump, plain);
            if (!judged || !(worst_error(*judged) <= k_near)) return false;
            longer.report = std::move(*judged);
            return true;
        };
        if (!near()) continue;
        if (r.backward && (!add_backward(longer.reference, inputs, dump, threads) || !near())) continue;
        if (longer.report.verdict != Verdict::ok) continue;
        longer.report.reason =
            fmt::format("judged with the error budget of chunks of {} tokens; with chunks of {} it would be {}: {}",
                        chunk, r.contract.value.chunk, name_of(report.verdict), report.reason);
        return longer;
    }
    return std::nullopt;
}

}  // namespace gdnctl::oracle
