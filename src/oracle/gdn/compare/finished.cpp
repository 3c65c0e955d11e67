// Values of out that were computed correctly, but then moved to other tokens, columns or heads, or mapped one by one.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "oracle/gdn/compare/localise.h"

namespace gdnctl::oracle {

namespace {

using Index = std::size_t;

class Finished {
public:
    Finished(const GdnReference& r, const Evidence& out, const LaneErrors& errors)
        : m_out(out),
          m_heads(static_cast<Index>(r.problem.dims.Hv)),
          m_dv(static_cast<Index>(r.problem.dims.dv)),
          m_head(static_cast<Index>(errors.head)) {
        const GdnSequence s = r.problem.sequences[static_cast<Index>(errors.sequence)];
        m_begin = static_cast<Index>(s.begin);
        m_end = static_cast<Index>(s.end);
        const double budget = out.budgets[static_cast<Index>(errors.sequence) * m_heads + m_head].rms;
        m_honest = k_ok_band * k_ok_band * budget * budget;
        for (Index row = m_begin; row < m_end; ++row) {
            const double size = away(row, m_head, row);
            if (!std::isfinite(size)) return;
            if (size > m_honest * static_cast<double>(m_dv)) m_wrong.push_back(row);
        }
    }

    std::optional<Diagnosis> run() const {
        if (m_wrong.size() < 2 || m_dv < 2) return std::nullopt;
        if (auto d = other_rows()) return d;
        if (auto d = other_columns()) return d;
        return mapped();
    }

private:
    Index at(Index row, Index head) const { return (row * m_heads + head) * m_dv; }

    // Sum of squares between a row of the dump and one of the truth, while it stays below `limit`.
    double away(Index got, Index head, Index want, double limit = HUGE_VAL) const {
        double sum = 0;
        const double* x = m_out.got->data() + at(got, m_head);
        const double* y = m_out.want->data() + at(want, head);
        for (Index j = 0; j < m_dv && sum <= limit; ++j) sum += (x[j] - y[j]) * (x[j] - y[j]);
        return sum;
    }
    double allowed(double before, Index count) const {
        return std::max(before / 1e4, std::min(m_honest * static_cast<double>(count), before / 81));
    }

    static Diagnosis found(std::vector<std::string> stages, const std::string& text) {
        Diagnosis d{stages.front(), {}, {{stages.front(), text, 100}}};
        d.stages = std::move(stages);
        return d;
    }

    // Whether nearly all of some wrong rows belong to another token or head.
    std::optional<Diagnosis> other_rows() const {
        constexpr Index k_asked = 48;
        const Index step = std::max<Index>(1, m_wrong.size() / k_asked);
        Index asked = 0;
        Index tokens = 0;
        Index heads = 0;
        std::string example;
        for (Index i = 0; i < m_wrong.size(); i += step) {
            const Index row = m_wrong[i];
            const double limit = allowed(away(row, m_head, row), m_dv);
            ++asked;
            for (Index head = 0; head < m_heads && limit > 0; ++head) {
                if (head == m_head || away(row, head, row, limit) > limit) continue;
                if (heads++ == 0) example = fmt::format("token {} holds that of head {}", row - m_begin, head);
                break;
            }
            for (Index other = m_begin; other < m_end && limit > 0; ++other) {
                if (other == row || away(row, m_head, other, limit) > limit) continue;
                if (tokens++ == 0) example = fmt::format("token {} holds that of {}", row - m_begin, other - m_begin);
                break;
            }
        }
        // A single row at an edge may contain anything.
        if (asked >= 2 && tokens * 8 >= asked * 7) {
            return found({"layout", "order", "output", "tile"},
                         "matches if out is right and at other tokens: " + example);
        }
        if (asked >= 2 && heads * 8 >= asked * 7)
            return found({"head_map", "layout", "tile"}, "matches if out is right and in other heads: " + example);
        return std::nullopt;
    }

    std::optional<Diagnosis> other_columns() const {
        const auto apart = [&](Index got, Index want, double limit) {
            double sum = 0;
            for (Index row = m_begin; row < m_end && sum <= limit; ++row) {
                const double d = (*m_out.got)[at(row, m_head) + got] - (*m_out.want)[at(row, m_head) + want];
                sum += d * d;
            }
            return sum;
        };
        const Index rows = m_end - m_begin;
        Index wrong = 0;
        Index moved = 0;
        std::string example;
        for (Index j = 0; j < m_dv; ++j) {
            const double before = apart(j, j, HUGE_VAL);
            if (before <= m_honest * static_cast<double>(rows)) continue;
            ++wrong;
            for (Index other = 0; other < m_dv; ++other) {
                if (other == j || apart(j, other, allowed(before, rows)) > allowed(before, rows)) continue;
                if (moved++ == 0) example = fmt::format("column {} holds that of {}", j, other);
                break;
            }
        }
        if (rows < 4 || wrong < 2 || moved != wrong) return std::nullopt;
        return found({"layout", "output", "tile"}, "matches if out is right and in other columns: " + example);
    }

    // Whether each value depends only on the right one: then right values close in size have nearly the same error.
    std::optional<Diagnosis> mapped() const {
        std::vector<std::pair<double, double>> pairs;  // right value, error
        for (const Index row : m_wrong) {
            for (Index i = at(row, m_head); i < at(row, m_head) + m_dv; ++i)
                pairs.emplace_back((*m_out.want)[i], (*m_out.got)[i] - (*m_out.want)[i]);
        }
        if (pairs.size() < 256) return std::nullopt;
        std::sort(pairs.begin(), pairs.end());
        std::vector<double> jumps;
        double squares = 0;
        for (Index i = 0; i + 1 < pairs.size(); ++i) {
            jumps.push_back((pairs[i + 1].second - pairs[i].second) * (pairs[i + 1].second - pairs[i].second));
            squares += pairs[i].second * pairs[i].second;
        }
        // Drops sparse ends, and places where the map jumps.
        std::sort(jumps.begin(), jumps.end());
        const Index kept = jumps.size() - jumps.size() / 25;
        const double rough = std::accumulate(jumps.begin(), jumps.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
        if (!(rough < squares / 900)) return std::nullopt;
        return found(
            {"output", "rounding", "tile"},
            "each value of out depends on the right one alone: consistent with values that are clipped, flushed or "
            "mapped at the end");
    }

    const Evidence& m_out;
    Index m_heads, m_dv, m_head;
    Index m_begin = 0, m_end = 0;
    double m_honest = 0;
    std::vector<Index> m_wrong;
};

}  // namespace

std::optional<Diagnosis> match_finished(const GdnReference& r, const ForwardEvidence& evidence,
                                        const LaneErrors& errors) {
    if (!evidence.out) return std::nullopt;
    return Finished(r, *evidence.out, errors).run();
}

}  // namespace gdnctl::oracle
