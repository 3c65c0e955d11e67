// Known mistakes in delta, the gradient of the logits, that gx and gw are made of.
#pragma once

#include <string>
#include <vector>

#include "oracle/linear_ce/judge/problem.h"

namespace gdnctl::oracle::linear_ce {

// One logit of one row, and what the gradient needs to know of its row.
struct Cell {
    double z = 0, s = 0, lse = 0;  // before and after the cap
    double d_loss = 0, d_lse = 0;  // cotangents, as they should be
    double weight = 1;
    double loss = 0;
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
};

// Those that make a difference for this problem; the first is none: delta as it should be.
std::vector<Mistake> mistakes_for(const Problem& problem);

// Everything but the padding. `row` has what does not depend on the column.
Cell cell_of(const Problem& problem, std::size_t row, std::size_t column, double z, const Cell& of_row);

}  // namespace gdnctl::oracle::linear_ce
