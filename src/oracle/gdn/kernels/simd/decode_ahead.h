// Prefetches what later heads of a decode step need during the sweep of the current one.
#pragma once

#include "oracle/gdn/kernels/simd/decode_task.h"
#include "oracle/simd/stored.h"

namespace gdnctl::oracle {
namespace {

// Prefetches the next task's state to the second-level cache, as many lines at a time as a row of the current one has.
// The processor's own prefetching ends at each page.
class DecodeAhead {
public:
    // Does nothing.
    DecodeAhead() = default;
    explicit DecodeAhead(const DecodeTask& task)
        : m_at(reinterpret_cast<const char*>(task.next)),
          m_end(task.next == nullptr ? m_at : m_at + task.dk * task.state_stride * sizeof(float)) {}

    bool done() const { return m_at == m_end; }

    template <std::size_t Size>
    __attribute__((always_inline)) void fetch() {
        if (m_at == m_end) return;
        constexpr std::size_t k_line = 64;
        for (std::size_t i = 0; i < Size; i += k_line) __builtin_prefetch(m_at + i, 0, 2);
        m_at += Size > k_line ? Size : k_line;
        if (m_at > m_end) m_at = m_end;
    }

private:
    const char* m_at = nullptr;
    const char* m_end = nullptr;
};

inline void decode_fetch(const char* from, std::size_t bytes) {
    constexpr std::size_t k_line = 64;
    for (std::size_t i = 0; i < bytes; i += k_line) __builtin_prefetch(from + i, 0, 2);
}

// Rows of tokens come from main memory: v and out of the next task, and what this task lists for prefetching.
inline void decode_fetch_tokens(const DecodeTask& task, const DecodeTask* next) {
    if (next != nullptr && next->padded > 0) {
        decode_fetch(address_of(next->v, 0), next->columns * element_size(next->v.storage));
        decode_fetch(static_cast<const char*>(next->out.data), next->columns * element_size(next->out.storage));
    }
    for (std::size_t i = 0; i < 3; ++i) decode_fetch(static_cast<const char*>(task.soon[i]), task.soon_bytes[i]);
}

// Calls sweep(task, ahead) for all tasks that are not empty.
template <class Sweep>
__attribute__((always_inline)) inline void decode_all(const DecodeTask* tasks, std::size_t count, const Sweep& sweep) {
    for (std::size_t i = 0; i < count; ++i) {
        const DecodeTask& task = tasks[i];
        if (task.padded == 0) continue;
        DecodeAhead ahead(task);
        decode_fetch_tokens(task, i + 1 < count ? &tasks[i + 1] : nullptr);
        sweep(task, ahead);
    }
}

}  // namespace
}  // namespace gdnctl::oracle
