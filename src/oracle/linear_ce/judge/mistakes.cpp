#include "oracle/linear_ce/judge/mistakes.h"

#include <cmath>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/probe.h"

namespace gdnctl::oracle::linear_ce {

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

void add_rounding(std::vector<Mistake>& to, const Problem& problem) {
    to.push_back({"lse", "matches if the backward takes an lse rounded to bf16", [](const Problem& p, const Cell& c) {
                      Cell rounded = c;
                      rounded.lse = to_bf16(c.lse);
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
    to.push_back({"rounding", "matches if delta is rounded to bf16",
                  [](const Problem& p, const Cell& c) { return to_bf16(right(p, c)); }});
    to.push_back({"rounding", "matches if delta is rounded to tf32", [](const Problem& p, const Cell& c) {
                      return static_cast<double>(rounded_to_tf32(static_cast<float>(right(p, c))));
                  }});
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

}  // namespace gdnctl::oracle::linear_ce
