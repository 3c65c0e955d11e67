#include <cstring>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "oracle/tensor/formats.h"
#include "unit/oracle/bytes.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

std::string npy_refusal(const Bytes& bytes) {
    const auto array = parse_npy(bytes, "F");
    if (array) return {};
    CHECK(array.error().kind == ErrorKind::bad_input);
    return array.error().message;
}

Bytes f32_bytes(const std::vector<float>& values) {
    Bytes bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

std::string header(std::string_view descr, std::string_view order, std::string_view shape) {
    return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(order) +
           ", 'shape': " + std::string(shape) + ", }";
}

}  // namespace

TEST_CASE("npy: what is written is read back, byte for byte, for every dtype") {
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::i16,
                              DType::i8, DType::u64, DType::u32, DType::u16, DType::u8, DType::boolean}) {
        for (const Shape& shape : {Shape{6}, Shape{2, 3}, Shape{1, 2, 3}}) {
            const Tensor tensor = from_f64(std::vector<double>{0, 1, 2, 3, 4, 5}, shape, dtype);
            const Bytes bytes = serialize_npy(tensor);
            CHECK((bytes.size() - tensor.bytes.size()) % 64 == 0);
            const auto again = parse_npy(bytes, "F");
            REQUIRE(again);
            CHECK(again->tensor.dtype == dtype);
            CHECK(again->tensor.shape == shape);
            CHECK(again->tensor.bytes == tensor.bytes);
            CHECK(again->bf16_assumed == (dtype == DType::bf16));
        }
    }
}

TEST_CASE("npy: scalar and zero-size shapes, versions 1 to 3, Python 2's long integers") {
    CHECK(parse_npy(npy(header("<f4", "False", "()"), f32_bytes({7})), "F")->tensor.shape.empty());
    CHECK(parse_npy(npy(header("<f4", "False", "(0, 3)"), {}), "F")->tensor.shape == Shape{0, 3});
    CHECK(parse_npy(npy(header("<f4", "False", "(3L,)"), f32_bytes({1, 2, 3})), "F")->tensor.shape == Shape{3});
    for (const std::uint8_t major : {std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{3}}) {
        CHECK(npy_refusal(npy(header("<f4", "False", "(1,)"), f32_bytes({1}), major)).empty());
    }
    CHECK(npy_refusal(npy(header("<f4", "False", "(1,)"), f32_bytes({1}), 4)) == "F: format version 4.0 is not known");
}

TEST_CASE("npy: fortran_order becomes row-major") {
    const auto array = parse_npy(npy(header("<f4", "True", "(2, 3)"), f32_bytes({0, 3, 1, 4, 2, 5})), "F");
    REQUIRE(array);
    CHECK(to_f64(array->tensor) == std::vector<double>{0, 1, 2, 3, 4, 5});
    const auto cube = parse_npy(npy(header("<f4", "True", "(2, 1, 2)"), f32_bytes({0, 2, 1, 3})), "F");
    REQUIRE(cube);
    CHECK(to_f64(cube->tensor) == std::vector<double>{0, 1, 2, 3});
}

TEST_CASE("npy: big-endian data is swapped") {
    const auto array = parse_npy(npy(header(">f4", "False", "(1,)"), {0x3F, 0x80, 0, 0}), "F");
    REQUIRE(array);
    CHECK(element(array->tensor, 0) == 1.0);
    CHECK(element(parse_npy(npy(header(">i8", "False", "(1,)"), {0, 0, 0, 0, 0, 0, 1, 2}), "F")->tensor, 0) == 258);
}

TEST_CASE("npy: <V2 and |V2 are bfloat16, and it is said") {
    for (const char* descr : {"<V2", "|V2"}) {
        const auto array = parse_npy(npy(header(descr, "False", "(1,)"), {0xC0, 0x3F}), "F");
        REQUIRE(array);
        CHECK(array->tensor.dtype == DType::bf16);
        CHECK(array->bf16_assumed);
        CHECK(element(array->tensor, 0) == 1.5);
    }
}

TEST_CASE("npy: <u2 is bfloat16 only when asked for") {
    const Bytes bytes = npy(header("<u2", "False", "(1,)"), {0xC0, 0x3F});
    const auto number = parse_npy(bytes, "F");
    REQUIRE(number);
    CHECK(number->tensor.dtype == DType::u16);
    CHECK(element(number->tensor, 0) == 0x3FC0);
    const auto array = parse_npy(bytes, "F", {true});
    REQUIRE(array);
    CHECK(element(array->tensor, 0) == 1.5);
}

TEST_CASE("npy: arrays that are no tensors are named and left alone") {
    const auto unread = [](const Bytes& bytes) {
        const auto array = parse_npy(bytes, "F");
        REQUIRE(array);
        CHECK(array->tensor.bytes.empty());
        return array->unread_dtype;
    };
    for (const char* descr : {"<c8", "<f16", "|S5", "<M8[ns]", "<U3", "|O", "O", "f4", "<f", "|V3"}) {
        CHECK(unread(npy(header(descr, "False", "(1,)"), {1, 2, 3})) == descr);
    }
    for (const char* descr : {"[('a', '<f4')]", "[('a', '<f4', (2, 3)), (('title', 'b'), [('c', '|O')])]", "[]"}) {
        const std::string text = "{'descr': " + std::string(descr) + ", 'fortran_order': False, 'shape': (1,), }";
        CHECK(unread(npy(text, {1, 2, 3})) == "structured");
    }
    for (const char* descr : {"[('a', '<f4')", "[('a', '<f4'])", "[('a)]", "['a'"}) {
        const std::string text = "{'descr': " + std::string(descr) + ", 'fortran_order': False, 'shape': (1,), }";
        CHECK(!npy_refusal(npy(text, {})).empty());
    }
}

TEST_CASE("npy: unsigned integers are read, either byte order") {
    const auto value = [](const char* descr, const Bytes& data) {
        const auto array = parse_npy(npy(header(descr, "False", "(1,)"), data), "F");
        REQUIRE(array);
        return to_i64(array->tensor).front();
    };
    CHECK(value("<u2", {1, 0xFF}) == 0xFF01);
    CHECK(value(">u4", {0xFF, 0, 0, 2}) == 0xFF000002);
    CHECK(value("<u8", {5, 0, 0, 0, 1, 0, 0, 0}) == 0x100000005);
}

TEST_CASE("npy: truncated and overlong files") {
    const Bytes whole = npy(header("<f4", "False", "(2,)"), f32_bytes({1, 2}));
    for (std::size_t n = 0; n < whole.size(); ++n) {
        CHECK(!npy_refusal(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n))).empty());
    }
    Bytes cut = whole;
    cut.pop_back();
    CHECK(npy_refusal(cut) == fmt::format("F: truncated: header says {} bytes, file has {}", whole.size(), cut.size()));
    Bytes more = whole;
    more.push_back(0);
    CHECK(npy_refusal(more) == "F: 1 bytes follow the array");
    CHECK(npy_refusal(bytes_of("version https://git-lfs.github.com/spec/v1\n")).find("Git LFS pointer") !=
          std::string::npos);
    CHECK(npy_refusal(bytes_of("hello, this is text")).find("not a .npy file") != std::string::npos);
}

TEST_CASE("npy: malformed headers") {
    for (const char* text :
         {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
          "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999999,)}",
          "{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999, 999999999999999999)}"}) {
        CAPTURE(text);
        CHECK(!npy_refusal(npy(text, f32_bytes({1}))).empty());
    }
}
