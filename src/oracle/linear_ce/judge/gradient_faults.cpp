// Why gradients are wrong where loss and lse are right: known mistakes in delta (the gradient of the logits), rows or
// columns that were moved, and blocks that are missing.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/diagnose.h"
#include "oracle/linear_ce/judge/problem.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::linear_ce {

// One logit of one row, and what the gradient needs to know of its row.
struct Cell {
    double z = 0, s = 0, lse = 0;  // before and after the cap
    double d_loss = 0, d_lse = 0;  // cotangents, as they should be
    double weight = 1;
    double loss = 0, largest = 0;                             // of the row; the largest s is NaN where it is not known
    bool hot = false, after_hot = false, before_hot = false;  // the label's column, and those beside it
    bool next_hot = false, previous_hot = false;              // the column of the next or previous row's label
    bool ignored = false;                                     // the row
    bool first = true, last = true;                           // of the rows with its label
    double padding = 0;  // of the mistake: columns beyond the vocabulary that are counted
};

struct Mistake {
    std::string stage, text;
    double (*delta)(const Problem& problem, const Cell& cell);
    double padding = 0;
    double (*operand)(double) = nullptr;  // how the other factor of the product is rounded
};

// Everything but the padding. `row` has what does not depend on the column.
Cell cell_of(const Problem& problem, std::size_t row, std::size_t column, double z, const Cell& of_row);

namespace {

double slope(const Problem& p, const Cell& c) {
    const double t = p.c().soft_cap > 0 ? c.s / p.c().soft_cap : 0;
    return 1 - t * t;
}

double hot(const Cell& c) { return c.hot ? c.d_loss : 0; }

double probability(const Cell& c) { return std::exp(c.s - c.lse); }

// delta with other cotangents.
double with(const Problem& p, const Cell& c, double d_loss, double d_lse) {
    return ((d_loss + d_lse) * probability(c) - (c.hot ? d_loss : 0)) * slope(p, c);
}

double right(const Problem& p, const Cell& c) { return with(p, c, c.d_loss, c.d_lse); }

// What d_loss is without any weight.
double plain(const Problem& p) { return p.c().reduction == Reduction::mean ? 1 / static_cast<double>(p.batch) : 1; }

// d_lse is proportional to d_loss: scaled along with it.
double scaled(const Problem& p, const Cell& c, double d_loss) {
    return with(p, c, d_loss, 2 * p.c().logsumexp_weight * c.lse * d_loss);
}

double shifted(const Problem& p, const Cell& c, bool at) {
    return ((c.d_loss + c.d_lse) * probability(c) - (at ? c.d_loss : 0)) * slope(p, c);
}

void add_cap(std::vector<Mistake>& to) {
    to.push_back({"cap", "matches without the cap's derivative",
                  [](const Problem&, const Cell& c) { return (c.d_loss + c.d_lse) * probability(c) - hot(c); }});
    to.push_back(
        {"cap", "matches if the cap's derivative is applied before the label's term is subtracted (log-cap)",
         [](const Problem& p, const Cell& c) { return (c.d_loss + c.d_lse) * probability(c) * slope(p, c) - hot(c); }});
    to.push_back(
        {"cap", "matches if the cap's derivative is applied to the label's term alone",
         [](const Problem& p, const Cell& c) { return (c.d_loss + c.d_lse) * probability(c) - hot(c) * slope(p, c); }});
    to.push_back({"cap", "matches if the cap's derivative is applied twice",
                  [](const Problem& p, const Cell& c) { return right(p, c) * slope(p, c); }});
    to.push_back(
        {"cap", "matches if the probabilities are of logits before the cap", [](const Problem& p, const Cell& c) {
             return ((c.d_loss + c.d_lse) * std::exp(c.z - c.lse) - hot(c)) * slope(p, c);
         }});
    to.push_back({"cap", "matches if the derivative is that of tanh(z) instead of tanh(z / cap)",
                  [](const Problem& p, const Cell& c) {
                      const double t = std::tanh(c.z);
                      return ((c.d_loss + c.d_lse) * probability(c) - hot(c)) * (1 - t * t) + 0 * slope(p, c);
                  }});
    to.push_back(
        {"cap", "matches if the derivative is 1 - tanh instead of 1 - tanh^2", [](const Problem& p, const Cell& c) {
             return ((c.d_loss + c.d_lse) * probability(c) - hot(c)) * (1 - c.s / p.c().soft_cap);
         }});
    to.push_back({"cap", "matches if the backward has no soft cap",
                  [](const Problem&, const Cell& c) { return (c.d_loss + c.d_lse) * std::exp(c.z - c.lse) - hot(c); }});
    to.push_back({"cap", "matches if the derivative takes the capped logit for the raw one",
                  [](const Problem& p, const Cell& c) {
                      const double t = std::tanh(c.s / p.c().soft_cap);
                      return ((c.d_loss + c.d_lse) * probability(c) - hot(c)) * (1 - t * t);
                  }});
}

void add_penalty(std::vector<Mistake>& to) {
    to.push_back({"penalty", "matches without the penalty's gradient",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, 0); }});
    to.push_back({"penalty", "matches if the penalty's gradient lacks the factor 2",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, c.d_lse / 2); }});
    to.push_back({"penalty", "matches if the penalty's gradient has the factor 2 twice",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, c.d_lse * 2); }});
    to.push_back({"penalty", "matches if the penalty is not weighted", [](const Problem& p, const Cell& c) {
                      return with(p, c, c.d_loss, 2 * p.c().logsumexp_weight * c.lse * plain(p));
                  }});
    to.push_back({"penalty", "matches if the penalty is not weighted, and divided by the sum of weights",
                  [](const Problem& p, const Cell& c) {
                      const double total = p.c().reduction == Reduction::mean ? p.total_weight : 1;
                      return with(p, c, c.d_loss, 2 * p.c().logsumexp_weight * c.lse / total);
                  }});
    to.push_back({"penalty", "matches if the penalty's gradient is subtracted",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, -c.d_lse); }});
    to.push_back(
        {"penalty", "matches if the penalty's gradient lacks the factor p (log-penalty)",
         [](const Problem& p, const Cell& c) { return (c.d_loss * probability(c) - hot(c)) * slope(p, c) + c.d_lse; }});
    to.push_back(
        {"penalty", "matches if the penalty's gradient lacks the factor p (log-penalty), before the cap's derivative",
         [](const Problem& p, const Cell& c) { return (c.d_loss * probability(c) - hot(c) + c.d_lse) * slope(p, c); }});
    to.push_back(
        {"penalty", "matches if the penalty's gradient lacks the factor lse",
         [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, 2 * p.c().logsumexp_weight * c.d_loss); }});
    to.push_back(
        {"penalty", "matches if the label's term has the penalty's cotangent too", [](const Problem& p, const Cell& c) {
             return (c.d_loss + c.d_lse) * (probability(c) - (c.hot ? 1 : 0)) * slope(p, c);
         }});
    to.push_back(
        {"penalty", "matches if the penalty is of lse instead of lse squared",
         [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, p.c().logsumexp_weight * c.d_loss); }});
    to.push_back({"penalty", "matches if the penalty is of the loss squared instead of lse squared",
                  [](const Problem& p, const Cell& c) {
                      return with(p, c, c.d_loss * (1 + 2 * p.c().logsumexp_weight * c.loss), 0);
                  }});
    to.push_back({"penalty", "matches if the penalty's gradient has the loss in place of lse",
                  [](const Problem& p, const Cell& c) {
                      return with(p, c, c.d_loss, 2 * p.c().logsumexp_weight * c.loss * c.d_loss);
                  }});
}

void add_weight(std::vector<Mistake>& to) {
    to.push_back(
        {"weight", "matches without weights", [](const Problem& p, const Cell& c) { return scaled(p, c, plain(p)); }});
    to.push_back({"weight", "matches if the weights are applied twice",
                  [](const Problem& p, const Cell& c) { return scaled(p, c, c.d_loss * c.weight); }});
    to.push_back({"weight", "matches if every row has the mean weight", [](const Problem& p, const Cell& c) {
                      return scaled(p, c, p.c().reduction == Reduction::mean ? 1 / p.total_weight : 1);
                  }});
    to.push_back({"weight", "matches if weights are taken for a mask", [](const Problem& p, const Cell& c) {
                      const double total = p.c().reduction == Reduction::mean ? p.total_weight : 1;
                      return scaled(p, c, c.weight == 0 ? 0 : 1 / total);
                  }});
    to.push_back({"weight", "matches if only the label's term is weighted",
                  [](const Problem& p, const Cell& c) { return (plain(p) * probability(c) - hot(c)) * slope(p, c); }});
    to.push_back({"weight", "matches if only the probabilities are weighted", [](const Problem& p, const Cell& c) {
                      return ((c.d_loss + c.d_lse) * probability(c) - (c.hot ? plain(p) : 0)) * slope(p, c);
                  }});
}

void add_mask(std::vector<Mistake>& to, const Problem& problem) {
    to.push_back({"weight",
                  "matches if weights are taken for a mask, and the sum is divided by the rows that it leaves",
                  [](const Problem& p, const Cell& c) {
                      return scaled(p, c, c.weight == 0 ? 0 : 1 / static_cast<double>(p.rows_with_weight));
                  }});
    if (problem.ignored_count == 0) return;
    to.push_back(
        {"weight", "matches if ignored rows are counted in the gradients", [](const Problem& p, const Cell& c) {
             const double total = p.c().reduction == Reduction::mean ? p.total_weight : 1;
             return c.ignored ? scaled(p, c, 1 / total) : right(p, c);
         }});
}

void add_reduction(std::vector<Mistake>& to, Reduction reduction) {
    if (reduction == Reduction::mean) {
        to.push_back({"reduction", "matches if the sum is not divided",
                      [](const Problem& p, const Cell& c) { return scaled(p, c, c.weight); }});
        to.push_back(
            {"reduction", "matches if the sum is divided by the number of rows",
             [](const Problem& p, const Cell& c) { return scaled(p, c, c.weight / static_cast<double>(p.batch)); }});
        to.push_back({"reduction", "matches if the sum is divided by the number of rows with a weight",
                      [](const Problem& p, const Cell& c) {
                          return scaled(p, c, c.weight / static_cast<double>(p.rows_with_weight));
                      }});
    } else {
        to.push_back({"reduction", "matches if the sum is divided by the sum of weights",
                      [](const Problem& p, const Cell& c) { return scaled(p, c, c.d_loss / p.total_weight); }});
        to.push_back(
            {"reduction", "matches if the sum is divided by the number of rows",
             [](const Problem& p, const Cell& c) { return scaled(p, c, c.d_loss / static_cast<double>(p.batch)); }});
    }
}

void add_label(std::vector<Mistake>& to) {
    to.push_back({"label", "matches without the label's term",
                  [](const Problem& p, const Cell& c) { return (c.d_loss + c.d_lse) * probability(c) * slope(p, c); }});
    to.push_back({"label", "matches if the label's term is in the column after the label",
                  [](const Problem& p, const Cell& c) { return shifted(p, c, c.after_hot); }});
    to.push_back({"label", "matches if the label's term is in the column before the label",
                  [](const Problem& p, const Cell& c) { return shifted(p, c, c.before_hot); }});
    to.push_back({"label", "matches if the label's term is added", [](const Problem& p, const Cell& c) {
                      return ((c.d_loss + c.d_lse) * probability(c) + hot(c)) * slope(p, c);
                  }});
    to.push_back({"label", "matches if the label of the next row is taken",
                  [](const Problem& p, const Cell& c) { return shifted(p, c, c.next_hot); }});
    to.push_back({"label", "matches if the label of the previous row is taken",
                  [](const Problem& p, const Cell& c) { return shifted(p, c, c.previous_hot); }});
    to.push_back({"label", "matches if only the last of the rows with one label subtracts its term",
                  [](const Problem& p, const Cell& c) { return shifted(p, c, c.hot && c.last); }});
    to.push_back({"label", "matches if only the first of the rows with one label subtracts its term",
                  [](const Problem& p, const Cell& c) { return shifted(p, c, c.hot && c.first); }});
    to.push_back({"label", "matches with label smoothing of 0.1", [](const Problem& p, const Cell& c) {
                      const double target = (c.hot ? 0.9 : 0) + 0.1 / static_cast<double>(p.vocab);
                      return ((c.d_loss + c.d_lse) * probability(c) - c.d_loss * target) * slope(p, c);
                  }});
    to.push_back({"label", "matches if the label's term is subtracted twice", [](const Problem& p, const Cell& c) {
                      return ((c.d_loss + c.d_lse) * probability(c) - 2 * hot(c)) * slope(p, c);
                  }});
    to.push_back(
        {"label", "matches if the label's term is 1 instead of the cotangent", [](const Problem& p, const Cell& c) {
             return ((c.d_loss + c.d_lse) * probability(c) - (c.hot ? 1 : 0)) * slope(p, c);
         }});
    to.push_back({"label", "matches if the label's column lacks its probability",
                  [](const Problem& p, const Cell& c) { return c.hot ? -c.d_loss * slope(p, c) : right(p, c); }});
}

void add_tail(std::vector<Mistake>& to, std::size_t vocab) {
    for (std::size_t block = 16; block <= 8192; block *= 2) {
        if (vocab % block == 0) continue;
        const std::size_t padding = block - vocab % block;
        to.push_back({"tail", fmt::format("matches if the backward counts {} columns beyond the vocabulary", padding),
                      [](const Problem& p, const Cell& c) {
                          Cell padded = c;
                          padded.lse = c.lse + std::log1p(c.padding * std::exp(-c.lse));
                          return with(p, padded, c.d_loss, c.d_lse);
                      },
                      static_cast<double>(padding)});
    }
}

double to_tf32(double x) { return static_cast<double>(rounded_to_tf32(static_cast<float>(x))); }

// With the 11 significant bits of fp16.
double to_f16(double x) {
    if (x == 0 || !std::isfinite(x)) return x;
    const int scale = 10 - std::ilogb(x);
    return std::ldexp(std::nearbyint(std::ldexp(x, scale)), -scale);
}

void add_rounding(std::vector<Mistake>& to, const Problem& problem) {
    to.push_back({"lse", "matches if the backward takes the largest logit for lse: probabilities without their sum",
                  [](const Problem& p, const Cell& c) {
                      Cell unscaled = c;
                      unscaled.lse = c.largest;
                      return with(p, unscaled, c.d_loss, c.d_lse);
                  }});
    to.push_back({"lse", "matches if the backward takes an lse rounded to bf16", [](const Problem& p, const Cell& c) {
                      Cell rounded = c;
                      rounded.lse = to_bf16(c.lse);
                      return with(p, rounded, c.d_loss, c.d_lse);
                  }});
    to.push_back({"lse", "matches if the backward takes an lse rounded to fp16", [](const Problem& p, const Cell& c) {
                      Cell rounded = c;
                      rounded.lse = to_f16(c.lse);
                      return with(p, rounded, c.d_loss, c.d_lse);
                  }});
    if (!problem.backward_rounds()) {
        to.push_back(
            {"rounding", "matches if the backward rounds the logits to bf16", [](const Problem& p, const Cell& c) {
                 Cell rounded = c;
                 rounded.s = to_bf16(c.s);
                 return right(p, rounded);
             }});
    }
    if (problem.x_dtype != DType::f32 || problem.c().matmul != Matmul::exact) return;
    const auto delta_in_bf16 = [](const Problem& p, const Cell& c) { return to_bf16(right(p, c)); };
    const auto delta_in_tf32 = [](const Problem& p, const Cell& c) { return to_tf32(right(p, c)); };
    to.push_back({"rounding", "matches if delta is rounded to bf16", delta_in_bf16});
    to.push_back({"rounding", "matches if delta is rounded to tf32", delta_in_tf32});
    to.push_back({"rounding", "matches if the operands of the gradients' products are rounded to bf16", delta_in_bf16,
                  0, to_bf16});
    to.push_back({"rounding", "matches if the operands of the gradients' products are rounded to tf32", delta_in_tf32,
                  0, to_tf32});
}

// Of a backward that is given its cotangents.
void add_cotangents(std::vector<Mistake>& to) {
    to.push_back(
        {"penalty", "matches without d_lse", [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, 0); }});
    to.push_back({"penalty", "matches if d_lse lacks the factor p", [](const Problem& p, const Cell& c) {
                      return (c.d_loss * probability(c) - hot(c)) * slope(p, c) + c.d_lse;
                  }});
    to.push_back({"penalty", "matches if d_lse is subtracted",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, -c.d_lse); }});
    to.push_back({"penalty", "matches if the label's term has d_lse too",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss + c.d_lse, 0); }});
    to.push_back({"penalty", "matches if d_lse is multiplied by d_loss",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, c.d_lse * c.d_loss); }});
    to.push_back({"weight", "matches without d_loss (1 in every row)",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.ignored ? 0 : 1, c.d_lse); }});
    to.push_back({"weight", "matches if every row has the d_loss of the first", [](const Problem& p, const Cell& c) {
                      return with(p, c, c.ignored ? 0 : p.d_loss.front(), c.d_lse);
                  }});
    to.push_back({"weight", "matches if d_loss is divided by the number of rows", [](const Problem& p, const Cell& c) {
                      return with(p, c, c.d_loss / static_cast<double>(p.batch), c.d_lse);
                  }});
    to.push_back({"weight", "matches if d_loss is multiplied by weight",
                  [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss * c.weight, c.d_lse); }});
}

}  // namespace

Cell cell_of(const Problem& p, std::size_t row, std::size_t column, double z, const Cell& of_row) {
    Cell c = of_row;
    c.z = z;
    c.s = p.c().soft_cap > 0 ? p.c().soft_cap * std::tanh(z / p.c().soft_cap) : z;
    const auto is_label_of = [&](std::size_t i) { return static_cast<std::size_t>(p.labels[i]) == column; };
    const auto label = static_cast<std::size_t>(p.labels[row]);
    c.hot = label == column;
    c.after_hot = (label + 1) % p.vocab == column;
    c.before_hot = label == (column + 1) % p.vocab;
    c.next_hot = row + 1 < p.batch && is_label_of(row + 1);
    c.previous_hot = row > 0 && is_label_of(row - 1);
    return c;
}

// Those that make a difference for this problem; the first is none: delta as it should be.
std::vector<Mistake> mistakes_for(const Problem& problem) {
    std::vector<Mistake> all = {{"", "", right}};
    if (problem.c().soft_cap > 0) add_cap(all);
    if (!problem.own_cotangents) {
        if (problem.c().logsumexp_weight != 0) add_penalty(all);
        if (problem.weighted) {
            add_weight(all);
            add_mask(all, problem);
        }
        add_reduction(all, problem.c().reduction);
    } else {
        add_cotangents(all);
    }
    add_label(all);
    add_rounding(all, problem);
    add_tail(all, problem.vocab);
    return all;
}

namespace {

// The wrong lines of one gradient (rows of gx, columns of gw), to try hypotheses on. A line has H elements and is a sum
// over the other axis: gx_b = sum_v delta_bv w_v, gw_v = sum_b delta_bv x_b.

class GradientProbe {
public:
    // Of gw, or of gx.
    GradientProbe(const Findings& findings, bool of_gw);

    // Rows of the batch, or columns of the vocabulary.
    std::vector<std::size_t> wrong_lines() const;
    double wrong_share() const;  // of the compared lines
    // Hidden dimensions [begin, end) that hold all wrong elements, if they are not all.
    std::optional<std::pair<std::size_t, std::size_t>> wrong_range() const;

    bool nonfinite() const;
    bool zeros() const;      // all wrong elements are 0
    bool exchanged() const;  // each wrong line is another one's
    // The factor that makes the wrong lines right.
    std::optional<double> factor() const;

    // All compared lines under each mistake, [mistakes][lines * H].
    std::vector<std::vector<double>> lines_under(const std::vector<Mistake>& mistakes) const;
    // The worst element's error / its limit under each mistake.
    std::vector<double> errors_under(const std::vector<Mistake>& mistakes) const;

    enum class Share { none, twice, only };  // of a block in the sum
    struct Block {
        std::pair<std::size_t, std::size_t> range;  // of the axis that is summed over
        std::size_t size = 0;                       // of the blocks that it is one of
        Share share = Share::none;
    };
    std::optional<Block> missing_block() const;

private:
    double got(std::size_t line, std::size_t h) const;
    double want(std::size_t line, std::size_t h) const;
    double limit(std::size_t line, std::size_t h) const;
    // What a row's cells have in common.
    Cell row_cell(std::size_t row, double lse, double d_lse) const;
    // delta of a probed line under each mistake, [mistakes][terms].
    std::vector<std::vector<double>> deltas(std::size_t line, const std::vector<Mistake>& mistakes) const;
    // Of sums of `delta` times the other operand, for terms [k * step, ...): [chunks][H].
    std::vector<std::vector<double>> partial_sums(const std::vector<double>& delta, std::size_t step,
                                                  double (*operand)(double) = nullptr) const;
    double error_of(std::size_t line, const std::vector<double>& sum) const;
    std::size_t terms() const;

    const Findings& m_f;
    bool m_of_gw;
    const GradientLimit& m_limit;
    std::vector<std::size_t> m_lines;                            // wrong ones, as indices among the compared
    std::vector<std::size_t> m_probed;                           // of them
    std::vector<std::size_t> m_first_of_label, m_last_of_label;  // rows, by label
    std::size_t m_first = 0, m_end = 0;                          // hidden dimensions with wrong elements
};

GradientProbe::GradientProbe(const Findings& findings, bool of_gw)
    : m_f(findings),
      m_of_gw(of_gw),
      m_limit(of_gw ? findings.gw_limit : findings.gx_limit),
      m_first(findings.problem.hidden) {
    const std::size_t count = of_gw ? findings.columns.size() : findings.rows.rows.size();
    for (std::size_t i = 0; i < count; ++i) {
        bool wrong = false;
        for (std::size_t h = 0; h < findings.problem.hidden; ++h) {
            if (std::fabs(got(i, h) - want(i, h)) <= limit(i, h)) continue;
            wrong = true;
            m_first = std::min(m_first, h);
            m_end = std::max(m_end, h + 1);
        }
        if (wrong) m_lines.push_back(i);
    }
    m_probed = some_of(m_lines, of_gw ? 6 : 4);
    m_first_of_label.resize(findings.problem.vocab);
    m_last_of_label.resize(findings.problem.vocab);
    for (std::size_t i = 0; i < findings.problem.batch; ++i) {
        m_last_of_label[static_cast<std::size_t>(findings.problem.labels[i])] = i;
        const std::size_t other = findings.problem.batch - 1 - i;
        m_first_of_label[static_cast<std::size_t>(findings.problem.labels[other])] = other;
    }
}

double GradientProbe::got(std::size_t line, std::size_t h) const {
    const std::size_t H = m_f.problem.hidden;
    return m_of_gw ? gw_element(m_f.problem, *m_f.dump.gw, h, m_f.columns[line])
                   : element(*m_f.dump.gx, m_f.rows.rows[line] * H + h);
}

double GradientProbe::want(std::size_t line, std::size_t h) const {
    return (m_of_gw ? m_f.gw : m_f.rows.gx)[line * m_f.problem.hidden + h];
}

double GradientProbe::limit(std::size_t line, std::size_t h) const { return m_limit.at(line, want(line, h)); }

std::size_t GradientProbe::terms() const { return m_of_gw ? m_f.problem.batch : m_f.problem.vocab; }

double GradientProbe::wrong_share() const {
    const std::size_t count = m_of_gw ? m_f.columns.size() : m_f.rows.rows.size();
    return count == 0 ? 0 : static_cast<double>(m_lines.size()) / static_cast<double>(count);
}

std::vector<std::size_t> GradientProbe::wrong_lines() const {
    std::vector<std::size_t> lines;
    for (const std::size_t i : m_lines) lines.push_back(m_of_gw ? m_f.columns[i] : m_f.rows.rows[i]);
    return lines;
}

std::optional<std::pair<std::size_t, std::size_t>> GradientProbe::wrong_range() const {
    if (m_first == 0 && m_end == m_f.problem.hidden) return std::nullopt;
    return std::pair{m_first, m_end};
}

bool GradientProbe::nonfinite() const {
    return std::any_of(m_lines.begin(), m_lines.end(), [&](std::size_t i) {
        for (std::size_t h = 0; h < m_f.problem.hidden; ++h) {
            if (!std::isfinite(got(i, h))) return true;
        }
        return false;
    });
}

bool GradientProbe::zeros() const {
    return std::all_of(m_lines.begin(), m_lines.end(), [&](std::size_t i) {
        for (std::size_t h = 0; h < m_f.problem.hidden; ++h) {
            if (std::fabs(got(i, h) - want(i, h)) > limit(i, h) && got(i, h) != 0) return false;
        }
        return true;
    });
}

bool GradientProbe::exchanged() const {
    const std::size_t count = m_of_gw ? m_f.columns.size() : m_f.rows.rows.size();
    const std::size_t H = m_f.problem.hidden;
    std::size_t found = 0;
    const bool all = std::all_of(m_probed.begin(), m_probed.end(), [&](std::size_t i) {
        double size = 0;
        for (std::size_t h = 0; h < H; ++h) size = std::max(size, std::fabs(got(i, h)));
        if (size <= 4 * m_limit.flat) return true;  // nearly nothing is like every other line of nearly nothing
        for (std::size_t j = 0; j < count; ++j) {
            bool same = j != i;
            for (std::size_t h = 0; h < H && same; ++h) same = std::fabs(got(i, h) - want(j, h)) <= limit(j, h);
            if (same) return ++found > 0;
        }
        return false;
    });
    return all && found > 0;
}

std::optional<double> GradientProbe::factor() const {
    double product = 0;
    double square = 0;
    for (const std::size_t i : m_probed) {
        for (std::size_t h = m_first; h < m_end; ++h) {
            product += got(i, h) * want(i, h);
            square += want(i, h) * want(i, h);
        }
    }
    const double factor = square > 0 ? product / square : 0;
    if (factor == 0 || !std::isfinite(factor)) return std::nullopt;
    for (const std::size_t i : m_probed) {
        for (std::size_t h = m_first; h < m_end; ++h) {
            if (std::fabs(got(i, h) - factor * want(i, h)) > limit(i, h) * std::max(1.0, std::fabs(factor)))
                return std::nullopt;
        }
    }
    return factor;
}

Cell GradientProbe::row_cell(std::size_t row, double lse, double d_lse) const {
    const Problem& p = m_f.problem;
    const auto label = static_cast<std::size_t>(p.labels[row]);
    const double cap = p.c().soft_cap;
    Cell c;
    c.lse = lse;
    c.d_loss = p.d_loss[row];
    c.d_lse = d_lse;
    c.loss = lse - capped(rounded(logits_of(p, row, label, label + 1), p.forward_rounds()), cap).front();
    c.largest = m_f.rows.rows.size() == p.batch ? m_f.rows.largest[row] : std::nan("");
    c.weight = p.weight[row];
    c.ignored = p.ignored[row];
    c.first = m_first_of_label[label] == row;
    c.last = m_last_of_label[label] == row;
    return c;
}

std::vector<std::vector<double>> GradientProbe::deltas(std::size_t line, const std::vector<Mistake>& mistakes) const {
    const Problem& p = m_f.problem;
    std::vector<std::vector<double>> all(mistakes.size(), std::vector<double>(terms()));
    const auto fill = [&](std::size_t term, const Cell& cell) {
        for (std::size_t m = 0; m < mistakes.size(); ++m) {
            Cell own = cell;
            own.padding = mistakes[m].padding;
            all[m][term] = mistakes[m].delta(p, own);
        }
    };
    if (!m_of_gw) {
        const std::size_t row = m_f.rows.rows[line];
        const double lse = m_f.rows.lse[line];
        const double d_lse = p.d_lse ? (*p.d_lse)[row] : 2 * p.c().logsumexp_weight * lse * p.d_loss[row];
        const std::vector<double> z = rounded(logits_of(p, row, 0, p.vocab), p.backward_rounds());
        const Cell of_row = row_cell(row, lse, d_lse);
        for (std::size_t v = 0; v < p.vocab; ++v) fill(v, cell_of(p, row, v, z[v], of_row));
        return all;
    }
    const std::size_t column = m_f.columns[line];
    const std::vector<double> d_lse = p.lse_cotangents(m_f.lse);
    for (std::size_t b = 0; b < p.batch; ++b) {
        const double z = rounded(logits_of(p, b, column, column + 1), p.backward_rounds()).front();
        fill(b, cell_of(p, b, column, z, row_cell(b, m_f.lse[b], d_lse[b])));
    }
    return all;
}

std::vector<std::vector<double>> GradientProbe::partial_sums(const std::vector<double>& delta, std::size_t step,
                                                             double (*operand)(double)) const {
    const Problem& p = m_f.problem;
    const std::size_t H = p.hidden;
    const std::size_t count = terms();
    std::vector<std::vector<double>> sums((count + step - 1) / step, std::vector<double>(H, 0.0));
    const bool by_hidden = !m_of_gw && p.c().layout == Layout::hv;
    std::vector<double> line(by_hidden ? p.vocab : H);
    const auto round = [&] {
        for (std::size_t i = 0; i < line.size() && operand != nullptr; ++i) line[i] = operand(line[i]);
    };
    if (by_hidden) {
        for (std::size_t h = 0; h < H; ++h) {
            read_elements(p.w, h * p.vocab, p.vocab, line.data());
            round();
            for (std::size_t k = 0; k < count; ++k) sums[k / step][h] += delta[k] * line[k];
        }
        return sums;
    }
    for (std::size_t k = 0; k < count; ++k) {
        read_elements(m_of_gw ? p.x : p.w, k * H, H, line.data());
        round();
        for (std::size_t h = 0; h < H; ++h) sums[k / step][h] += delta[k] * line[h];
    }
    return sums;
}

double GradientProbe::error_of(std::size_t line, const std::vector<double>& sum) const {
    double error = 0;
    for (std::size_t h = m_first; h < m_end; ++h) {
        const double e = std::fabs(got(line, h) - sum[h]);
        // What a mistake makes much larger is rounded as such.
        const double most = m_limit.at(line, want(line, h)) + 1e-6 * std::fabs(sum[h]);
        const double part = most > 0 ? e / most : (e > 0 ? HUGE_VAL : 0);
        error = std::isnan(part) ? HUGE_VAL : std::max(error, part);
    }
    return error;
}

std::vector<std::vector<double>> GradientProbe::lines_under(const std::vector<Mistake>& mistakes) const {
    std::vector<std::vector<double>> lines(mistakes.size());
    for (std::size_t line = 0; line < (m_of_gw ? m_f.columns : m_f.rows.rows).size(); ++line) {
        const std::vector<std::vector<double>> all = deltas(line, mistakes);
        for (std::size_t m = 0; m < all.size(); ++m) {
            const std::vector<double> sum = partial_sums(all[m], terms(), mistakes[m].operand).front();
            lines[m].insert(lines[m].end(), sum.begin(), sum.end());
        }
    }
    return lines;
}

std::vector<double> GradientProbe::errors_under(const std::vector<Mistake>& mistakes) const {
    std::vector<std::vector<double>> errors(m_probed.size());
    run_tasks(m_probed.size(), m_f.work.threads, [&] {
        return [&](std::size_t i) {
            const std::vector<std::vector<double>> all = deltas(m_probed[i], mistakes);
            for (std::size_t m = 0; m < all.size(); ++m) {
                const auto sums = partial_sums(all[m], terms(), mistakes[m].operand);
                errors[i].push_back(error_of(m_probed[i], sums.front()));
            }
        };
    });
    std::vector<double> worst(mistakes.size(), 0);
    for (const std::vector<double>& e : errors) {
        for (std::size_t m = 0; m < worst.size(); ++m) worst[m] = std::max(worst[m], e[m]);
    }
    return worst;
}

std::optional<GradientProbe::Block> GradientProbe::missing_block() const {
    const std::size_t H = m_f.problem.hidden;
    std::size_t step = 1;
    while (terms() / step > 4096) step *= 2;
    const std::vector<Mistake> none = {mistakes_for(m_f.problem).front()};
    std::vector<std::vector<std::vector<double>>> sums;  // [line][chunk][H], each with those before it
    for (const std::size_t line : m_probed) {
        sums.push_back(partial_sums(deltas(line, none).front(), step));
        for (std::size_t k = 1; k < sums.back().size(); ++k) {
            for (std::size_t h = 0; h < H; ++h) sums.back()[k][h] += sums.back()[k - 1][h];
        }
    }
    const std::size_t chunks = sums.empty() ? 0 : sums.front().size();
    for (const std::size_t size : block_sizes(terms())) {
        if (size % step != 0) continue;
        for (std::size_t begin = 0; begin < chunks; begin += size / step) {
            const std::size_t end = std::min(begin + size / step, chunks);
            for (const Share share : {Share::none, Share::twice, Share::only}) {
                bool all = true;
                for (std::size_t i = 0; i < m_probed.size() && all; ++i) {
                    std::vector<double> sum(H);
                    for (std::size_t h = 0; h < H; ++h) {
                        const double part = sums[i][end - 1][h] - (begin > 0 ? sums[i][begin - 1][h] : 0);
                        const double whole = want(m_probed[i], h);
                        sum[h] = share == Share::only ? part : whole + (share == Share::twice ? part : -part);
                    }
                    all = error_of(m_probed[i], sum) <= 1;
                }
                if (all) return Block{{begin * step, std::min(end * step, terms())}, size, share};
            }
        }
    }
    return std::nullopt;
}

// Why gradients are wrong where loss and lse are right.

using Range = std::pair<std::size_t, std::size_t>;

const char* has(GradientProbe::Share share) {
    switch (share) {
        case GradientProbe::Share::none: return "lacks";
        case GradientProbe::Share::twice: return "has twice";
        case GradientProbe::Share::only: return "has only";
    }
    return "";
}

std::string columns_text(const Range& r) { return fmt::format("{} to {}", r.first, r.second - 1); }

class GradientSearch {
public:
    explicit GradientSearch(const Findings& findings) : m_f(findings) {
        if (m_f.gx_wrong) m_gx.emplace(findings, false);
        if (m_f.gw_wrong) m_gw.emplace(findings, true);
    }

    Faults run() {
        place();
        if (!tiles() && !mistakes() && !blocks()) pattern();
        return std::move(m_faults);
    }

private:
    void found(std::vector<std::string> stages, std::string text) {
        m_faults.hints.push_back({stages.front(), std::move(text), 1});
        m_faults.stages = std::move(stages);
    }

    const char* tensor() const { return m_f.gx_wrong ? "gx" : "gw"; }
    bool both() const { return m_f.gx_wrong && m_f.gw_wrong; }

    void place() {
        FaultLocation p;
        p.tensor = tensor();
        if (m_gx) {
            p.rows = m_gx->wrong_lines();
            if (const auto range = m_gx->wrong_range()) p.hidden = range;
        }
        if (m_gw) {
            p.columns = m_gw->wrong_lines();
            if (const auto range = m_gw->wrong_range(); range && !m_gx) p.hidden = range;
            if (is_run(p.columns, m_f.columns.size())) p.block = Range{p.columns.front(), p.columns.back() + 1};
        }
        m_faults.place = std::move(p);
    }

    // Not written, stale, exchanged.
    bool tiles() {
        for (const auto* g : {m_gx ? &*m_gx : nullptr, m_gw ? &*m_gw : nullptr}) {
            if (g == nullptr) continue;
            const char* lines = g == (m_gx ? &*m_gx : nullptr) ? "rows of gx" : "columns of gw";
            if (g->nonfinite()) {
                found({"tile", tensor()},
                      fmt::format("some {} are not finite: not written, or read from elsewhere", lines));
            } else if (g->exchanged()) {
                found({"tile", tensor()}, fmt::format("matches if {} are those of others", lines));
            } else if (g->zeros()) {
                const bool tail = g != (m_gx ? &*m_gx : nullptr) && in_last_block();
                // The same hidden dimensions of every line: lost on the way to the gradient, not a tile of lines.
                const bool part = g->wrong_range().has_value() && g->wrong_share() > 0.5;
                found(tail   ? std::vector<std::string>{"tail", "tile", "gw"}
                      : part ? std::vector<std::string>{tensor(), "tile"}
                             : std::vector<std::string>{"tile", tensor()},
                      fmt::format("the wrong {} are zeros where there are gradients", lines));
            }
            if (!m_faults.stages.empty()) return true;
        }
        return false;
    }

    // delta is wrong in a known way, in what both are made of or in what one of them is.
    bool mistakes() {
        const std::vector<Mistake> all = mistakes_for(m_f.problem);
        std::vector<double> gx = m_gx ? m_gx->errors_under(all) : std::vector<double>(all.size(), 0);
        std::vector<double> gw = m_gw ? m_gw->errors_under(all) : std::vector<double>(all.size(), 0);
        std::size_t best = 0;
        double left = HUGE_VAL;
        for (std::size_t i = 1; i < all.size(); ++i) {
            // A mistake in only some rows does not affect a single column of gw.
            const double error = m_gx ? std::max(gx[i], both() && gw[i] > 1 ? gx[i] + 0.1 : gx[i]) : gw[i];
            const double before = m_gx ? gx[0] : gw[0];
            if (error > 1 || error > before / 4 || error >= left) continue;
            best = i;
            left = error;
        }
        if (best == 0) return false;
        std::vector<std::string> stages = stages_of(all[best].stage, m_f.problem);
        if (!both() && (m_f.dump.gx != nullptr) == (m_f.dump.gw != nullptr)) stages.emplace_back(tensor());
        found(std::move(stages), all[best].text);
        return true;
    }

    std::string meaning_of(double factor) const {
        const struct {
            double value;
            const char* name;
        } known[] = {{static_cast<double>(m_f.problem.batch), "the number of rows"},
                     {m_f.problem.total_weight, "the sum of weights"},
                     {static_cast<double>(m_f.problem.vocab), "the size of the vocabulary"},
                     {std::sqrt(static_cast<double>(m_f.problem.hidden)), "the square root of H"}};
        for (const auto& [value, name] : known) {
            if (std::fabs(factor / value - 1) < 1e-3) return fmt::format(", {}", name);
            if (std::fabs(factor * value - 1) < 1e-3) return fmt::format(", 1 over {}", name);
        }
        return {};
    }

    bool in_last_block() const {
        const std::vector<std::size_t> wrong = m_gw->wrong_lines();
        for (const std::size_t size : block_sizes(m_f.problem.vocab)) {
            const std::size_t begin = m_f.problem.vocab / size * size;
            if (begin < m_f.problem.vocab && wrong.front() >= begin) return true;
        }
        return false;
    }

    // A block of the vocabulary that gx lacks, or of the batch that gw lacks.
    bool blocks() {
        if (m_gx) {
            if (const auto block = m_gx->missing_block()) {
                m_faults.place->block = block->range;
                const bool last = block->range.second == m_f.problem.vocab && m_f.problem.vocab % block->size != 0;
                const std::string text =
                    fmt::format("matches if gx {} the columns {}", has(block->share), columns_text(block->range));
                found(last ? std::vector<std::string>{"tail", "gx"} : std::vector<std::string>{"gx", "tail"}, text);
                return true;
            }
        }
        if (m_gw && !m_gx) {
            if (const auto block = m_gw->missing_block()) {
                for (std::size_t i = block->range.first; i < block->range.second; ++i)
                    m_faults.place->rows.push_back(i);
                found({"gw"},
                      fmt::format("matches if gw {} the rows {}", has(block->share), columns_text(block->range)));
                return true;
            }
        }
        for (const auto* g : {m_gx ? &*m_gx : nullptr, m_gw ? &*m_gw : nullptr}) {
            const auto factor = g == nullptr ? std::nullopt : g->factor();
            if (!factor) continue;
            found(both() ? std::vector<std::string>{"weight", "gx"} : std::vector<std::string>{tensor(), "weight"},
                  fmt::format("matches if {} is multiplied by {:.6g}{}", both() ? "each gradient" : tensor(), *factor,
                              meaning_of(*factor)));
            return true;
        }
        return false;
    }

    // All wrong rows of gx are of one kind, and all that were compared of that kind are wrong.
    template <class Is>
    bool wrong_are(const Is& is) const {
        const std::vector<std::size_t> wrong = m_gx->wrong_lines();
        const auto all = [&](const std::vector<std::size_t>& rows) {
            return static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), is));
        };
        return all(wrong) == wrong.size() && all(m_f.rows.rows) == wrong.size();
    }

    // No known mistake: the place of the error suggests the stage.
    void pattern() {
        const auto labels_only = [&] {
            const std::vector<std::size_t> wrong = m_gw->wrong_lines();
            return std::all_of(wrong.begin(), wrong.end(), [&](std::size_t v) {
                return std::find(m_f.problem.labels.begin(), m_f.problem.labels.end(), static_cast<std::int64_t>(v)) !=
                       m_f.problem.labels.end();
            });
        };
        const Problem& p = m_f.problem;
        if (m_gx && wrong_are([&](std::size_t row) { return p.ignored[row]; })) {
            found({"weight", "gx"}, "the wrong rows are the ignored ones: they have gradients");
        } else if (m_gx && wrong_are([&](std::size_t row) { return p.weight[row] == 0; })) {
            found({"weight", "gx"}, "the wrong rows are those of weight 0: they have gradients");
        } else if (m_gw && m_gw->wrong_lines().size() < m_f.columns.size() && in_last_block()) {
            found({"tail", "gw", "tile"}, "only columns of the last, partial block are wrong");
        } else if (m_gw && m_gw->wrong_lines().size() < m_f.columns.size() && m_f.columns.size() > 16 &&
                   labels_only()) {
            found({"label", "gw"}, "only columns that are the label of a row are wrong");
        } else if (both()) {
            m_faults.stages = {"lse", "tail", "gx", "gw"};
        } else {
            m_faults.stages = {tensor(), "tile"};
        }
    }

    const Findings& m_f;
    std::optional<GradientProbe> m_gx, m_gw;
    Faults m_faults;
};

}  // namespace

std::vector<KnownMistake> known_gradient_mistakes(const Findings& right) {
    const Problem& p = right.problem;
    const std::vector<Mistake> all = mistakes_for(p);
    const std::vector<std::vector<double>> gx = GradientProbe(right, false).lines_under(all);
    const std::vector<std::vector<double>> gw = GradientProbe(right, true).lines_under(all);
    std::vector<KnownMistake> mistakes;
    for (std::size_t m = 1; m < all.size(); ++m) {
        KnownMistake& known = mistakes.emplace_back(KnownMistake{all[m].stage, all[m].text});
        known.gx = gx[m];
        known.gw.resize(gw[m].size());
        for (std::size_t i = 0; i < gw[m].size(); ++i) {
            const std::size_t v = i / p.hidden, h = i % p.hidden;
            known.gw[p.c().layout == Layout::hv ? h * p.vocab + v : i] = gw[m][i];
        }
    }
    return mistakes;
}

Faults gradient_faults(const Findings& findings) { return GradientSearch(findings).run(); }

}  // namespace gdnctl::oracle::linear_ce
