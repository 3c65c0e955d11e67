// Why argmax, or nothing but the scalar, is wrong.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/faults.h"
#include "oracle/linear_ce/judge/probe.h"

namespace gdnctl::oracle::linear_ce {

std::vector<std::string> stages_of(const std::string& stage, const Problem& problem) {
    if (stage != "reduction") return {stage};
    // Of rows that are not counted, or of weights.
    if (problem.ignored_count > 0) return {"reduction", "weight"};
    return {"weight", "reduction"};
}

Faults argmax_faults(const Findings& findings) {
    const Problem& p = findings.problem;
    const std::vector<std::int64_t> got = to_i64(*findings.dump.argmax);
    std::vector<std::size_t> wrong;
    for (std::size_t i = 0; i < findings.rows.rows.size(); ++i) {
        if (argmax_excess(p, findings.rows, i, got[findings.rows.rows[i]]) > 1) wrong.push_back(i);
    }
    Faults faults;
    faults.stages = {"argmax"};
    faults.place = Place{"argmax", rows_of(findings, wrong), {}, {}, {}};
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

Faults reduced_faults(const Findings& findings) {
    const Problem& p = findings.problem;
    const double got = element(*findings.dump.reduced, 0);
    const std::vector<double>& loss = findings.loss;
    const std::vector<double>& lse = findings.lse;
    const double lambda = p.c().logsumexp_weight;
    const auto B = static_cast<double>(p.batch);
    double weighted_loss = 0;
    double plain_loss = 0;
    double weighted_penalty = 0;
    double plain_penalty = 0;
    double loss_penalty = 0;
    for (std::size_t i = 0; i < p.batch; ++i) {
        weighted_loss += p.weight[i] * loss[i];
        plain_loss += loss[i];
        weighted_penalty += p.weight[i] * lambda * lse[i] * lse[i];
        plain_penalty += lambda * lse[i] * lse[i];
        loss_penalty += p.weight[i] * lambda * loss[i] * loss[i];
    }
    const bool mean = p.c().reduction == Reduction::mean;
    const double by = mean ? p.total_weight : 1;
    const struct {
        const char *stage, *text;
        double value;
    } candidates[] = {
        {"penalty", "matches without the penalty", weighted_loss / by},
        {"penalty", "matches if the penalty is not weighted", (weighted_loss + plain_penalty) / by},
        {"penalty", "matches if the penalty is not weighted and averaged over all rows",
         weighted_loss / by + plain_penalty / (mean ? B : 1)},
        {"penalty", "matches if the penalty is of the loss squared instead of lse squared",
         (weighted_loss + loss_penalty) / by},
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
    Faults faults;
    faults.place = Place{"reduced", {}, {}, {}, {}};
    for (const auto& c : candidates) {
        if (!(std::fabs(c.value - got) <= 2e-5 * std::fabs(c.value))) continue;
        faults.stages = stages_of(c.stage, p);
        faults.hints.push_back({c.stage, c.text, 1});
        return faults;
    }
    faults.stages = lambda != 0 ? std::vector<std::string>{"weight", "penalty"} : std::vector<std::string>{"weight"};
    return faults;
}

}  // namespace gdnctl::oracle::linear_ce
