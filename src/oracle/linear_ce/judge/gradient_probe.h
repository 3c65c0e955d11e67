// The wrong lines of one gradient (rows of gx, columns of gw), to try hypotheses on. A line has H elements and is a sum
// over the other axis: gx_b = sum_v delta_bv w_v, gw_v = sum_b delta_bv x_b.
#pragma once

#include <optional>
#include <vector>

#include "oracle/linear_ce/judge/mistakes.h"
#include "oracle/linear_ce/judge/probe.h"

namespace gdnctl::oracle::linear_ce {

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
    std::vector<std::vector<double>> partial_sums(const std::vector<double>& delta, std::size_t step) const;
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

}  // namespace gdnctl::oracle::linear_ce
