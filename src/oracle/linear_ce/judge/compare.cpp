#include "oracle/linear_ce/judge/compare.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/findings.h"
#include "oracle/linear_ce/judge/invariants.h"
#include "oracle/linear_ce/judge/limits.h"
#include "oracle/linear_ce/judge/sampling.h"
#include "oracle/linear_ce/judge/tally.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::linear_ce {

namespace {

Worst at(const char* tensor, const char* axes, std::vector<std::size_t> index) {
    Worst w;
    w.tensor = tensor;
    w.axes = axes;
    w.index.assign(index.begin(), index.end());
    return w;
}

// What a sample may cost where the dump does not say the logsumexps of all rows.
constexpr double k_most_flop = 1e12;

class Comparer {
public:
    Comparer(const Problem& problem, const Dump& dump, const CompareOptions& options)
        : m_problem(problem),
          m_dump(dump),
          m_options(options),
          m_found{problem, dump, {}, {}, {}, {}, false, false, false, false, false, false, 0, 0, options.work} {}

    Report run() {
        choose();
        if (m_options.level != Level::invariants) {
            rows();
            columns();
        } else {
            if (m_dump.lse != nullptr) m_found.lse = to_f64(*m_dump.lse);
            m_report.checks.push_back({"rows", "not_run", 0, 1});
            m_report.checks.push_back({"columns", "not_run", 0, 1});
        }
        invariants();
        missing();
        conclude();
        return std::move(m_report);
    }

private:
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
        if (m_options.level == Level::exact) {
            m_found.lse = m_found.rows.lse;
        } else if (m_dump.lse != nullptr) {
            m_found.lse = to_f64(*m_dump.lse);
        } else if (m_dump.gw != nullptr && forward_flop() < k_most_flop) {
            m_found.lse = truth_of_rows(m_problem, all_of(m_problem.batch), false, m_options.work).lse;
        }
        if (m_dump.loss != nullptr) m_found.loss_wrong = row_values("loss", *m_dump.loss, m_found.rows.loss, true);
        if (m_dump.lse != nullptr) m_found.lse_wrong = row_values("lse", *m_dump.lse, m_found.rows.lse, false);
        if (m_dump.reduced != nullptr) reduced();
        if (m_dump.gx != nullptr) gx();
        if (m_dump.argmax != nullptr) argmax();
        check("rows", m_report.tensors.size());
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
        const ErrorClass error_class = class_of(m_problem, got);
        Tally tally(t);
        std::vector<double> errors(m_rows.size());
        for (std::size_t i = 0; i < m_rows.size(); ++i) {
            // Kernels give 0 or lse - s[0] there.
            if (of_loss && m_problem.ignored[m_rows[i]]) continue;
            const double limit = row_limit(error_class, m_found.rows.lse[i], of_loss ? m_found.rows.loss[i] : 0);
            errors[i] = tally.add(element(got, m_rows[i]), want[i], limit, [&] { return at(name, "b", {m_rows[i]}); });
        }
        tally.finish();
        m_report.row_errors.push_back({name, std::move(errors)});
        return t.verdict == Verdict::wrong;
    }

    // Of the truth's rows, or of the dump's own where only some rows are known.
    void reduced() {
        const bool exact = m_options.level == Level::exact;
        if (!exact && (m_dump.loss == nullptr || m_dump.lse == nullptr)) {
            m_report.not_compared.push_back({"reduced", "needs loss and lse of all rows"});
            return;
        }
        const std::vector<double> loss = exact ? m_found.rows.loss : to_f64(*m_dump.loss);
        const std::vector<double> lse = exact ? m_found.rows.lse : to_f64(*m_dump.lse);
        const double a = row_tolerance(class_of(m_problem, *m_dump.reduced));
        const double want = reduced_of(m_problem, loss, lse);
        double limit = a * std::fabs(want);
        const double total = m_problem.total_weight;
        for (std::size_t i = 0; i < m_problem.batch; ++i) {
            const double part = m_problem.c().reduction == Reduction::mean
                                    ? (total == 0 ? 0 : m_problem.weight[i] / total)
                                    : m_problem.weight[i];
            // The penalty's own error is that of lse, 2 lambda lse times.
            const double slope = 1 + 2 * std::fabs(m_problem.c().logsumexp_weight * lse[i]);
            if (part != 0) limit += std::fabs(part) * slope * (a + a * std::fabs(lse[i]));
        }
        if (class_of(m_problem, *m_dump.reduced) == ErrorClass::stored_bf16) limit += 1e-2 * std::fabs(want) + 1e-2;
        TensorVerdict& t = tensor("reduced", *m_dump.reduced);
        Tally tally(t);
        tally.add(element(*m_dump.reduced, 0), want, limit, [] { return at("reduced", "", {}); });
        tally.finish();
        m_found.reduced_wrong = t.verdict == Verdict::wrong;
    }

    void note_loose(TensorVerdict& t, const Tensor& gradient) const {
        t.loose = class_of(m_problem, gradient) != ErrorClass::f32 && t.relative_max > 1e-2;
    }

    static double largest_of(const std::vector<double>& values) {
        double largest = 0;
        for (const double x : values) largest = std::max(largest, std::fabs(x));
        return largest;
    }

    void gx() {
        const std::vector<double>& lse = m_found.lse.empty() ? m_found.rows.lse : m_found.lse;
        std::vector<double> all(m_problem.batch);
        if (m_found.lse.empty()) {
            for (std::size_t i = 0; i < m_rows.size(); ++i) all[m_rows[i]] = lse[i];
        } else {
            all = lse;
        }
        const GradientLimit limit = gradient_limit(m_problem, *m_dump.gx, all);
        m_found.gx_limit = limit.relative * largest_of(m_found.rows.gx) + limit.floor_gx;
        TensorVerdict& t = tensor("gx", *m_dump.gx);
        Tally tally(t);
        std::vector<double> errors(m_rows.size());
        for (std::size_t i = 0; i < m_rows.size(); ++i) {
            for (std::size_t h = 0; h < m_problem.hidden; ++h) {
                const double error = tally.add(element(*m_dump.gx, m_rows[i] * m_problem.hidden + h),
                                               m_found.rows.gx[i * m_problem.hidden + h], m_found.gx_limit,
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
        run_tasks(m_rows.size(), m_options.work.threads,
                  [&] { return [&](std::size_t i) { excess[i] = argmax_error(i, got[m_rows[i]]); }; });
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

    double argmax_error(std::size_t i, std::int64_t got) const {
        const std::int64_t want = m_found.rows.argmax[i];
        if (got == want) return 0;
        if (got < 0 || got >= static_cast<std::int64_t>(m_problem.vocab)) return HUGE_VAL;
        const auto column = static_cast<std::size_t>(got);
        const double cap = m_problem.c().soft_cap;
        const std::vector<double> z = logits_of(m_problem, m_rows[i], 0, column + 1);
        if (std::find(z.begin(), z.end() - 1, z.back()) != z.end() - 1) return HUGE_VAL;  // a tie with a lower id
        const double s = cap > 0 ? cap * std::tanh(z.back() / cap) : z.back();
        return (m_found.rows.largest[i] - s) / row_limit(ErrorClass::f32, m_found.rows.lse[i], 0);
    }

    void columns() {
        if (m_dump.gw == nullptr) return check("columns", m_report.tensors.size());
        const char* why = m_found.lse.empty()                                    ? "needs lse of all rows"
                          : m_found.lse_wrong && m_options.level != Level::exact ? "needs a right lse of all rows"
                                                                                 : nullptr;
        if (why != nullptr) {
            m_report.not_compared.push_back({"gw", why});
            return check("columns", m_report.tensors.size());
        }
        m_found.gw = truth_of_columns(m_problem, m_found.columns, m_found.lse, m_options.work);
        const GradientLimit limit = gradient_limit(m_problem, *m_dump.gw, m_found.lse);
        m_found.gw_limit = limit.relative * largest_of(m_found.gw) + limit.floor_gw;
        TensorVerdict& t = tensor("gw", *m_dump.gw);
        Tally tally(t);
        std::vector<double> errors(m_found.columns.size());
        const bool hv = m_problem.c().layout == Layout::hv;
        for (std::size_t i = 0; i < m_found.columns.size(); ++i) {
            for (std::size_t h = 0; h < m_problem.hidden; ++h) {
                const std::size_t v = m_found.columns[i];
                const double error =
                    tally.add(gw_element(m_problem, *m_dump.gw, h, v), m_found.gw[i * m_problem.hidden + h],
                              m_found.gw_limit, [&] { return hv ? at("gw", "h,v", {h, v}) : at("gw", "v,h", {v, h}); });
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
            // A gx that is loose, as when it was summed up in bf16, agrees with gw no better than with the truth: by
            // Cauchy and Schwarz, times pi / 2 for values that are normal.
            for (const TensorVerdict& t : m_report.tensors) {
                if (t.name == "gx" && t.loose) {
                    result.products.limit = std::max(result.products.limit, 1.6 * t.rms_ratio);
                }
            }
            const auto fill = [](CheckReport& to, const Invariant& from) {
                to = {to.name, from.holds() ? "OK" : "WRONG", from.value, from.limit};
            };
            fill(products, result.products);
            if (m_problem.c().soft_cap == 0 && !(penalty && m_found.lse.empty())) fill(sums, result.columns);
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
        double largest = -1;
        for (const TensorVerdict& t : m_report.tensors) {
            if (!t.worst || t.error_over_limit <= largest) continue;
            largest = t.error_over_limit;
            m_report.worst = t.worst;
        }
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
        m_report.reason = reason(wrong);
        if (m_options.hints) explain();
    }

    // With every row and column where that is cheap: an exchange of rows shows only where both are known.
    void explain() {
        constexpr double k_cheap_flop = 1e11;
        if (m_options.level == Level::sampled && 4 * forward_flop() < k_cheap_flop) {
            CompareOptions options = m_options;
            options.level = Level::exact;
            Report full = Comparer(m_problem, m_dump, options).run();
            if (full.verdict == Verdict::wrong) {
                m_report.stage = std::move(full.stage);
                m_report.stages = std::move(full.stages);
                m_report.hints = std::move(full.hints);
                m_report.place = std::move(full.place);
                return;
            }
        }
        diagnose(m_found, m_report);
    }

    std::string reason(const std::vector<std::string>& wrong) const {
        for (const TensorVerdict& t : m_report.tensors) {
            if (t.verdict != Verdict::wrong) continue;
            if (t.name == "argmax") return "argmax is not the lowest id of the largest logit";
            if (t.nonfinite > 0)
                return fmt::format("{} of {} compared values of {} are not finite", t.nonfinite, t.compared, t.name);
            return fmt::format("{} is {:.3g} times as far off as {} allows", t.name, t.error_over_limit, t.error_class);
        }
        return wrong.front() == "I1" ? "the gradients contradict each other: sum gx x is not sum gw w (I1)"
                                     : "the sums of gw over the vocabulary are not those of d_lse (I2)";
    }

    const Problem& m_problem;
    const Dump& m_dump;
    const CompareOptions& m_options;
    std::vector<std::size_t> m_rows;
    Findings m_found;
    Report m_report;
    std::size_t m_checked = 0;
};

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
        report = Comparer(problem, dump, options).run();
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
