// Memory aligned to cache lines, for scratch and for outputs that are written with streaming stores.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace gdnctl::oracle {

inline constexpr std::size_t k_cache_line = 64;

struct AlignedDelete {
    void operator()(void* p) const { ::operator delete[](p, std::align_val_t(k_cache_line)); }
};

template <class Real>
using Aligned = std::unique_ptr<Real[], AlignedDelete>;
using AlignedFloats = Aligned<float>;

// Not initialised.
template <class Real>
Aligned<Real> aligned(std::size_t count) {
    return Aligned<Real>(static_cast<Real*>(::operator new[](count * sizeof(Real), std::align_val_t(k_cache_line))));
}
inline AlignedFloats aligned_floats(std::size_t count) { return aligned<float>(count); }

}  // namespace gdnctl::oracle
