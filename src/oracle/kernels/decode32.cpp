// Decode steps on the caller's states.
#include <algorithm>
#include <vector>

#include "oracle/kernels/decode_share.h"

namespace gdnctl::oracle {

using namespace decoding;

void decode_step(const Forward32& f, int threads, Isa isa) {
    const DecodeKernel kernel = kernel_for(isa);
    if (size(f.dims.dv) % kernel.lanes != 0) return fused_forward(f, threads, isa);
    const std::size_t state = size(f.dims.dk * f.dims.dv);
    const std::vector<float> zeros(f.initial_state == nullptr ? state : 0);
    const bool fetch = worth_fetching(f) && f.initial_state != nullptr;
    const auto at = [&](const Place& p) { return (p.n * size(f.dims.Hv) + p.head) * state; };
    const auto run = [&](Share& share) {
        const std::size_t row = size(f.sequences[share.sequence()].begin);
        const std::size_t tokens = tokens_of(f.sequences[share.sequence()]);
        const std::size_t padded = padded_tokens(tokens);
        if (padded > 1) kernel.finish(share.unwritten);
        Keys& keys = tokens > 0 ? share.other_keys() : share.keys[0];
        if (tokens > 0) pack(f, row, tokens, padded, share.key(), keys);
        for (std::size_t i = 0; i < share.heads(); ++i) {
            const Place place{share.sequence(), share.key(), share.head(i)};
            const float* from = f.initial_state == nullptr ? zeros.data() : f.initial_state + at(place);
            float* to = f.final_state + at(place);
            if (tokens == 0) {
                if (from != to) std::copy_n(from, state, to);
                continue;
            }
            DecodeTask task = task_of(f, row, tokens, place.head, padded, keys, nullptr);
            task.read = from;
            task.write = to;
            task.state_stride = size(f.dims.dv);
            if (const auto next = share.after(i); fetch && next) task.next = f.initial_state + at(*next);
            kernel.in_place(task, padded, share.unwritten);
        }
    };
    for_all_shares(f, threads, run, [&](Share& share) { kernel.finish(share.unwritten); });
}

}  // namespace gdnctl::oracle
