// Why loss, lse, argmax or the scalar is wrong.
#include "oracle/linear_ce/judge/diagnose.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include <fmt/format.h>

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

std::vector<std::size_t> rows_of(const Findings& findings, const std::vector<std::size_t>& at) {
    std::vector<std::size_t> rows;
    rows.reserve(at.size());
    for (const std::size_t i : at) rows.push_back(findings.rows.rows[i]);
    return rows;
}

bool is_run(const std::vector<std::size_t>& numbers, std::size_t all) {
    return !numbers.empty() && numbers.size() < all && numbers.back() - numbers.front() + 1 == numbers.size();
}

// Why lse is wrong: each known mistake predicts the wrong rows, and the one that predicts them best is named.

namespace {

// Rows whose values of one tensor are beyond their limits, as indices among the compared ones.
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

using Range = std::pair<std::size_t, std::size_t>;

struct Explanation {
    std::vector<std::string> stages;
    std::string text;
    std::optional<Range> block, hidden;
    double error = HUGE_VAL;  // the worst row's error / its limit that is left
};

class LseSearch {
public:
    LseSearch(const Findings& findings, std::vector<std::size_t> wrong, std::size_t probed = 6)
        : m_f(findings), m_wrong(std::move(wrong)), m_rows(probe(findings, some_of(m_wrong, probed))) {
        const Tensor* lse = m_f.dump.lse;
        for (const ProbeRow& r : m_rows) {
            // Without lse, the one that the loss implies if its label's logit is right.
            m_got.push_back(lse != nullptr ? element(*lse, r.row) : element(*m_f.dump.loss, r.row) + label_logit(r));
            m_limit.push_back(row_limit_of(m_f, lse != nullptr ? *lse : *m_f.dump.loss, r.at));
            before = std::max(before, std::fabs(m_got.back() - r.lse) / m_limit.back());
            m_before += std::fabs(m_got.back() - r.lse) / m_limit.back();
        }
    }

    std::optional<Explanation> best() {
        exchanged();
        roundings();
        transforms();
        caps();
        padding();
        suffix();
        blocks();
        hidden_blocks();
        return m_best;
    }

    // Instead of looking for them.
    std::vector<KnownMistake> list() {
        m_listed.emplace();
        roundings();
        transforms();
        caps();
        return std::move(*m_listed);
    }

    double before = 0;  // the worst row's error / its limit

private:
    using Predict = std::function<double(const ProbeRow&)>;

    // Earlier explanations win unless a later one leaves half the error or less. What rounds meets ties that fp32
    // decides otherwise: `loosely` asks for a tenth of the error over all rows instead.
    void consider(Explanation e, const Predict& predict, bool loosely = false) {
        if (m_listed) {
            KnownMistake& m = m_listed->emplace_back(KnownMistake{e.stages.front(), e.text});
            for (const ProbeRow& r : m_rows) {
                m.lse.push_back(predict(r));
                m.loss.push_back(m_f.rows.loss[r.at] + m.lse.back() - r.lse);
            }
            return;
        }
        e.error = 0;
        double sum = 0;
        for (std::size_t i = 0; i < m_rows.size() && (loosely || e.error <= 1); ++i) {
            const double left = std::fabs(predict(m_rows[i]) - m_got[i]) / m_limit[i];
            e.error = std::isnan(left) ? HUGE_VAL : std::max(e.error, left);
            sum += left;
        }
        // What is barely beyond its limit is explained by much: the error has to fall as well.
        const bool fits = (e.error <= 1 && e.error < before / 4) || (loosely && sum < m_before / 10);
        if (fits && (!m_best || e.error < m_best->error / 2)) m_best = std::move(e);
    }

    double label_logit(const ProbeRow& r) const { return r.s[static_cast<std::size_t>(m_f.problem.labels[r.row])]; }

    // Each wrong row holds what belongs to another one.
    void exchanged() {
        if (m_f.dump.lse == nullptr) return;
        bool all = m_wrong.size() > 1 || m_f.rows.rows.size() > 1;
        for (std::size_t i = 0; i < m_rows.size() && all; ++i) {
            all = false;
            for (std::size_t j = 0; j < m_f.rows.lse.size() && !all; ++j) {
                const bool same = std::fabs(m_f.rows.lse[j] - m_got[i]) <= m_limit[i] / 10;
                const double loss = m_f.dump.loss == nullptr ? 0 : element(*m_f.dump.loss, m_rows[i].row);
                const bool loss_too = m_f.dump.loss == nullptr || std::fabs(m_f.rows.loss[j] - loss) <= m_limit[i] / 10;
                all = j != m_rows[i].at && same && loss_too;
            }
        }
        if (!all || m_rows.empty()) return;
        m_best = Explanation{{"tile"}, "matches if the rows are those of other rows", {}, {}, 0};
    }

    void roundings() {
        const double cap = m_f.problem.c().soft_cap;
        consider(
            {{"lse"}, "matches if lse is rounded to bf16", {}, {}}, [](const ProbeRow& r) { return to_bf16(r.lse); },
            true);
        if (m_f.problem.forward_rounds()) return;
        consider(
            {{"rounding", "lse"}, "matches if the logits are rounded to bf16", {}, {}},
            [&](const ProbeRow& r) { return logsumexp(rounded(r.s)); }, true);
        consider(
            {{"rounding", "lse"}, "matches if the logits are rounded to bf16 before the cap", {}, {}},
            [&](const ProbeRow& r) { return logsumexp(capped(rounded(r.z), cap)); }, true);
    }

    static std::vector<double> scaled(std::vector<double> z, double by) {
        for (double& x : z) x *= by;
        return z;
    }

    void transforms() {
        const double cap = m_f.problem.c().soft_cap;
        const double log_2 = std::log(2.0);
        const auto log_of = [&](const char* text, const Predict& predict) {
            consider({{"lse"}, text, {}, {}}, predict);
        };
        log_of("matches if lse is the largest logit, without the logarithm of the sum",
               [](const ProbeRow& r) { return *std::max_element(r.s.begin(), r.s.end()); });
        log_of("matches if the largest logit is not added to the logarithm of the sum",
               [](const ProbeRow& r) { return r.lse - *std::max_element(r.s.begin(), r.s.end()); });
        log_of("matches if lse is the sum of the exponentials, without the logarithm",
               [](const ProbeRow& r) { return std::exp(r.lse); });
        log_of("matches if the logarithm is to base 2", [&](const ProbeRow& r) { return r.lse / log_2; });
        log_of("matches if exp2 is taken for exp", [&](const ProbeRow& r) { return logsumexp(scaled(r.s, log_2)); });
        log_of("matches if exp2 and log2 are taken without scaling the logits",
               [&](const ProbeRow& r) { return logsumexp(scaled(r.s, log_2)) / log_2; });
        log_of("matches if the logarithm is of the mean of the exponentials instead of their sum",
               [](const ProbeRow& r) { return r.lse - std::log(static_cast<double>(r.s.size())); });
        log_of("matches if the label's column is left out of the sum",
               [this](const ProbeRow& r) { return r.lse + std::log1p(-std::exp(label_logit(r) - r.lse)); });
        log_of("matches if the logits are divided by the square root of H", [&](const ProbeRow& r) {
            return logsumexp(capped(scaled(r.z, 1 / std::sqrt(static_cast<double>(m_f.problem.hidden))), cap));
        });
        log_of("matches if w is read in the other layout",
               [&](const ProbeRow& r) { return logsumexp(capped(misread_logits_of(m_f.problem, r.row), cap)); });
        if (m_f.dump.lse != nullptr) {
            log_of("matches if lse holds the loss", [this](const ProbeRow& r) { return r.lse - label_logit(r); });
        }
        for (const std::size_t size : block_sizes(m_f.problem.vocab)) {
            consider({{"lse"},
                      fmt::format("matches if the sum is not rescaled where a block of {} has a larger logit", size),
                      {},
                      {}},
                     [size](const ProbeRow& r) { return not_rescaled(r.s, size); });
        }
    }

    static double not_rescaled(const std::vector<double>& s, std::size_t block) {
        double largest = -HUGE_VAL;
        double sum = 0;
        for (std::size_t begin = 0; begin < s.size(); begin += block) {
            const std::size_t end = std::min(begin + block, s.size());
            for (std::size_t v = begin; v < end; ++v) largest = std::max(largest, s[v]);
            for (std::size_t v = begin; v < end; ++v) sum += std::exp(s[v] - largest);
        }
        return largest + std::log(sum);
    }

    void caps() {
        const double cap = m_f.problem.c().soft_cap;
        if (cap == 0) return;
        const auto cap_of = [&](const char* text, const std::function<double(double)>& s_of_z) {
            consider({{"cap"}, text, {}, {}}, [&](const ProbeRow& r) {
                std::vector<double> s = r.z;
                for (double& x : s) x = s_of_z(x);
                return logsumexp(s);
            });
        };
        cap_of("matches without the soft cap", [](double z) { return z; });
        cap_of("matches if the logits are capped twice", [&](double z) { return cap * std::tanh(std::tanh(z / cap)); });
        cap_of("matches if z is not divided by the cap", [&](double z) { return cap * std::tanh(z); });
        cap_of("matches if tanh is not multiplied by the cap", [&](double z) { return std::tanh(z / cap); });
        cap_of("matches if the logits are cut off at the cap", [&](double z) { return std::clamp(z, -cap, cap); });
    }

    // exp(lse_wrong) = exp(lse) + P with the number P of columns beyond the vocabulary that are counted as logit 0.
    void padding() {
        std::vector<double> counts;
        for (std::size_t i = 0; i < m_rows.size(); ++i) {
            counts.push_back(std::exp(m_got[i]) - std::exp(m_rows[i].lse));
        }
        if (counts.empty()) return;
        std::nth_element(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / 2), counts.end());
        const double columns = std::round(counts[counts.size() / 2]);
        if (!(columns >= 1 && columns < 1e9)) return;
        const std::size_t vocab = m_f.problem.vocab;
        const auto padding = static_cast<std::size_t>(columns);
        std::string as;
        Range range{vocab, vocab + padding};
        for (std::size_t size = 8; size <= 65536 && as.empty(); size *= 2) {
            if (size - vocab % size != padding) continue;
            as = fmt::format(", as with blocks of {}", size);
            range.first = vocab / size * size;
        }
        consider({{"tail"},
                  fmt::format("matches if {} columns beyond the vocabulary are counted{}", padding, as),
                  range,
                  {}},
                 [&](const ProbeRow& r) { return r.lse + std::log1p(columns * std::exp(-r.lse)); });
    }

    // Columns from some v on are missing: the v that the rows agree on.
    void suffix() {
        const std::size_t vocab = m_f.problem.vocab;
        if (m_rows.empty() || m_got[0] >= m_rows[0].lse) return;
        std::size_t low = 1;
        std::size_t high = vocab - 1;
        for (std::size_t i = 0; i < m_rows.size(); ++i) {
            double sum = 0;
            std::size_t first = vocab;
            std::size_t last = 0;
            for (std::size_t v = 0; v < vocab; ++v) {
                sum += std::exp(m_rows[i].s[v] - m_rows[i].lse);
                if (std::fabs(m_rows[i].lse + std::log(sum) - m_got[i]) > m_limit[i]) continue;
                first = std::min(first, v + 1);
                last = v + 1;
            }
            low = std::max(low, first);
            high = std::min(high, last);
        }
        if (low > high) return;
        std::size_t best = high;  // of those that fit, the one that the largest block ends at
        for (std::size_t size = std::size_t{1} << 20U; size > 1; size /= 2) {
            if (high / size * size >= low && high / size > 0) {
                best = high / size * size;
                break;
            }
        }
        consider({{"tail", "lse"},
                  fmt::format("matches if the columns from {} on are left out", best),
                  Range{best, vocab},
                  {}},
                 [&](const ProbeRow& r) {
                     return logsumexp({r.s.begin(), r.s.begin() + static_cast<std::ptrdiff_t>(best)});
                 });
    }

    // One block of the vocabulary is missing, or counted twice.
    void blocks() {
        const std::size_t vocab = m_f.problem.vocab;
        consider({{"lse", "tile"}, "matches if column 0 is left out", Range{0, 1}, {}},
                 [](const ProbeRow& r) { return r.lse + std::log1p(-std::exp(r.s.front() - r.lse)); });
        for (const std::size_t size : block_sizes(vocab)) {
            for (std::size_t begin = 0; begin < vocab; begin += size) {
                const Range range{begin, std::min(begin + size, vocab)};
                const auto mass = [&](const ProbeRow& r) {
                    double sum = 0;
                    for (std::size_t v = range.first; v < range.second; ++v) sum += std::exp(r.s[v] - r.lse);
                    return sum;
                };
                const bool partial = range.second == vocab && vocab % size != 0;
                const auto stages =
                    partial ? std::vector<std::string>{"tail", "lse"} : std::vector<std::string>{"lse", "tile"};
                consider({stages,
                          fmt::format("matches if the columns {} to {} are left out", range.first, range.second - 1),
                          range,
                          {}},
                         [&](const ProbeRow& r) { return r.lse + std::log1p(-mass(r)); });
                consider(
                    {stages,
                     fmt::format("matches if the columns {} to {} are counted twice", range.first, range.second - 1),
                     range,
                     {}},
                    [&](const ProbeRow& r) { return r.lse + std::log1p(mass(r)); });
            }
        }
    }

    // Some hidden dimensions are missing from the logits.
    void hidden_blocks() {
        const std::size_t hidden = m_f.problem.hidden;
        if (hidden < 2 || m_best) return;
        for (const std::size_t size : block_sizes(hidden)) {
            for (std::size_t begin = 0; begin < hidden; begin += size) {
                const Range range{begin, std::min(begin + size, hidden)};
                consider({{"lse"},
                          fmt::format("matches if the hidden dimensions {} to {} are left out", range.first,
                                      range.second - 1),
                          {},
                          range},
                         [&](const ProbeRow& r) {
                             std::vector<double> z = r.z;
                             const std::vector<double> part =
                                 partial_logits_of(m_f.problem, r.row, range.first, range.second);
                             for (std::size_t v = 0; v < z.size(); ++v) z[v] -= part[v];
                             return logsumexp(capped(std::move(z), m_f.problem.c().soft_cap));
                         });
                if (m_best) return;
            }
        }
    }

    const Findings& m_f;
    std::vector<std::size_t> m_wrong;
    std::vector<ProbeRow> m_rows;
    std::vector<double> m_got, m_limit;
    double m_before = 0;  // the sum over rows of error / limit
    std::optional<Explanation> m_best;
    std::optional<std::vector<KnownMistake>> m_listed;  // instead of m_best
};

// exp() of a logit beyond 88.7 is infinite in fp32: all rows with such logits are not finite, and no other row is.
bool overflows(const Findings& f, const std::vector<std::size_t>& wrong) {
    constexpr double k_largest = 88.72;
    std::vector<bool> is_wrong(f.rows.rows.size(), false);
    for (const std::size_t i : wrong) is_wrong[i] = true;
    for (std::size_t i = 0; i < is_wrong.size(); ++i) {
        if (is_wrong[i] != (f.rows.largest[i] > k_largest)) return false;
        if (is_wrong[i] && std::isfinite(element(*f.dump.lse, f.rows.rows[i]))) return false;
    }
    return true;
}

void explain(const Explanation& found, double before, Faults& faults) {
    faults.stages = found.stages;
    faults.hints.push_back({found.stages.front(), found.text, before / std::max(found.error, 1e-3)});
    faults.place->block = found.block;
    faults.place->hidden = found.hidden;
}

// lse is wrong.
Faults lse_faults(const Findings& f) {
    const std::vector<std::size_t> wrong = wrong_rows(f, *f.dump.lse, f.rows.lse, false);
    Faults faults;
    faults.place = FaultLocation{"lse", rows_of(f, wrong), {}, {}, {}};
    if (overflows(f, wrong)) {
        faults.stages = {"lse"};
        faults.hints.push_back({"lse", "the sum overflows: exponentials without the largest logit subtracted", 1});
        return faults;
    }
    LseSearch search(f, wrong);
    if (const auto found = search.best()) {
        explain(*found, search.before, faults);
        return faults;
    }
    bool finite = true;
    bool zero = true;
    for (const std::size_t i : wrong) {
        const double got = element(*f.dump.lse, f.rows.rows[i]);
        finite = finite && std::isfinite(got);
        zero = zero && got == 0;
    }
    if (!finite || zero) {
        faults.stages = {"tile", "lse"};
        faults.hints.push_back({"tile",
                                zero ? "the wrong rows are 0: were they written?"
                                     : "some rows are not finite: not written, or read from elsewhere",
                                1});
        return faults;
    }
    const bool tile = is_run(wrong, f.rows.rows.size());
    faults.stages = tile ? std::vector<std::string>{"tile", "lse"} : std::vector<std::string>{"lse", "tile"};
    return faults;
}

// The mistake in lse that explains the `wrong` rows of loss, indices among the compared ones, if one does.
void add_lse_of_loss(const Findings& findings, const std::vector<std::size_t>& wrong, Faults& faults) {
    LseSearch search(findings, wrong);
    if (const auto found = search.best()) explain(*found, search.before, faults);
}

// Why loss is wrong where lse is right or not in the dump.

// loss = lse - s[y] says which logit was taken for the label's.
class LossSearch {
public:
    explicit LossSearch(const Findings& findings)
        : m_f(findings), m_wrong(wrong_rows(findings, *findings.dump.loss, findings.rows.loss, true)) {}

    Faults run() {
        m_rows = probe(m_f, some_of(m_wrong, 8));
        m_faults.place = FaultLocation{"loss", rows_of(m_f, m_wrong), {}, label_block(), {}};
        reduced_early();
        caps();
        labels();
        other_scales();
        exchanged();
        other_column();
        smoothing();
        narrow_labels();
        if (m_faults.stages.empty() && m_f.dump.lse == nullptr) add_lse_of_loss(m_f, m_wrong, m_faults);
        if (m_faults.stages.empty()) {
            // A logit that was never found leaves an infinity; a NaN was not written.
            const bool nan =
                std::any_of(m_rows.begin(), m_rows.end(), [&](const ProbeRow& r) { return std::isnan(got(r)); });
            m_faults.stages =
                nan ? std::vector<std::string>{"tile", "label"} : std::vector<std::string>{"label", "tile"};
        }
        return std::move(m_faults);
    }

    // Instead of looking for them.
    std::vector<KnownMistake> list() {
        m_listed.emplace();
        m_rows = probe(m_f, all_of(m_f.rows.rows.size()));
        reduced_early();
        caps();
        labels();
        other_scales();
        other_column();
        return std::move(*m_listed);
    }

private:
    double got(const ProbeRow& r) const { return element(*m_f.dump.loss, r.row); }
    double loss(const ProbeRow& r) const { return m_f.rows.loss[r.at]; }
    double weight(const ProbeRow& r) const { return m_f.problem.weight[r.row]; }
    std::size_t label(const ProbeRow& r) const { return static_cast<std::size_t>(m_f.problem.labels[r.row]); }

    // What belongs to the scalar and not to a row's loss.
    void reduced_early() {
        const double lambda = m_f.problem.c().logsumexp_weight;
        if (lambda != 0) {
            consider("penalty", "matches if the penalty is in loss",
                     [&](const ProbeRow& r) { return loss(r) + lambda * r.lse * r.lse; });
            consider("penalty", "matches if penalty and weight are in loss",
                     [&](const ProbeRow& r) { return weight(r) * (loss(r) + lambda * r.lse * r.lse); });
        }
        const double total = m_f.problem.total_weight;
        if (m_f.problem.weighted) {
            consider("weight", "matches if rows of weight 0 have no loss",
                     [&](const ProbeRow& r) { return weight(r) == 0 ? 0 : loss(r); });
            consider("weight", "matches if loss is multiplied by weight",
                     [&](const ProbeRow& r) { return weight(r) * loss(r); });
            consider("weight", "matches if loss is multiplied by weight and divided by the sum of weights",
                     [&](const ProbeRow& r) { return weight(r) * loss(r) / total; });
        }
        consider("weight", "matches if loss is divided by the number of rows",
                 [&](const ProbeRow& r) { return loss(r) / static_cast<double>(m_f.problem.batch); });
    }

    void caps() {
        const double cap = m_f.problem.c().soft_cap;
        if (cap == 0) return;
        consider("cap", "matches if the label's logit is not capped",
                 [&](const ProbeRow& r) { return r.lse - r.z[label(r)]; });
        consider("cap", "matches without the soft cap",
                 [&](const ProbeRow& r) { return logsumexp(r.z) - r.z[label(r)]; });
        consider("cap", "matches if the logits are capped twice", [&](const ProbeRow& r) {
            const std::vector<double> s = capped(r.s, cap);
            return logsumexp(s) - s[label(r)];
        });
    }

    void labels() {
        consider("label", "matches if the label's logit is missing (0)", [](const ProbeRow& r) { return r.lse; });
        if (!m_f.problem.forward_rounds()) {
            consider("rounding", "matches if the label's logit is rounded to bf16",
                     [&](const ProbeRow& r) { return r.lse - to_bf16(r.s[label(r)]); });
            consider("rounding", "matches if the logits are rounded to bf16", [&](const ProbeRow& r) {
                const std::vector<double> s = rounded(r.s);
                return logsumexp(s) - s[label(r)];
            });
        }
        for (const bool next : {true, false}) {
            consider("label",
                     next ? "matches if the label of the next row is taken"
                          : "matches if the label of the previous row is taken",
                     [&](const ProbeRow& r) {
                         if (r.row == (next ? m_f.problem.batch - 1 : 0)) return got(r);
                         const std::int64_t other = m_f.problem.labels[next ? r.row + 1 : r.row - 1];
                         return r.lse - r.s[static_cast<std::size_t>(other)];
                     });
        }
    }

    void other_scales() {
        consider("label", "matches if the loss is negated", [&](const ProbeRow& r) { return -loss(r); });
        consider("lse", "matches if the loss is in bits: logarithms to base 2",
                 [&](const ProbeRow& r) { return loss(r) / std::log(2.0); });
    }

    // (1 - e) (lse - s[y]) + e (lse - mean s) for one e.
    void smoothing() {
        if (!m_faults.stages.empty() || m_rows.empty()) return;
        const auto uniform = [](const ProbeRow& r) {
            return r.lse - std::accumulate(r.s.begin(), r.s.end(), 0.0) / static_cast<double>(r.s.size());
        };
        const ProbeRow& first = m_rows.front();
        const double part = (got(first) - loss(first)) / (uniform(first) - loss(first));
        if (m_rows.size() < 2 || !(part > 1e-3 && part < 1)) return;
        consider("label", fmt::format("matches with label smoothing of {:.3g}", part),
                 [&](const ProbeRow& r) { return loss(r) + part * (uniform(r) - loss(r)); });
    }

    // Every row whose label does not fit into fewer bits is wrong, and no other row is.
    void narrow_labels() {
        for (const std::int64_t most :
             {std::int64_t{1} << 16U, std::int64_t{1} << 15U, std::int64_t{1} << 8U, std::int64_t{1} << 7U}) {
            if (!m_faults.stages.empty() || m_wrong.size() == m_f.rows.rows.size()) return;
            std::vector<bool> is_wrong(m_f.rows.rows.size(), false);
            for (const std::size_t i : m_wrong) is_wrong[i] = true;
            bool fits = true;
            for (std::size_t i = 0; i < is_wrong.size(); ++i) {
                fits = fits && is_wrong[i] == (m_f.problem.labels[m_f.rows.rows[i]] >= most);
            }
            if (!fits) continue;
            m_faults.stages = {"label"};
            m_faults.hints.push_back(
                {"label", fmt::format("only labels of {} and more are wrong: are they read in fewer bits?", most), 1});
        }
    }

    template <class Predict>
    void consider(const char* stage, const std::string& text, const Predict& predict) {
        if (m_listed) {
            KnownMistake& m = m_listed->emplace_back(KnownMistake{stage, text});
            for (const ProbeRow& r : m_rows) m.loss.push_back(predict(r));
            return;
        }
        if (!m_faults.stages.empty()) return;
        for (const ProbeRow& r : m_rows) {
            if (!(std::fabs(predict(r) - got(r)) <= row_limit_of(m_f, *m_f.dump.loss, r.at))) return;
        }
        m_faults.stages = {stage};
        m_faults.hints.push_back({stage, text, 1});
    }

    void exchanged() {
        if (!m_faults.stages.empty() || m_rows.empty()) return;
        for (const ProbeRow& r : m_rows) {
            const double limit = row_limit_of(m_f, *m_f.dump.loss, r.at) / 10;
            const bool found = std::any_of(m_f.rows.loss.begin(), m_f.rows.loss.end(),
                                           [&](double x) { return std::fabs(x - got(r)) <= limit; });
            if (!found) return;
        }
        m_faults.stages = {"tile", "label"};
        m_faults.hints.push_back({"tile", "matches if the rows are those of other rows", 1});
    }

    // The difference between the label's column and the one that was read, where all rows agree on it.
    void other_column() {
        if (!m_faults.stages.empty() || m_rows.empty()) return;
        const auto vocab = static_cast<std::int64_t>(m_f.problem.vocab);
        for (const std::int64_t shift : {-1, 1, -2, 2}) {
            consider("label",
                     shift < 0 ? "matches if the column before the label's is read"
                               : "matches if the column after the label's is read",
                     [&](const ProbeRow& r) {
                         const std::int64_t v =
                             std::clamp(m_f.problem.labels[r.row] + shift, std::int64_t{0}, vocab - 1);
                         return r.lse - r.s[static_cast<std::size_t>(v)];
                     });
        }
        for (const std::size_t size : block_sizes(m_f.problem.vocab)) {
            consider("label", "matches if the label is taken for its place in a block", [&](const ProbeRow& r) {
                return r.lse - r.s[static_cast<std::size_t>(m_f.problem.labels[r.row]) % size];
            });
        }
    }

    // The block of the vocabulary that holds the labels of all wrong rows and of no right one.
    std::optional<Range> label_block() const {
        std::vector<bool> is_wrong(m_f.rows.rows.size(), false);
        for (const std::size_t i : m_wrong) is_wrong[i] = true;
        if (m_wrong.empty() || m_wrong.size() == is_wrong.size()) return std::nullopt;
        for (const std::size_t size : block_sizes(m_f.problem.vocab)) {
            const auto block = [&](std::size_t i) {
                return static_cast<std::size_t>(m_f.problem.labels[m_f.rows.rows[i]]) / size;
            };
            const std::size_t first = block(m_wrong.front());
            bool fits = true;
            for (std::size_t i = 0; i < is_wrong.size() && fits; ++i) fits = is_wrong[i] == (block(i) == first);
            if (fits) return Range{first * size, std::min((first + 1) * size, m_f.problem.vocab)};
        }
        return std::nullopt;
    }

    const Findings& m_f;
    std::vector<std::size_t> m_wrong;
    std::vector<ProbeRow> m_rows;
    Faults m_faults;
    std::optional<std::vector<KnownMistake>> m_listed;  // instead of m_faults
};

// loss is wrong, lse right or not in the dump.
Faults loss_faults(const Findings& findings) { return LossSearch(findings).run(); }

}  // namespace

std::vector<std::string> stages_of(const std::string& stage, const Problem& problem) {
    if (stage != "reduction") return {stage};
    // Of rows that are not counted, or of weights.
    if (problem.ignored_count > 0) return {"reduction", "weight"};
    return {"weight", "reduction"};
}

namespace {

// loss and lse are right.
Faults argmax_faults(const Findings& findings) {
    const Problem& p = findings.problem;
    const std::vector<std::int64_t> got = to_i64(*findings.dump.argmax);
    std::vector<std::size_t> wrong;
    for (std::size_t i = 0; i < findings.rows.rows.size(); ++i) {
        if (argmax_excess(p, findings.rows, i, got[findings.rows.rows[i]]) > 1) wrong.push_back(i);
    }
    Faults faults;
    faults.stages = {"argmax"};
    faults.place = FaultLocation{"argmax", rows_of(findings, wrong), {}, {}, {}};
    const std::vector<ProbeRow> rows = probe(findings, some_of(wrong, 8));
    const auto all = [&](const auto& is) {
        return std::all_of(rows.begin(), rows.end(), [&](const ProbeRow& r) { return is(r, got[r.row]); });
    };
    const auto best = [&](const ProbeRow& r) { return findings.rows.argmax[r.at]; };
    const auto value = [](const ProbeRow& r, std::int64_t v) {
        return v >= 0 && v < static_cast<std::int64_t>(r.s.size()) ? r.z[static_cast<std::size_t>(v)] : -HUGE_VAL;
    };
    std::string text;
    if (all([&](const ProbeRow& r, std::int64_t v) { return value(r, v) == value(r, best(r)); })) {
        text = "another of several equal logits is taken, not the lowest id";
    } else if (all([&](const ProbeRow& r, std::int64_t v) {
                   return v == std::min_element(r.s.begin(), r.s.end()) - r.s.begin();
               })) {
        text = "matches if the smallest logit is taken";
    } else if (all([&](const ProbeRow& r, std::int64_t v) { return v == p.labels[r.row]; })) {
        text = "matches if the label is returned";
    } else if (all([&](const ProbeRow& r, std::int64_t v) { return v == best(r) + 1; })) {
        text = "matches if ids count from 1";
    } else {
        for (const std::size_t size : block_sizes(p.vocab)) {
            const auto block = static_cast<std::int64_t>(size);
            if (!text.empty() || !all([&](const ProbeRow& r, std::int64_t v) { return v == best(r) % block; }))
                continue;
            text = fmt::format("matches if the id is that within a block of {}", size);
        }
    }
    if (!text.empty()) faults.hints.push_back({"argmax", text, 1});
    return faults;
}

struct ReducedMistake {
    const char *stage, *text;
    double value;
};

std::vector<ReducedMistake> reduced_mistakes(const Findings& findings) {
    const Problem& p = findings.problem;
    const std::vector<double>& loss = findings.loss;
    const std::vector<double>& lse = findings.lse;
    const double lambda = p.c().logsumexp_weight;
    const auto B = static_cast<double>(p.batch);
    double weighted_loss = 0;
    double plain_loss = 0;
    double weighted_penalty = 0;
    double plain_penalty = 0;
    double loss_penalty = 0;
    double straight_penalty = 0;
    for (std::size_t i = 0; i < p.batch; ++i) {
        weighted_loss += p.weight[i] * loss[i];
        plain_loss += loss[i];
        weighted_penalty += p.weight[i] * lambda * lse[i] * lse[i];
        plain_penalty += lambda * lse[i] * lse[i];
        loss_penalty += p.weight[i] * lambda * loss[i] * loss[i];
        straight_penalty += p.weight[i] * lambda * lse[i];
    }
    const bool mean = p.c().reduction == Reduction::mean;
    const double by = mean ? p.total_weight : 1;
    return {
        {"penalty", "matches without the penalty", weighted_loss / by},
        {"penalty", "matches if the penalty is not weighted", (weighted_loss + plain_penalty) / by},
        {"penalty", "matches if the penalty is not weighted and averaged over all rows",
         weighted_loss / by + plain_penalty / (mean ? B : 1)},
        {"penalty", "matches if the penalty is of the loss squared instead of lse squared",
         (weighted_loss + loss_penalty) / by},
        {"penalty", "matches if the penalty is of lse instead of lse squared", (weighted_loss + straight_penalty) / by},
        {"penalty", "matches if the penalty is halved", (weighted_loss + weighted_penalty / 2) / by},
        {"penalty", "matches if the penalty is doubled", (weighted_loss + weighted_penalty * 2) / by},
        {"penalty", "matches if the penalty is subtracted", (weighted_loss - weighted_penalty) / by},
        {"weight", "matches without weights", (plain_loss + plain_penalty) / (mean ? B : 1)},
        {"weight", "matches if only the sum that is divided by has weights", (plain_loss + plain_penalty) / by},
        {"reduction", "matches if the sum is not divided", weighted_loss + weighted_penalty},
        {"reduction", "matches if the sum is divided by the number of rows", (weighted_loss + weighted_penalty) / B},
        {"reduction", "matches if the sum is divided by the sum of weights",
         (weighted_loss + weighted_penalty) / p.total_weight},
        {"reduction", "matches if the sum is divided by the number of rows with a weight",
         (weighted_loss + weighted_penalty) / static_cast<double>(p.rows_with_weight)},
        {"reduction", "matches if the sum is divided twice", (weighted_loss + weighted_penalty) / by / by},
    };
}

// Nothing but `reduced` is wrong.
Faults reduced_faults(const Findings& findings) {
    const Problem& p = findings.problem;
    const double got = element(*findings.dump.reduced, 0);
    Faults faults;
    faults.place = FaultLocation{"reduced", {}, {}, {}, {}};
    for (const ReducedMistake& c : reduced_mistakes(findings)) {
        if (!(std::fabs(c.value - got) <= 2e-5 * std::fabs(c.value))) continue;
        faults.stages = stages_of(c.stage, p);
        faults.hints.push_back({c.stage, c.text, 1});
        return faults;
    }
    faults.stages = p.c().logsumexp_weight != 0 ? std::vector<std::string>{"weight", "penalty"}
                                                : std::vector<std::string>{"weight"};
    return faults;
}

void put_stage(Report& report, std::vector<std::string> stages) {
    for (std::string& stage : stages) {
        if (std::find(report.stages.begin(), report.stages.end(), stage) == report.stages.end()) {
            report.stages.push_back(std::move(stage));
        }
    }
    report.stage = report.stages.front();
}

}  // namespace

std::vector<KnownMistake> known_row_mistakes(const Findings& right) {
    const std::vector<std::size_t> all = all_of(right.rows.rows.size());
    std::vector<KnownMistake> mistakes = LseSearch(right, all, all.size()).list();
    for (KnownMistake& m : LossSearch(right).list()) mistakes.push_back(std::move(m));
    if (right.problem.c().reduction == Reduction::none) return mistakes;
    for (const ReducedMistake& m : reduced_mistakes(right)) {
        mistakes.push_back({m.stage, m.text, {}, {}, {}, {}, m.value});
    }
    return mistakes;
}

void diagnose(const Findings& findings, Report& report) {
    Faults faults;
    if (findings.lse_wrong) {
        faults = lse_faults(findings);
    } else if (findings.loss_wrong) {
        faults = loss_faults(findings);
    } else if (findings.argmax_wrong) {
        faults = argmax_faults(findings);
    } else if (findings.gx_wrong || findings.gw_wrong) {
        faults = gradient_faults(findings);
    } else if (findings.reduced_wrong) {
        faults = reduced_faults(findings);
    } else {
        // An invariant alone: what was compared is right, so the fault lies in rows or columns that were not.
        faults.stages = {"tile", "gw", "gx"};
        if (report.compared_rows.size() < findings.problem.batch) {
            faults.hints.push_back(
                {"tile", "the compared rows and columns are right: see the others with --level exact", 1});
        }
    }
    put_stage(report, std::move(faults.stages));
    report.hints = std::move(faults.hints);
    report.place = std::move(faults.place);
}

}  // namespace gdnctl::oracle::linear_ce
