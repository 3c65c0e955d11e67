// The fp32 backward on plain arrays: how the work is divided. A task is several key heads of a sequence with their
// value heads, so that no sum crosses tasks.
#include "oracle/gdn/kernels/backward32.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/gdn/kernels/simd/backward_task.h"
#include "oracle/simd/aligned.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

static_assert(k_backward_tokens == static_cast<int>(k_backward_chunk));

BackwardKernel backward_kernel_for(Isa isa) {
    switch (isa) {
        case Isa::avx512: return backward_avx512();
        case Isa::avx2: return backward_avx2();
        case Isa::scalar: break;
    }
    return backward_scalar();
}

// Gradients of this many bytes would evict everything else from the caches.
constexpr std::size_t k_stream_gradients_from = std::size_t{4} << 20U;

// Streaming stores of a partial line would first fetch it, so panels of `columns` must be whole lines.
bool can_stream(const Backward32& b, std::size_t columns) {
    const GdnDims& d = b.inputs.dims;
    const auto lines = [](const Values& x, std::int64_t width) {
        return static_cast<std::size_t>(width) * size_of(x.storage) % k_cache_line == 0 &&
               reinterpret_cast<std::uintptr_t>(x.data) % k_cache_line == 0;
    };
    return static_cast<std::size_t>(d.B * d.T * d.Hv * d.dv) * size_of(b.dv.storage) >= k_stream_gradients_from &&
           columns * size_of(b.dv.storage) % k_cache_line == 0 && lines(b.dq, d.dk) && lines(b.dk, d.dk) &&
           lines(b.dv, d.dv);
}

// A task of this sequence, without its heads and scratch; `segment` is the sequence's first, `columns` the kernel's.
BackwardTask task_of(const Backward32& b, std::size_t n, std::size_t segment, std::size_t columns) {
    const Forward32& f = b.inputs;
    const GdnDims& d = f.dims;
    BackwardTask t;
    t.Hk = static_cast<std::size_t>(d.Hk);
    t.Hv = static_cast<std::size_t>(d.Hv);
    t.dk = static_cast<std::size_t>(d.dk);
    t.dv = static_cast<std::size_t>(d.dv);
    const auto begin = static_cast<std::size_t>(f.sequences[n].begin);
    t.tokens = static_cast<std::size_t>(f.sequences[n].end) - begin;
    const std::size_t key = begin * t.Hk * t.dk;
    const std::size_t value = begin * t.Hv * t.dv;
    const std::size_t gate = begin * t.Hv;
    const std::size_t state = t.Hv * t.dk * t.dv;
    t.q = f.q + key;
    t.k = f.k + key;
    t.v = f.v + value;
    t.g = f.g + gate;
    t.beta = f.beta + gate;
    t.u = b.saves.u + value;
    t.states = b.saves.states + segment * state;
    t.d_out = b.d_out + value;
    t.d_final_state = b.d_final_state == nullptr ? nullptr : b.d_final_state + n * state;
    t.dq = b.dq + key;
    t.dk_out = b.dk + key;
    t.dv_out = b.dv + value;
    t.dg = b.dg + gate;
    t.dbeta = b.dbeta + gate;
    t.d_initial_state = b.d_initial_state + n * state;
    t.stream_out = can_stream(b, columns);
    t.scale = f.scale;
    t.normalise = f.l2norm_eps.has_value();
    t.eps = f.l2norm_eps.value_or(0);
    return t;
}

// Key heads that one task processes chunk by chunk, and their value heads.
struct Part {
    std::vector<BackwardKey> keys;
    std::vector<std::size_t> value_heads;
};

// Gradients of the states of a task: as much as fits in the second-level cache with everything else.
constexpr std::size_t k_part_bytes = std::size_t{1} << 20U;

std::size_t keys_a_part(const GdnDims& d, int threads) {
    const auto Hk = static_cast<std::size_t>(std::max<std::int64_t>(d.Hk, 1));
    const auto of_key = static_cast<std::size_t>(d.Hv) / Hk * static_cast<std::size_t>(d.dk * d.dv) * sizeof(float);
    const std::size_t fit = std::max<std::size_t>(1, k_part_bytes / std::max<std::size_t>(of_key, 1));
    const auto busy = static_cast<std::size_t>(std::max(threads, 1));
    return std::min(fit, (Hk + busy - 1) / busy);
}

std::vector<Part> parts_of(const GdnDims& dims, HeadMap map, int threads) {
    const std::size_t size = keys_a_part(dims, threads);
    std::vector<Part> parts;
    for (std::int64_t key = 0; key < dims.Hk; ++key) {
        if (static_cast<std::size_t>(key) % size == 0) parts.emplace_back();
        Part& part = parts.back();
        const std::size_t begin = part.value_heads.size();
        for (std::int64_t h = 0; h < dims.Hv; ++h) {
            if (key_head_of(h, dims, map) == key) part.value_heads.push_back(static_cast<std::size_t>(h));
        }
        part.keys.push_back({static_cast<std::size_t>(key), begin, part.value_heads.size()});
    }
    return parts;
}

// A single key head would be a single task. Instead, each of its value heads is one, and their dq and dk are summed
// afterwards. This does not depend on the number of threads, so results do not either.
bool by_value_head(const GdnDims& dims, std::size_t sequences) { return sequences == 1 && dims.Hk == 1 && dims.Hv > 1; }

std::vector<Part> parts_by_value_head(const GdnDims& dims) {
    std::vector<Part> parts;
    for (std::size_t head = 0; head < static_cast<std::size_t>(dims.Hv); ++head) parts.push_back({{{0, 0, 1}}, {head}});
    return parts;
}

// Separate dq and dk for each value head, [Hv][tokens, dk] each.
class KeyGradients {
public:
    KeyGradients(const GdnDims& dims, const GdnSequence& sequence)
        : m_heads(static_cast<std::size_t>(dims.Hv)),
          m_first(static_cast<std::size_t>(sequence.begin * dims.dk)),
          m_size(static_cast<std::size_t>((sequence.end - sequence.begin) * dims.dk)),
          m_dq(aligned_floats(m_heads * m_size)),
          m_dk(aligned_floats(m_heads * m_size)) {}

    void place(BackwardTask& task, std::size_t head) const {
        task.dq = m_dq.get() + head * m_size;
        task.dk_out = m_dk.get() + head * m_size;
    }
    void sum(const Backward32& b, int threads) const {
        constexpr std::size_t k_block = 4096;
        run_tasks((m_size + k_block - 1) / k_block, threads, [&] {
            return [&](std::size_t block) {
                const std::size_t begin = block * k_block;
                const std::size_t count = std::min(k_block, m_size - begin);
                sum_block(m_dq.get() + begin, count, b.dq + (m_first + begin));
                sum_block(m_dk.get() + begin, count, b.dk + (m_first + begin));
            };
        });
    }

private:
    void sum_block(float* heads, std::size_t count, const Values& to) const {
        for (std::size_t head = 1; head < m_heads; ++head) {
            const float* from = heads + head * m_size;
            for (std::size_t i = 0; i < count; ++i) heads[i] += from[i];
        }
        if (to.storage == Storage::f32) {
            std::copy_n(heads, count, static_cast<float*>(to.data));
        } else {
            std::transform(heads, heads + count, static_cast<Bf16*>(to.data), [](float x) { return narrowed(x); });
        }
    }

    std::size_t m_heads, m_first, m_size;
    AlignedFloats m_dq, m_dk;
};

// A segment has at most as many chunks as the longest sequence.
std::size_t longest_segment(std::span<const GdnSequence> sequences, int segment_chunks) {
    std::int64_t tokens = 1;
    for (const GdnSequence& s : sequences) tokens = std::max(tokens, s.end - s.begin);
    const std::int64_t chunks = (tokens + k_backward_tokens - 1) / k_backward_tokens;
    return static_cast<std::size_t>(std::min<std::int64_t>(chunks, segment_chunks));
}

}  // namespace

void chunk_backward(const Backward32& b, int threads, Isa isa) {
    const BackwardKernel kernel = backward_kernel_for(isa);
    const Forward32& f = b.inputs;
    const bool apart = by_value_head(f.dims, f.sequences.size());
    const auto parts = apart ? parts_by_value_head(f.dims) : parts_of(f.dims, f.head_map, threads);
    std::optional<KeyGradients> gradients;
    if (apart) gradients.emplace(f.dims, f.sequences.front());
    std::vector<std::size_t> first_segments;
    for (std::size_t n = 0; n < f.sequences.size(); ++n) {
        first_segments.push_back(segment_count(f.sequences.first(n), b.saves.segment_chunks));
    }
    const std::size_t segment = longest_segment(f.sequences, b.saves.segment_chunks);
    const std::size_t room = kernel.scratch(static_cast<std::size_t>(f.dims.dk), static_cast<std::size_t>(f.dims.dv),
                                            parts.front().value_heads.size(), segment);
    run_tasks(f.sequences.size() * parts.size(), threads, [&] {
        return [&, scratch = aligned_floats(room)](std::size_t index) {
            const std::size_t n = index / parts.size();
            const Part& part = parts[index % parts.size()];
            BackwardTask task = task_of(b, n, first_segments[n], kernel.columns);
            task.keys = part.keys.data();
            task.key_count = part.keys.size();
            task.value_heads = part.value_heads.data();
            task.value_head_count = part.value_heads.size();
            task.segment = segment;
            task.scratch = scratch.get();
            if (gradients) gradients->place(task, part.value_heads.front());
            kernel.run(task);
        };
    });
    if (gradients) gradients->sum(b, threads);
}

namespace {

std::vector<float> floats_of(const std::vector<double>& x) {
    std::vector<float> result(x.size());
    std::transform(x.begin(), x.end(), result.begin(), [](double value) { return static_cast<float>(value); });
    return result;
}

std::vector<double> doubles_of(const std::vector<float>& x) { return {x.begin(), x.end()}; }

struct Arrays {
    AlignedFloats out, u, states;
    std::vector<float> final_state, d_out, d_final_state, dq, dk, dv, dg, dbeta, d_initial_state;
    // Replace those above.
    std::vector<Bf16> narrow_d_out, narrow_dq, narrow_dk, narrow_dv;

    Arrays(const GdnProblem& p, const Prepared<float>& in, const GdnCotangents& cotangents)
        : out(aligned_floats(p.v.size())),
          u(aligned_floats(p.v.size())),
          states(aligned_floats(segment_count(p.sequences, k_segment_chunks) * in.state.size() /
                                std::max<std::size_t>(p.sequences.size(), 1))),
          final_state(in.state.size()),
          d_out(floats_of(cotangents.d_out)),
          d_final_state(floats_of(cotangents.d_final_state)),
          dg(in.g.size()),
          dbeta(in.g.size()),
          d_initial_state(in.state.size()) {}

    void place(Backward32& b) {
        b.inputs.out = out.get();
        b.inputs.final_state = final_state.data();
        b.saves.u = u.get();
        b.saves.states = states.get();
        b.d_out = d_out.data();
        b.d_final_state = d_final_state.empty() ? nullptr : d_final_state.data();
        b.dg = dg.data();
        b.dbeta = dbeta.data();
        b.d_initial_state = d_initial_state.data();
    }
    void place_gradients(const GdnProblem& p, Backward32& b) {
        dq.assign(p.q.size(), 0);
        dk.assign(p.k.size(), 0);
        dv.assign(p.v.size(), 0);
        b.dq = dq.data();
        b.dk = dk.data();
        b.dv = dv.data();
    }
    void place_narrow_gradients(const GdnProblem& p, Backward32& b) {
        narrow_dq.assign(p.q.size(), Bf16{});
        narrow_dk.assign(p.k.size(), Bf16{});
        narrow_dv.assign(p.v.size(), Bf16{});
        b.dq = narrow_dq.data();
        b.dk = narrow_dk.data();
        b.dv = narrow_dv.data();
    }
    void narrow_cotangent(Backward32& b) {
        std::transform(d_out.begin(), d_out.end(), std::back_inserter(narrow_d_out),
                       [](float x) { return narrowed(x); });
        b.d_out = narrow_d_out.data();
    }
    // Empty if the gradients are fp32.
    std::vector<double> wide(const std::vector<float>& x, const std::vector<Bf16>& narrow) const {
        if (narrow.empty()) return {x.begin(), x.end()};
        std::vector<double> result(narrow.size());
        std::transform(narrow.begin(), narrow.end(), result.begin(),
                       [](Bf16 value) { return static_cast<double>(widened(value)); });
        return result;
    }
};

}  // namespace

GdnGradients run_backward32(const GdnProblem& p, const GdnContract& c, const GdnCotangents& cotangents, int threads,
                            Isa isa, Storage storage) {
    Prepared<float> in = prepare<float>(p, c, threads);
    Arrays a(p, in, cotangents);
    Backward32 b;
    b.saves.segment_chunks = k_segment_chunks;
    b.inputs = forward_inputs(p, c, in);
    a.place(b);
    const bool rounds_keys = c.l2norm != L2Norm::off && c.rounding == NormRounding::input;
    std::optional<NarrowInputs> narrow;
    if (storage == Storage::bf16 && !rounds_keys) {
        narrow.emplace(p, c, in);
        narrow->place(c, b.inputs);
        a.place_narrow_gradients(p, b);
        if (out_dtype_of(c, p) == DType::bf16) a.narrow_cotangent(b);
    } else {
        a.place_gradients(p, b);
    }
    saving_forward(b.inputs, b.saves, threads, isa);
    chunk_backward(b, threads, isa);
    GdnGradients result;
    result.dq = a.wide(a.dq, a.narrow_dq);
    result.dk = a.wide(a.dk, a.narrow_dk);
    result.dv = a.wide(a.dv, a.narrow_dv);
    result.dg = doubles_of(a.dg);
    result.dbeta = doubles_of(a.dbeta);
    result.d_initial_state = doubles_of(a.d_initial_state);
    if (!b.inputs.l2norm_eps) {
        result.dq = through_norm(p, c, p.q, doubles_of(in.q), std::move(result.dq));
        result.dk = through_norm(p, c, p.k, doubles_of(in.k), std::move(result.dk));
    }
    finish_gradients(p, c, doubles_of(in.g), doubles_of(in.beta), result);
    return result;
}

}  // namespace gdnctl::oracle
