// Orders of axes: how projections are split, and the layout of states in files.
#include <algorithm>

#include "oracle/gdn/layer/layer.h"

namespace gdnctl::oracle {

namespace {

// Calls visit(offset in the row, part, offset in the part's row, count) for each run of a row of qkvz; parts are q, k,
// v, z.
template <class Visit>
void runs_of_projections(const GdnDims& d, LayerSplit split, Visit visit) {
    const std::size_t sizes[] = {index(d.dk), index(d.dk), index(d.Hv / d.Hk * d.dv), index(d.Hv / d.Hk * d.dv)};
    const auto heads = index(d.Hk);
    std::size_t from = 0;
    if (split == LayerSplit::flat) {
        for (std::size_t part = 0; part < 4; ++part) {
            visit(from, part, std::size_t{0}, heads * sizes[part]);
            from += heads * sizes[part];
        }
        return;
    }
    for (std::size_t head = 0; head < heads; ++head) {
        for (std::size_t part = 0; part < 4; ++part) {
            visit(from, part, head * sizes[part], sizes[part]);
            from += sizes[part];
        }
    }
}

// The same for ba: parts are b and a.
template <class Visit>
void runs_of_gates(const GdnDims& d, LayerSplit split, Visit visit) {
    const std::size_t groups = split == LayerSplit::flat ? 1 : index(d.Hk);
    const std::size_t size = index(d.Hv) / groups;
    for (std::size_t group = 0; group < groups; ++group) {
        visit(2 * group * size, std::size_t{0}, group * size, size);
        visit((2 * group + 1) * size, std::size_t{1}, group * size, size);
    }
}

void copy(const std::vector<double>& from, std::size_t at, std::vector<double>& to, std::size_t to_at,
          std::size_t count) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), count, to.begin() + static_cast<std::ptrdiff_t>(to_at));
}

}  // namespace

Shape layer_state_shape(const GdnDims& d, StateLayout layout) {
    return layout == StateLayout::key_value ? Shape{d.B, d.Hv, d.dk, d.dv} : Shape{d.B, d.Hv, d.dv, d.dk};
}

std::vector<double> from_layout(const std::vector<double>& state, const GdnDims& dims, StateLayout layout) {
    GdnDims swapped = dims;
    if (layout == StateLayout::value_key) std::swap(swapped.dk, swapped.dv);
    return to_layout(state, swapped, layout);
}

std::vector<double> join_channels(const std::vector<double>& q, const std::vector<double>& k,
                                  const std::vector<double>& v, const GdnDims& d) {
    const std::size_t keys = index(d.Hk * d.dk);
    const std::size_t values = index(d.Hv * d.dv);
    const std::size_t width = 2 * keys + values;
    std::vector<double> x(index(d.B * d.T) * width);
    for (std::size_t row = 0; row < index(d.B * d.T); ++row) {
        copy(q, row * keys, x, row * width, keys);
        copy(k, row * keys, x, row * width + keys, keys);
        copy(v, row * values, x, row * width + 2 * keys, values);
    }
    return x;
}

void split_channels(const std::vector<double>& x, const GdnDims& d, std::vector<double>& q, std::vector<double>& k,
                    std::vector<double>& v) {
    const std::size_t keys = index(d.Hk * d.dk);
    const std::size_t values = index(d.Hv * d.dv);
    const std::size_t width = 2 * keys + values;
    const std::size_t rows = index(d.B * d.T);
    q.assign(rows * keys, 0);
    k.assign(rows * keys, 0);
    v.assign(rows * values, 0);
    for (std::size_t row = 0; row < rows; ++row) {
        copy(x, row * width, q, row * keys, keys);
        copy(x, row * width + keys, k, row * keys, keys);
        copy(x, row * width + 2 * keys, v, row * values, values);
    }
}

void split_projections(const std::vector<double>& qkvz, const std::vector<double>& ba, LayerSplit split,
                       GdnLayer& layer) {
    const GdnDims& d = layer.dims;
    const std::size_t rows = index(d.B * d.T);
    const std::size_t widths[] = {index(d.Hk * d.dk), index(d.Hk * d.dk), index(d.Hv * d.dv), index(d.Hv * d.dv)};
    const std::size_t width = widths[0] + widths[1] + widths[2] + widths[3];
    std::vector<double> parts[4];
    for (std::size_t part = 0; part < 4; ++part) parts[part].assign(rows * widths[part], 0);
    layer.b.assign(rows * index(d.Hv), 0);
    layer.a.assign(rows * index(d.Hv), 0);
    for (std::size_t row = 0; row < rows; ++row) {
        runs_of_projections(d, split, [&](std::size_t from, std::size_t part, std::size_t to, std::size_t count) {
            copy(qkvz, row * width + from, parts[part], row * widths[part] + to, count);
        });
        runs_of_gates(d, split, [&](std::size_t from, std::size_t part, std::size_t to, std::size_t count) {
            copy(ba, row * 2 * index(d.Hv) + from, part == 0 ? layer.b : layer.a, row * index(d.Hv) + to, count);
        });
    }
    layer.x = join_channels(parts[0], parts[1], parts[2], d);
    layer.z = std::move(parts[3]);
}

void join_projections(const GdnLayer& layer, LayerSplit split, std::vector<double>& qkvz, std::vector<double>& ba) {
    const GdnDims& d = layer.dims;
    const std::size_t rows = index(d.B * d.T);
    const std::size_t widths[] = {index(d.Hk * d.dk), index(d.Hk * d.dk), index(d.Hv * d.dv), index(d.Hv * d.dv)};
    const std::size_t width = widths[0] + widths[1] + widths[2] + widths[3];
    std::vector<double> parts[4];
    split_channels(layer.x, d, parts[0], parts[1], parts[2]);
    parts[3] = layer.z;
    qkvz.assign(rows * width, 0);
    ba.assign(rows * 2 * index(d.Hv), 0);
    for (std::size_t row = 0; row < rows; ++row) {
        runs_of_projections(d, split, [&](std::size_t to, std::size_t part, std::size_t from, std::size_t count) {
            copy(parts[part], row * widths[part] + from, qkvz, row * width + to, count);
        });
        runs_of_gates(d, split, [&](std::size_t to, std::size_t part, std::size_t from, std::size_t count) {
            copy(part == 0 ? layer.b : layer.a, row * index(d.Hv) + from, ba, row * 2 * index(d.Hv) + to, count);
        });
    }
}

}  // namespace gdnctl::oracle
