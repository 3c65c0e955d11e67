// What a kernel wrote, checked against the problem's sizes.
#pragma once

#include <optional>
#include <vector>

#include "core/result.h"
#include "oracle/linear_ce/judge/problem.h"

namespace gdnctl::oracle::linear_ce {

struct Dump {
    const Tensor *loss = nullptr, *lse = nullptr, *gx = nullptr, *gw = nullptr;
    const Tensor *argmax = nullptr, *reduced = nullptr;

    bool any() const { return loss || lse || gx || gw || argmax || reduced; }
};

// bad_input: a wrong shape or dtype.
Result<Dump> read_dump(const Problem& problem, const TensorFile& file);

// Elements [at, at + count) as fp64.
void read_elements(const Tensor& tensor, std::size_t at, std::size_t count, double* to);

// Element (h, v) of gw, whatever the layout.
double gw_element(const Problem& problem, const Tensor& gw, std::size_t h, std::size_t v);

}  // namespace gdnctl::oracle::linear_ce
