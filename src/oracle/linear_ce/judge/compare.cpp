// The verdict on a dump: which rows and columns are compared, each tensor's errors, invariants, and other contracts
// under which it would be right.
#include "oracle/linear_ce/judge/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/diagnose.h"
#include "oracle/linear_ce/judge/limits.h"
#include "oracle/linear_ce/judge/problem.h"
#include "oracle/simd/tasks.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle::linear_ce {

namespace {

constexpr std::size_t k_tpu_lanes = 128;  // of a TPU: every block there is a multiple

// Draws until `chosen` has `count` of the numbers below `limit`.
std::vector<std::size_t> filled(std::set<std::size_t> chosen, std::size_t count, std::size_t limit, Random random) {
    while (chosen.size() < std::min(count, limit)) chosen.insert(random.bits() % limit);
    return {chosen.begin(), chosen.end()};
}

std::size_t last_block(std::size_t vocab) { return (vocab - 1) / k_tpu_lanes * k_tpu_lanes; }

bool beside_an_edge(std::size_t label, std::size_t block) {
    const std::size_t at = label % block;
    return label >= block - 1 && (at <= 1 || at == block - 1);
}

// In ascending order, at most `count`: rows with labels at both ends of the vocabulary, in its last partial block and
// beside the edges of blocks, rows without weight, then random ones.
std::vector<std::size_t> sampled_rows(const Problem& problem, std::size_t count, std::uint64_t seed) {
    if (count >= problem.batch) return filled({}, problem.batch, problem.batch, Random(seed, 1));
    const std::size_t share = std::max(count / 8, std::size_t{1});  // of each kind
    std::set<std::size_t> chosen;
    const auto take = [&](const auto& wanted) {
        std::size_t taken = 0;
        for (std::size_t i = 0; i < problem.batch && taken < share && chosen.size() < count; ++i) {
            if (wanted(i) && chosen.insert(i).second) ++taken;
        }
    };
    const auto label = [&](std::size_t i) { return static_cast<std::size_t>(problem.labels[i]); };
    take([&](std::size_t i) { return label(i) == 0; });
    take([&](std::size_t i) { return label(i) == problem.vocab - 1; });
    take([&](std::size_t i) { return label(i) >= last_block(problem.vocab); });
    take([&](std::size_t i) { return problem.weight[i] == 0; });
    take([&](std::size_t i) { return beside_an_edge(label(i), 1024); });
    take([&](std::size_t i) { return beside_an_edge(label(i), k_tpu_lanes); });
    return filled(std::move(chosen), count, problem.batch, Random(seed, 1));
}

// In ascending order: both ends of the vocabulary and of its last block, the labels of `rows`, then random ones.
std::vector<std::size_t> sampled_columns(const Problem& problem, const std::vector<std::size_t>& rows,
                                         std::size_t count, std::uint64_t seed) {
    if (count >= problem.vocab) return filled({}, problem.vocab, problem.vocab, Random(seed, 2));
    std::set<std::size_t> chosen;
    const auto take = [&](std::size_t column) {
        if (chosen.size() < count) chosen.insert(column);
    };
    for (const std::size_t column : {std::size_t{0}, problem.vocab - 1, last_block(problem.vocab)}) take(column);
    for (const std::size_t row : rows) take(static_cast<std::size_t>(problem.labels[row]));
    return filled(std::move(chosen), count, problem.vocab, Random(seed, 2));
}

// The figures of one compared tensor.

// Adds up the comparison of one tensor, element by element.
class Tally {
public:
    explicit Tally(TensorVerdict& to) : m_to(to) {}

    // The error as a multiple of the limit.
    template <class Index>
    double add(double got, double want, double limit, const Index& index) {
        ++m_to.compared;
        const double error = std::fabs(got - want);
        double excess = limit > 0 ? error / limit : (error == 0 ? 0 : HUGE_VAL);
        if (!std::isfinite(got)) {
            ++m_to.nonfinite;
            excess = HUGE_VAL;
        } else {
            m_to.max_abs = std::max(m_to.max_abs, error);
            m_errors += error * error;
        }
        m_truth += want * want;
        m_largest = std::max(m_largest, std::fabs(want));
        if (m_to.worst && excess <= m_to.error_over_limit) return excess;
        m_to.error_over_limit = excess;
        m_to.worst = index();
        m_to.worst->got = got;
        m_to.worst->want = want;
        return excess;
    }

    void finish() {
        if (m_to.error_over_limit > 1) m_to.verdict = Verdict::wrong;
        m_to.rms_ratio = m_truth > 0 ? std::sqrt(m_errors / m_truth) : (m_errors > 0 ? HUGE_VAL : 0);
        m_to.relative_max = m_largest > 0 ? m_to.max_abs / m_largest : (m_to.max_abs > 0 ? HUGE_VAL : 0);
    }

private:
    TensorVerdict& m_to;
    double m_errors = 0, m_truth = 0, m_largest = 0;
};

// A dump against the exact result under one contract.

Worst at(const char* tensor, const char* axes, std::vector<std::size_t> index) {
    Worst w;
    w.tensor = tensor;
    w.axes = axes;
    w.index.assign(index.begin(), index.end());
    return w;
}

// What a sample may cost where the dump does not say the logsumexps of all rows.
constexpr double k_most_flop = 1e12;
// What the scalar, and what the search for a mistake, may cost.
constexpr double k_cheap_flop = 1e11;

class Comparer {
public:
    Comparer(const Problem& problem, const Dump& dump, const CompareOptions& options)
        : m_problem(problem),
          m_dump(dump),
          m_options(options),
          m_found{problem, dump, {}, {}, {}, {}, {}, false, false, false, false, false, false, {}, {}, options.work} {}

    // The report without what explains it.
    const Report& run() {
        choose();
        if (m_options.level != Level::invariants) {
            rows();
            columns();
        } else {
            if (is_wide(m_dump.lse)) m_found.lse = to_f64(*m_dump.lse);
            m_report.checks.push_back({"rows", "not_run", 0, 1});
            m_report.checks.push_back({"columns", "not_run", 0, 1});
        }
        invariants();
        missing();
        conclude();
        return m_report;
    }

    // With every row and column where that is cheap: an exchange of rows shows only where both are known.
    void explain() {
        if (m_options.level == Level::sampled && 4 * forward_flop() < k_cheap_flop) {
            CompareOptions options = m_options;
            options.level = Level::exact;
            Comparer all(m_problem, m_dump, options);
            if (all.run().verdict == Verdict::wrong) {
                all.explain();
                m_report.stage = std::move(all.m_report.stage);
                m_report.stages = std::move(all.m_report.stages);
                m_report.hints = std::move(all.m_report.hints);
                m_report.place = std::move(all.m_report.place);
                return;
            }
        }
        diagnose(m_found, m_report);
    }

    const Report& report() const { return m_report; }
    Report take() { return std::move(m_report); }

private:
    static bool is_wide(const Tensor* tensor) { return tensor != nullptr && !is_narrow(tensor->dtype); }

    void choose() {
        const bool exact = m_options.level == Level::exact;
        m_rows = exact ? all_of(m_problem.batch) : sampled_rows(m_problem, m_options.rows, m_options.seed);
        m_found.columns =
            exact ? all_of(m_problem.vocab) : sampled_columns(m_problem, m_rows, m_options.columns, m_options.seed);
        m_report.compared_rows = m_rows;
        m_report.compared_columns = m_found.columns;
        if (m_options.level != Level::sampled) return;
        m_report.sampled_rows = m_rows;
        m_report.sampled_columns = m_found.columns;
    }

    TensorVerdict& tensor(const char* name, const Tensor& tensor) {
        TensorVerdict& t = m_report.tensors.emplace_back();
        t.name = name;
        t.shape = tensor.shape;
        t.stored = tensor.dtype;
        t.error_class = name_of(class_of(m_problem, tensor));
        return t;
    }

    void rows() {
        m_found.rows = truth_of_rows(m_problem, m_rows, m_dump.gx != nullptr, m_options.work);
        know_all_rows();
        if (m_dump.loss != nullptr) m_found.loss_wrong = row_values("loss", *m_dump.loss, m_found.rows.loss, true);
        if (m_dump.lse != nullptr) m_found.lse_wrong = row_values("lse", *m_dump.lse, m_found.rows.lse, false);
        if (m_dump.reduced != nullptr) reduced();
        if (m_dump.gx != nullptr) gx();
        if (m_dump.argmax != nullptr) argmax();
        check("rows", m_report.tensors.size());
    }

    // loss and lse of all rows, for what is made of all of them: our own where that is cheap and the dump has not got
    // them in fp32.
    void know_all_rows() {
        const bool of_gw = m_dump.gw != nullptr && !is_wide(m_dump.lse);
        const bool of_reduced = m_dump.reduced != nullptr && !(is_wide(m_dump.loss) && is_wide(m_dump.lse));
        if (m_options.level == Level::exact) {
            m_all = m_found.rows;
        } else if ((of_gw && forward_flop() < k_most_flop) || (of_reduced && forward_flop() < k_cheap_flop)) {
            m_all = truth_of_rows(m_problem, all_of(m_problem.batch), false, m_options.work);
        }
        if (m_all) {
            m_found.loss = m_all->loss;
            m_found.lse = m_all->lse;
            return;
        }
        if (is_wide(m_dump.loss)) m_found.loss = to_f64(*m_dump.loss);
        if (is_wide(m_dump.lse)) m_found.lse = to_f64(*m_dump.lse);
    }

    double forward_flop() const {
        return 2 * static_cast<double>(m_problem.batch) * static_cast<double>(m_problem.hidden) *
               static_cast<double>(m_problem.vocab);
    }

    // The check over the first `count` tensors not covered by an earlier one.
    void check(const char* name, std::size_t count) {
        CheckReport c{name, "not_run", 0, 1};
        for (; m_checked < count; ++m_checked) {
            c.verdict = c.verdict == "WRONG" || m_report.tensors[m_checked].verdict == Verdict::wrong ? "WRONG" : "OK";
            c.value = std::max(c.value, m_report.tensors[m_checked].error_over_limit);
        }
        m_report.checks.push_back(std::move(c));
    }

    bool row_values(const char* name, const Tensor& got, const std::vector<double>& want, bool of_loss) {
        TensorVerdict& t = tensor(name, got);
        Tally tally(t);
        std::vector<double> errors(m_rows.size());
        for (std::size_t i = 0; i < m_rows.size(); ++i) {
            // Kernels give 0 or lse - s[0] there.
            if (of_loss && m_problem.ignored[m_rows[i]]) continue;
            const double limit = row_limit_of(m_found, got, i);
            errors[i] = tally.add(element(got, m_rows[i]), want[i], limit, [&] { return at(name, "b", {m_rows[i]}); });
        }
        tally.finish();
        m_report.row_errors.push_back({name, std::move(errors)});
        return t.verdict == Verdict::wrong;
    }

    void reduced() {
        if (m_found.loss.empty() || m_found.lse.empty()) {
            m_report.not_compared.push_back({"reduced", "needs loss and lse of all rows in fp32"});
            return;
        }
        const double want = reduced_of(m_problem, m_found.loss, m_found.lse);
        const double limit = reduced_limit(m_problem, m_dump, want, m_found.loss, m_found.lse,
                                           m_all ? m_all->loss_slack : std::vector<double>());
        TensorVerdict& t = tensor("reduced", *m_dump.reduced);
        Tally tally(t);
        tally.add(element(*m_dump.reduced, 0), want, limit, [] { return at("reduced", "", {}); });
        tally.finish();
        m_found.reduced_wrong = t.verdict == Verdict::wrong;
    }

    void note_loose(TensorVerdict& t, const Tensor& gradient) const {
        t.loose = class_of(m_problem, gradient) != ErrorClass::f32 && t.relative_max > 1e-2;
    }

    void gx() {
        const std::vector<double>& lse = m_found.lse.empty() ? m_found.rows.lse : m_found.lse;
        std::vector<double> all(m_problem.batch);
        if (m_found.lse.empty()) {
            for (std::size_t i = 0; i < m_rows.size(); ++i) all[m_rows[i]] = lse[i];
        } else {
            all = lse;
        }
        m_found.gx_limit = gx_limit(m_problem, m_dump, m_found.rows, all);
        TensorVerdict& t = tensor("gx", *m_dump.gx);
        Tally tally(t);
        std::vector<double> errors(m_rows.size());
        for (std::size_t i = 0; i < m_rows.size(); ++i) {
            for (std::size_t h = 0; h < m_problem.hidden; ++h) {
                const double want = m_found.rows.gx[i * m_problem.hidden + h];
                const double error =
                    tally.add(element(*m_dump.gx, m_rows[i] * m_problem.hidden + h), want, m_found.gx_limit.at(i, want),
                              [&] { return at("gx", "b,h", {m_rows[i], h}); });
                errors[i] = std::max(errors[i], error);
            }
        }
        tally.finish();
        m_report.row_errors.push_back({"gx", std::move(errors)});
        note_loose(t, *m_dump.gx);
        m_found.gx_wrong = t.verdict == Verdict::wrong;
    }

    // Accepts what honest rounding can take for the largest; among equal raw logits the lowest id.
    void argmax() {
        TensorVerdict& t = tensor("argmax", *m_dump.argmax);
        const std::vector<std::int64_t> got = to_i64(*m_dump.argmax);
        std::vector<double> excess(m_rows.size());
        run_tasks(m_rows.size(), m_options.work.threads, [&] {
            return [&](std::size_t i) { excess[i] = argmax_excess(m_problem, m_found.rows, i, got[m_rows[i]]); };
        });
        for (std::size_t i = 0; i < m_rows.size(); ++i) {
            ++t.compared;
            if (t.worst && excess[i] <= t.error_over_limit) continue;
            t.error_over_limit = excess[i];
            t.worst = at("argmax", "b", {m_rows[i]});
            t.worst->got = static_cast<double>(got[m_rows[i]]);
            t.worst->want = static_cast<double>(m_found.rows.argmax[i]);
        }
        if (t.error_over_limit > 1) t.verdict = Verdict::wrong;
        m_report.row_errors.push_back({"argmax", std::move(excess)});
        m_found.argmax_wrong = t.verdict == Verdict::wrong;
    }

    void columns() {
        if (m_dump.gw == nullptr) return check("columns", m_report.tensors.size());
        const char* why = m_found.lse.empty()           ? "needs lse of all rows in fp32"
                          : m_found.lse_wrong && !m_all ? "needs a right lse of all rows"
                                                        : nullptr;
        if (why != nullptr) {
            m_report.not_compared.push_back({"gw", why});
            return check("columns", m_report.tensors.size());
        }
        m_found.gw = truth_of_columns(m_problem, m_found.columns, m_found.lse, m_options.work);
        m_found.gw_limit = gw_limit(m_problem, m_dump, m_all ? *m_all : m_found.rows, m_found.lse, m_found.gw);
        TensorVerdict& t = tensor("gw", *m_dump.gw);
        Tally tally(t);
        std::vector<double> errors(m_found.columns.size());
        const bool hv = m_problem.c().layout == Layout::hv;
        for (std::size_t i = 0; i < m_found.columns.size(); ++i) {
            for (std::size_t h = 0; h < m_problem.hidden; ++h) {
                const std::size_t v = m_found.columns[i];
                const double want = m_found.gw[i * m_problem.hidden + h];
                const double error =
                    tally.add(gw_element(m_problem, *m_dump.gw, h, v), want, m_found.gw_limit.at(i, want),
                              [&] { return hv ? at("gw", "h,v", {h, v}) : at("gw", "v,h", {v, h}); });
                errors[i] = std::max(errors[i], error);
            }
        }
        tally.finish();
        m_report.column_errors.push_back({"gw", std::move(errors)});
        note_loose(t, *m_dump.gw);
        m_found.gw_wrong = t.verdict == Verdict::wrong;
        check("columns", m_report.tensors.size());
    }

    void invariants() {
        const bool both = m_dump.gx != nullptr && m_dump.gw != nullptr;
        const bool penalty = m_problem.c().logsumexp_weight != 0 && !m_problem.own_cotangents;
        CheckReport products{"I1", "not_run", 0, 0};
        CheckReport sums{"I2", "not_run", 0, 0};
        if (both) {
            const std::vector<double> lse = m_found.lse.empty() ? std::vector<double>(m_problem.batch) : m_found.lse;
            Invariants result = invariants_of(m_problem, m_dump, lse, m_options.work.threads);
            result.products.limit +=
                std::hypot(m_found.gx_wrong ? 0 : result.gx_noise, m_found.gw_wrong ? 0 : result.gw_noise);
            // A gx that is loose, as when it was summed up in bf16, agrees with gw no better than with the truth: by
            // Cauchy and Schwarz, times pi / 2 for values that are normal.
            for (const TensorVerdict& t : m_report.tensors) {
                if (t.name == "gx" && t.loose && !m_found.gx_wrong) {
                    result.products.limit = std::max(result.products.limit, 1.6 * t.rms_ratio);
                }
            }
            const auto fill = [](CheckReport& to, const Invariant& from) {
                to = {to.name, from.holds() ? "OK" : "WRONG", from.value, from.limit};
            };
            fill(products, result.products);
            // Exact logits under the lse of rounded ones have probabilities whose sum is not 1.
            const bool sum_to_1 = m_problem.forward_rounds() == m_problem.backward_rounds();
            if (m_problem.c().soft_cap == 0 && sum_to_1 && !(penalty && m_found.lse.empty())) {
                fill(sums, result.columns);
            }
            m_contradiction = result.products.holds() ? at("I2", "h", {result.columns.at}) : at("I1", "", {});
            const Invariant& shown = result.products.holds() ? result.columns : result.products;
            m_contradiction.got = shown.got;
            m_contradiction.want = shown.want;
        }
        m_report.checks.push_back(std::move(products));
        m_report.checks.push_back(std::move(sums));
    }

    void missing() {
        m_report.forward_only = m_dump.gx == nullptr && m_dump.gw == nullptr;
        const std::pair<const char*, const Tensor*> tensors[] = {
            {"loss", m_dump.loss}, {"lse", m_dump.lse},       {"gx", m_dump.gx},
            {"gw", m_dump.gw},     {"argmax", m_dump.argmax}, {"reduced", m_dump.reduced}};
        for (const auto& [name, found] : tensors) {
            const bool unasked = std::string_view(name) == "reduced" && m_problem.c().reduction == Reduction::none;
            if (found == nullptr && !unasked) m_report.not_compared.push_back({name, "not in the dump"});
            if (found != nullptr && m_options.level == Level::invariants) {
                m_report.not_compared.push_back({name, "level invariants compares no values"});
            }
        }
        if (m_options.level != Level::sampled) return;
        if (m_rows.size() < m_problem.batch) {
            m_report.not_compared.push_back(
                {"rows", fmt::format("{} of {} were not sampled", m_problem.batch - m_rows.size(), m_problem.batch)});
        }
        if (m_found.columns.size() < m_problem.vocab && m_dump.gw != nullptr) {
            m_report.not_compared.push_back(
                {"columns",
                 fmt::format("{} of {} were not sampled", m_problem.vocab - m_found.columns.size(), m_problem.vocab)});
        }
    }

    void conclude() {
        const TensorVerdict* largest = nullptr;
        for (const TensorVerdict& t : m_report.tensors) {
            if (t.worst && (largest == nullptr || t.error_over_limit > largest->error_over_limit)) largest = &t;
        }
        if (largest != nullptr) m_report.worst = largest->worst;
        std::vector<std::string> wrong;
        bool any = false;
        for (const CheckReport& c : m_report.checks) {
            any = any || c.verdict != "not_run";
            if (c.verdict == "WRONG") wrong.push_back(c.name);
        }
        if (!any) {
            m_report.verdict = Verdict::no_data;
            m_report.reason = "the dump contains nothing to compare";
            return;
        }
        m_report.verdict = wrong.empty() ? Verdict::ok : Verdict::wrong;
        m_report.invariants_hold = wrong.empty() && m_options.level == Level::invariants;
        if (wrong.empty()) return;
        const bool compared = largest != nullptr && largest->verdict == Verdict::wrong;
        m_report.reason = compared ? reason(*largest) : contradiction(wrong.front());
        if (!compared) m_report.worst = m_contradiction;
    }

    static std::string reason(const TensorVerdict& t) {
        if (t.name == "argmax") return "argmax is not the lowest id of the largest logit";
        if (t.nonfinite > 0)
            return fmt::format("{} of {} compared values of {} are not finite", t.nonfinite, t.compared, t.name);
        return fmt::format("{} is {:.3g} times as far off as {} allows", t.name, t.error_over_limit, t.error_class);
    }

    static std::string contradiction(const std::string& check) {
        return check == "I1" ? "the gradients contradict each other: sum gx x is not sum gw w (I1)"
                             : "the sums of gw over the vocabulary are not those of d_lse (I2)";
    }

    const Problem& m_problem;
    const Dump& m_dump;
    const CompareOptions& m_options;
    std::vector<std::size_t> m_rows;
    Findings m_found;
    std::optional<RowTruth> m_all;  // of all rows
    Worst m_contradiction;          // the two sums of an invariant that does not hold
    Report m_report;
    std::size_t m_checked = 0;
};

// A report that is WRONG is shown to `to_explain`, which says whether the mistake is to be searched for.
Report judged_as(const Problem& problem, const Dump& dump, const CompareOptions& options,
                 const std::function<bool(const Report&)>& to_explain) {
    Comparer comparer(problem, dump, options);
    if (comparer.run().verdict == Verdict::wrong && to_explain(comparer.report())) comparer.explain();
    return comparer.take();
}

// What to declare about a dump that is right under another contract than the one it was judged by.

struct Declaration {
    std::vector<std::string> sets;  // "logits=bf16"
    bool is_precision = false;      // nothing else: where the operation is right, and its rounding was not declared
    std::string stage, meaning;     // "rounding", "the logits are rounded to bf16"
};

struct Redeclared {
    std::string set, stage, meaning;
    Contract contract;
    bool precision = false;
};

// Each changes one field.
std::vector<Redeclared> other_contracts(const Problem& problem) {
    const Contract& declared = problem.c();
    std::vector<Redeclared> all;
    const auto add = [&](std::string set, std::string stage, std::string meaning, const auto& change) {
        const bool precision = stage == "rounding";
        all.push_back({std::move(set), std::move(stage), std::move(meaning), declared, precision});
        change(all.back().contract);
    };
    if (declared.logits == Logits::f32) {
        add("logits=bf16", "rounding", "the logits are rounded to bf16", [](Contract& c) { c.logits = Logits::bf16; });
    }
    if (declared.matmul == Matmul::exact && (problem.x.dtype == DType::f32 || problem.w.dtype == DType::f32)) {
        add("matmul=tf32", "rounding", "the operands of products are rounded to tf32",
            [](Contract& c) { c.matmul = Matmul::tf32; });
        add("matmul=bf16", "rounding", "the operands of products are rounded to bf16",
            [](Contract& c) { c.matmul = Matmul::bf16; });
    }
    if (declared.logits == Logits::bf16) {
        add("logits=f32", "rounding", "the logits are not rounded", [](Contract& c) { c.logits = Logits::f32; });
    }
    if (declared.soft_cap > 0) {
        add("soft_cap=none", "cap", "there is no soft cap", [](Contract& c) { c.soft_cap = 0; });
    }
    if (declared.logsumexp_weight != 0) {
        add("logsumexp_weight=0", "penalty", "there is no penalty", [](Contract& c) { c.logsumexp_weight = 0; });
    }
    for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
        if (problem.own_cotangents || declared.reduction == reduction) continue;
        add(fmt::format("reduction={}", name_of(reduction)), "reduction",
            fmt::format("the losses are reduced to their {}", name_of(reduction)),
            [reduction](Contract& c) { c.reduction = reduction; });
    }
    if (problem.hidden == problem.vocab) {
        const Layout other = declared.layout == Layout::hv ? Layout::vh : Layout::hv;
        add(fmt::format("layout={}", name_of(other)), "layout",
            fmt::format("w is {}", other == Layout::hv ? "[H,V]" : "[V,H]"),
            [other](Contract& c) { c.layout = other; });
    }
    return all;
}

bool is_forward(const TensorVerdict& t) { return t.name == "loss" || t.name == "lse" || t.name == "reduced"; }

// Whether what was wrong is now several times nearer: the forward, or the gradients where only they were. A backward
// may round less than its forward does.
bool explains(const Report& declared, const Report& before) {
    constexpr double k_nearer = 4;
    const auto& was = before.tensors;
    const bool forward = std::any_of(
        was.begin(), was.end(), [](const TensorVerdict& t) { return t.verdict == Verdict::wrong && is_forward(t); });
    return std::all_of(was.begin(), was.end(), [&](const TensorVerdict& t) {
        if (t.verdict != Verdict::wrong || is_forward(t) != forward || t.name == "argmax") return true;
        const auto is = std::find_if(declared.tensors.begin(), declared.tensors.end(),
                                     [&](const TensorVerdict& other) { return other.name == t.name; });
        return is != declared.tensors.end() && is->nonfinite == 0 && is->max_abs * k_nearer <= t.max_abs;
    });
}

// The fewest fields that make all of `dump` OK if they are declared too; nullopt: none do. A precision must explain the
// errors of `as_declared`, not merely allow them.
std::optional<Declaration> find_declaration(const Problem& problem, const TensorFile& dump,
                                            const CompareOptions& options, const Report& as_declared) {
    CompareOptions how = options;
    how.hints = false;
    const std::vector<Redeclared> all = other_contracts(problem);
    const auto holds = [&](const Contract& contract, bool precision) {
        const auto report = compare(redeclared(problem, contract), dump, how);
        return report && report->verdict == Verdict::ok && (!precision || explains(*report, as_declared));
    };
    for (const Redeclared& one : all) {
        if (holds(one.contract, one.precision)) return Declaration{{one.set}, one.precision, one.stage, one.meaning};
    }
    // Each costs as much as the comparison itself.
    constexpr double k_cheap = 1e10;
    const double products = static_cast<double>(problem.batch * problem.hidden) * static_cast<double>(problem.vocab);
    for (const Redeclared& operation : all) {
        if (products > k_cheap) break;
        for (const Redeclared& precision : all) {
            if (operation.precision || !precision.precision) continue;
            Contract both = operation.contract;
            both.matmul = precision.contract.matmul;
            both.logits = precision.contract.logits;
            if (!holds(both, true)) continue;
            return Declaration{
                {operation.set, precision.set}, false, operation.stage, operation.meaning + "; " + precision.meaning};
        }
    }
    return std::nullopt;
}

void apply(const Declaration& declaration, const Problem& problem, Report& report) {
    const auto is_redeclared = [&](const std::string& field) {
        return std::any_of(declaration.sets.begin(), declaration.sets.end(),
                           [&](const std::string& set) { return set.starts_with(field + "="); });
    };
    for (const Field& field : problem.contract.fields) {
        if (field.origin == "--set" && !is_redeclared(field.name))
            report.declare.insert(report.declare.end(), {"--set", field.name + "=" + field.value});
    }
    for (const std::string& set : declaration.sets) report.declare.insert(report.declare.end(), {"--set", set});
    report.stages = {declaration.stage};
    if (declaration.stage == "reduction") report.stages.emplace_back("weight");
    if (declaration.sets.front() == "logits=bf16") report.stages.emplace_back("lse");
    report.hints = {
        {declaration.stage,
         fmt::format("{} (declare it: --set {})", declaration.meaning, fmt::join(declaration.sets, " --set ")), 1}};
    report.stage = report.stages.front();
}

std::size_t wrong_count(const Report& report) {
    return static_cast<std::size_t>(std::count_if(report.tensors.begin(), report.tensors.end(),
                                                  [](const auto& t) { return t.verdict == Verdict::wrong; })) +
           static_cast<std::size_t>(std::count_if(report.checks.begin(), report.checks.end(),
                                                  [](const auto& c) { return c.verdict == "WRONG"; }));
}

// The one of the problem's forms that the dump is nearest to; nullopt: the problem itself.
std::optional<Problem> nearest_form(const Problem& problem, const Dump& dump, const CompareOptions& options) {
    if (problem.c().logits != Logits::bf16) return std::nullopt;
    const auto never = [](const Report&) { return false; };
    std::size_t least = wrong_count(judged_as(problem, dump, options, never));
    std::optional<Problem> nearest;
    for (const Rounds rounds : {Rounds::forward, Rounds::label_products}) {
        if (least == 0) break;
        Problem form = problem;
        form.rounds = rounds;
        const std::size_t wrong = wrong_count(judged_as(form, dump, options, never));
        if (wrong >= least) continue;
        least = wrong;
        nearest = std::move(form);
    }
    return nearest;
}

Report judged(const Problem& problem, const Dump& dump, const TensorFile& file, const CompareOptions& options) {
    const std::optional<Problem> form = nearest_form(problem, dump, options);
    std::optional<Declaration> declaration;
    Report report = judged_as(form ? *form : problem, dump, options, [&](const Report& wrong) {
        if (options.hints) declaration = find_declaration(problem, file, options, wrong);
        return options.hints && !(declaration && declaration->is_precision);
    });
    if (declaration) apply(*declaration, problem, report);
    return report;
}

}  // namespace

std::string_view name_of(Level level) {
    return level == Level::exact ? "exact" : level == Level::sampled ? "sampled" : "invariants";
}

Result<Report> compare(const Problem& problem, const TensorFile& file, const CompareOptions& options) {
    GDNCTL_TRY_ASSIGN(const Dump dump, read_dump(problem, file));
    Report report;
    for (const char* name : {"rows", "columns", "I1", "I2"}) report.checks.push_back({name, "not_run", 0, 0});
    if (!problem.unstable_reason.empty()) {
        report.verdict = Verdict::unstable_input;
        report.reason = problem.unstable_reason;
    } else if (!dump.any()) {
        report.reason = "the dump contains none of loss, lse, gx, gw, argmax and reduced";
    } else {
        report = judged(problem, dump, file, options);
    }
    for (const NamedTensor& entry : file.tensors) {
        const bool input = entry.name == "x" || entry.name == "w" || entry.name == "labels" || entry.name == "weight" ||
                           entry.name == "d_loss" || entry.name == "d_lse";
        if (!is_output_name(entry.name) && !input) report.unknown.push_back(entry.name);
    }
    report.unread = file.unread;
    return report;
}

}  // namespace gdnctl::oracle::linear_ce
