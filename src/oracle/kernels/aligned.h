// Memory that begins at a cache line, for scratch and for outputs that are written past the caches.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace gdnctl::oracle {

inline constexpr std::size_t k_cache_line = 64;

struct AlignedDelete {
    void operator()(float* p) const { ::operator delete[](p, std::align_val_t(k_cache_line)); }
};

using AlignedFloats = std::unique_ptr<float[], AlignedDelete>;

// Not initialised.
inline AlignedFloats aligned_floats(std::size_t count) {
    return AlignedFloats(static_cast<float*>(::operator new[](count * sizeof(float), std::align_val_t(k_cache_line))));
}

}  // namespace gdnctl::oracle
