// Why loss or lse is wrong: each known mistake predicts the wrong rows, and the one that predicts them best is named.
#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/faults.h"
#include "oracle/linear_ce/judge/probe.h"

namespace gdnctl::oracle::linear_ce {

namespace {

using Range = std::pair<std::size_t, std::size_t>;

struct Explanation {
    std::vector<std::string> stages;
    std::string text;
    std::optional<Range> block, hidden;
    double error = HUGE_VAL;  // the worst row's error / its limit that is left
};

class LseSearch {
public:
    LseSearch(const Findings& findings, std::vector<std::size_t> wrong)
        : m_f(findings), m_wrong(std::move(wrong)), m_rows(probe(findings, some_of(m_wrong, 6))) {
        for (const ProbeRow& r : m_rows) {
            m_got.push_back(element(*m_f.dump.lse, r.row));
            m_limit.push_back(row_limit_of(m_f, *m_f.dump.lse, r.at));
            before = std::max(before, std::fabs(m_got.back() - r.lse) / m_limit.back());
            m_before += std::fabs(m_got.back() - r.lse) / m_limit.back();
        }
    }

    std::optional<Explanation> best() {
        exchanged();
        transforms();
        padding();
        suffix();
        blocks();
        hidden_blocks();
        return m_best;
    }

    double before = 0;  // the worst row's error / its limit

private:
    using Predict = std::function<double(const ProbeRow&)>;

    // Earlier explanations win unless a later one leaves half the error or less. What rounds meets ties that fp32
    // decides otherwise: `loosely` asks for a tenth of the error over all rows instead.
    void consider(Explanation e, const Predict& predict, bool loosely = false) {
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

    // Each wrong row holds what belongs to another one.
    void exchanged() {
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

    void transforms() {
        const double cap = m_f.problem.c().soft_cap;
        consider(
            {{"lse"}, "matches if lse is rounded to bf16", {}, {}}, [](const ProbeRow& r) { return to_bf16(r.lse); },
            true);
        consider(
            {{"lse"}, "matches if the logits are rounded to bf16: logits rounded to bf16", {}, {}},
            [&](const ProbeRow& r) { return logsumexp(rounded(r.s)); }, true);
        consider(
            {{"lse"}, "matches if the logits are rounded to bf16 before the cap", {}, {}},
            [&](const ProbeRow& r) { return logsumexp(capped(rounded(r.z), cap)); }, true);
        consider({{"lse"}, "matches if lse is the largest logit, without the logarithm of the sum", {}, {}},
                 [](const ProbeRow& r) { return *std::max_element(r.s.begin(), r.s.end()); });
        consider({{"lse"}, "matches if the largest logit is not added to the logarithm of the sum", {}, {}},
                 [](const ProbeRow& r) { return r.lse - *std::max_element(r.s.begin(), r.s.end()); });
        consider({{"lse"}, "matches if the logarithm is to base 2", {}, {}},
                 [](const ProbeRow& r) { return r.lse / std::log(2.0); });
        if (cap > 0) {
            consider({{"cap"}, "matches without the soft cap", {}, {}},
                     [](const ProbeRow& r) { return logsumexp(r.z); });
            consider({{"cap"}, "matches if the logits are capped twice", {}, {}},
                     [&](const ProbeRow& r) { return logsumexp(capped(r.s, cap)); });
            consider({{"cap"}, "matches if z is not divided by the cap", {}, {}}, [&](const ProbeRow& r) {
                std::vector<double> s = r.z;
                for (double& x : s) x = cap * std::tanh(x);
                return logsumexp(s);
            });
            consider({{"cap"}, "matches if tanh is not multiplied by the cap", {}, {}}, [&](const ProbeRow& r) {
                std::vector<double> s = r.z;
                for (double& x : s) x = std::tanh(x / cap);
                return logsumexp(s);
            });
            consider({{"cap"}, "matches if the logits are cut off at the cap", {}, {}}, [&](const ProbeRow& r) {
                std::vector<double> s = r.z;
                for (double& x : s) x = std::clamp(x, -cap, cap);
                return logsumexp(s);
            });
        }
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
};

Faults lse_faults(const Findings& f) {
    const std::vector<std::size_t> wrong = wrong_rows(f, *f.dump.lse, f.rows.lse, false);
    Faults faults;
    faults.place = Place{"lse", rows_of(f, wrong), {}, {}, {}};
    LseSearch search(f, wrong);
    const auto found = search.best();
    if (found) {
        faults.stages = found->stages;
        faults.hints.push_back({found->stages.front(), found->text, search.before / std::max(found->error, 1e-3)});
        faults.place->block = found->block;
        faults.place->hidden = found->hidden;
        return faults;
    }
    bool finite = true;
    for (const std::size_t i : wrong) finite = finite && std::isfinite(element(*f.dump.lse, f.rows.rows[i]));
    const bool tile = !finite || is_run(wrong, f.rows.rows.size());
    faults.stages = tile ? std::vector<std::string>{"tile", "lse"} : std::vector<std::string>{"lse", "tile"};
    return faults;
}

// lse is right: loss = lse - s[y] then says which logit was taken for the label's.
class LossSearch {
public:
    explicit LossSearch(const Findings& findings)
        : m_f(findings), m_wrong(wrong_rows(findings, *findings.dump.loss, findings.rows.loss, true)) {}

    Faults run() {
        m_rows = probe(m_f, some_of(m_wrong, 8));
        m_faults.place = Place{"loss", rows_of(m_f, m_wrong), {}, label_block(), {}};
        const double lambda = m_f.problem.c().logsumexp_weight;
        const double cap = m_f.problem.c().soft_cap;
        const auto weight = [&](const ProbeRow& r) { return m_f.problem.weight[r.row]; };
        const auto loss = [&](const ProbeRow& r) { return m_f.rows.loss[r.at]; };
        const auto label = [&](const ProbeRow& r) { return static_cast<std::size_t>(m_f.problem.labels[r.row]); };
        if (lambda != 0) {
            consider("penalty", "matches if the penalty is in loss",
                     [&](const ProbeRow& r) { return loss(r) + lambda * r.lse * r.lse; });
            consider("penalty", "matches if penalty and weight are in loss",
                     [&](const ProbeRow& r) { return weight(r) * (loss(r) + lambda * r.lse * r.lse); });
        }
        if (m_f.problem.weighted) {
            consider("weight", "matches if loss is multiplied by weight",
                     [&](const ProbeRow& r) { return weight(r) * loss(r); });
        }
        if (cap > 0) {
            consider("cap", "matches if the label's logit is not capped",
                     [&](const ProbeRow& r) { return r.lse - r.z[label(r)]; });
        }
        consider("label", "matches if the label's logit is missing (0)", [](const ProbeRow& r) { return r.lse; });
        consider("lse", "matches if the label's logit is rounded to bf16",
                 [&](const ProbeRow& r) { return r.lse - to_bf16(r.s[label(r)]); });
        exchanged();
        other_column();
        if (m_faults.stages.empty()) {
            // A logit that was never found leaves an infinity; a NaN was not written.
            const bool nan =
                std::any_of(m_rows.begin(), m_rows.end(), [&](const ProbeRow& r) { return std::isnan(got(r)); });
            m_faults.stages =
                nan ? std::vector<std::string>{"tile", "label"} : std::vector<std::string>{"label", "tile"};
        }
        return std::move(m_faults);
    }

private:
    double got(const ProbeRow& r) const { return element(*m_f.dump.loss, r.row); }

    template <class Predict>
    void consider(const char* stage, const char* text, const Predict& predict) {
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
};

}  // namespace

Faults forward_faults(const Findings& findings) {
    if (findings.lse_wrong) return lse_faults(findings);
    return LossSearch(findings).run();
}

}  // namespace gdnctl::oracle::linear_ce
