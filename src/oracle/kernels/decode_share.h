// A decode step cut into tasks: a task is a key head of a sequence with its value heads.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "gdnctl/oracle/decode32.h"
#include "oracle/kernels/aligned.h"
#include "oracle/kernels/simd/decode_task.h"
#include "oracle/kernels/tasks.h"

namespace gdnctl::oracle::decoding {

// A thread takes longer to start than so many bytes of states take to pass.
inline constexpr std::size_t k_bytes_a_thread = std::size_t{2} << 20U;

DecodeKernel kernel_for(Isa isa);

inline std::size_t size(std::int64_t x) { return static_cast<std::size_t>(x); }
// To whole cache lines of floats.
inline std::size_t rounded(std::size_t x) { return (x + 15) / 16 * 16; }
inline std::size_t tokens_of(const GdnSequence& s) { return static_cast<std::size_t>(s.end - s.begin); }
// The kernels' number of tokens.
inline std::size_t padded_tokens(std::size_t tokens) { return tokens <= 2 ? tokens : tokens <= 4 ? 4 : 8; }
// Value head i of those of a key head.
inline std::size_t head_of(const GdnDims& dims, HeadMap map, std::size_t key, std::size_t i) {
    return map == HeadMap::tiled ? i * size(dims.Hk) + key : key * size(dims.Hv / dims.Hk) + i;
}

// q and k of one key head for one step, element by element: [dk][padded tokens], zeros beyond the step's tokens.
struct Keys {
    std::unique_ptr<float[]> room;           // of all of these
    float *k, *q;                            // [dk][token]
    float *rows_k, *rows_q;                  // [token][dk]; the same as k and q where there is one token
    float kk[k_decode_most][k_decode_most];  // k_j . k_t
    float kq[k_decode_most][k_decode_most];  // k_j . q_t

    Keys(std::size_t dk, std::size_t most_tokens) : room(new float[4 * rounded(dk * most_tokens)]) {
        const std::size_t one = rounded(dk * most_tokens);
        k = room.get();
        q = k + one;
        rows_k = q + one;
        rows_q = rows_k + one;
    }
};

// Tokens `row` on of one key head.
void pack(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t padded, std::size_t head, Keys& keys);

// One value head's task but for its state. `sigma`: the state is that much larger than what is stored; it takes the
// step's decay where it can (see decode_task.h). nullptr: what is stored is the state.
DecodeTask task_of(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t head, std::size_t padded,
                   const Keys& keys, double* sigma);

// One value head of a sequence.
struct Place {
    std::size_t n = 0, key = 0, head = 0;
};

// A thread's share of a step: the heads of some key heads, one after the other. Two sets of keys, because the last
// panel of a head is written during the next.
struct Share {
    const Forward32& f;
    std::size_t task, end;  // a task is a key head of a sequence
    DecodePanel unwritten;
    Keys keys[2];
    bool second = false;

    Share(const Forward32& forward, std::size_t begin, std::size_t last)
        : f(forward),
          task(begin),
          end(last),
          keys{Keys(size(f.dims.dk), most_tokens()), Keys(size(f.dims.dk), most_tokens())} {}

    std::size_t most_tokens() const {
        std::size_t most = 1;
        for (const GdnSequence& s : f.sequences) most = std::max(most, padded_tokens(tokens_of(s)));
        return most;
    }

    std::size_t key_heads() const { return size(f.dims.Hk); }
    std::size_t heads() const { return size(f.dims.Hv / f.dims.Hk); }
    std::size_t sequence() const { return task / key_heads(); }
    std::size_t key() const { return task % key_heads(); }
    std::size_t head(std::size_t i) const { return head_of(f.dims, f.head_map, key(), i); }

    // The head after head i of this task; nullopt: there is none in this share.
    std::optional<Place> after(std::size_t i) const {
        if (i + 1 < heads()) return Place{sequence(), key(), head(i + 1)};
        if (task + 1 == end) return std::nullopt;
        const std::size_t next = (task + 1) % key_heads();
        return Place{(task + 1) / key_heads(), next, head_of(f.dims, f.head_map, next, 0)};
    }

    // Rows of tokens come from afar, and little is known of them before they are here.
    void fetch_values() const {
        if (tokens_of(f.sequences[sequence()]) == 0) return;
        const std::size_t row = size(f.sequences[sequence()].begin) * size(f.dims.Hv);
        for (std::size_t i = 0; i < heads(); ++i) fetch(f.v, (row + head(i)) * size(f.dims.dv), size(f.dims.dv));
    }
    void fetch_keys(std::size_t of_task) const {
        if (of_task >= end || tokens_of(f.sequences[of_task / key_heads()]) == 0) return;
        const std::size_t row = size(f.sequences[of_task / key_heads()].begin) * key_heads() + of_task % key_heads();
        fetch(f.k, row * size(f.dims.dk), size(f.dims.dk));
        fetch(f.q, row * size(f.dims.dk), size(f.dims.dk));
    }
    static void fetch(const ConstValues& x, std::size_t at, std::size_t count) {
        const char* begin = static_cast<const char*>(x.data) + at * size_of(x.storage);
        for (std::size_t i = 0; i < count * size_of(x.storage); i += k_cache_line) __builtin_prefetch(begin + i);
    }

    Keys& other_keys() {
        second = !second;
        return keys[second ? 1 : 0];
    }
};

// Cuts a step into shares of neighbouring heads, each with a thread: run(share) for every task of one, and
// finish(share).
template <class Run, class Finish>
void for_all_shares(const Forward32& f, int threads, const Run& run, const Finish& finish) {
    const std::size_t bytes = f.sequences.size() * size(f.dims.Hv * f.dims.dk * f.dims.dv) * sizeof(float);
    const auto worth = std::min<std::size_t>(1 + bytes / k_bytes_a_thread, size(std::max(threads, 1)));
    const std::size_t tasks = f.sequences.size() * size(f.dims.Hk);
    const std::size_t parts = std::max<std::size_t>(std::min(worth, tasks), 1);
    run_tasks(parts, static_cast<int>(parts), [&] {
        return [&](std::size_t part) {
            Share share(f, tasks * part / parts, tasks * (part + 1) / parts);
            share.fetch_keys(share.task);
            for (; share.task < share.end; ++share.task) {
                share.fetch_values();
                share.fetch_keys(share.task + 1);
                run(share);
            }
            finish(share);
        };
    });
}

// Whether the states lie beyond the second-level cache.
bool worth_fetching(const Forward32& f);

}  // namespace gdnctl::oracle::decoding
