// Splits a decode step into shares of key heads, each with its value heads.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "oracle/gdn/kernels/decode32.h"
#include "oracle/gdn/kernels/simd/decode_task.h"
#include "oracle/simd/aligned.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle::decoding {

DecodeKernel kernel_for(Isa isa);

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

// Key heads per group, whose value heads' factors are computed together.
std::size_t group_of(const Forward32& f, std::size_t key_heads);
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

}  // namespace gdnctl::oracle::decoding
