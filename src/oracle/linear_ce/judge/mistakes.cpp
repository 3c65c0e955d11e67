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
    to.push_back({"penalty", "matches if the penalty is of loss instead of lse", [](const Problem& p, const Cell& c) {
                      return with(p, c, c.d_loss, -2 * p.c().logsumexp_weight * c.d_loss);
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

void add_mask(std::vector<Mistake>& to) {
    to.push_back({"weight",
                  "matches if weights are taken for a mask, and the sum is divided by the rows that it leaves",
                  [](const Problem& p, const Cell& c) {
                      return scaled(p, c, c.weight == 0 ? 0 : 1 / static_cast<double>(p.rows_with_weight));
                  }});
}

void add_reduction(std::vector<Mistake>& to, Reduction reduction) {
    if (reduction == Reduction::mean) {
        to.push_back({"weight", "matches if the sum is not divided",
                      [](const Problem& p, const Cell& c) { return scaled(p, c, c.weight); }});
        to.push_back(
            {"weight", "matches if the sum is divided by the number of rows",
             [](const Problem& p, const Cell& c) { return scaled(p, c, c.weight / static_cast<double>(p.batch)); }});
        to.push_back({"weight", "matches if the sum is divided by the number of rows with a weight",
                      [](const Problem& p, const Cell& c) {
                          return scaled(p, c, c.weight / static_cast<double>(p.rows_with_weight));
                      }});
    } else {
        to.push_back({"weight", "matches if the sum is divided by the sum of weights",
                      [](const Problem& p, const Cell& c) { return scaled(p, c, c.d_loss / p.total_weight); }});
        to.push_back(
            {"weight", "matches if the sum is divided by the number of rows",
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

void add_lse(std::vector<Mistake>& to) {
    to.push_back({"lse", "matches if the backward takes an lse rounded to bf16", [](const Problem& p, const Cell& c) {
                      Cell rounded = c;
                      rounded.lse = to_bf16(c.lse);
                      return with(p, rounded, c.d_loss, c.d_lse);
                  }});
    to.push_back({"lse", "matches if the backward rounds the logits to bf16", [](const Problem& p, const Cell& c) {
                      Cell rounded = c;
                      rounded.s = to_bf16(c.s);
                      return right(p, rounded);
                  }});
}

}  // namespace

Cell cell_of(const Problem& p, std::size_t row, std::size_t column, double z, double lse, double d_lse) {
    Cell c;
    c.z = z;
    c.s = p.c().soft_cap > 0 ? p.c().soft_cap * std::tanh(z / p.c().soft_cap) : z;
    c.lse = lse;
    c.d_loss = p.d_loss[row];
    c.d_lse = d_lse;
    c.weight = p.weight[row];
    const auto label = static_cast<std::size_t>(p.labels[row]);
    c.hot = label == column;
    c.after_hot = (label + 1) % p.vocab == column;
    c.before_hot = label == (column + 1) % p.vocab;
    return c;
}

std::vector<Mistake> mistakes_for(const Problem& problem) {
    std::vector<Mistake> all = {{"", "", right}};
    if (problem.c().soft_cap > 0) add_cap(all);
    if (!problem.own_cotangents) {
        if (problem.c().logsumexp_weight != 0) add_penalty(all);
        if (problem.weighted) {
            add_weight(all);
            add_mask(all);
        }
        add_reduction(all, problem.c().reduction);
    } else {
        all.push_back({"penalty", "matches without d_lse",
                       [](const Problem& p, const Cell& c) { return with(p, c, c.d_loss, 0); }});
        all.push_back({"penalty", "matches if d_lse lacks the factor p", [](const Problem& p, const Cell& c) {
                           return (c.d_loss * probability(c) - hot(c)) * slope(p, c) + c.d_lse;
                       }});
    }
    add_label(all);
    add_lse(all);
    add_tail(all, problem.vocab);
    return all;
}

}  // namespace gdnctl::oracle::linear_ce
