// Splits a decode step into shares of key heads, each with its value heads.
#include "oracle/gdn/kernels/decode32.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include <sys/mman.h>

#include "oracle/gdn/kernels/simd/decode_task.h"
#include "oracle/simd/aligned.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::decoding {

namespace {

inline std::size_t size(std::int64_t x) { return static_cast<std::size_t>(x); }
// Rounds up to whole cache lines of floats.
inline std::size_t rounded(std::size_t x) { return (x + 15) / 16 * 16; }
inline std::size_t tokens_of(const GdnSequence& s) { return static_cast<std::size_t>(s.end - s.begin); }
// The number of tokens that the kernels process.
inline std::size_t padded_tokens(std::size_t tokens) { return tokens <= 2 ? tokens : tokens <= 4 ? 4 : 8; }
// The i-th value head of a key head.
inline std::size_t head_of(const GdnDims& dims, HeadMap map, std::size_t key, std::size_t i) {
    return map == HeadMap::tiled ? i * size(dims.Hk) + key : key * size(dims.Hv / dims.Hk) + i;
}

// q and k of one key head for one step, element by element: [dk][padded tokens], with zeros after the step's tokens.
// For a single token they stay in the caller's memory if they are fp32 and need no normalisation.
struct alignas(k_cache_line) Keys {
    float *k_room = nullptr, *q_room = nullptr;  // [dk][token]
    float *rows_k = nullptr, *rows_q = nullptr;  // [token][dk]; identical for a single token
    const float *k = nullptr, *q = nullptr;      // [dk][token]
    const float* by_token = nullptr;             // k, [token][dk]
    float kk[k_decode_most][k_decode_most];      // [token t][source j], k_j . k_t; see DecodeFactors
    float kq[k_decode_most][k_decode_most];      // k_j . q_t
};

// Pending writes of a key head before this step's tokens, by their keys: [count][dk].
struct KeysBefore {
    const float* k = nullptr;
    std::size_t count = 0;
};

// What was written to a value head since its state was stored: the state is base times that, plus the writes with their
// weights. `growth` is the product of the decays since then.
struct alignas(k_cache_line) HeadWrites {
    double base = 1, growth = 1;
    double weights[k_decode_most] = {};
};

// Packs the tokens from `row` on of one key head, which follow `before`.
void pack(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t padded, std::size_t head,
          const KeysBefore& before, const DecodeKernel& kernel, Keys& keys);

// Memory of a share, reused for every step. Its contents mean nothing between steps.
struct alignas(k_cache_line) ShareRoom {
    std::vector<float> rows;
    std::vector<Keys> keys;
    std::vector<DecodeTask> tasks;
    bool taken = false;  // in use in the current step
};

// Allocates memory for a share of this many key heads.
void make_room(const Forward32& f, std::size_t key_heads, ShareRoom& room);

// One value head of a sequence.
struct Place {
    std::size_t n = 0, key = 0, head = 0;
};

// A thread's share of a step: several key heads of sequences, one after the other. The inputs of a sweep are computed
// for a group of them at once, while code and constants for that are in the nearest cache; streaming a state evicts
// them. It has two sets of keys, because the last panel of a head is written during the next.
class Share {
public:
    Share(const Forward32& forward, const DecodeKernel& kernel, ShareRoom& room, std::size_t begin, std::size_t end);

    // Prepares the next group; false: there is none. It calls these members of `states`: KeysBefore begin(n, key,
    // tokens), before the value heads of a key head with tokens; HeadWrites* set(place, task), which sets the state of
    // a task (padded 0: without tokens) and returns nullptr if there are never pending writes; const float* at(place),
    // the state; KeysBefore before(n, key), its pending writes so far.
    template <class States>
    bool next(States& states);
    const DecodeTask* tasks() const { return m_room.tasks.data(); }
    std::size_t count() const { return m_count; }
    // The value head of task i, and whether it is the last of its key head.
    Place place(std::size_t i) const { return place(m_first + i / heads(), i % heads()); }
    bool last_of_key(std::size_t i) const { return i % heads() + 1 == heads(); }
    const Keys& keys(std::size_t i) const { return m_current[i / heads()]; }

private:
    std::size_t key_heads() const { return size(m_f.dims.Hk); }
    std::size_t heads() const { return size(m_f.dims.Hv / m_f.dims.Hk); }
    Place place(std::size_t key_head, std::size_t i) const {
        const std::size_t key = key_head % key_heads();
        return {key_head / key_heads(), key, head_of(m_f.dims, m_f.head_map, key, i)};
    }
    const GdnSequence& sequence(std::size_t key_head) const { return m_f.sequences[key_head / key_heads()]; }
    void fetch_keys(std::size_t key_head) const;
    void fetch_keys_beside(DecodeTask& task, std::size_t key_head, const KeysBefore& before) const;
    void set_task(const Place& place, const Keys& keys, HeadWrites* pending, DecodeTask& task) const;

    const Forward32& m_f;
    const DecodeKernel& m_kernel;
    ShareRoom& m_room;
    std::size_t m_first = 0;    // key head of this group
    std::size_t m_next, m_end;  // key heads not yet processed
    std::size_t m_group;        // key heads per group
    bool m_far;                 // whether the states exceed the second-level cache
    bool m_second = false;      // which set of keys is next
    Keys* m_current = nullptr;  // of this group
    std::size_t m_count = 0;
};

template <class States>
bool Share::next(States& states) {
    m_count = 0;
    m_first = m_next;
    m_next = std::min(m_end, m_first + m_group);
    m_current = m_room.keys.data() + (m_second ? m_group : 0);
    bool any = false;
    for (std::size_t key_head = m_first; key_head < m_next; ++key_head) {
        Keys& keys = m_current[key_head - m_first];
        const std::size_t tokens = tokens_of(sequence(key_head));
        const std::size_t padded = tokens == 0 ? 0 : padded_tokens(tokens);
        if (tokens > 0) {
            any = true;
            const Place first = place(key_head, 0);
            const KeysBefore before = states.begin(first.n, first.key, tokens);
            pack(m_f, size(sequence(key_head).begin), tokens, padded, first.key, before, m_kernel, keys);
        }
        for (std::size_t i = 0; i < heads(); ++i) {
            DecodeTask& task = m_room.tasks[m_count++];
            task.tokens = tokens;
            task.padded = padded;
            const Place head = place(key_head, i);
            HeadWrites* pending = states.set(head, task);
            if (tokens > 0) set_task(head, keys, pending, task);
        }
    }
    for (std::size_t i = 0; i < m_count; ++i) {
        DecodeTask& task = m_room.tasks[i];
        task.far = m_far;
        task.next = m_far && i + 1 < m_count ? m_room.tasks[i + 1].read : nullptr;
        for (std::size_t& bytes : task.soon_bytes) bytes = 0;
        const std::size_t later = m_next + i / heads();
        if (i % heads() > 0 || later >= m_end || tokens_of(sequence(later)) == 0) continue;
        fetch_keys_beside(task, later, states.before(later / key_heads(), later % key_heads()));
    }
    if (m_far && m_count > 0 && m_next < m_end) m_room.tasks[m_count - 1].next = states.at(place(m_next, 0));
    // A group without tokens writes nothing, and pending writes still need the keys of the previous group.
    if (any) m_second = !m_second;
    return m_count > 0;
}

// A share that no other thread uses. If a step uses all helpers, this thread's share of the last step, whose states are
// in its caches.
std::size_t take_share(std::vector<ShareRoom>& rooms, std::size_t parts);

// Splits a step into shares of neighbouring heads, each with a thread that calls run(share, its number). rooms: one per
// share, created if missing.
template <class Run>
void for_all_shares(const Forward32& f, const DecodeKernel& kernel, int threads, std::vector<ShareRoom>& rooms,
                    const Run& run) {
    const std::size_t tasks = f.sequences.size() * size(f.dims.Hk);
    const int used = decode_threads(f.dims, f.sequences.size(), threads);
    const std::size_t parts = size(used);
    if (rooms.size() < parts) rooms.resize(parts);
    // Allocate before anything is changed, because it could fail later.
    for (std::size_t part = 0; part < parts; ++part) make_room(f, tasks / parts + 1, rooms[part]);
    for (ShareRoom& room : rooms) room.taken = false;
    run_tasks(parts, used, [&] {
        return [&](std::size_t) {
            const std::size_t part = take_share(rooms, parts);
            Share share(f, kernel, rooms[part], tasks * part / parts, tasks * (part + 1) / parts);
            run(share, part);
        };
    });
}

// Larger states exceed the second-level cache, so kernels prefetch them or read them in order.
constexpr std::size_t k_far_from = std::size_t{1} << 20U;
// Value heads per group, unless a key head has more.
constexpr std::size_t k_group_heads = 16;

// In 16 sums, which a processor can add in parallel.
float dot(const float* a, const float* b, std::size_t count) {
    float sums[16] = {};
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        for (std::size_t x = 0; x < 16; ++x) sums[x] += a[i + x] * b[i + x];
    }
    float sum = 0;
    for (; i < count; ++i) sum += a[i] * b[i];
    for (std::size_t width = 8; width > 0; width /= 2) {
        for (std::size_t x = 0; x < width; ++x) sums[x] += sums[x + width];
    }
    return sum + sums[0];
}

// pending: the writes before this step's tokens, and afterwards those before the next step; nullptr: the stored state
// is current.
void set_factors(const Forward32& f, std::size_t row, std::size_t head, std::size_t padded, const Keys& keys,
                 HeadWrites* pending, DecodeTask& task) {
    const std::size_t before = task.writes.count;
    double alpha[k_decode_most];
    double weights[k_decode_most];
    double product = 1;  // a_t, times base
    if (pending != nullptr) {
        product = pending->base;
        std::copy_n(pending->weights, before, weights);
    }
    const auto narrow = [](double x) { return static_cast<float>(x); };
    for (std::size_t t = 0; t < padded; ++t) {
        DecodeFactors& to = task.factors[t];
        const bool there = t < task.tokens;
        const std::size_t at = (row + t) * size(f.dims.Hv) + head;
        alpha[t] = there ? std::exp(static_cast<double>(f.g[at])) : 1;
        to.beta = there ? f.beta[at] : 0;
        product *= alpha[t];
        to.from_state = narrow(-static_cast<double>(to.beta) * product);
        to.out_state = narrow(static_cast<double>(f.scale) * product);
        const auto set_source = [&](std::size_t j, double weight) {
            to.in_d[j] = narrow(-static_cast<double>(to.beta) * weight * static_cast<double>(keys.kk[t][j]));
            to.in_o[j] = narrow(static_cast<double>(f.scale) * weight * static_cast<double>(keys.kq[t][j]));
        };
        if (!there && pending != nullptr) continue;  // nobody needs it, and there may be no memory for it
        for (std::size_t j = 0; j < before; ++j) {
            weights[j] *= alpha[t];
            set_source(j, weights[j]);
        }
        double between = 1;  // A_tj
        for (std::size_t j = t + 1; j-- > 0;) {
            set_source(before + j, between);
            between *= alpha[j];
        }
    }
    task.decay = narrow(product);
    double after = 1;
    for (std::size_t t = padded; t-- > 0;) {
        task.factors[t].later = narrow(after);
        if (pending != nullptr && t < task.tokens) weights[before + t] = after;
        after *= alpha[t];
    }
    if (pending == nullptr) return;
    pending->growth *= after;
    pending->base = product;
    std::copy_n(weights, before + task.tokens, pending->weights);
}

std::size_t most_tokens_of(const Forward32& f) {
    std::size_t most = 1;
    for (const GdnSequence& s : f.sequences) most = std::max(most, padded_tokens(tokens_of(s)));
    return most;
}

// Whether k and q of steps with this many tokens are read from the caller's memory.
bool stays(const Forward32& f, std::size_t tokens) {
    return tokens == 1 && !f.l2norm_eps && f.k.storage == Storage::f32 && f.q.storage == Storage::f32;
}

// Whether the states exceed the second-level cache.
bool lie_far(const Forward32& f) {
    return f.sequences.size() * size(f.dims.Hv * f.dims.dk * f.dims.dv) * sizeof(float) > k_far_from;
}

const char* address_of(const ConstValues& x, std::size_t at) {
    return static_cast<const char*>(x.data) + at * size_of(x.storage);
}

DecodeKernel kernel_for(Isa isa) {
    switch (isa) {
        case Isa::avx512: return decode_avx512();
        case Isa::avx2: return decode_avx2();
        case Isa::scalar: break;
    }
    return decode_scalar();
}

void pack(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t padded, std::size_t head,
          const KeysBefore& before, const DecodeKernel& kernel, Keys& keys) {
    const std::size_t dk = size(f.dims.dk);
    const auto pack_one = [&](const ConstValues& from, float* rows, float* to) {
        for (std::size_t t = 0; t < padded; ++t) {
            float* y = rows + t * dk;
            if (t >= tokens) {
                std::fill_n(y, dk, 0.0F);
            } else {
                widen(from, ((row + t) * size(f.dims.Hk) + head) * dk, dk, y);
                const float factor = f.l2norm_eps ? 1 / std::sqrt(dot(y, y, dk) + *f.l2norm_eps) : 1;
                for (std::size_t i = 0; i < dk && f.l2norm_eps; ++i) y[i] *= factor;
            }
            for (std::size_t i = 0; i < dk && rows != to; ++i) to[i * padded + t] = y[i];
        }
    };
    const float* rows_q = nullptr;
    if (stays(f, padded)) {
        keys.k = static_cast<const float*>(f.k.data) + (row * size(f.dims.Hk) + head) * dk;
        keys.q = static_cast<const float*>(f.q.data) + (row * size(f.dims.Hk) + head) * dk;
        keys.by_token = keys.k;
        rows_q = keys.q;
    } else {
        const bool one = padded == 1;
        float* rows = one ? keys.k_room : keys.rows_k;
        pack_one(f.k, rows, keys.k_room);
        keys.by_token = rows;
        rows = one ? keys.q_room : keys.rows_q;
        pack_one(f.q, rows, keys.q_room);
        rows_q = rows;
        keys.k = keys.k_room;
        keys.q = keys.q_room;
    }
    for (std::size_t t = 0; t < tokens; ++t) {
        const float *k = keys.by_token + t * dk, *q = rows_q + t * dk;
        kernel.products(before.k, before.count, dk, k, q, keys.kk[t], keys.kq[t]);
        kernel.products(keys.by_token, t + 1, dk, k, q, keys.kk[t] + before.count, keys.kq[t] + before.count);
        keys.kk[t][before.count + t] = 0;
    }
    // Tokens beyond the step's get zeros.
    for (std::size_t t = tokens; t < padded && before.count == 0; ++t) {
        std::fill_n(keys.kk[t], t + 1, 0.0F);
        std::fill_n(keys.kq[t], t + 1, 0.0F);
    }
}

// Key heads per group, whose value heads' factors are computed together.
std::size_t group_of(const Forward32& f, std::size_t key_heads) {
    const std::size_t heads = size(f.dims.Hv / f.dims.Hk);
    return std::min(std::max<std::size_t>(k_group_heads / heads, 1), key_heads);
}

void make_room(const Forward32& f, std::size_t key_heads, ShareRoom& room) {
    const std::size_t group = group_of(f, key_heads);
    const std::size_t most = most_tokens_of(f);
    const std::size_t one = stays(f, most) ? 0 : rounded(size(f.dims.dk) * most);
    const auto at_least = [](auto& list, std::size_t count) {
        if (list.size() < count) list.resize(count);
    };
    at_least(room.keys, 2 * group);
    at_least(room.tasks, group * size(f.dims.Hv / f.dims.Hk));
    at_least(room.rows, 2 * group * 4 * one);
    for (std::size_t i = 0; i < 2 * group; ++i) {
        Keys& keys = room.keys[i];
        keys.k_room = room.rows.data() + 4 * i * one;
        keys.q_room = keys.k_room + one;
        keys.rows_k = keys.q_room + one;
        keys.rows_q = keys.rows_k + one;
    }
}

std::size_t take_share(std::vector<ShareRoom>& rooms, std::size_t parts) {
    std::size_t part = Helpers::number() % parts;
    while (std::atomic_ref(rooms[part].taken).exchange(true)) part = (part + 1) % parts;
    return part;
}

Share::Share(const Forward32& forward, const DecodeKernel& kernel, ShareRoom& room, std::size_t begin, std::size_t end)
    : m_f(forward),
      m_kernel(kernel),
      m_room(room),
      m_next(begin),
      m_end(end),
      m_group(group_of(forward, end - begin)),
      m_far(lie_far(forward)) {
    for (std::size_t key_head = begin; key_head < begin + m_group; ++key_head) fetch_keys(key_head);
}

// Rows of tokens come from main memory, and the processor cannot predict them.
void Share::fetch_keys(std::size_t key_head) const {
    const GdnSequence& s = sequence(key_head);
    if (tokens_of(s) == 0) return;
    const auto dk = size(m_f.dims.dk);
    const std::size_t at = (size(s.begin) * key_heads() + key_head % key_heads()) * dk;
    for (const ConstValues& x : {m_f.k, m_f.q}) {
        const char* from = address_of(x, at);
        const std::size_t bytes = dk * size_of(x.storage);
        for (std::size_t i = 0; i < bytes; i += k_cache_line) __builtin_prefetch(from + i);
    }
}

// Prefetches the keys of the next group, one key head during each first value head of this group.
void Share::fetch_keys_beside(DecodeTask& task, std::size_t key_head, const KeysBefore& before) const {
    const auto dk = size(m_f.dims.dk);
    const std::size_t at = (size(sequence(key_head).begin) * key_heads() + key_head % key_heads()) * dk;
    task.soon[0] = address_of(m_f.k, at);
    task.soon[1] = address_of(m_f.q, at);
    task.soon_bytes[0] = dk * size_of(m_f.k.storage);
    task.soon_bytes[1] = dk * size_of(m_f.q.storage);
    task.soon[2] = before.k;
    task.soon_bytes[2] = before.count * dk * sizeof(float);
}

void Share::set_task(const Place& place, const Keys& keys, HeadWrites* pending, DecodeTask& task) const {
    const std::size_t dv = size(m_f.dims.dv);
    const std::size_t row = size(m_f.sequences[place.n].begin);
    const std::size_t at = (row * size(m_f.dims.Hv) + place.head) * dv;
    task.v = m_f.v + at;
    task.out = m_f.out + at;
    task.value_stride = size(m_f.dims.Hv) * dv;
    task.dk = size(m_f.dims.dk);
    task.columns = dv;
    task.k = keys.k;
    task.q = keys.q;
    set_factors(m_f, row, place.head, task.padded, keys, pending, task);
}

}  // namespace

}  // namespace gdnctl::oracle::decoding

namespace gdnctl::oracle {

// Decode steps on the caller's states.

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

// States that a cache keeps between decode steps, with pending writes of the last steps.

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
