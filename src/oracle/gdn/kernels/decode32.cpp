// Decode steps: a step is split into shares of neighbouring key heads, one for each thread.
#include "oracle/gdn/kernels/decode32.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "oracle/gdn/kernels/simd/decode_task.h"
#include "oracle/simd/aligned.h"
#include "oracle/simd/tasks.h"

namespace gdnctl::oracle {

namespace {

// Passing work to a helper and waiting for it takes longer than processing this many bytes of states.
constexpr std::size_t k_bytes_a_thread = std::size_t{256} << 10U;
// Larger states exceed the second-level cache, so kernels prefetch them or read them in order.
constexpr std::size_t k_far_from = std::size_t{1} << 20U;
// Value heads per group, unless a key head has more.
constexpr std::size_t k_group_heads = 16;

std::size_t size(std::int64_t x) { return static_cast<std::size_t>(x); }
// Rounds up to whole cache lines of floats.
std::size_t rounded(std::size_t x) { return (x + 15) / 16 * 16; }
std::size_t tokens_of(const GdnSequence& s) { return static_cast<std::size_t>(s.end - s.begin); }
// The number of tokens that the kernels process.
std::size_t padded_tokens(std::size_t tokens) { return tokens <= 2 ? tokens : tokens <= 4 ? 4 : 8; }

const char* address_of(const ConstValues& x, std::size_t at) {
    return static_cast<const char*>(x.data) + at * size_of(x.storage);
}

// Whether k and q of steps with this many tokens are read from the caller's memory.
bool stays(const Forward32& f, std::size_t tokens) {
    return tokens == 1 && !f.l2norm_eps && f.k.storage == Storage::f32 && f.q.storage == Storage::f32;
}

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

// q and k of one key head for one step, element by element: [dk][padded tokens], with zeros after the step's tokens.
// For a single token they stay in the caller's memory if they are fp32 and need no normalisation.
struct alignas(k_cache_line) Keys {
    float *k_room = nullptr, *q_room = nullptr;  // [dk][token]
    float *rows_k = nullptr, *rows_q = nullptr;  // [token][dk]; identical for a single token
    const float *k = nullptr, *q = nullptr;      // [dk][token]
    float kk[k_decode_most][k_decode_most];      // [token t][source j], k_j . k_t; see DecodeFactors
    float kq[k_decode_most][k_decode_most];      // k_j . q_t

    // Packs the tokens from `row` on of one key head.
    void pack(const Forward32& f, std::size_t row, std::size_t tokens, std::size_t padded, std::size_t head,
              const DecodeKernel& kernel) {
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
        const bool one = padded == 1;
        const float* by_token_k = one ? k_room : rows_k;
        const float* by_token_q = one ? q_room : rows_q;
        if (stays(f, padded)) {
            by_token_k = k = static_cast<const float*>(f.k.data) + (row * size(f.dims.Hk) + head) * dk;
            by_token_q = q = static_cast<const float*>(f.q.data) + (row * size(f.dims.Hk) + head) * dk;
        } else {
            pack_one(f.k, one ? k_room : rows_k, k_room);
            pack_one(f.q, one ? q_room : rows_q, q_room);
            k = k_room;
            q = q_room;
        }
        for (std::size_t t = 0; t < padded; ++t) {
            if (t < tokens) {
                kernel.products(by_token_k, t + 1, dk, by_token_k + t * dk, by_token_q + t * dk, kk[t], kq[t]);
                kk[t][t] = 0;
            } else {
                std::fill_n(kk[t], t + 1, 0.0F);
                std::fill_n(kq[t], t + 1, 0.0F);
            }
        }
    }
};

void set_factors(const Forward32& f, std::size_t row, std::size_t head, const Keys& keys, DecodeTask& task) {
    double alpha[k_decode_most];
    double product = 1;  // a_t
    const auto narrow = [](double x) { return static_cast<float>(x); };
    for (std::size_t t = 0; t < task.padded; ++t) {
        DecodeFactors& to = task.factors[t];
        const bool there = t < task.tokens;
        const std::size_t at = (row + t) * size(f.dims.Hv) + head;
        alpha[t] = there ? std::exp(static_cast<double>(f.g[at])) : 1;
        to.beta = there ? f.beta[at] : 0;
        product *= alpha[t];
        to.from_state = narrow(-static_cast<double>(to.beta) * product);
        to.out_state = narrow(static_cast<double>(f.scale) * product);
        double between = 1;  // A_tj
        for (std::size_t j = t + 1; j-- > 0;) {
            to.in_d[j] = narrow(-static_cast<double>(to.beta) * between * static_cast<double>(keys.kk[t][j]));
            to.in_o[j] = narrow(static_cast<double>(f.scale) * between * static_cast<double>(keys.kq[t][j]));
            between *= alpha[j];
        }
    }
    task.decay = narrow(product);
    double after = 1;
    for (std::size_t t = task.padded; t-- > 0;) {
        task.factors[t].later = narrow(after);
        after *= alpha[t];
    }
}

// A thread's share of a step: several key heads of sequences, one after the other. The inputs of a sweep are computed
// for a group of them at once, while code and constants for that are in the nearest cache; streaming a state evicts
// them. It has two sets of keys, because the last panel of a head is written during the next.
class alignas(k_cache_line) Share {
public:
    // `zeros` is a state.
    Share(const Forward32& forward, const DecodeKernel& kernel, const float* zeros, std::size_t begin, std::size_t end)
        : m_f(forward),
          m_kernel(kernel),
          m_zeros(zeros),
          m_next(begin),
          m_end(end),
          m_group(std::min(std::max<std::size_t>(k_group_heads / heads(), 1), end - begin)),
          m_far(forward.sequences.size() * size(forward.dims.Hv) * state() * sizeof(float) > k_far_from),
          m_keys(2 * m_group),
          m_tasks(m_group * heads()) {
        std::size_t most = 1;
        for (const GdnSequence& s : forward.sequences) most = std::max(most, padded_tokens(tokens_of(s)));
        const std::size_t one = stays(forward, most) ? 0 : rounded(size(forward.dims.dk) * most);
        m_rows.resize(m_keys.size() * 4 * one);
        float* next = m_rows.data();
        for (Keys& keys : m_keys) {
            for (float** rows : {&keys.k_room, &keys.q_room, &keys.rows_k, &keys.rows_q}) {
                *rows = next;
                next += one;
            }
        }
    }

    // Whether no other thread has taken it.
    bool take() { return !std::atomic_ref(m_taken).exchange(true); }

    void run() {
        for (std::size_t i = 0; i < m_group; ++i) fetch_keys(m_next + i);
        DecodePanel unwritten;
        while (prepare_group()) m_kernel.in_place(m_tasks.data(), m_count, unwritten);
        m_kernel.finish(unwritten);
    }

private:
    std::size_t key_heads() const { return size(m_f.dims.Hk); }
    std::size_t heads() const { return size(m_f.dims.Hv / m_f.dims.Hk); }
    std::size_t state() const { return size(m_f.dims.dk * m_f.dims.dv); }
    const GdnSequence& sequence(std::size_t key_head) const { return m_f.sequences[key_head / key_heads()]; }
    // Value head i of a key head.
    std::size_t head_of(std::size_t key_head, std::size_t i) const {
        const std::size_t key = key_head % key_heads();
        return m_f.head_map == HeadMap::tiled ? i * key_heads() + key : key * heads() + i;
    }
    std::size_t state_at(std::size_t key_head, std::size_t i) const {
        return (key_head / key_heads() * size(m_f.dims.Hv) + head_of(key_head, i)) * state();
    }
    const float* state_before(std::size_t key_head, std::size_t i) const {
        return m_f.initial_state == nullptr ? m_zeros : m_f.initial_state + state_at(key_head, i);
    }
    std::size_t keys_at(std::size_t key_head) const {
        return (size(sequence(key_head).begin) * key_heads() + key_head % key_heads()) * size(m_f.dims.dk);
    }

    bool prepare_group();
    void set_task(std::size_t key_head, std::size_t i, const Keys& keys, DecodeTask& task) const;
    void fetch_keys(std::size_t key_head) const;
    void fetch_keys_beside(DecodeTask& task, std::size_t key_head) const;

    const Forward32& m_f;
    const DecodeKernel& m_kernel;
    const float* m_zeros;
    std::size_t m_next, m_end;  // key heads not yet processed
    std::size_t m_group;        // key heads per group
    bool m_far;                 // whether the states exceed the second-level cache
    bool m_second = false;      // which set of keys is next
    bool m_taken = false;
    std::size_t m_count = 0;  // tasks of the current group
    std::vector<Keys> m_keys;
    std::vector<DecodeTask> m_tasks;
    std::vector<float> m_rows;
};

// Prepares the next group; false: there is none.
bool Share::prepare_group() {
    m_count = 0;
    const std::size_t first = m_next;
    m_next = std::min(m_end, first + m_group);
    Keys* all = m_keys.data() + (m_second ? m_group : 0);
    bool any = false;
    for (std::size_t key_head = first; key_head < m_next; ++key_head) {
        Keys& keys = all[key_head - first];
        const std::size_t tokens = tokens_of(sequence(key_head));
        const std::size_t padded = padded_tokens(tokens);
        if (tokens > 0) {
            any = true;
            keys.pack(m_f, size(sequence(key_head).begin), tokens, padded, key_head % key_heads(), m_kernel);
        }
        for (std::size_t i = 0; i < heads(); ++i) {
            DecodeTask& task = m_tasks[m_count++];
            task.tokens = tokens;
            task.padded = padded;
            set_task(key_head, i, keys, task);
        }
    }
    for (std::size_t i = 0; i < m_count; ++i) {
        DecodeTask& task = m_tasks[i];
        task.far = m_far;
        task.next = m_far && i + 1 < m_count ? m_tasks[i + 1].read : nullptr;
        for (std::size_t& bytes : task.soon_bytes) bytes = 0;
        const std::size_t later = m_next + i / heads();
        if (i % heads() == 0 && later < m_end && tokens_of(sequence(later)) > 0) fetch_keys_beside(task, later);
    }
    if (m_far && m_count > 0 && m_next < m_end) m_tasks[m_count - 1].next = state_before(m_next, 0);
    // A group without tokens writes nothing, and the unwritten panel still needs the keys of the previous group.
    if (any) m_second = !m_second;
    return m_count > 0;
}

void Share::set_task(std::size_t key_head, std::size_t i, const Keys& keys, DecodeTask& task) const {
    task.read = state_before(key_head, i);
    task.write = m_f.final_state + state_at(key_head, i);
    if (task.padded == 0) {
        if (task.read != task.write) std::copy_n(task.read, state(), task.write);
        return;
    }
    const std::size_t dv = size(m_f.dims.dv);
    const std::size_t row = size(sequence(key_head).begin);
    const std::size_t head = head_of(key_head, i);
    const std::size_t at = (row * size(m_f.dims.Hv) + head) * dv;
    task.v = m_f.v + at;
    task.out = m_f.out + at;
    task.value_stride = size(m_f.dims.Hv) * dv;
    task.dk = size(m_f.dims.dk);
    task.columns = dv;
    task.k = keys.k;
    task.q = keys.q;
    set_factors(m_f, row, head, keys, task);
}

// Rows of tokens come from main memory, and the processor cannot predict them.
void Share::fetch_keys(std::size_t key_head) const {
    if (tokens_of(sequence(key_head)) == 0) return;
    for (const ConstValues& x : {m_f.k, m_f.q}) {
        const char* from = address_of(x, keys_at(key_head));
        const std::size_t bytes = size(m_f.dims.dk) * size_of(x.storage);
        for (std::size_t i = 0; i < bytes; i += k_cache_line) __builtin_prefetch(from + i);
    }
}

// Prefetches the keys of the next group, one key head during each first value head of this group.
void Share::fetch_keys_beside(DecodeTask& task, std::size_t key_head) const {
    std::size_t i = 0;
    for (const ConstValues& x : {m_f.k, m_f.q}) {
        task.soon[i] = address_of(x, keys_at(key_head));
        task.soon_bytes[i++] = size(m_f.dims.dk) * size_of(x.storage);
    }
}

DecodeKernel kernel_for(Isa isa) {
    switch (isa) {
        case Isa::avx512: return decode_avx512();
        case Isa::avx2: return decode_avx2();
        case Isa::scalar: break;
    }
    return decode_scalar();
}

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
    const std::vector<float> zeros(f.initial_state == nullptr ? size(f.dims.dk * f.dims.dv) : 0);
    const std::size_t tasks = f.sequences.size() * size(f.dims.Hk);
    const int used = decode_threads(f.dims, f.sequences.size(), threads);
    const std::size_t parts = size(used);
    // They allocate their memory before anything is changed, because that could fail.
    std::vector<Share> shares;
    shares.reserve(parts);
    for (std::size_t part = 0; part < parts; ++part)
        shares.emplace_back(f, kernel, zeros.data(), tasks * part / parts, tasks * (part + 1) / parts);
    run_tasks(parts, used, [&] {
        return [&](std::size_t) {
            // If a step uses all helpers, each takes its share of the last step, whose states are in its caches.
            std::size_t part = Helpers::number() % parts;
            while (!shares[part].take()) part = (part + 1) % parts;
            shares[part].run();
        };
    });
}

}  // namespace gdnctl::oracle
