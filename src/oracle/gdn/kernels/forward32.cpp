// The fp32 forward kernels: how the work is divided, and the factors that their sweeps need.
#include "oracle/gdn/kernels/forward32.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/kernels.h"
#include "oracle/gdn/kernels/prepare.h"
#include "oracle/gdn/kernels/simd/chunk_task.h"
#include "oracle/gdn/kernels/simd/fused_task.h"
#include "oracle/simd/aligned.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

// Beyond this, the stored state is multiplied: far from the limits of fp32, and needed by at most one block in a
// hundred.
constexpr double k_lowest_sigma = 0x1p-20;
constexpr double k_highest_sigma = 0x1p20;

}  // namespace

void fused_factors(const FusedTask& task, std::size_t value_head, std::size_t first, std::size_t count,
                   std::size_t tokens_a_block, const float* dots, FusedHead& head, FusedBlock* blocks) {
    for (std::size_t t = 0; t < count; t += tokens_a_block, ++blocks, dots += 4) {
        double alpha[2] = {1, 1};
        double beta[2] = {0, 0};
        for (std::size_t x = 0; x < tokens_a_block && t + x < count; ++x) {
            const std::size_t at = (first + t + x) * task.Hv + value_head;
            alpha[x] = std::exp(static_cast<double>(task.g[at]));
            beta[x] = static_cast<double>(task.beta[at]);
        }
        const double scale = static_cast<double>(task.scale);
        const double decay0 = head.sigma * alpha[0];
        const double decay1 = decay0 * alpha[1];
        const double next = tokens_a_block == 1 ? decay0 : decay1;
        double keep = 1;
        if (next >= k_lowest_sigma && next <= k_highest_sigma) {
            head.sigma = next;
        } else {
            keep = next;
            head.sigma = 1;
        }
        const auto rounded = [](double x) { return static_cast<float>(x); };
        blocks->beta[0] = rounded(beta[0]);
        blocks->beta[1] = rounded(beta[1]);
        blocks->from_state[0] = rounded(-beta[0] * decay0);
        blocks->from_state[1] = rounded(-beta[1] * decay1);
        blocks->d0_in_d1 = rounded(-beta[1] * alpha[1] * static_cast<double>(dots[0]));
        blocks->out_state[0] = rounded(scale * decay0);
        blocks->out_state[1] = rounded(scale * decay1);
        blocks->out_d0[0] = rounded(scale * static_cast<double>(dots[1]));
        blocks->out_d0[1] = rounded(scale * alpha[1] * static_cast<double>(dots[2]));
        blocks->out_d1 = rounded(scale * static_cast<double>(dots[3]));
        blocks->write[0] = rounded(alpha[1] / head.sigma);
        blocks->write[1] = rounded(1 / head.sigma);
        blocks->keep = rounded(keep);
    }
}

// Where exp(g) is 0, a sum would be -inf (and -inf - -inf is NaN) or lose every digit. Instead a new stretch begins,
// and decay across two stretches is exactly 0. Sums are fp64 unless the task asks for those of devices.
void chunk_decay(const ChunkGates& gates, bool fp32_sums, std::size_t count, std::size_t padded, ChunkDecay& decay) {
    const float lowest = fp32_sums ? -2e4F : -110.0F;
    double sum = 0;
    int stretch = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const float gate = gates.g[i * gates.stride];
        if (gate <= lowest) {
            ++stretch;
            sum = 0;
        } else {
            sum += static_cast<double>(gate);
            if (fp32_sums) sum = static_cast<double>(static_cast<float>(sum));
        }
        decay.high[i] = static_cast<float>(sum);
        decay.low[i] = static_cast<float>(sum - static_cast<double>(decay.high[i]));
        decay.stretch[i] = static_cast<float>(stretch);
        decay.beta[i] = gates.beta[i * gates.stride];
        decay.from_start[i] = stretch == 0 ? static_cast<float>(std::exp(sum)) : 0.0F;
    }
    decay.whole = decay.from_start[count - 1];
    for (std::size_t i = 0; i < padded; ++i) {
        if (i >= count) {
            decay.high[i] = decay.low[i] = decay.beta[i] = decay.from_start[i] = decay.to_end[i] = 0;
            decay.stretch[i] = -1;
            continue;
        }
        const double rest = sum - (static_cast<double>(decay.high[i]) + static_cast<double>(decay.low[i]));
        const bool same = decay.stretch[i] == static_cast<float>(stretch);
        decay.to_end[i] = same ? std::exp(static_cast<float>(rest)) : 0.0F;
    }
}

// The fp32 forwards on plain arrays: how the work is divided. A unit is a panel of columns of one value head of one
// sequence. Columns of the state are independent, so results do not depend on how units are assigned to threads.

namespace {

// Outputs of this many bytes would evict everything else from the caches.
constexpr std::size_t k_stream_from = std::size_t{1} << 20U;

ChunkKernel chunk_kernel_for(Isa isa) {
    switch (isa) {
        case Isa::avx512: return chunk_avx512();
        case Isa::avx2: return chunk_avx2();
        case Isa::scalar: break;
    }
    return chunk_scalar();
}

FusedKernel fused_kernel_for(Isa isa) {
    switch (isa) {
        case Isa::avx512: return fused_avx512();
        case Isa::avx2: return fused_avx2();
        case Isa::scalar: break;
    }
    return fused_scalar();
}

// All units of a sequence, grouped by key head: a thread packs K and Q once for its share of them.
std::vector<FusedUnit> units_of(const Forward32& f, std::size_t columns) {
    std::vector<FusedUnit> units;
    for (std::int64_t key_head = 0; key_head < f.dims.Hk; ++key_head) {
        for (std::int64_t head = 0; head < f.dims.Hv; ++head) {
            if (key_head_of(head, f.dims, f.head_map) != key_head) continue;
            for (std::size_t column = 0; column < static_cast<std::size_t>(f.dims.dv); column += columns) {
                units.push_back({static_cast<std::size_t>(key_head), static_cast<std::size_t>(head), column});
            }
        }
    }
    return units;
}

// Streaming stores of a partial line would first fetch it, so panels of `columns` must be whole lines.
bool can_stream(const Forward32& f, const void* to, std::size_t element, std::size_t columns) {
    const auto row = static_cast<std::size_t>(f.dims.dv) * element;
    const auto bytes = static_cast<std::size_t>(f.dims.B * f.dims.T * f.dims.Hv) * row;
    return bytes >= k_stream_from && row % k_cache_line == 0 && columns * element % k_cache_line == 0 &&
           reinterpret_cast<std::uintptr_t>(to) % k_cache_line == 0;
}

// For sequence n, and a kernel whose panels have this many columns.
FusedTask task_of(const Forward32& f, std::size_t n, std::size_t columns) {
    const GdnDims& d = f.dims;
    FusedTask t;
    t.Hk = static_cast<std::size_t>(d.Hk);
    t.Hv = static_cast<std::size_t>(d.Hv);
    t.dk = static_cast<std::size_t>(d.dk);
    t.dv = static_cast<std::size_t>(d.dv);
    const auto begin = static_cast<std::size_t>(f.sequences[n].begin);
    t.tokens = static_cast<std::size_t>(f.sequences[n].end) - begin;
    t.q = f.q + begin * t.Hk * t.dk;
    t.k = f.k + begin * t.Hk * t.dk;
    t.v = f.v + begin * t.Hv * t.dv;
    t.g = f.g + begin * t.Hv;
    t.beta = f.beta + begin * t.Hv;
    t.out = f.out + begin * t.Hv * t.dv;
    const std::size_t state = n * t.Hv * t.dk * t.dv;
    t.initial_state = f.initial_state == nullptr ? nullptr : f.initial_state + state;
    t.final_state = f.final_state + state;
    t.scale = f.scale;
    t.normalise = f.l2norm_eps.has_value();
    t.eps = f.l2norm_eps.value_or(0);
    t.stream_out = can_stream(f, f.out.data, size_of(f.out.storage), columns);
    return t;
}

// Splits every sequence among all threads: this keeps them busy for one long sequence, and many short ones do so
// anyway. `scratch` returns the floats needed for a number of units; `run` computes a task of the given sequence.
template <class Scratch, class Run>
void for_all_parts(const Forward32& f, int threads, std::size_t columns, const Scratch& scratch, const Run& run) {
    const std::vector<FusedUnit> units = units_of(f, columns);
    const std::size_t parts = std::min(units.size(), static_cast<std::size_t>(std::max(threads, 1)));
    const std::size_t most = (units.size() + parts - 1) / parts;
    run_tasks(f.sequences.size() * parts, threads, [&] {
        return [&, room = aligned_floats(scratch(most))](std::size_t index) {
            FusedTask task = task_of(f, index / parts, columns);
            const std::size_t part = index % parts;
            const std::size_t first = units.size() * part / parts;
            task.units = units.data() + first;
            task.unit_count = units.size() * (part + 1) / parts - first;
            task.scratch = room.get();
            run(task, index / parts);
        };
    });
}

}  // namespace

void fused_forward(const Forward32& f, int threads, Isa isa) {
    const FusedKernel kernel = fused_kernel_for(isa);
    const auto dk = static_cast<std::size_t>(f.dims.dk);
    for_all_parts(
        f, threads, kernel.columns, [&](std::size_t units) { return kernel.scratch(dk, units); },
        [&](const FusedTask& task, std::size_t) { kernel.run(task); });
}

void chunk_forward(const Forward32& f, int chunk, GateSum gate_sum, int threads, Isa isa) {
    const ChunkKernel kernel = chunk_kernel_for(isa);
    const auto dk = static_cast<std::size_t>(f.dims.dk);
    // A chunk longer than every sequence needs no more memory than the longest.
    const auto C = static_cast<std::size_t>(std::clamp<std::int64_t>(f.dims.T, 1, chunk));
    for_all_parts(
        f, threads, kernel.columns, [&](std::size_t units) { return kernel.scratch(dk, C, units); },
        [&](const FusedTask& task, std::size_t) { kernel.run({task, C, gate_sum == GateSum::fp32}); });
}

std::size_t segment_count(std::span<const GdnSequence> sequences, int segment_chunks) {
    const std::int64_t tokens = std::int64_t{k_backward_tokens} * segment_chunks;
    std::size_t count = 0;
    for (const GdnSequence& s : sequences) count += static_cast<std::size_t>((s.end - s.begin + tokens - 1) / tokens);
    return count;
}

void saving_forward(const Forward32& f, const ForwardSaves& saves, int threads, Isa isa) {
    const ChunkKernel kernel = chunk_kernel_for(isa);
    const auto dk = static_cast<std::size_t>(f.dims.dk);
    constexpr std::size_t C = k_backward_tokens;
    const bool stream_saves = can_stream(f, saves.u, sizeof(float), kernel.columns) &&
                              reinterpret_cast<std::uintptr_t>(saves.states) % k_cache_line == 0;
    for_all_parts(
        f, threads, kernel.columns, [&](std::size_t units) { return kernel.scratch(dk, C, units); },
        [&](const FusedTask& task, std::size_t n) {
            const auto first = static_cast<std::size_t>(f.sequences[n].begin);
            const std::size_t segments = segment_count(f.sequences.first(n), saves.segment_chunks);
            ChunkTask chunked{task, C, false};
            chunked.u = saves.u + first * task.Hv * task.dv;
            chunked.states = saves.states + segments * task.Hv * dk * task.dv;
            chunked.segment = static_cast<std::size_t>(saves.segment_chunks);
            chunked.stream_saves = stream_saves;
            kernel.run(chunked);
        });
}

namespace {

// Runs `forward` on a problem's values in bf16; `out` too if it is bf16.
template <class Run>
GdnOutputs run_narrow(const GdnProblem& p, const GdnContract& c, int threads, const Run& run) {
    Prepared<float> inputs = prepare<float>(p, c, threads);
    const NarrowInputs narrow(p, c, inputs);
    Forward32 f = forward_inputs(p, c, inputs);
    narrow.place(c, f);
    f.final_state = inputs.state.data();
    const bool narrow_out = out_dtype_of(c, p) == DType::bf16;
    const auto bf16 = aligned<Bf16>(narrow_out ? p.v.size() : 0);
    const AlignedFloats wide = aligned_floats(narrow_out ? 0 : p.v.size());
    std::fill_n(bf16.get(), narrow_out ? p.v.size() : 0, Bf16{});
    std::fill_n(wide.get(), narrow_out ? 0 : p.v.size(), 0.0F);
    if (narrow_out) {
        f.out = bf16.get();
    } else {
        f.out = wide.get();
    }
    run(f);
    apply_empty_policy(p, c.empty, inputs.state);
    GdnOutputs outputs;
    outputs.final_state.assign(inputs.state.begin(), inputs.state.end());
    outputs.out.resize(p.v.size());
    for (std::size_t i = 0; i < p.v.size(); ++i) {
        outputs.out[i] = static_cast<double>(narrow_out ? widened(bf16[i]) : wide[i]);
    }
    return outputs;
}

// Runs `forward` on a problem's values in fp32.
template <class Run>
GdnOutputs run_problem(const GdnProblem& p, const GdnContract& c, int threads, Storage storage, const Run& run) {
    if (storage == Storage::bf16) return run_narrow(p, c, threads, run);
    Prepared<float> inputs = prepare<float>(p, c, threads);
    const std::size_t out_size = p.v.size();
    const AlignedFloats out = aligned_floats(out_size);
    std::fill_n(out.get(), out_size, 0.0F);
    Forward32 f = forward_inputs(p, c, inputs);
    f.out = out.get();
    f.final_state = inputs.state.data();
    run(f);
    apply_empty_policy(p, c.empty, inputs.state);
    return {{out.get(), out.get() + out_size}, {inputs.state.begin(), inputs.state.end()}, 0};
}

}  // namespace

GdnOutputs run_fused32(const GdnProblem& p, const GdnContract& c, int threads, Isa isa, Storage storage) {
    return run_problem(p, c, threads, storage, [&](const Forward32& f) { fused_forward(f, threads, isa); });
}

GdnOutputs run_chunk32(const GdnProblem& p, const GdnContract& c, const ChunkOptions& options, int threads, Isa isa) {
    if (options.matmul != Matmul::f32 || c.state_dtype != StateDType::f32)
        return run_chunk_rounded(p, c, options, threads);
    return run_problem(p, c, threads, options.storage,
                       [&](const Forward32& f) { chunk_forward(f, options.chunk, options.gate_sum, threads, isa); });
}

}  // namespace gdnctl::oracle
