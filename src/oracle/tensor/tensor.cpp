#include "oracle/tensor/tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace gdnctl::oracle {

namespace {

struct DTypeRow {
    DType dtype;
    std::size_t size;
    std::string_view name;
    bool floating;
};

constexpr DTypeRow k_dtypes[] = {
    {DType::f64, 8, "float64", true},   {DType::f32, 4, "float32", true}, {DType::f16, 2, "float16", true},
    {DType::bf16, 2, "bfloat16", true}, {DType::i64, 8, "int64", false},  {DType::i32, 4, "int32", false},
    {DType::i16, 2, "int16", false},    {DType::i8, 1, "int8", false},    {DType::u64, 8, "uint64", false},
    {DType::u32, 4, "uint32", false},   {DType::u16, 2, "uint16", false}, {DType::u8, 1, "uint8", false},
    {DType::boolean, 1, "bool", false},
};

const DTypeRow& row_of(DType dtype) { return k_dtypes[static_cast<std::size_t>(dtype)]; }

// A 16-bit IEEE-like format: f16 has 5 exponent and 10 fraction bits, bf16 has 8 and 7.
struct SmallFormat {
    int exponent_bits;
    int fraction_bits;
};
constexpr SmallFormat k_f16{5, 10};
constexpr SmallFormat k_bf16{8, 7};

// Rounds to nearest even directly from fp64, so that no value is rounded twice.
std::uint16_t encode_small(double x, SmallFormat f) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const std::uint32_t infinity = ((1U << f.exponent_bits) - 1U) << f.fraction_bits;
    const std::uint32_t sign = std::signbit(x) ? 0x8000U : 0U;
    if (std::isnan(x)) return static_cast<std::uint16_t>(sign | infinity | (1U << (f.fraction_bits - 1)));
    const double magnitude = std::fabs(x);
    if (std::isinf(x)) return static_cast<std::uint16_t>(sign | infinity);
    if (magnitude == 0) return static_cast<std::uint16_t>(sign);
    int exponent = 0;
    (void)std::frexp(magnitude, &exponent);
    exponent -= 1;  // magnitude is in [2^exponent, 2^(exponent+1))
    if (exponent > bias) return static_cast<std::uint16_t>(sign | infinity);
    const int lowest = 1 - bias;
    const bool subnormal = exponent < lowest;
    const double in_units = std::ldexp(magnitude, f.fraction_bits - (subnormal ? lowest : exponent));
    auto bits = static_cast<std::uint32_t>(std::nearbyint(in_units));
    // A carry out of the fraction increments the exponent, up to infinity, which is the correct result.
    if (!subnormal) bits += static_cast<std::uint32_t>(exponent + bias - 1) << f.fraction_bits;
    return static_cast<std::uint16_t>(sign | bits);
}

double decode_small(std::uint16_t bits, SmallFormat f) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const int field = (bits & 0x7FFF) >> f.fraction_bits;
    const int fraction = bits & ((1 << f.fraction_bits) - 1);
    if (field != 0 && field != (1 << f.exponent_bits) - 1) {
        const std::uint64_t sign = static_cast<std::uint64_t>(bits & 0x8000U) << 48U;
        const std::uint64_t exponent = static_cast<std::uint64_t>(field - bias + 1023) << 52U;
        const auto shift = static_cast<unsigned>(52 - f.fraction_bits);
        return std::bit_cast<double>(sign | exponent | (static_cast<std::uint64_t>(fraction) << shift));
    }
    double magnitude = 0;
    if (field == 0) {
        magnitude = std::ldexp(fraction, 1 - bias - f.fraction_bits);
    } else {
        magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// For normal values, rounding means dropping bits of the double. A carry into the exponent is correct.
double rounded_small(double x, SmallFormat f) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const int exponent = static_cast<int>((bits >> 52U) & 0x7FFU) - 1023;
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    if (exponent < 1 - bias || exponent >= bias) return decode_small(encode_small(x, f), f);
    const auto dropped = static_cast<unsigned>(52 - f.fraction_bits);
    const std::uint64_t to_even = (std::uint64_t{1} << (dropped - 1)) - 1 + ((bits >> dropped) & 1U);
    return std::bit_cast<double>(((bits + to_even) >> dropped) << dropped);
}

template <class T>
T load(const std::uint8_t* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <class T>
void store(std::uint8_t* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

template <class T>
T saturated(double x) {
    if (std::isnan(x)) return 0;
    if (x >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    if (x <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(std::nearbyint(x));
}

void store_element(std::uint8_t* at, DType dtype, double x) {
    switch (dtype) {
        case DType::f64: store(at, x); break;
        case DType::f32: store(at, static_cast<float>(x)); break;
        case DType::f16: store(at, encode_small(x, k_f16)); break;
        case DType::bf16: store(at, encode_small(x, k_bf16)); break;
        case DType::i64: store(at, saturated<std::int64_t>(x)); break;
        case DType::i32: store(at, saturated<std::int32_t>(x)); break;
        case DType::i16: store(at, saturated<std::int16_t>(x)); break;
        case DType::i8: store(at, saturated<std::int8_t>(x)); break;
        case DType::u64: store(at, saturated<std::uint64_t>(x)); break;
        case DType::u32: store(at, saturated<std::uint32_t>(x)); break;
        case DType::u16: store(at, saturated<std::uint16_t>(x)); break;
        case DType::u8: store(at, saturated<std::uint8_t>(x)); break;
        case DType::boolean: store(at, static_cast<std::uint8_t>(x != 0 ? 1 : 0)); break;
    }
}

// Maps the finite values of a format to consecutive integers; -0 and +0 are both 0.
std::int64_t position(double x, DType dtype) {
    std::int64_t magnitude = 0;
    switch (dtype) {
        case DType::f64: magnitude = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(std::fabs(x))); break;
        case DType::f16: magnitude = encode_small(std::fabs(x), k_f16); break;
        case DType::bf16: magnitude = encode_small(std::fabs(x), k_bf16); break;
        default: magnitude = std::bit_cast<std::uint32_t>(static_cast<float>(std::fabs(x))); break;
    }
    return std::signbit(x) ? -magnitude : magnitude;
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "tensor bytes are used in place");

std::size_t size_of(DType dtype) { return row_of(dtype).size; }
std::string_view name_of(DType dtype) { return row_of(dtype).name; }
bool is_floating(DType dtype) { return row_of(dtype).floating; }
bool is_integer(DType dtype) { return !is_floating(dtype) && dtype != DType::boolean; }

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

std::optional<std::size_t> element_count(const Shape& shape) {
    std::size_t count = 1;
    for (const std::int64_t n : shape) {
        if (n < 0) return std::nullopt;
        const auto dimension = static_cast<std::size_t>(n);
        if (dimension != 0 && count > (std::numeric_limits<std::size_t>::max() / 16) / dimension) return std::nullopt;
        count *= dimension;
    }
    return count;
}

double element(const Tensor& tensor, std::size_t i) {
    const std::uint8_t* at = tensor.bytes.data() + i * size_of(tensor.dtype);
    switch (tensor.dtype) {
        case DType::f64: return load<double>(at);
        case DType::f32: return static_cast<double>(load<float>(at));
        case DType::f16: return decode_small(load<std::uint16_t>(at), k_f16);
        case DType::bf16: return decode_small(load<std::uint16_t>(at), k_bf16);
        case DType::i64: return static_cast<double>(load<std::int64_t>(at));
        case DType::i32: return load<std::int32_t>(at);
        case DType::i16: return load<std::int16_t>(at);
        case DType::i8: return load<std::int8_t>(at);
        case DType::u64: return static_cast<double>(load<std::uint64_t>(at));
        case DType::u32: return load<std::uint32_t>(at);
        case DType::u16: return load<std::uint16_t>(at);
        case DType::u8: return *at;
        case DType::boolean: return *at != 0 ? 1 : 0;
    }
    return 0;
}

std::vector<double> to_f64(const Tensor& tensor) {
    std::vector<double> values(tensor.count());
    const std::uint8_t* bytes = tensor.bytes.data();
    const auto convert = [&](std::size_t size, const auto& decoded) {
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = decoded(bytes + i * size);
    };
    switch (tensor.dtype) {
        case DType::f32: convert(4, [](const auto* at) { return static_cast<double>(load<float>(at)); }); break;
        case DType::f16: convert(2, [](const auto* at) { return decode_small(load<std::uint16_t>(at), k_f16); }); break;
        case DType::bf16:
            convert(2, [](const auto* at) { return decode_small(load<std::uint16_t>(at), k_bf16); });
            break;
        default:
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(tensor, i);
            break;
    }
    return values;
}

std::vector<std::int64_t> to_i64(const Tensor& tensor) {
    constexpr auto k_most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::vector<std::int64_t> values(tensor.count());
    for (std::size_t i = 0; i < values.size(); ++i) {
        switch (tensor.dtype) {
            case DType::i64: values[i] = load<std::int64_t>(tensor.bytes.data() + i * 8); break;
            case DType::u64:
                values[i] =
                    static_cast<std::int64_t>(std::min(load<std::uint64_t>(tensor.bytes.data() + i * 8), k_most));
                break;
            default: values[i] = static_cast<std::int64_t>(element(tensor, i)); break;
        }
    }
    return values;
}

Tensor from_f64(std::span<const double> values, Shape shape, DType dtype) {
    Tensor tensor{dtype, std::move(shape), std::vector<std::uint8_t>(values.size() * size_of(dtype))};
    for (std::size_t i = 0; i < values.size(); ++i) {
        store_element(tensor.bytes.data() + i * size_of(dtype), dtype, values[i]);
    }
    return tensor;
}

Tensor from_i64(std::span<const std::int64_t> values, Shape shape) {
    Tensor tensor{DType::i64, std::move(shape), std::vector<std::uint8_t>(values.size() * 8)};
    if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
    return tensor;
}

double rounded_to(double x, DType dtype) {
    switch (dtype) {
        case DType::f64: return x;
        case DType::f32: return static_cast<double>(static_cast<float>(x));
        case DType::f16: return rounded_small(x, k_f16);
        case DType::bf16: return rounded_small(x, k_bf16);
        default: return std::nearbyint(x);
    }
}

double ulp_distance(double a, double b, DType dtype) {
    return std::fabs(static_cast<double>(position(a, dtype)) - static_cast<double>(position(b, dtype)));
}

const Tensor* TensorFile::find(std::string_view name) const {
    for (const NamedTensor& entry : tensors) {
        if (entry.name == name) return &entry.tensor;
    }
    return nullptr;
}

}  // namespace gdnctl::oracle
