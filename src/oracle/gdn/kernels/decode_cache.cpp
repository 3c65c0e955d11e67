// States that a cache keeps between decode steps, with pending writes of the last steps.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <sys/mman.h>

#include "oracle/gdn/kernels/decode_share.h"

namespace gdnctl::oracle {

using namespace decoding;

namespace {

// Base stays in this range if it is kept after a fold: few folds leave it, and no decay representable in fp32 makes it
// overflow.
constexpr double k_lowest_base = 0x1p-20;
constexpr double k_highest_base = 1;
// If the state grows faster than the delta rule removes, it becomes a difference of a large state and large writes.
// Such writes are folded at once.
constexpr double k_most_growth = 4;

// How many writes of a key head are pending, and how many of them the current step folds into the states.
struct alignas(k_cache_line) KeyWrites {
    std::size_t count = 0, folded = 0;
};

// Large pages mean fewer address translations: reading 33 MB takes a fifth less time. Memory smaller than a large page
// has none.
void use_large_pages(float* from, std::size_t count) {
    constexpr std::size_t k_large_page = std::size_t{2} << 20U;
    const std::size_t bytes = count * sizeof *from;
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(from) % k_large_page;
    if (bytes < before + k_large_page) return;
    // Has no effect on a system without large pages.
    madvise(reinterpret_cast<char*>(from) + before, (bytes - before) / k_large_page * k_large_page, MADV_HUGEPAGE);
}

// Weights and keep for folding `count` writes; returns base afterwards. Base absorbs the state's decay if possible, so
// that the state need not be multiplied.
double set_fold(const HeadWrites& pending, std::size_t count, DecodeWrites& writes) {
    const bool inside = pending.base >= k_lowest_base && pending.base <= k_highest_base;
    const double base = inside ? pending.base : 1;
    writes.folded = count;
    writes.keep = inside ? 1 : static_cast<float>(pending.base);
    for (std::size_t j = 0; j < count; ++j) writes.weights[j] = static_cast<float>(pending.weights[j] / base);
    return base;
}

}  // namespace

struct DecodeCache::Arrays {
    DecodeKernel kernel;
    std::size_t sequences, Hk, Hv, dk, dv, stride;
    AlignedFloats states;                         // [N, Hv], each in panels
    AlignedFloats d;                              // [N, Hv, 8, stride]
    std::vector<float> k;                         // [N, Hk, 8, dk]
    std::vector<HeadWrites> pending;              // [N, Hv]
    std::vector<KeyWrites> writes;                // [N, Hk]
    std::vector<std::vector<std::size_t>> heads;  // by key head
    // Of the threads' shares of a step.
    std::vector<ShareRoom> rooms;
    AlignedFloats sums;
    std::size_t shares = 0;  // for which there is room

    std::size_t state_size() const { return dk * stride; }
    float* state(std::size_t n, std::size_t head) const { return states.get() + (n * Hv + head) * state_size(); }
    float* d_of(std::size_t n, std::size_t head) const { return d.get() + (n * Hv + head) * k_decode_most * stride; }
    float* k_of(std::size_t n, std::size_t key) { return k.data() + (n * Hk + key) * k_decode_most * dk; }

    KeysBefore before(std::size_t n, std::size_t key) { return {k_of(n, key), writes[n * Hk + key].count}; }
    bool grown(std::size_t n, std::size_t key) const;
    KeysBefore begin(std::size_t n, std::size_t key, std::size_t tokens);
    const float* at(const Place& p) const { return state(p.n, p.head); }
    HeadWrites* set(const Place& p, DecodeTask& task);
    void end(const Share& share);
    void load(std::size_t n, std::size_t head, const float* from);
    void store(std::size_t n, std::size_t key, std::size_t head, float* panel, float* to);
    // Calls run(n, key) for every key head of every sequence.
    template <class MakeRun>
    void for_all_keys(int threads, const MakeRun& make_run) const {
        run_tasks(sequences * Hk, threads,
                  [&] { return [&, run = make_run()](std::size_t i) mutable { run(i / Hk, i % Hk); }; });
    }
};

// Whether decays above 1 have made the state, or a pending write, much larger than it was.
bool DecodeCache::Arrays::grown(std::size_t n, std::size_t key) const {
    const std::size_t count = writes[n * Hk + key].count;
    return std::any_of(heads[key].begin(), heads[key].end(), [&](std::size_t head) {
        const HeadWrites& w = pending[n * Hv + head];
        return w.growth > k_most_growth ||
               std::any_of(w.weights, w.weights + count, [](double weight) { return weight > k_most_growth; });
    });
}

// Folds writes if there would be too many with those of this step. Writes of two steps are pending at once.
KeysBefore DecodeCache::Arrays::begin(std::size_t n, std::size_t key, std::size_t tokens) {
    auto& [count, folded] = writes[n * Hk + key];
    folded = 0;
    const std::size_t most = std::clamp(2 * tokens, kernel.most_writes, k_decode_most);
    if (count > 0 && (count + tokens > most || grown(n, key))) std::swap(folded, count);
    return before(n, key);
}

HeadWrites* DecodeCache::Arrays::set(const Place& p, DecodeTask& task) {
    HeadWrites& head = pending[p.n * Hv + p.head];
    task.read = state(p.n, p.head);
    task.write = state(p.n, p.head);
    task.state_stride = stride;
    task.writes.k = k_of(p.n, p.key);
    task.writes.d = d_of(p.n, p.head);
    const auto [count, folded] = writes[p.n * Hk + p.key];
    task.writes.count = count;
    task.writes.folded = 0;
    if (task.padded > 0 && folded > 0) {
        head.base = set_fold(head, folded, task.writes);
        head.growth = 1;
    }
    return &head;
}

// Records what a group leaves pending.
void DecodeCache::Arrays::end(const Share& share) {
    for (std::size_t i = 0; i < share.count(); ++i) {
        const DecodeTask& task = share.tasks()[i];
        if (task.padded == 0 || !share.last_of_key(i)) continue;
        const Place p = share.place(i);
        std::size_t& count = writes[p.n * Hk + p.key].count;
        std::copy_n(share.keys(i).by_token, task.tokens * dk, k_of(p.n, p.key) + count * dk);
        count += task.tokens;
    }
}

void DecodeCache::Arrays::load(std::size_t n, std::size_t head, const float* from) {
    float* to = state(n, head);
    for (std::size_t column = 0; column < dv; column += kernel.panel) {
        const std::size_t columns = std::min(kernel.panel, dv - column);
        for (std::size_t i = 0; i < dk; ++i, to += kernel.panel) std::copy_n(from + i * dv + column, columns, to);
    }
    pending[n * Hv + head] = {};
}

void DecodeCache::Arrays::store(std::size_t n, std::size_t key, std::size_t head, float* panel, float* to) {
    DecodeWrites all;
    all.k = k_of(n, key);
    all.d = d_of(n, head);
    const auto base = static_cast<float>(set_fold(pending[n * Hv + head], writes[n * Hk + key].count, all));
    for (std::size_t column = 0; column < dv; column += kernel.panel) {
        const std::size_t columns = std::min(kernel.panel, dv - column);
        std::copy_n(state(n, head) + column * dk, dk * kernel.panel, panel);
        kernel.fold(all, stride, column, dk, panel);
        for (std::size_t i = 0; i < dk; ++i) {
            for (std::size_t j = 0; j < columns; ++j) to[i * dv + column + j] = base * panel[i * kernel.panel + j];
        }
    }
}

DecodeCache::DecodeCache(const GdnDims& dims, HeadMap head_map, std::size_t sequences, Isa isa)
    : m_arrays(std::make_unique<Arrays>()) {
    Arrays& a = *m_arrays;
    a.kernel = kernel_for(isa);
    a.sequences = sequences;
    a.Hk = size(dims.Hk);
    a.Hv = size(dims.Hv);
    a.dk = size(dims.dk);
    a.dv = size(dims.dv);
    a.stride = (a.dv + a.kernel.panel - 1) / a.kernel.panel * a.kernel.panel;
    a.heads.resize(a.Hk);
    for (std::size_t key = 0; key < a.Hk; ++key) {
        for (std::size_t i = 0; i < a.Hv / a.Hk; ++i) a.heads[key].push_back(head_of(dims, head_map, key, i));
    }
    const std::size_t heads = sequences * a.Hv;
    a.states = aligned_floats(heads * a.state_size());
    a.d = aligned_floats(heads * k_decode_most * a.stride);
    use_large_pages(a.states.get(), heads * a.state_size());
    std::fill_n(a.states.get(), heads * a.state_size(), 0.0F);
    a.k.resize(sequences * a.Hk * a.dk * k_decode_most);
    a.pending.resize(heads);
    a.writes.resize(sequences * a.Hk);
}

DecodeCache::DecodeCache(DecodeCache&&) noexcept = default;
DecodeCache& DecodeCache::operator=(DecodeCache&&) noexcept = default;
DecodeCache::~DecodeCache() = default;

void DecodeCache::load(const float* states, int threads) {
    Arrays& a = *m_arrays;
    a.for_all_keys(threads, [&] {
        return [&](std::size_t n, std::size_t key) {
            a.writes[n * a.Hk + key] = {};
            for (const std::size_t head : a.heads[key]) a.load(n, head, states + (n * a.Hv + head) * a.dk * a.dv);
        };
    });
}

void DecodeCache::store(float* states, int threads) const {
    Arrays& a = *m_arrays;
    a.for_all_keys(threads, [&] {
        return [&, panel = std::vector<float>(a.dk * a.kernel.panel)](std::size_t n, std::size_t key) mutable {
            for (const std::size_t head : a.heads[key]) {
                a.store(n, key, head, panel.data(), states + (n * a.Hv + head) * a.dk * a.dv);
            }
        };
    });
}

void DecodeCache::step(const Forward32& step, int threads) {
    Arrays& a = *m_arrays;
    const std::size_t sums = 2 * k_decode_most * a.stride;
    const auto used = size(decode_threads(step.dims, step.sequences.size(), threads));
    if (a.shares < used) a.sums = aligned_floats(used * sums);
    a.shares = std::max(a.shares, used);
    for_all_shares(step, a.kernel, threads, a.rooms, [&](Share& share, std::size_t number) {
        while (share.next(a)) {
            a.kernel.deferred(share.tasks(), share.count(), a.sums.get() + number * sums);
            a.end(share);
        }
    });
}

}  // namespace gdnctl::oracle
