// The order of axes in files, and the shapes that follow from it.
#include <algorithm>

#include "oracle/gdn/contract/problem.h"

namespace gdnctl::oracle {

namespace {

constexpr std::string_view k_per_token[] = {"q",  "k",  "v",  "g",  "beta",  "a",   "b",   "out",    "d_out",
                                            "dq", "dk", "dv", "dg", "dbeta", "d_a", "d_b", "d_alpha"};

bool has_width(std::string_view canonical) {
    return canonical == "q" || canonical == "k" || canonical == "v" || canonical == "out" || canonical == "d_out" ||
           canonical == "dq" || canonical == "dk" || canonical == "dv";
}

}  // namespace

Shape token_shape(const GdnProblem& p, std::initializer_list<std::int64_t> rest) {
    Shape shape = p.packed ? Shape{p.dims.T} : Shape{p.dims.B, p.dims.T};
    shape.insert(shape.end(), rest);
    const std::size_t tokens = p.packed ? 0 : 1;
    if (p.layout == TokenLayout::heads_first) std::swap(shape[tokens], shape[tokens + 1]);
    return shape;
}

Shape out_shape(const GdnProblem& problem) { return token_shape(problem, {problem.dims.Hv, problem.dims.dv}); }

Shape state_shape(const GdnProblem& problem, StateLayout layout) {
    const GdnDims& d = problem.dims;
    const auto n = static_cast<std::int64_t>(problem.sequences.size());
    return layout == StateLayout::key_value ? Shape{n, d.Hv, d.dk, d.dv} : Shape{n, d.Hv, d.dv, d.dk};
}

std::vector<double> to_layout(const std::vector<double>& state, const GdnDims& dims, StateLayout layout) {
    if (layout == StateLayout::key_value) return state;
    const auto rows = static_cast<std::size_t>(dims.dk);
    const auto columns = static_cast<std::size_t>(dims.dv);
    std::vector<double> swapped(state.size());
    for (std::size_t head = 0; head < state.size(); head += rows * columns) {
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) swapped[head + j * rows + i] = state[head + i * columns + j];
        }
    }
    return swapped;
}

std::vector<double> heads_first(const std::vector<double>& values, std::size_t batches, std::size_t tokens,
                                std::size_t heads, std::size_t width) {
    std::vector<double> moved(values.size());
    for (std::size_t row = 0; row < batches * tokens; ++row) {
        for (std::size_t h = 0; h < heads; ++h) {
            const auto from = values.begin() + static_cast<std::ptrdiff_t>((row * heads + h) * width);
            const std::size_t to = ((row / tokens * heads + h) * tokens + row % tokens) * width;
            std::copy_n(from, width, moved.begin() + static_cast<std::ptrdiff_t>(to));
        }
    }
    return moved;
}

std::vector<double> from_file_order(const GdnProblem& p, std::vector<double> values, std::int64_t heads) {
    if (p.layout == TokenLayout::tokens_first || values.empty()) return values;
    const auto h = static_cast<std::size_t>(heads);
    const std::size_t width = values.size() / (static_cast<std::size_t>(p.rows()) * h);
    return heads_first(values, static_cast<std::size_t>(p.dims.B), h, static_cast<std::size_t>(p.dims.T), width);
}

std::vector<double> in_file_order(const GdnProblem& p, const std::vector<double>& values, std::int64_t heads) {
    if (p.layout == TokenLayout::tokens_first || values.empty()) return values;
    const auto h = static_cast<std::size_t>(heads);
    const std::size_t width = values.size() / (static_cast<std::size_t>(p.rows()) * h);
    return heads_first(values, static_cast<std::size_t>(p.dims.B), static_cast<std::size_t>(p.dims.T), h, width);
}

void store_heads_first(TensorFile& file) {
    for (NamedTensor& entry : file.tensors) {
        const std::string_view name = canonical_name(entry.name).canonical;
        if (std::find(std::begin(k_per_token), std::end(k_per_token), name) == std::end(k_per_token)) continue;
        Shape& shape = entry.tensor.shape;
        const std::size_t after = has_width(name) ? 1 : 0;
        if (shape.size() < 2 + after) continue;
        const std::size_t tokens = shape.size() - 2 - after;
        const auto size = [&](std::size_t axis) { return static_cast<std::size_t>(shape[axis]); };
        const std::size_t width = (after == 1 ? size(shape.size() - 1) : 1);
        const auto moved =
            heads_first(to_f64(entry.tensor), tokens == 0 ? 1 : size(0), size(tokens), size(tokens + 1), width);
        Shape to = shape;
        std::swap(to[tokens], to[tokens + 1]);
        entry.tensor = from_f64(moved, std::move(to), entry.tensor.dtype);
    }
}

}  // namespace gdnctl::oracle
