#include "unit/oracle/mutants/linear_ce_mutants.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/diagnose.h"
#include "oracle/linear_ce/judge/truth.h"

namespace gdnctl::oracle::linear_ce {

namespace {

using Matrix = std::vector<std::vector<double>>;

class FaultyKernel {
public:
    FaultyKernel(const Problem& problem, Fault fault, std::size_t block, const Blocks& blocks)
        : m_p(problem),
          m_fault(fault),
          m_blocks(blocks),
          m_count((problem.vocab + blocks.vocab - 1) / blocks.vocab),
          m_block(block % m_count),
          m_tile(block % ((problem.batch + blocks.rows - 1) / blocks.rows)),
          m_hidden(block % ((problem.hidden + blocks.hidden - 1) / blocks.hidden)) {}

    TensorFile run() {
        logits();
        forward();
        backward();
        exchange();
        return file();
    }

private:
    bool is(Fault fault) const { return m_fault == fault; }
    std::size_t block_of(std::size_t v) const { return v / m_blocks.vocab; }
    bool in_block(std::size_t v) const { return block_of(v) == m_block; }
    bool in_last(std::size_t v) const { return block_of(v) == m_count - 1; }
    bool in_tile(std::size_t b) const { return b / m_blocks.rows == m_tile; }
    bool in_hidden(std::size_t h) const { return h / m_blocks.hidden == m_hidden; }
    double cap() const { return m_p.c().soft_cap; }
    std::size_t label(std::size_t b) const { return static_cast<std::size_t>(m_p.labels[b]); }

    // As a kernel in fp32 has it between two steps.
    double rounded(double x) const {
        return is(Fault::streamed) || is(Fault::split) ? static_cast<double>(static_cast<float>(x)) : x;
    }

    void logits() {
        const std::size_t hb = m_blocks.hidden;
        for (std::size_t b = 0; b < m_p.batch; ++b) {
            std::vector<double> z = logits_of(m_p, b, 0, m_p.vocab);
            if (is(Fault::hidden_block_lost)) {
                const auto lost = partial_logits_of(m_p, b, m_hidden * hb, std::min((m_hidden + 1) * hb, m_p.hidden));
                for (std::size_t v = 0; v < z.size(); ++v) z[v] -= lost[v];
            }
            if (is(Fault::logits_over_root_of_hidden)) {
                for (double& x : z) x /= std::sqrt(static_cast<double>(m_p.hidden));
            }
            std::vector<double> s = is(Fault::no_cap) ? z : capped(std::move(z), cap());
            for (double& x : s) x = is(Fault::logits_in_bf16) ? to_bf16(x) : rounded(x);
            m_s.push_back(std::move(s));
        }
    }

    // Block by block, as kernels do: m and l.
    void forward() {
        for (std::size_t b = 0; b < m_p.batch; ++b) {
            double m = -HUGE_VAL;
            double l = 0;
            for (std::size_t k = 0; k < m_count; ++k) add_block(b, k, m, l);
            if (is(Fault::tail_counted))
                l += static_cast<double>(m_count * m_blocks.vocab - m_p.vocab) * std::exp(0 - m);
            double lse = (is(Fault::largest_not_added) ? 0 : m) + std::log(l);
            if (is(Fault::streamed) || is(Fault::split)) lse = in_steps(m_s[b]);
            if (is(Fault::exp2_for_exp)) lse = logsumexp_of_2(m_s[b]);
            if (is(Fault::lse_in_bf16)) lse = to_bf16(lse);
            m_lse.push_back(lse);
            std::size_t y = label(b);
            if (is(Fault::label_after)) y = (y + 1) % m_p.vocab;
            if (is(Fault::label_of_next_row)) y = label((b + 1) % m_p.batch);
            m_loss.push_back(is(Fault::label_missed_in_block) && in_block(y) ? lse : lse - m_s[b][y]);
            if (is(Fault::label_smoothed)) {
                const double mean = std::accumulate(m_s[b].begin(), m_s[b].end(), 0.0) / double_of(m_p.vocab);
                m_loss.back() = lse - (1 - k_smoothing) * m_s[b][y] - k_smoothing * mean;
            }
            m_argmax.push_back(argmax(m_s[b]));
        }
    }

    static constexpr double k_smoothing = 0.1;
    static double double_of(std::size_t n) { return static_cast<double>(n); }

    static double logsumexp_of_2(std::vector<double> s) {
        for (double& x : s) x *= std::log(2.0);
        return logsumexp(s);
    }

    double in_steps(const std::vector<double>& s) const {
        const std::size_t size = is(Fault::split) ? (s.size() + 1) / 2 : m_blocks.vocab;
        double lse = -HUGE_VAL;
        for (std::size_t first = 0; first < s.size(); first += size) {
            const auto begin = s.begin() + static_cast<std::ptrdiff_t>(first);
            const auto end = s.begin() + static_cast<std::ptrdiff_t>(std::min(first + size, s.size()));
            const double part = rounded(logsumexp({begin, end}));
            const double high = std::max(lse, part);
            lse = rounded(high + std::log(std::exp(lse - high) + std::exp(part - high)));
        }
        return lse;
    }

    void add_block(std::size_t b, std::size_t k, double& m, double& l) const {
        if (is(Fault::block_lost_from_sum) && k == m_block) return;
        if (is(Fault::last_block_dropped) && k == m_count - 1) return;
        const std::size_t first = k * m_blocks.vocab;
        const std::size_t end = std::min(first + m_blocks.vocab, m_p.vocab);
        double next = m;
        for (std::size_t v = first; v < end; ++v) next = std::max(next, m_s[b][v]);
        if (!is(Fault::no_rescale)) l *= std::exp(m - next);
        for (std::size_t v = first; v < end; ++v) l += std::exp(m_s[b][v] - next);
        m = next;
    }

    std::int64_t argmax(const std::vector<double>& s) const {
        std::size_t best = 0;
        for (std::size_t v = 1; v < s.size(); ++v) {
            if (s[v] > s[best] || (is(Fault::argmax_last_tie) && s[v] == s[best])) best = v;
        }
        if (is(Fault::argmax_from_1)) ++best;
        return static_cast<std::int64_t>(is(Fault::argmax_without_offset) ? best % m_blocks.vocab : best);
    }

    struct Cotangent {
        double loss, lse;
    };

    Cotangent cotangent(std::size_t b) const {
        if (m_p.d_lse) return {m_p.d_loss[b], (*m_p.d_lse)[b]};  // the caller's, which no mutant changes
        const double rows = static_cast<double>(m_p.batch);
        const bool mean = m_p.c().reduction == Reduction::mean;
        double d = m_p.d_loss[b];
        if (is(Fault::weights_ignored)) d = mean ? 1 / rows : 1;
        if (is(Fault::weights_twice)) d *= m_p.weight[b];
        if (is(Fault::divided_by_rows)) d = m_p.weight[b] / rows;
        if (is(Fault::not_divided)) d = m_p.weight[b];
        const double lambda = m_p.c().logsumexp_weight;
        if (is(Fault::penalty_on_loss)) return {d * (1 + 2 * lambda * m_loss[b]), 0};
        double lse = 2 * lambda * m_lse[b] * d;
        if (is(Fault::penalty_missing)) lse = 0;
        if (is(Fault::penalty_without_two)) lse /= 2;
        if (is(Fault::penalty_not_weighted)) lse = 2 * lambda * m_lse[b] * (mean ? 1 / rows : 1);
        return {d, lse};
    }

    double delta(std::size_t b, std::size_t v, const Cotangent& d) const {
        const double p = std::exp(m_s[b][v] - m_lse[b]);
        const double t = cap() > 0 ? m_s[b][v] / cap() : 0;
        const double slope = is(Fault::cap_derivative_missing) ? 1 : 1 - t * t;
        std::size_t hot_column = is(Fault::hot_after) ? (label(b) + 1) % m_p.vocab : label(b);
        if (is(Fault::label_of_next_row)) hot_column = label((b + 1) % m_p.batch);
        double hot = !is(Fault::hot_missing) && hot_column == v ? d.loss : 0;
        if (is(Fault::one_hot_each) && later_row_has(b, v)) hot = 0;
        if (is(Fault::label_smoothed)) hot = (1 - k_smoothing) * hot + k_smoothing * d.loss / double_of(m_p.vocab);
        if (is(Fault::no_cap_in_backward)) {
            const double z = logits_of(m_p, b, v, v + 1).front();
            return (d.loss + d.lse) * std::exp(z - m_lse[b]) - hot;
        }
        if (is(Fault::last_block_dropped) && in_last(v)) return 0;
        if (is(Fault::log_cap)) return (d.loss + d.lse) * p * slope - hot;
        if (is(Fault::cap_derivative_twice)) return ((d.loss + d.lse) * p - hot) * slope * slope;
        if (is(Fault::log_penalty)) return (d.loss * p - hot) * slope + d.lse;
        return ((d.loss + d.lse) * p - hot) * slope;
    }

    bool later_row_has(std::size_t b, std::size_t v) const {
        return std::find(m_p.labels.begin() + static_cast<std::ptrdiff_t>(b) + 1, m_p.labels.end(),
                         static_cast<std::int64_t>(v)) != m_p.labels.end();
    }

    void backward() {
        const std::size_t H = m_p.hidden;
        m_gx.assign(m_p.batch, std::vector<double>(H));
        m_gw.assign(m_p.vocab, std::vector<double>(H));
        const Operands o = m_p.operands();
        const bool hv = m_p.c().layout == Layout::hv;
        std::vector<float> x(m_p.x.count());
        std::vector<float> w(m_p.w.count());
        widen(o.x, 0, x.size(), x.data());
        widen(o.w, 0, w.size(), w.data());
        for (std::size_t b = 0; b < m_p.batch; ++b) {
            const Cotangent d = cotangent(b);
            for (std::size_t v = 0; v < m_p.vocab; ++v) {
                const double value = rounded(delta(b, v, d));
                const double to_gx = value * gx_share(v);
                const double to_gw = value * gw_share(b, v);
                for (std::size_t h = 0; h < H; ++h) {
                    const float weight = w[hv ? h * m_p.vocab + v : v * H + h];
                    if (!(is(Fault::gx_hidden_block_lost) && in_hidden(h)))
                        m_gx[b][h] += to_gx * static_cast<double>(weight);
                    if (!(is(Fault::gw_hidden_block_lost) && in_hidden(h)))
                        m_gw[v][h] += to_gw * static_cast<double>(x[b * H + h]);
                }
            }
        }
    }

    double gx_share(std::size_t v) const {
        if (is(Fault::last_block_dropped_in_gx) && in_last(v)) return 0;
        if (is(Fault::gx_block_lost) && in_block(v)) return 0;
        return is(Fault::gx_block_twice) && in_block(v) ? 2 : 1;
    }

    double gw_share(std::size_t b, std::size_t v) const {
        if (is(Fault::last_block_dropped_in_gw) && in_last(v)) return 0;
        if (is(Fault::gw_half_lost) && b >= m_p.batch / 2) return 0;
        if (is(Fault::gw_last_rows_only) && b < (m_p.batch - 1) / m_blocks.rows * m_blocks.rows) return 0;
        return is(Fault::gw_rows_lost) && in_tile(b) ? 0 : 1;
    }

    // What goes wrong once everything is computed.
    void exchange() {
        const std::size_t rows = m_blocks.rows;
        for (std::size_t b = 0; b < m_p.batch; ++b) {
            if (!in_tile(b)) continue;
            const std::size_t other = (b + rows) % m_p.batch;
            if (is(Fault::rows_exchanged)) {
                std::swap(m_loss[b], m_loss[other]);
                std::swap(m_lse[b], m_lse[other]);
            }
            if (is(Fault::gx_rows_exchanged)) std::swap(m_gx[b], m_gx[other]);
            if (is(Fault::rows_not_written)) m_loss[b] = m_lse[b] = 0;
            if (is(Fault::rows_not_finite)) m_loss[b] = m_lse[b] = std::numeric_limits<double>::quiet_NaN();
        }
        for (std::size_t v = 0; v < m_p.vocab; ++v) {
            if (!in_block(v)) continue;
            if (is(Fault::gw_columns_exchanged)) std::swap(m_gw[v], m_gw[(v + m_blocks.vocab) % m_p.vocab]);
            if (is(Fault::gw_columns_not_written)) std::fill(m_gw[v].begin(), m_gw[v].end(), 0);
        }
    }

    double reduced() const {
        double sum = 0;
        for (std::size_t b = 0; b < m_p.batch; ++b) {
            const double lambda = is(Fault::penalty_not_in_reduced) ? 0 : m_p.c().logsumexp_weight;
            const double penalised = is(Fault::penalty_on_loss) ? m_loss[b] : m_lse[b];
            if (m_p.weight[b] != 0) sum += m_p.weight[b] * (m_loss[b] + lambda * penalised * penalised);
        }
        if (m_p.c().reduction != Reduction::mean) return sum;
        const double by = is(Fault::reduced_divided_by_rows) ? static_cast<double>(m_p.batch) : m_p.total_weight;
        return by == 0 ? 0 : sum / by;
    }

    TensorFile file() const {
        const auto B = static_cast<std::int64_t>(m_p.batch);
        const auto H = static_cast<std::int64_t>(m_p.hidden);
        const auto V = static_cast<std::int64_t>(m_p.vocab);
        const bool hv = m_p.c().layout == Layout::hv;
        std::vector<double> gx;
        for (const auto& row : m_gx) gx.insert(gx.end(), row.begin(), row.end());
        std::vector<double> gw(m_p.w.count());
        for (std::size_t v = 0; v < m_p.vocab; ++v) {
            for (std::size_t h = 0; h < m_p.hidden; ++h) gw[hv ? h * m_p.vocab + v : v * m_p.hidden + h] = m_gw[v][h];
        }
        TensorFile out;
        out.tensors.push_back({"loss", from_f64(m_loss, {B}, DType::f32)});
        out.tensors.push_back({"lse", from_f64(m_lse, {B}, DType::f32)});
        out.tensors.push_back({"argmax", from_i64(m_argmax, {B})});
        out.tensors.push_back({"gx", from_f64(gx, {B, H}, m_p.x.dtype)});
        out.tensors.push_back({"gw", from_f64(gw, hv ? Shape{H, V} : Shape{V, H}, m_p.w.dtype)});
        out.tensors.push_back({"reduced", from_f64(std::vector<double>{reduced()}, {}, DType::f32)});
        return out;
    }

    const Problem& m_p;
    Fault m_fault;
    Blocks m_blocks;
    std::size_t m_count, m_block, m_tile, m_hidden;  // blocks of the vocabulary; the index of what is corrupted
    Matrix m_s, m_gx, m_gw;                          // [B][V], [B][H], [V][H]
    std::vector<double> m_lse, m_loss;
    std::vector<std::int64_t> m_argmax;
};

}  // namespace

const std::vector<Mutant>& mutants() {
    static const std::vector<Mutant> k_mutants = {
        {Fault::label_missed_in_block, "label logit missed in one block", {"label"}, "label_edges"},
        {Fault::label_after, "label logit of the next column", {"label"}, "unit_normal"},
        {Fault::hot_missing, "no one-hot in the backward", {"label"}, "unit_normal"},
        {Fault::hot_after, "one-hot in the next column", {"label"}, "label_edges"},
        {Fault::label_of_next_row, "label of the next row", {"label"}, "unit_normal"},
        {Fault::label_smoothed, "labels smoothed", {"label"}, "unit_normal"},
        {Fault::one_hot_each, "one-hot of one row a label", {"label"}, "label_edges"},
        {Fault::tail_counted, "unmasked tail", {"tail"}, "small_logits"},
        {Fault::tail_counted, "unmasked tail of equal logits", {"tail"}, "equal_logits"},
        {Fault::last_block_dropped, "last block dropped everywhere", {"tail"}, "small_logits_blocks"},
        {Fault::last_block_dropped_in_gx, "last block dropped in gx", {"tail", "gx"}, "small_logits_blocks"},
        {Fault::last_block_dropped_in_gw, "last block dropped in gw", {"tail", "gw"}, "small_logits_blocks"},
        {Fault::lse_in_bf16, "lse kept in bf16", {"lse"}, "small_logits"},
        {Fault::lse_in_bf16, "lse of huge logits kept in bf16", {"lse"}, "huge_30"},
        {Fault::logits_in_bf16, "logits rounded to bf16", {"rounding", "lse"}, "unit_normal"},
        {Fault::no_rescale, "sum not rescaled to the new maximum", {"lse"}, "unit_normal"},
        {Fault::block_lost_from_sum, "one block lost from the sum", {"lse", "tile"}, "small_logits_blocks"},
        {Fault::hidden_block_lost, "hidden block lost from the logits", {"lse"}, "unit_normal"},
        {Fault::largest_not_added, "maximum not added back", {"lse"}, "unit_normal"},
        {Fault::exp2_for_exp, "exp2 for exp", {"lse"}, "unit_normal"},
        {Fault::logits_over_root_of_hidden, "logits over the root of H", {"lse"}, "small_logits"},
        {Fault::no_cap, "no soft cap", {"cap"}, "soft_cap"},
        {Fault::cap_derivative_missing, "cap derivative missing", {"cap"}, "soft_cap"},
        {Fault::log_cap, "log-cap", {"cap"}, "soft_cap"},
        {Fault::cap_derivative_twice, "cap derivative twice", {"cap"}, "cap_penalty_weights"},
        {Fault::no_cap_in_backward, "no soft cap in the backward", {"cap"}, "cap_penalty_weights"},
        {Fault::penalty_missing, "penalty missing from gradients", {"penalty"}, "penalty"},
        {Fault::penalty_not_weighted, "penalty not weighted", {"penalty"}, "penalty_weights"},
        {Fault::penalty_without_two, "penalty without the 2", {"penalty"}, "penalty_weights"},
        {Fault::log_penalty, "log-penalty", {"penalty"}, "penalty"},
        {Fault::penalty_not_in_reduced, "penalty missing from the scalar", {"penalty"}, "penalty_weights"},
        {Fault::penalty_on_loss, "penalty of the loss squared", {"penalty"}, "penalty_weights"},
        {Fault::weights_ignored, "weights ignored in gradients", {"weight"}, "zero_weights"},
        {Fault::weights_twice, "weights applied twice", {"weight"}, "zero_weights"},
        {Fault::divided_by_rows, "gradients divided by the rows", {"weight"}, "zero_weights"},
        {Fault::not_divided, "gradients of the sum", {"weight"}, "penalty_weights"},
        {Fault::reduced_divided_by_rows, "scalar divided by the rows", {"weight"}, "zero_weights"},
        {Fault::gx_hidden_block_lost, "hidden block of gx lost", {"gx", "tile"}, "unit_normal"},
        {Fault::gx_block_lost, "vocabulary block lost from gx", {"gx", "tail"}, "small_logits_blocks"},
        {Fault::gx_block_twice, "vocabulary block twice in gx", {"gx", "tail"}, "unit_normal"},
        {Fault::gw_half_lost, "half of the rows lost from gw", {"gw"}, "unit_normal"},
        {Fault::gw_rows_lost, "rows lost from gw", {"gw"}, "unit_normal"},
        {Fault::gw_last_rows_only, "gw overwritten by each block of rows", {"gw"}, "unit_normal"},
        {Fault::gw_hidden_block_lost, "hidden block of gw lost", {"gw", "tile"}, "unit_normal"},
        {Fault::argmax_last_tie, "argmax takes the last tie", {"argmax"}, "identity_136"},
        {Fault::argmax_without_offset, "argmax within its block", {"argmax"}, "unit_normal"},
        {Fault::argmax_from_1, "argmax counts from 1", {"argmax"}, "unit_normal"},
        {Fault::rows_exchanged, "rows exchanged", {"tile"}, "unit_normal"},
        {Fault::rows_not_written, "rows not written", {"tile"}, "unit_normal"},
        {Fault::rows_not_finite, "rows not finite", {"tile"}, "unit_normal"},
        {Fault::gw_columns_exchanged, "columns of gw exchanged", {"tile"}, "small_logits_blocks"},
        {Fault::gw_columns_not_written, "columns of gw not written", {"tile", "tail"}, "small_logits_blocks"},
        {Fault::gx_rows_exchanged, "rows of gx exchanged", {"tile"}, "small_logits"},
    };
    return k_mutants;
}

TensorFile spoilt_outputs(const Problem& problem, Fault fault, std::size_t block, const Blocks& blocks) {
    return FaultyKernel(problem, fault, block, blocks).run();
}

namespace {

Result<Problem> problem_of(const Case& c, const Overrides& overrides = {}) {
    const TensorFile inputs = make_inputs(c);
    GDNCTL_TRY_ASSIGN(auto contract, resolve(inputs.metadata, overrides));
    return read_problem(inputs, std::move(contract));
}

class MutantSet {
public:
    explicit MutantSet(const Work& work) : m_work(work) {}

    MutantReport run() {
        for (const Mutant& mutant : mutants()) {
            for (const Level level : {Level::exact, Level::sampled}) {
                if (!stopped()) judge(mutant, level);
            }
        }
        for (const Case& c : cases()) {
            if (!stopped()) variants(c);
        }
        return std::move(m_report);
    }

private:
    bool stopped() const { return m_work.stop && m_work.stop(); }

    Result<Report> verdict(const Problem& problem, const TensorFile& dump, Level level) const {
        CompareOptions options;
        options.level = level;
        options.rows = 24;
        options.columns = 48;
        options.work = m_work;
        return compare(problem, dump, options);
    }

    void finding(const char* kind, std::string name, std::string expected, std::string got) {
        m_report.findings.push_back({kind, std::move(name), std::move(expected), std::move(got)});
    }

    void judge(const Mutant& mutant, Level level) {
        const Case* c = find_case(mutant.on);
        const auto problem = c == nullptr ? Result<Problem>{fail(ErrorKind::internal, "no case")} : problem_of(*c);
        if (!problem) return finding("missed", mutant.name, "a case " + mutant.on, problem.error().text());
        const auto report = verdict(*problem, spoilt_outputs(*problem, mutant.fault, 1, {}), level);
        const std::string name = fmt::format("{} / {}, level {}", mutant.name, mutant.on, name_of(level));
        ++m_report.mutants;
        if (!report || report->verdict != Verdict::wrong) {
            return finding("missed", name, "WRONG",
                           report ? std::string(report->verdict_name()) : report.error().text());
        }
        ++m_report.caught;
        const bool right = std::find(mutant.stages.begin(), mutant.stages.end(), report->stage) != mutant.stages.end();
        if (right) {
            ++m_report.right_stage;
        } else {
            finding("stage", name, text::join(mutant.stages, " or "), report->stage);
        }
    }

    void honest(const Problem& problem, const TensorFile& dump, const std::string& name) {
        for (const Level level : {Level::exact, Level::sampled}) {
            const auto report = verdict(problem, dump, level);
            ++m_report.variants;
            if (report && report->verdict == Verdict::ok) continue;
            ++m_report.false_alarms;
            finding("false alarm", name, "OK",
                    report ? fmt::format("{}: {}", report->verdict_name(), report->reason) : report.error().text());
        }
    }

    void variants(const Case& c) {
        const auto problem = problem_of(c);
        if (!problem) return finding("missed", c.name, "a problem", problem.error().text());
        for (const Isa isa : available_isas()) {
            for (const std::size_t block : {std::size_t{0}, std::size_t{7}, std::size_t{100}, c.vocab}) {
                honest(*problem, kernel_outputs(*problem, {m_work.threads, isa, {}, block}),
                       fmt::format("{}, {}, blocks of {}", c.name, name_of(isa), block));
            }
        }
        honest(*problem, spoilt_outputs(*problem, Fault::none, 0, {c.vocab, c.hidden, c.batch}),
               c.name + ", one block");
        for (const auto& [form, name] : {std::pair{Fault::none, "blocks of 64"},
                                         {Fault::streamed, "streamed in fp32"},
                                         {Fault::split, "halves merged in fp32"}}) {
            honest(*problem, spoilt_outputs(*problem, form, 0, {}), fmt::format("{}, {}", c.name, name));
        }
        for (const char* set : {"matmul=bf16", "matmul=tf32", "logits=bf16"}) rounding(c, set);
    }

    void rounding(const Case& c, const char* set) {
        Overrides rounded;
        const auto known = set_field(set, rounded);
        const auto problem = known ? problem_of(c, rounded) : tl::unexpected(known.error());
        if (!problem) return finding("missed", c.name, "a problem", problem.error().text());
        for (const Isa isa : available_isas()) {
            honest(*problem, kernel_outputs(*problem, {m_work.threads, isa, {}, 0}),
                   fmt::format("{}, {}, {}", c.name, set, name_of(isa)));
        }
    }

    const Work& m_work;
    MutantReport m_report;
};

}  // namespace

MutantReport run_mutant_set(const Work& work) { return MutantSet(work).run(); }

}  // namespace gdnctl::oracle::linear_ce
