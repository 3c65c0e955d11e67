// Why loss is wrong where lse is right or not in the dump.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/faults.h"
#include "oracle/linear_ce/judge/probe.h"

namespace gdnctl::oracle::linear_ce {

namespace {

using Range = std::pair<std::size_t, std::size_t>;

// loss = lse - s[y] says which logit was taken for the label's.
class LossSearch {
public:
    explicit LossSearch(const Findings& findings)
        : m_f(findings), m_wrong(wrong_rows(findings, *findings.dump.loss, findings.rows.loss, true)) {}

    Faults run() {
        m_rows = probe(m_f, some_of(m_wrong, 8));
        m_faults.place = Place{"loss", rows_of(m_f, m_wrong), {}, label_block(), {}};
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

Faults loss_faults(const Findings& findings) { return LossSearch(findings).run(); }

}  // namespace gdnctl::oracle::linear_ce
