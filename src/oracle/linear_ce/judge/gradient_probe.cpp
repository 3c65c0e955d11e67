#include "oracle/linear_ce/judge/gradient_probe.h"

#include <algorithm>
#include <cmath>

#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::linear_ce {

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

std::vector<std::vector<double>> GradientProbe::partial_sums(const std::vector<double>& delta, std::size_t step) const {
    const Problem& p = m_f.problem;
    const std::size_t H = p.hidden;
    const std::size_t count = terms();
    std::vector<std::vector<double>> sums((count + step - 1) / step, std::vector<double>(H, 0.0));
    const bool by_hidden = !m_of_gw && p.c().layout == Layout::hv;
    std::vector<double> line(by_hidden ? p.vocab : H);
    if (by_hidden) {
        for (std::size_t h = 0; h < H; ++h) {
            read_elements(p.w, h * p.vocab, p.vocab, line.data());
            for (std::size_t k = 0; k < count; ++k) sums[k / step][h] += delta[k] * line[k];
        }
        return sums;
    }
    for (std::size_t k = 0; k < count; ++k) {
        read_elements(m_of_gw ? p.x : p.w, k * H, H, line.data());
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

std::vector<double> GradientProbe::errors_under(const std::vector<Mistake>& mistakes) const {
    std::vector<std::vector<double>> errors(m_probed.size());
    run_tasks(m_probed.size(), m_f.work.threads, [&] {
        return [&](std::size_t i) {
            for (const std::vector<double>& delta : deltas(m_probed[i], mistakes)) {
                errors[i].push_back(error_of(m_probed[i], partial_sums(delta, terms()).front()));
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

}  // namespace gdnctl::oracle::linear_ce
