// Why gradients are wrong where loss and lse are right.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "oracle/linear_ce/judge/faults.h"
#include "oracle/linear_ce/judge/gradient_probe.h"

namespace gdnctl::oracle::linear_ce {

namespace {

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
        Place p;
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

    // No known mistake: the place of the error suggests the stage.
    void pattern() {
        const auto labels_only = [&] {
            const std::vector<std::size_t> wrong = m_gw->wrong_lines();
            return std::all_of(wrong.begin(), wrong.end(), [&](std::size_t v) {
                return std::find(m_f.problem.labels.begin(), m_f.problem.labels.end(), static_cast<std::int64_t>(v)) !=
                       m_f.problem.labels.end();
            });
        };
        if (m_gw && m_gw->wrong_lines().size() < m_f.columns.size() && in_last_block()) {
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

Faults gradient_faults(const Findings& findings) { return GradientSearch(findings).run(); }

}  // namespace gdnctl::oracle::linear_ce
