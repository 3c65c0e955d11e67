#include "oracle/linear_ce/judge/truth.h"

#include <algorithm>
#include <cmath>
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
std::vector<double> products(const Problem& problem, std::size_t row, Range columns, Range hidden,
                             bool round_products = false) {
    const Operands o = problem.operands();
    const bool hv = o.layout == Layout::hv;
    const std::size_t depth = hidden.second - hidden.first;
    std::vector<double> z(columns.second - columns.first, 0.0);
    std::vector<float> x(depth);
    std::vector<float> line(hv ? z.size() : depth);
    const auto read = [](const ConstValues& from, std::size_t at, std::vector<float>& to) {
        widen(from, at, to.size(), to.data());
    };
    const auto product = [round_products](float a, float b) {
        const double exact = static_cast<double>(a) * static_cast<double>(b);
        return round_products ? static_cast<double>(widened(narrowed(static_cast<float>(exact)))) : exact;
    };
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

double capped_at(double z, double cap) { return cap > 0 ? cap * std::tanh(z / cap) : z; }

// What the results of some rows are off by if all their products are off one way, or the other.
void add_slack(const Operands& operands, const std::vector<double>& errors, RowTruth& t, const Work& work) {
    const std::size_t count = t.lse.size();
    std::vector<double> lse[2], loss[2];
    for (int side = 0; side < 2; ++side) {
        std::vector<double> shift = errors;
        for (double& x : shift) x = side == 0 ? -x : x;
        Operands shifted = operands;
        shifted.shift = shift.data();
        lse[side].resize(count);
        loss[side].resize(count);
        forward(shifted, Rows<double>{loss[side].data(), lse[side].data(), nullptr, nullptr}, run_of(work));
    }
    for (std::size_t i = 0; i < count; ++i) {
        const double low = lse[0][i] - loss[0][i];  // of the label's logit
        const double high = lse[1][i] - loss[1][i];
        t.lse_slack[i] = std::max(lse[1][i] - t.lse[i], t.lse[i] - lse[0][i]);
        t.loss_slack[i] = std::max(lse[1][i] - low - t.loss[i], t.loss[i] - (lse[0][i] - high));
    }
}

RoundDelta delta_rounding(const Problem& problem) {
    const Matmul matmul = problem.c().matmul;
    return matmul == Matmul::bf16 ? RoundDelta::bf16 : matmul == Matmul::tf32 ? RoundDelta::tf32 : RoundDelta::no;
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
    for (auto* v : {&t.loss, &t.lse, &t.largest, &t.loss_slack, &t.lse_slack}) v->resize(count);
    t.argmax.resize(count);
    const Rows<double> out{t.loss.data(), t.lse.data(), t.argmax.data(), t.largest.data()};
    forward(operands, out, run_of(work));
    if (problem.forward_rounds()) add_slack(operands, product_errors(problem, t.rows), t, work);
    if (problem.c().logits == Logits::bf16 && problem.rounds == Rounds::label_products) {
        for (std::size_t i = 0; i < count; ++i) {
            t.loss[i] = t.lse[i] - capped_at(label_products_of(problem, t.rows[i]), problem.c().soft_cap);
        }
    }
    if (!gradient) return t;
    operands.bf16_logits = problem.backward_rounds();
    t.gx.resize(count * problem.hidden);
    std::vector<double> lse(problem.batch);
    for (std::size_t i = 0; i < count; ++i) lse[t.rows[i]] = t.lse[i];
    const std::vector<double> d_loss = picked(problem.d_loss, t.rows);
    const std::vector<double> d_lse = picked(problem.lse_cotangents(lse), t.rows);
    gradients<double>(operands, {t.lse.data(), d_loss.data(), d_lse.data()}, {t.gx.data()}, {},
                      {.round_delta = delta_rounding(problem)}, run_of(work));
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
    operands.bf16_logits = problem.backward_rounds();
    operands.vocab = columns.size();
    operands.layout = Layout::vh;
    operands.labels = labels.data();
    if (!all) operands.w = values_of(some);
    std::vector<double> gw(columns.size() * problem.hidden);
    const std::vector<double> d_lse = problem.lse_cotangents(lse);
    gradients<double>(operands, {lse.data(), problem.d_loss.data(), d_lse.data()}, {}, {gw.data()},
                      {.round_delta = delta_rounding(problem)}, run_of(work));
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
    return products(problem, row, {begin, end}, {0, problem.hidden});
}

std::vector<double> partial_logits_of(const Problem& problem, std::size_t row, std::size_t begin, std::size_t end) {
    return products(problem, row, {0, problem.vocab}, {begin, end});
}

std::vector<double> misread_logits_of(const Problem& problem, std::size_t row) {
    const bool hv = problem.c().layout == Layout::hv;
    std::vector<double> z(problem.vocab, 0.0);
    for (std::size_t h = 0; h < problem.hidden; ++h) {
        const double x = element(problem.x, row * problem.hidden + h);
        for (std::size_t v = 0; v < problem.vocab; ++v) {
            z[v] += x * element(problem.w, hv ? v * problem.hidden + h : h * problem.vocab + v);
        }
    }
    return z;
}

double label_products_of(const Problem& problem, std::size_t row) {
    const auto label = static_cast<std::size_t>(problem.labels[row]);
    return products(problem, row, {label, label + 1}, {0, problem.hidden}, true).front();
}

// Of H products, each rounded to fp32: a few square roots of H roundings of |x| |w|.
std::vector<double> product_errors(const Problem& problem, const std::vector<std::size_t>& rows) {
    const bool hv = problem.c().layout == Layout::hv;
    const ConstValues x = values_of(problem.x);
    const ConstValues w = values_of(problem.w);
    std::vector<double> squares(problem.vocab);
    std::vector<float> line(hv ? problem.vocab : problem.hidden);
    for (std::size_t i = 0; i < (hv ? problem.hidden : problem.vocab); ++i) {
        widen(w, i * line.size(), line.size(), line.data());
        for (std::size_t k = 0; k < line.size(); ++k) {
            squares[hv ? k : i] += static_cast<double>(line[k]) * static_cast<double>(line[k]);
        }
    }
    const double largest = std::sqrt(*std::max_element(squares.begin(), squares.end()));
    const double unit = 0x1p-24 * (4 + std::sqrt(static_cast<double>(problem.hidden))) * largest;
    std::vector<double> errors;
    line.resize(problem.hidden);
    for (const std::size_t row : rows) {
        widen(x, row * problem.hidden, problem.hidden, line.data());
        double sum = 0;
        for (const float value : line) sum += static_cast<double>(value) * static_cast<double>(value);
        errors.push_back(unit * std::sqrt(sum));
    }
    return errors;
}

namespace {

template <class Real>
Tensor floats(const std::vector<Real>& values, Shape shape) {
    return from_f64(std::vector<double>(values.begin(), values.end()), std::move(shape), DType::f32);
}

// A gradient as fp32 or bf16, as its operand is.
class Out {
public:
    Out(DType dtype, Shape shape) : m_tensor{dtype, std::move(shape), {}} {
        m_tensor.bytes.resize(element_count(m_tensor.shape).value_or(0) * size_of(dtype));
    }
    Gradient<float> gradient() {
        if (m_tensor.dtype == DType::bf16) return {nullptr, reinterpret_cast<Bf16*>(m_tensor.bytes.data())};
        return {reinterpret_cast<float*>(m_tensor.bytes.data()), nullptr};
    }
    Tensor take() { return std::move(m_tensor); }

private:
    Tensor m_tensor;
};

}  // namespace

TensorFile kernel_outputs(const Problem& problem, const Run& run) {
    const auto B = static_cast<std::int64_t>(problem.batch);
    std::vector<float> loss(problem.batch);
    std::vector<float> lse(problem.batch);
    std::vector<std::int64_t> argmax(problem.batch);
    const Operands operands = problem.operands();
    Out gx(problem.x.dtype, problem.x.shape);
    Out gw(problem.w.dtype, problem.w.shape);
    forward<float>(operands, {loss.data(), lse.data(), argmax.data(), nullptr}, run, gw.gradient());
    const std::vector<double> d_lse = problem.lse_cotangents({lse.begin(), lse.end()});
    gradients<float>(operands, {lse.data(), problem.d_loss.data(), d_lse.data()}, gx.gradient(), gw.gradient(),
                     {.kept = true}, run);
    TensorFile out;
    out.tensors.push_back({"loss", floats(loss, {B})});
    out.tensors.push_back({"lse", floats(lse, {B})});
    out.tensors.push_back({"argmax", from_i64(argmax, {B})});
    out.tensors.push_back({"gx", gx.take()});
    out.tensors.push_back({"gw", gw.take()});
    const double reduced = reduced_of(problem, {loss.begin(), loss.end()}, {lse.begin(), lse.end()});
    if (problem.c().reduction != Reduction::none)
        out.tensors.push_back({"reduced", floats(std::vector<double>{reduced}, {})});
    return out;
}

}  // namespace gdnctl::oracle::linear_ce
