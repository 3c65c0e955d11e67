#include "oracle/linear_ce/judge/probe.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "oracle/linear_ce/judge/limits.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::linear_ce {

std::vector<double> capped(std::vector<double> z, double cap) {
    if (cap > 0) {
        for (double& x : z) x = cap * std::tanh(x / cap);
    }
    return z;
}

double logsumexp(const std::vector<double>& s) {
    double largest = -HUGE_VAL;
    for (const double x : s) largest = std::max(largest, x);
    double sum = 0;
    for (const double x : s) sum += std::exp(x - largest);
    return largest + std::log(sum);
}

double to_bf16(double x) { return static_cast<double>(widened(narrowed(static_cast<float>(x)))); }

std::vector<double> rounded(std::vector<double> z, bool round) {
    for (std::size_t i = 0; i < z.size() && round; ++i) z[i] = to_bf16(z[i]);
    return z;
}

std::vector<ProbeRow> probe(const Findings& findings, const std::vector<std::size_t>& at) {
    std::vector<ProbeRow> rows(at.size());
    run_tasks(at.size(), findings.work.threads, [&] {
        return [&](std::size_t i) {
            ProbeRow& r = rows[i];
            r.at = at[i];
            r.row = findings.rows.rows[at[i]];
            r.z = rounded(logits_of(findings.problem, r.row, 0, findings.problem.vocab),
                          findings.problem.forward_rounds());
            r.s = capped(r.z, findings.problem.c().soft_cap);
            r.lse = findings.rows.lse[at[i]];
        };
    });
    return rows;
}

std::vector<std::size_t> some_of(const std::vector<std::size_t>& all, std::size_t count) {
    if (all.size() <= count) return all;
    std::vector<std::size_t> some;
    for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * (all.size() - 1) / (count - 1)]);
    return some;
}

std::vector<std::size_t> block_sizes(std::size_t count) {
    std::set<std::size_t> sizes;
    for (std::size_t size = 4; size < count; size *= 2) {
        sizes.insert(size);
        if (size >= 128 && size * 3 / 2 < count) sizes.insert(size * 3 / 2);
    }
    for (std::size_t shares = 2; shares <= 8 && shares < count; ++shares) {
        sizes.insert((count + shares - 1) / shares);
        sizes.insert(count / shares);
    }
    return {sizes.rbegin(), sizes.rend()};
}

double row_limit_of(const Findings& findings, const Tensor& tensor, std::size_t at) {
    const RowTruth& rows = findings.rows;
    const bool of_lse = &tensor == findings.dump.lse;
    return row_limit(class_of(findings.problem, tensor), rows.lse[at], of_lse ? 0 : rows.loss[at]) +
           (of_lse ? rows.lse_slack[at] : rows.loss_slack[at]);
}

std::vector<std::size_t> wrong_rows(const Findings& findings, const Tensor& tensor, const std::vector<double>& want,
                                    bool of_loss) {
    std::vector<std::size_t> wrong;
    for (std::size_t i = 0; i < findings.rows.rows.size(); ++i) {
        const std::size_t row = findings.rows.rows[i];
        if (of_loss && findings.problem.ignored[row]) continue;
        if (!(std::fabs(element(tensor, row) - want[i]) <= row_limit_of(findings, tensor, i))) wrong.push_back(i);
    }
    return wrong;
}

std::vector<std::size_t> rows_of(const Findings& findings, const std::vector<std::size_t>& at) {
    std::vector<std::size_t> rows;
    rows.reserve(at.size());
    for (const std::size_t i : at) rows.push_back(findings.rows.rows[i]);
    return rows;
}

bool is_run(const std::vector<std::size_t>& numbers, std::size_t all) {
    return !numbers.empty() && numbers.size() < all && numbers.back() - numbers.front() + 1 == numbers.size();
}

}  // namespace gdnctl::oracle::linear_ce
