// Tensors as the oracle sees them: a dtype, a shape and little-endian row-major bytes, plus the files that hold them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace gdnctl::oracle {

enum class DType { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);  // "float32", "bfloat16", "int64", "bool"
bool is_floating(DType dtype);
bool is_integer(DType dtype);  // signed or unsigned; not bool

using Shape = std::vector<std::int64_t>;

std::string text_of(const Shape& shape);  // "[2,57,3,8]"; a scalar is "[]"
// Product of the dimensions (1 for a scalar); nullopt: it does not fit, or a dimension is negative.
std::optional<std::size_t> element_count(const Shape& shape);

struct Tensor {
    DType dtype = DType::f32;
    Shape shape;
    std::vector<std::uint8_t> bytes;  // element_count(shape) * size_of(dtype), little-endian, row-major

    std::size_t count() const { return bytes.size() / size_of(dtype); }
};

// Element i as fp64: exact for every dtype except 64-bit integers beyond 2^53.
double element(const Tensor& tensor, std::size_t i);
std::vector<double> to_f64(const Tensor& tensor);
// Integer dtypes only; u64 values beyond int64 are clamped to its maximum.
std::vector<std::int64_t> to_i64(const Tensor& tensor);
// Rounds once, to nearest even; overflow gives infinity, NaN stays NaN. Integers saturate.
// values.size() must equal the element count of `shape`.
Tensor from_f64(std::span<const double> values, Shape shape, DType dtype);
Tensor from_i64(std::span<const std::int64_t> values, Shape shape);

// The nearest value to x (ties to even) that `dtype` can represent.
double rounded_to(double x, DType dtype);
// The distance between two finite values in representable values of a floating-point `dtype`, after rounding both to
// it.
double ulp_distance(double a, double b, DType dtype);

struct NamedTensor {
    std::string name;
    Tensor tensor;
};

// A tensor of an unsupported dtype, whose data was not read.
struct UnreadTensor {
    std::string name;
    std::string dtype;  // as spelled in the file: "F8_E4M3", "<U5", "structured"

    bool operator==(const UnreadTensor&) const = default;
};

// The contents of a .safetensors or .npz file, or of one .npy.
struct TensorFile {
    std::vector<NamedTensor> tensors;             // in file order
    std::vector<UnreadTensor> unread;             // in file order
    std::map<std::string, std::string> metadata;  // safetensors' __metadata__; empty for the NumPy formats
    std::vector<std::string> notes;               // assumptions of the reader, for people

    const Tensor* find(std::string_view name) const;
    // Whether `predicate` is true for the name of some tensor, read or not.
    template <class Predicate>
    bool any_name(const Predicate& predicate) const {
        const auto of = [&](const auto& entry) { return predicate(std::string_view(entry.name)); };
        return std::any_of(tensors.begin(), tensors.end(), of) || std::any_of(unread.begin(), unread.end(), of);
    }
};

}  // namespace gdnctl::oracle
