#include "oracle/tensor/tensor.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

using namespace gdnctl::oracle;

TEST_CASE("tensor: bf16 rounds to nearest, ties to even") {
    CHECK(rounded_to(1.0 + 1.0 / 256, DType::bf16) == 1.0);                      // tie, even below
    CHECK(rounded_to(1.0 + 3.0 / 256, DType::bf16) == 1.0 + 4.0 / 256);          // tie, even above
    CHECK(rounded_to(1.0 + 1.0 / 256 + 1e-12, DType::bf16) == 1.0 + 1.0 / 128);  // fp32 first would round this down
    CHECK(std::isinf(rounded_to(3.4e38, DType::bf16)));
    CHECK(rounded_to(1e-45, DType::bf16) == 0);
    CHECK(rounded_to(std::ldexp(1.0, -133), DType::bf16) == std::ldexp(1.0, -133));  // smallest subnormal
    CHECK(std::signbit(rounded_to(-0.0, DType::bf16)));
}

TEST_CASE("tensor: f16 rounds to nearest, ties to even, with subnormals and overflow") {
    CHECK(rounded_to(65504, DType::f16) == 65504);
    CHECK(rounded_to(65519.9, DType::f16) == 65504);
    CHECK(std::isinf(rounded_to(65520, DType::f16)));
    CHECK(rounded_to(std::ldexp(1.0, -24), DType::f16) == std::ldexp(1.0, -24));
    CHECK(rounded_to(std::ldexp(1.0, -25), DType::f16) == 0);  // tie, to even
    CHECK(rounded_to(std::ldexp(1.5, -25), DType::f16) == std::ldexp(1.0, -24));
    CHECK(rounded_to(1.0 + 1.0 / 2048, DType::f16) == 1.0);
}

TEST_CASE("tensor: every 16-bit pattern survives a round trip") {
    for (const DType dtype : {DType::f16, DType::bf16}) {
        int wrong = 0;
        for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
            const Tensor t{dtype, {1}, {static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(bits >> 8U)}};
            const double value = element(t, 0);
            const Tensor again = from_f64(std::vector<double>{value}, {1}, dtype);
            if (std::isnan(value) ? !std::isnan(element(again, 0)) : again.bytes != t.bytes) ++wrong;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("tensor: integers saturate and booleans are 0 or 1") {
    const std::vector<double> values = {-1e20, -1.5, 2.5, 300, 1e20};
    CHECK(to_f64(from_f64(values, {5}, DType::i8)) == std::vector<double>{-128, -2, 2, 127, 127});
    CHECK(to_f64(from_f64(values, {5}, DType::u8)) == std::vector<double>{0, 0, 2, 255, 255});
    CHECK(to_f64(from_f64(values, {5}, DType::u16)) == std::vector<double>{0, 0, 2, 300, 65535});
    CHECK(to_f64(from_f64(values, {5}, DType::u32)) == std::vector<double>{0, 0, 2, 300, 4294967295});
    CHECK(to_f64(from_f64(values, {5}, DType::u64))[4] > 1e9);
    CHECK(to_f64(from_f64(values, {5}, DType::boolean)) == std::vector<double>{1, 1, 1, 1, 1});
    CHECK(to_i64(from_f64(values, {5}, DType::i32)) ==
          std::vector<std::int64_t>{std::numeric_limits<std::int32_t>::min(), -2, 2, 300,
                                    std::numeric_limits<std::int32_t>::max()});
}

TEST_CASE("tensor: ULP distance in the output's dtype") {
    CHECK(ulp_distance(1.0, 1.0 + 1.0 / 128, DType::bf16) == 1);
    CHECK(ulp_distance(1.0, 1.0 + 1.0 / 128, DType::f32) == 65536);
    CHECK(ulp_distance(0.0, -0.0, DType::f32) == 0);
    CHECK(ulp_distance(std::ldexp(1.0, -149), -std::ldexp(1.0, -149), DType::f32) == 2);
}

TEST_CASE("tensor: element counts do not overflow") {
    CHECK(element_count({}) == 1);
    CHECK(element_count({2, 0, 5}) == 0);
    CHECK_FALSE(element_count({std::int64_t{1} << 40, std::int64_t{1} << 40}));
    CHECK_FALSE(element_count({-1}));
    CHECK(text_of({2, 57, 3, 8}) == "[2,57,3,8]");
    CHECK(text_of({}) == "[]");
}
