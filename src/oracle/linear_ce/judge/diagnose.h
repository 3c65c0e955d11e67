// The search for the mistake in a wrong dump, and everything that the comparison has computed for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/limits.h"
#include "oracle/linear_ce/judge/problem.h"

namespace gdnctl::oracle::linear_ce {

struct Findings {
    const Problem& problem;
    const Dump& dump;
    RowTruth rows;                     // of the rows that were compared
    std::vector<std::size_t> columns;  // of gw that were compared, with their truth [columns, H]
    std::vector<double> gw;
    std::vector<double> loss, lse;  // of all rows, as good as is known; empty: not known
    bool loss_wrong = false, lse_wrong = false, gx_wrong = false, gw_wrong = false;
    bool argmax_wrong = false, reduced_wrong = false;
    GradientLimit gx_limit, gw_limit;  // what an element may be off by
    const Work& work;
};

// Sets stage, stages, hints and place of a report whose verdict is WRONG.
void diagnose(const Findings& findings, Report& report);

// Some rows in full: their logits over the whole vocabulary, to try hypotheses on.

struct ProbeRow {
    std::size_t at = 0;        // index among the rows that were compared
    std::size_t row = 0;       // of the batch
    std::vector<double> z, s;  // [V], before and after the cap, rounded as declared
    double lse = 0;
};

std::vector<ProbeRow> probe(const Findings& findings, const std::vector<std::size_t>& at);

// At most `count` of them, spread evenly.
std::vector<std::size_t> some_of(const std::vector<std::size_t>& all, std::size_t count);

double logsumexp(const std::vector<double>& s);
std::vector<double> capped(std::vector<double> z, double cap);
double to_bf16(double x);
std::vector<double> rounded(std::vector<double> z, bool round = true);  // to bf16

// Sizes that kernels cut `count` elements into: powers of two, and even shares.
std::vector<std::size_t> block_sizes(std::size_t count);

double row_limit_of(const Findings& findings, const Tensor& tensor, std::size_t at);

// Batch rows of indices among the compared ones.
std::vector<std::size_t> rows_of(const Findings& findings, const std::vector<std::size_t>& at);

// Whether the numbers are consecutive and fewer than there are.
bool is_run(const std::vector<std::size_t>& numbers, std::size_t all);

// The known mistakes of such kernels, and how each would show.

// The likeliest stage first. Hints name mistakes under which the dump would be right.
struct Faults {
    std::vector<std::string> stages;
    std::vector<Hint> hints;
    std::optional<FaultLocation> place;
};

// Of a dump whose loss and lse are right.
Faults gradient_faults(const Findings& findings);

// "weight" and what goes by that name too, for a mistake in the reduction.
std::vector<std::string> stages_of(const std::string& stage, const Problem& problem);

// A mistake that the search knows, and what a kernel that makes it would write; empty: what a correct one does.
struct KnownMistake {
    std::string stage, text;
    std::vector<double> loss = {}, lse = {};  // of all rows
    std::vector<double> gx = {}, gw = {};     // as in files
    std::optional<double> reduced = std::nullopt;
};

// `right` are the findings on a correct dump, with every row and column. Mistakes in the sum of a single block are not
// listed: there are as many as ways to cut the vocabulary.
std::vector<KnownMistake> known_row_mistakes(const Findings& right);
std::vector<KnownMistake> known_gradient_mistakes(const Findings& right);

}  // namespace gdnctl::oracle::linear_ce
