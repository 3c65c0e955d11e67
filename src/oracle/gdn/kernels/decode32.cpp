// Decode steps on the caller's states.
#include <algorithm>
#include <vector>

#include "oracle/gdn/kernels/decode_share.h"

namespace gdnctl::oracle {

using namespace decoding;

namespace {

// Passing work to a helper and waiting for it takes longer than processing this many bytes of states.
constexpr std::size_t k_bytes_a_thread = std::size_t{256} << 10U;

// States in the caller's memory.
struct CallersStates {
    const Forward32& f;
    std::size_t state;         // elements per state
    std::vector<float> zeros;  // a zero state, if there are none before the step

    KeysBefore before(std::size_t, std::size_t) const { return {}; }
    KeysBefore begin(std::size_t, std::size_t, std::size_t) { return {}; }
    const float* at(const Place& p) const {
        return f.initial_state == nullptr ? zeros.data() : f.initial_state + of(p);
    }
    HeadWrites* set(const Place& p, DecodeTask& task) {
        task.read = at(p);
        task.write = f.final_state + of(p);
        task.state_stride = size(f.dims.dv);
        if (task.padded == 0 && task.read != task.write) std::copy_n(task.read, state, task.write);
        return nullptr;
    }

private:
    std::size_t of(const Place& p) const { return (p.n * size(f.dims.Hv) + p.head) * state; }
};

}  // namespace

int decode_threads(const GdnDims& dims, std::size_t sequences, int threads) {
    const std::size_t bytes = sequences * size(dims.Hv * dims.dk * dims.dv) * sizeof(float);
    const std::size_t worth = 1 + bytes / k_bytes_a_thread;
    const std::size_t tasks = sequences * size(dims.Hk);
    return static_cast<int>(std::clamp<std::size_t>(std::min(worth, tasks), 1, size(std::max(threads, 1))));
}

void decode_step(const Forward32& f, int threads, Isa isa) {
    const DecodeKernel kernel = kernel_for(isa);
    if (size(f.dims.dv) % kernel.lanes != 0) return fused_forward(f, threads, isa);
    const std::size_t state = size(f.dims.dk * f.dims.dv);
    CallersStates states{f, state, std::vector<float>(f.initial_state == nullptr ? state : 0)};
    std::vector<ShareRoom> rooms;
    for_all_shares(f, kernel, threads, rooms, [&](Share& share, std::size_t) {
        DecodePanel unwritten;
        while (share.next(states)) kernel.in_place(share.tasks(), share.count(), unwritten);
        kernel.finish(unwritten);
    });
}

}  // namespace gdnctl::oracle
