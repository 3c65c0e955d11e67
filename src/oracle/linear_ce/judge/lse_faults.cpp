// Why lse is wrong: each known mistake predicts the wrong rows, and the one that predicts them best is named.
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

}  // namespace

Faults lse_faults(const Findings& f) {
    const std::vector<std::size_t> wrong = wrong_rows(f, *f.dump.lse, f.rows.lse, false);
    Faults faults;
    faults.place = Place{"lse", rows_of(f, wrong), {}, {}, {}};
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

void add_lse_of_loss(const Findings& findings, const std::vector<std::size_t>& wrong, Faults& faults) {
    LseSearch search(findings, wrong);
    if (const auto found = search.best()) explain(*found, search.before, faults);
}

}  // namespace gdnctl::oracle::linear_ce
