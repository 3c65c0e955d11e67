// Vectors as the compiler knows them. Only files of this folder include it: each is compiled for one instruction set,
// so nothing here or in the bodies may be an inline function with a name that another file could share (the linker
// keeps one copy of such a function, perhaps the one with the wrong instructions). Hence the unnamed namespaces, and no
// standard library.
#pragma once

#include <cstddef>

namespace gdnctl::oracle {
namespace {

template <class Real, int Bytes>
struct VectorOf {
    typedef Real type __attribute__((vector_size(Bytes)));
    typedef Real unaligned __attribute__((vector_size(Bytes), aligned(sizeof(Real)), may_alias));
    static constexpr std::size_t k_lanes = Bytes / sizeof(Real);
};

// Any address; aligned ones cost nothing extra.
template <class Real, int Bytes>
inline typename VectorOf<Real, Bytes>::type load(const Real* from) {
    return *reinterpret_cast<const typename VectorOf<Real, Bytes>::unaligned*>(from);
}

template <class Real, int Bytes>
inline void store(Real* to, typename VectorOf<Real, Bytes>::type x) {
    *reinterpret_cast<typename VectorOf<Real, Bytes>::unaligned*>(to) = x;
}

}  // namespace
}  // namespace gdnctl::oracle
