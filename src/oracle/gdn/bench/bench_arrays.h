// The arrays of BenchInputs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/decode32.h"
#include "oracle/simd/aligned.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// One of the two is empty.
struct BenchArray {
    Storage storage = Storage::f32;
    AlignedFloats values;
    Aligned<Bf16> narrow;
    std::size_t size = 0;

    explicit BenchArray(std::size_t count = 0, Storage stored = Storage::f32)
        : storage(stored),
          values(aligned_floats(stored == Storage::f32 ? count : 0)),
          narrow(aligned<Bf16>(stored == Storage::bf16 ? count : 0)),
          size(count) {}
    BenchArray(const Tensor& tensor, Storage stored) : BenchArray(tensor.count(), stored) {
        for (std::size_t i = 0; i < size; ++i) set(i, static_cast<float>(element(tensor, i)));
    }

    Values stored() const { return storage == Storage::f32 ? Values(values.get()) : Values(narrow.get()); }
    ConstValues read() const { return storage == Storage::f32 ? ConstValues(values.get()) : ConstValues(narrow.get()); }
    DType dtype() const { return storage == Storage::f32 ? DType::f32 : DType::bf16; }
    const void* data() const { return read().data; }
    float at(std::size_t i) const { return storage == Storage::f32 ? values[i] : widened(narrow[i]); }
    void set(std::size_t i, float x) {
        if (storage == Storage::f32) {
            values[i] = x;
        } else {
            narrow[i] = narrowed(x);
        }
    }
    Tensor tensor(Shape shape) const {
        Tensor t{dtype(), std::move(shape), std::vector<std::uint8_t>(size * size_of(dtype()))};
        if (size > 0) std::memcpy(t.bytes.data(), data(), t.bytes.size());
        return t;
    }
    std::vector<double> wide() const {
        std::vector<double> result(size);
        for (std::size_t i = 0; i < size; ++i) result[i] = static_cast<double>(at(i));
        return result;
    }
};

// The larger of two errors (root mean square, and of a single value), in units of the difference that two correct
// results may have; infinity if a value is not finite or the size differs. The storage of `want` determines the unit.
double distance_of(const Tensor* got, const BenchArray& want);

struct BenchInputs::Arrays {
    TensorFile file;
    GdnDims dims;
    std::vector<GdnSequence> sequences;
    BenchArray q, k, v, g, beta, initial_state, out, final_state;
    // For a backward pass; made on first use.
    GdnCotangents cotangents;
    bool saved = false;  // by the forward, from these inputs
    BenchArray u, states, d_out, d_state, dq, dk, dv, dg, dbeta, d_initial_state;
    // The same for decoding.
    std::vector<std::vector<GdnSequence>> steps;  // one token of each row
    BenchArray scaled;

    void make_cotangents();
    std::vector<BenchArray*> gradients() { return {&dq, &dk, &dv, &dg, &dbeta, &d_initial_state}; }
};

}  // namespace gdnctl::oracle
