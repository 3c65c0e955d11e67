#include "oracle/linear_ce/judge/truth.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace gdnctl::oracle::linear_ce {

namespace {

// Some rows of a matrix in the order given.
Tensor gathered(const Tensor& from, const std::vector<std::size_t>& rows) {
    Tensor to{from.dtype, {static_cast<std::int64_t>(rows.size()), from.shape[1]}, {}};
    const std::size_t bytes = static_cast<std::size_t>(from.shape[1]) * size_of(from.dtype);
    to.bytes.resize(rows.size() * bytes);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::memcpy(to.bytes.data() + i * bytes, from.bytes.data() + rows[i] * bytes, bytes);
    }
    return to;
}

// Some columns of w as the rows of a matrix [columns, H].
Tensor gathered_columns(const Problem& p, const std::vector<std::size_t>& columns) {
    if (p.c().layout == Layout::vh) return gathered(p.w, columns);
    Tensor to{p.w.dtype, {static_cast<std::int64_t>(columns.size()), static_cast<std::int64_t>(p.hidden)}, {}};
    const std::size_t bytes = size_of(p.w.dtype);
    to.bytes.resize(columns.size() * p.hidden * bytes);
    for (std::size_t h = 0; h < p.hidden; ++h) {
        for (std::size_t i = 0; i < columns.size(); ++i) {
            std::memcpy(to.bytes.data() + (i * p.hidden + h) * bytes,
                        p.w.bytes.data() + (h * p.vocab + columns[i]) * bytes, bytes);
        }
    }
    return to;
}

template <class T>
std::vector<T> picked(const std::vector<T>& from, const std::vector<std::size_t>& which) {
    std::vector<T> to;
    to.reserve(which.size());
    for (const std::size_t i : which) to.push_back(from[i]);
    return to;
}

bool is_all(const std::vector<std::size_t>& which, std::size_t count) {
    return which.size() == count && (count == 0 || which.back() == count - 1) &&
           std::is_sorted(which.begin(), which.end());
}

Run run_of(const Work& work) { return {work.threads, best_isa(), work.stop, 0}; }

using Range = std::pair<std::size_t, std::size_t>;

// x_row w over some hidden dimensions, for some columns.
std::vector<double> products(const Problem& problem, std::size_t row, Range columns, Range hidden, bool round) {
    const Operands o = problem.operands();
    const bool hv = o.layout == Layout::hv;
    const std::size_t depth = hidden.second - hidden.first;
    std::vector<double> z(columns.second - columns.first, 0.0);
    std::vector<float> x(depth);
    std::vector<float> line(hv ? z.size() : depth);
    const auto read = [round](const ConstValues& from, std::size_t at, std::vector<float>& to) {
        widen(from, at, to.size(), to.data());
        for (std::size_t i = 0; i < to.size() && round; ++i) to[i] = widened(narrowed(to[i]));
    };
    const auto product = [](float a, float b) { return static_cast<double>(a) * static_cast<double>(b); };
    read(o.x, row * problem.hidden + hidden.first, x);
    for (std::size_t i = 0; i < (hv ? depth : z.size()); ++i) {
        if (hv) {
            read(o.w, (hidden.first + i) * problem.vocab + columns.first, line);
            for (std::size_t v = 0; v < z.size(); ++v) z[v] += product(x[i], line[v]);
        } else {
            read(o.w, (columns.first + i) * problem.hidden + hidden.first, line);
            for (std::size_t h = 0; h < depth; ++h) z[i] += product(x[h], line[h]);
        }
    }
    return z;
}

}  // namespace

std::vector<std::size_t> all_of(std::size_t count) {
    std::vector<std::size_t> all(count);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
}

RowTruth truth_of_rows(const Problem& problem, std::vector<std::size_t> rows, bool gradient, const Work& work) {
    RowTruth t;
    t.rows = std::move(rows);
    const std::size_t count = t.rows.size();
    const bool all = is_all(t.rows, problem.batch);
    const Tensor some = all ? Tensor{} : gathered(problem.x, t.rows);
    const std::vector<std::int64_t> labels = picked(problem.labels, t.rows);
    Operands operands = problem.operands();
    operands.batch = count;
    operands.labels = labels.data();
    if (!all) operands.x = values_of(some);
    for (auto* v : {&t.loss, &t.lse, &t.largest}) v->resize(count);
    t.argmax.resize(count);
    const Rows<double> out{t.loss.data(), t.lse.data(), t.argmax.data(), t.largest.data()};
    forward(operands, out, run_of(work));
    if (!gradient) return t;
    t.gx.resize(count * problem.hidden);
    std::vector<double> lse(problem.batch);
    for (std::size_t i = 0; i < count; ++i) lse[t.rows[i]] = t.lse[i];
    const std::vector<double> d_loss = picked(problem.d_loss, t.rows);
    const std::vector<double> d_lse = picked(problem.lse_cotangents(lse), t.rows);
    gradients<double>(operands, {t.lse.data(), d_loss.data(), d_lse.data()}, {t.gx.data()}, {},
                      {.round_delta = problem.c().matmul == Matmul::bf16}, run_of(work));
    return t;
}

std::vector<double> truth_of_columns(const Problem& problem, const std::vector<std::size_t>& columns,
                                     const std::vector<double>& lse, const Work& work) {
    Operands operands = problem.operands();
    const bool all = is_all(columns, problem.vocab) && problem.c().layout == Layout::vh;
    const Tensor some = all ? Tensor{} : gathered_columns(problem, columns);
    std::vector<std::int64_t> labels(problem.batch);
    // A label elsewhere is in none of the columns.
    std::vector<std::int64_t> place(problem.vocab, -1);
    for (std::size_t i = 0; i < columns.size(); ++i) place[columns[i]] = static_cast<std::int64_t>(i);
    for (std::size_t i = 0; i < problem.batch; ++i) {
        labels[i] = place[static_cast<std::size_t>(problem.labels[i])];
    }
    operands.vocab = columns.size();
    operands.layout = Layout::vh;
    operands.labels = labels.data();
    if (!all) operands.w = values_of(some);
    std::vector<double> gw(columns.size() * problem.hidden);
    const std::vector<double> d_lse = problem.lse_cotangents(lse);
    gradients<double>(operands, {lse.data(), problem.d_loss.data(), d_lse.data()}, {}, {gw.data()},
                      {.round_delta = problem.c().matmul == Matmul::bf16}, run_of(work));
    return gw;
}

double reduced_of(const Problem& problem, const std::vector<double>& loss, const std::vector<double>& lse) {
    double sum = 0;
    for (std::size_t i = 0; i < problem.batch; ++i) {
        if (problem.weight[i] == 0) continue;
        sum += problem.weight[i] * (loss[i] + problem.c().logsumexp_weight * lse[i] * lse[i]);
    }
    if (problem.c().reduction != Reduction::mean) return sum;
    return problem.total_weight == 0 ? 0 : sum / problem.total_weight;
}

std::vector<double> logits_of(const Problem& problem, std::size_t row, std::size_t begin, std::size_t end) {
    return products(problem, row, {begin, end}, {0, problem.hidden}, false);
}

std::vector<double> partial_logits_of(const Problem& problem, std::size_t row, std::size_t begin, std::size_t end) {
    return products(problem, row, {0, problem.vocab}, {begin, end}, false);
}

std::vector<double> rounded_logits_of(const Problem& problem, std::size_t row) {
    return products(problem, row, {0, problem.vocab}, {0, problem.hidden}, true);
}

}  // namespace gdnctl::oracle::linear_ce
