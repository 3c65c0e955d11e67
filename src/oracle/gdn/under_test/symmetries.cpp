// Relations between two results of a kernel.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "oracle/gdn/under_test/call.h"
#include "oracle/gdn/under_test/checker.h"

namespace gdnctl::oracle {

namespace {

// Values [from, to) of each batch row, with `width` values per token.
Reals token_range(const Reals& values, const GdnDims& d, std::int64_t width, std::int64_t from, std::int64_t to) {
    Reals part;
    for (std::int64_t b = 0; b < d.B; ++b) {
        const auto row = values.begin() + (b * d.T) * width;
        part.insert(part.end(), row + from * width, row + to * width);
    }
    return part;
}

GdnProblem slice(const GdnProblem& p, std::int64_t from, std::int64_t to) {
    const GdnDims& d = p.dims;
    GdnProblem part = p;
    part.dims.T = to - from;
    part.q = token_range(p.q, d, d.Hk * d.dk, from, to);
    part.k = token_range(p.k, d, d.Hk * d.dk, from, to);
    part.v = token_range(p.v, d, d.Hv * d.dv, from, to);
    part.gate = token_range(p.gate, d, d.Hv, from, to);
    part.beta = token_range(p.beta, d, d.Hv, from, to);
    part.sequences.clear();
    for (std::int64_t b = 0; b < d.B; ++b) part.sequences.push_back({b * part.dims.T, (b + 1) * part.dims.T});
    return part;
}

// Batch rows in the order of `rows`: [B, size].
Reals blocks(const Reals& values, std::size_t size, const std::vector<std::size_t>& rows) {
    Reals moved;
    for (const std::size_t row : rows) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * size);
        moved.insert(moved.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
    }
    return moved;
}

// Moves the second half of the heads to the front, in an array of [.., heads, width].
Reals heads_swapped(const Reals& values, std::int64_t heads, std::int64_t width) {
    Reals moved = values;
    const std::ptrdiff_t row = heads * width;
    for (auto at = moved.begin(); at != moved.end(); at += row) std::rotate(at, at + row / 2, at + row);
    return moved;
}

// Only the first batch row.
GdnProblem first_row(const GdnProblem& p) {
    GdnProblem one = p;
    one.dims.B = 1;
    for (Reals* values : {&one.q, &one.k, &one.v, &one.gate, &one.beta, &one.initial_state}) {
        values->resize(values->size() / unsign(p.dims.B));
    }
    one.sequences = {{0, p.dims.T}};
    return one;
}

// `offsets` over the first batch row, with a state for each sequence.
GdnProblem packed_row(const GdnProblem& p, const std::vector<std::int64_t>& offsets) {
    GdnProblem one = first_row(p);
    const Reals state = one.initial_state;
    one.has_cu_seqlens = true;
    one.sequences.clear();
    one.initial_state.clear();
    for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
        one.sequences.push_back({offsets[n], offsets[n + 1]});
        for (const double x : state) one.initial_state.push_back(x * static_cast<double>(n + 1));
    }
    return one;
}

}  // namespace

// Changing later tokens changes nothing before them, bit for bit.
Status Checker::causality() {
    result.tolerance = 0;
    const std::int64_t T = 70;
    const GdnProblem p = inputs(T);
    const GdnProblem other = inputs(T, 1);
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    for (const std::int64_t t : {1, 16, 35, 64, 69}) {
        if (failed()) return {};
        GdnProblem changed = p;
        const GdnDims& d = p.dims;
        const auto later = [&](Reals& to, const Reals& from, std::int64_t width) {
            for (std::int64_t b = 0; b < d.B; ++b) {
                std::copy(from.begin() + (b * T + t) * width, from.begin() + (b + 1) * T * width,
                          to.begin() + (b * T + t) * width);
            }
        };
        later(changed.q, other.q, d.Hk * d.dk);
        later(changed.k, other.k, d.Hk * d.dk);
        later(changed.v, other.v, d.Hv * d.dv);
        later(changed.gate, other.gate, d.Hv);
        later(changed.beta, other.beta, d.Hv);
        GDNCTL_TRY_ASSIGN(const Outcome after, run(changed));
        if (failed()) return {};
        compare(token_range(after.out, d, d.Hv * d.dv, 0, t), token_range(plain.out, d, d.Hv * d.dv, 0, t),
                fmt::format("out before token {}, when later tokens change", t));
    }
    return {};
}

// The first tokens alone give the same results as with the others.
Status Checker::prefixes() {
    const GdnProblem p = inputs(130);
    GDNCTL_TRY_ASSIGN(const Outcome whole, run(p));
    const std::int64_t width = p.dims.Hv * p.dims.dv;
    for (const std::int64_t n : {1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
        if (failed()) return {};
        GDNCTL_TRY_ASSIGN(const Outcome part, run(slice(p, 0, n)));
        if (failed()) return {};
        compare(part.out, token_range(whole.out, p.dims, width, 0, n),
                fmt::format("out of the first {} tokens alone", n));
    }
    return {};
}

// The state passed from one call to the next represents everything before.
Status Checker::continuation() {
    const std::int64_t T = 70;
    const GdnProblem p = inputs(T);
    GDNCTL_TRY_ASSIGN(const Outcome whole, run(p));
    const std::int64_t width = p.dims.Hv * p.dims.dv;
    for (const std::int64_t n : {1, 21, 41, 64, 69}) {
        if (failed()) return {};
        GDNCTL_TRY_ASSIGN(const Outcome first, run(slice(p, 0, n)));
        if (failed()) return {};
        GdnProblem rest = slice(p, n, T);
        rest.initial_state = first.state;
        GDNCTL_TRY_ASSIGN(const Outcome second, run(rest));
        if (failed()) return {};
        compare(second.out, token_range(whole.out, p.dims, width, n, T),
                fmt::format("out after {} of {} tokens", n, T));
        compare(second.state, whole.state, fmt::format("final_state, continued after {} of {} tokens", n, T));
    }
    return {};
}

// The result is linear in v and S0 together.
Status Checker::linearity() {
    const GdnProblem a = inputs(70);
    GdnProblem b = a;
    const GdnProblem other = inputs(70, 1);
    b.v = other.v;
    b.initial_state = other.initial_state;
    GdnProblem sum = a;
    for (std::size_t i = 0; i < sum.v.size(); ++i) sum.v[i] += 2 * b.v[i];
    for (std::size_t i = 0; i < sum.initial_state.size(); ++i) sum.initial_state[i] += 2 * b.initial_state[i];
    GDNCTL_TRY_ASSIGN(Outcome of_a, run(a));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome of_b, run(b));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome of_sum, run(sum));
    if (failed()) return {};
    for (std::size_t i = 0; i < of_a.out.size(); ++i) of_a.out[i] += 2 * of_b.out[i];
    for (std::size_t i = 0; i < of_a.state.size(); ++i) of_a.state[i] += 2 * of_b.state[i];
    compare(of_sum.out, of_a.out, "out of v1 + 2 v2");
    compare(of_sum.state, of_a.state, "final_state of v1 + 2 v2");
    return {};
}

Status Checker::batch_order() {
    const GdnProblem p = inputs(37);
    const GdnDims& d = p.dims;
    const std::vector<std::size_t> order = {1, 0};
    GdnProblem swapped = p;
    for (Reals* values : {&swapped.q, &swapped.k, &swapped.v, &swapped.gate, &swapped.beta, &swapped.initial_state}) {
        *values = blocks(*values, values->size() / unsign(d.B), order);
    }
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome moved, run(swapped));
    if (failed()) return {};
    compare(moved.out, blocks(plain.out, plain.out.size() / unsign(d.B), order), "out with batch rows exchanged");
    compare(moved.state, blocks(plain.state, plain.state.size() / unsign(d.B), order),
            "final_state with batch rows exchanged");
    return {};
}

// A key head moves with its value heads.
Status Checker::head_order() {
    const GdnProblem p = inputs(37);
    const GdnDims& d = p.dims;
    GdnProblem swapped = p;
    swapped.q = heads_swapped(p.q, d.Hk, d.dk);
    swapped.k = heads_swapped(p.k, d.Hk, d.dk);
    swapped.v = heads_swapped(p.v, d.Hv, d.dv);
    swapped.gate = heads_swapped(p.gate, d.Hv, 1);
    swapped.beta = heads_swapped(p.beta, d.Hv, 1);
    swapped.initial_state = heads_swapped(p.initial_state, d.Hv, d.dk * d.dv);
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome moved, run(swapped));
    if (failed()) return {};
    compare(moved.out, heads_swapped(plain.out, d.Hv, d.dv), "out with heads exchanged");
    compare(moved.state, heads_swapped(plain.state, d.Hv, d.dk * d.dv), "final_state with heads exchanged");
    return {};
}

// See Disguise.
Status Checker::signs() {
    const GdnProblem p = inputs(70);
    const Disguise disguise(p.dims, HeadMap::interleaved, m_seed);
    TensorFile file = file_of(p);
    GDNCTL_TRY_ASSIGN(const auto contract, contract_of(file));
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    if (failed()) return {};
    apply(disguise, file, StateLayout::key_value);
    auto read = contract;
    GDNCTL_TRY_ASSIGN(const GdnProblem other, read_problem(file, read));
    GDNCTL_TRY_ASSIGN(const Outcome moved, run(other));
    if (failed()) return {};
    TensorFile back = outputs_file(p, contract.value, {moved.out, moved.state, 0}, DType::f64, DType::f64);
    apply(disguise, back, StateLayout::key_value);
    compare(to_f64(back.tensors[0].tensor), plain.out, "out with other signs");
    compare(to_f64(back.tensors[1].tensor), plain.state, "final_state with other signs");
    return {};
}

Status Checker::chunk_length() {
    const GdnProblem p = inputs(130);
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    for (const int chunk : {1, 16, 32, 128}) {
        if (failed()) return {};
        m_chunk = chunk;
        GDNCTL_TRY_ASSIGN(const Outcome other, run(p));
        if (failed()) return {};
        compare(other.out, plain.out, fmt::format("out with chunk={}", chunk));
        compare(other.state, plain.state, fmt::format("final_state with chunk={}", chunk));
    }
    return {};
}

// Sequences packed along the token axis are independent; an empty one passes its state on.
Status Checker::packed() {
    const GdnProblem p = packed_row(inputs(120), {0, 0, 16, 48, 48, 56, 120, 120});
    const GdnDims& d = p.dims;
    GDNCTL_TRY_ASSIGN(const Outcome together, run(p));
    const auto size = unsign(d.Hv * d.dk * d.dv);
    for (std::size_t n = 0; n < p.sequences.size(); ++n) {
        if (failed()) return {};
        const GdnSequence s = p.sequences[n];
        const Reals before = blocks(p.initial_state, size, {n});
        const Reals after = blocks(together.state, size, {n});
        const std::string name =
            fmt::format("sequence {} of {}, tokens {} to {}", n, p.sequences.size(), s.begin, s.end);
        if (s.begin == s.end) {
            compare(after, before, "final_state of the empty " + name);
            continue;
        }
        GdnProblem alone = slice(p, s.begin, s.end);
        alone.has_cu_seqlens = false;
        alone.initial_state = before;
        GDNCTL_TRY_ASSIGN(const Outcome outcome, run(alone));
        if (failed()) return {};
        compare(token_range(together.out, d, d.Hv * d.dv, s.begin, s.end), outcome.out, "out of " + name);
        compare(after, outcome.state, "final_state of " + name);
    }
    return {};
}

// Tokens after the last sequence have no effect.
Status Checker::padding() {
    result.tolerance = 0;
    const GdnProblem p = packed_row(inputs(40), {0, 16, 33});
    const GdnDims& d = p.dims;
    GdnProblem garbage = p;
    for (const auto& [values, width] : {std::pair{&garbage.q, d.Hk * d.dk},
                                        {&garbage.k, d.Hk * d.dk},
                                        {&garbage.v, d.Hv * d.dv},
                                        {&garbage.gate, d.Hv},
                                        {&garbage.beta, d.Hv}}) {
        std::fill(values->begin() + 33 * width, values->end(), std::numeric_limits<double>::quiet_NaN());
    }
    GDNCTL_TRY_ASSIGN(const Outcome plain, run(p));
    if (failed()) return {};
    GDNCTL_TRY_ASSIGN(const Outcome other, run(garbage));
    if (failed()) return {};
    const std::int64_t width = d.Hv * d.dv;
    compare(token_range(other.out, d, width, 0, 33), token_range(plain.out, d, width, 0, 33), "out with NaN after it");
    compare(other.state, plain.state, "final_state with NaN after it");
    return {};
}

}  // namespace gdnctl::oracle
