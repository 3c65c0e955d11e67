// Tensors in the caller's memory: fp32 or bf16. Kernels compute in fp32 either way: bf16 is widened on load and rounded
// to nearest even on store, without copying the tensor.
//
// The kernels of each instruction set read these structs, but must not call their functions (see simd/vector.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace gdnctl::oracle {

// The upper half of an fp32.
enum class Bf16 : std::uint16_t {};

enum class Storage : std::uint8_t { f32, bf16 };

// Read-only.
struct ConstValues {
    const void* data = nullptr;
    Storage storage = Storage::f32;

    ConstValues() = default;
    ConstValues(const float* values) : data(values) {}
    ConstValues(const Bf16* values) : data(values), storage(Storage::bf16) {}
};

struct Values {
    void* data = nullptr;
    Storage storage = Storage::f32;

    Values() = default;
    Values(float* values) : data(values) {}
    Values(Bf16* values) : data(values), storage(Storage::bf16) {}
};

std::size_t size_of(Storage storage);  // bytes of an element

// The same tensor from element n on.
ConstValues operator+(const ConstValues& values, std::size_t n);
Values operator+(const Values& values, std::size_t n);

float widened(Bf16 x);
// To nearest even; overflow gives infinity, NaN stays NaN.
Bf16 narrowed(float x);
// To nearest even with the 10 mantissa bits of tf32; infinity and NaN stay.
float rounded_to_tf32(float x);

// Elements [at, at + count) as fp32.
void widen(const ConstValues& from, std::size_t at, std::size_t count, float* to);

}  // namespace gdnctl::oracle
