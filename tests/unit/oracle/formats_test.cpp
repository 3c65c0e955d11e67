// Building tensor files by hand, sound and broken.
#include "oracle/tensor/formats.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace gdnctl::oracle::testing {

namespace {

using Bytes = std::vector<std::uint8_t>;

inline Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

inline Bytes safetensors(std::string_view header, std::size_t data_size) {
    Bytes bytes;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::uint8_t>(header.size() >> (8 * i)));
    bytes.insert(bytes.end(), header.begin(), header.end());
    for (std::size_t i = 0; i < data_size; ++i) bytes.push_back(static_cast<std::uint8_t>(i));
    return bytes;
}

inline Bytes npy(std::string header, const Bytes& data, std::uint8_t major = 1) {
    header += '\n';
    Bytes bytes = bytes_of("\x93NUMPY");
    bytes.push_back(major);
    bytes.push_back(0);
    for (int i = 0; i < (major == 1 ? 2 : 4); ++i) bytes.push_back(static_cast<std::uint8_t>(header.size() >> (8 * i)));
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
}

}  // namespace

}  // namespace gdnctl::oracle::testing

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

// The message for bytes that must not be readable; empty when they were read.
std::string safetensors_refusal(const Bytes& bytes) {
    const auto file = parse_safetensors(bytes, "F");
    if (file) return {};
    CHECK(file.error().kind == ErrorKind::bad_input);
    return file.error().message;
}

constexpr std::string_view k_one = R"({"k":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

}  // namespace

TEST_CASE("safetensors: what is written is read back, byte for byte") {
    TensorFile file;
    file.metadata = {{"op", "gdn"}, {"head_map", "tiled"}};
    file.tensors.push_back({"scalar", from_f64(std::vector<double>{0.5}, {}, DType::f64)});
    file.tensors.push_back({"q", from_f64(std::vector<double>{1, -2, 3, 4, 5, 6}, {1, 2, 3}, DType::bf16)});
    file.tensors.push_back({"none", from_f64(std::vector<double>{}, {0, 4}, DType::f32)});
    file.tensors.push_back({"cu", from_i64(std::vector<std::int64_t>{0, 7}, {2})});
    const Bytes bytes = serialize_safetensors(file);
    CHECK(bytes == serialize_safetensors(file));
    const auto again = parse_safetensors(bytes, "F");
    REQUIRE(again);
    CHECK(again->metadata == file.metadata);
    REQUIRE(again->tensors.size() == 4);
    for (const NamedTensor& entry : file.tensors) {
        const Tensor* tensor = again->find(entry.name);
        REQUIRE(tensor != nullptr);
        CHECK(tensor->dtype == entry.tensor.dtype);
        CHECK(tensor->shape == entry.tensor.shape);
        CHECK(tensor->bytes == entry.tensor.bytes);
    }
    CHECK(again->find("missing") == nullptr);
}

TEST_CASE("safetensors: a header padded with spaces, an empty file of tensors, unordered entries") {
    CHECK(safetensors_refusal(safetensors(std::string(k_one) + "   ", 8)).empty());
    CHECK(safetensors_refusal(safetensors("{}", 0)).empty());
    const auto file = parse_safetensors(safetensors(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                                                    R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})",
                                                    2),
                                        "F");
    REQUIRE(file);
    CHECK(file->tensors[0].name == "a");
    CHECK(element(file->tensors[1].tensor, 0) == 1);
}

TEST_CASE("safetensors: truncated files say how much there should be") {
    CHECK(safetensors_refusal({}) == "F: truncated: header says 8 bytes, file has 0");
    CHECK(safetensors_refusal({1, 0, 0}) == "F: truncated: header says 8 bytes, file has 3");
    Bytes whole = safetensors(k_one, 8);
    Bytes header_cut(whole.begin(), whole.begin() + 20);
    CHECK(safetensors_refusal(header_cut) == "F: truncated: header says 62 bytes, file has 20");
    whole.pop_back();
    CHECK(safetensors_refusal(whole) == "F: truncated: header says 70 bytes, file has 69");
}

TEST_CASE("safetensors: header length 2^63") {
    Bytes bytes = safetensors(k_one, 8);
    for (int i = 0; i < 8; ++i) bytes[static_cast<std::size_t>(i)] = i == 7 ? 0x80 : 0;
    CHECK(safetensors_refusal(bytes) ==
          "F: header length 9223372036854775808 is beyond the 100000000 allowed: not a safetensors file");
}

TEST_CASE("safetensors: a Git LFS pointer") {
    CHECK(safetensors_refusal(bytes_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")) ==
          "F: Git LFS pointer, not data (run: git lfs pull --include F)");
}

TEST_CASE("safetensors: overlapping offsets, holes, trailing bytes") {
    const auto two = [](std::string_view a, std::string_view b) {
        return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + std::string(a) +
               R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + std::string(b) + "}}";
    };
    CHECK(safetensors_refusal(safetensors(two("[0,4]", "[4,8]"), 8)).empty());
    CHECK(safetensors_refusal(safetensors(two("[0,4]", "[2,6]"), 8)) ==
          "F: tensor 'b': its data overlaps another tensor's");
    CHECK(safetensors_refusal(safetensors(two("[0,4]", "[0,4]"), 4)) ==
          "F: tensor 'b': its data overlaps another tensor's");
    CHECK(safetensors_refusal(safetensors(two("[0,4]", "[8,12]"), 12)) ==
          "F: tensor 'b': there is a gap before its data");
    CHECK(safetensors_refusal(safetensors(two("[0,4]", "[4,8]"), 9)) == "F: 1 bytes follow the last tensor");
}

TEST_CASE("safetensors: duplicate names") {
    CHECK(safetensors_refusal(safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                          R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                          2)) == "F: tensor 'a': is named twice in the header");
}

TEST_CASE("safetensors: sizes that do not fit") {
    const auto with = [](std::string_view shape, std::string_view offsets) {
        return R"({"k":{"dtype":"F32","shape":)" + std::string(shape) + R"(,"data_offsets":)" + std::string(offsets) +
               "}}";
    };
    CHECK(safetensors_refusal(safetensors(with("[3]", "[0,8]"), 8)) ==
          "F: tensor 'k': [3] float32 needs 12 bytes, data_offsets span 8");
    CHECK(safetensors_refusal(safetensors(with("[4611686018427387904,4]", "[0,0]"), 0)).find("is too large") !=
          std::string::npos);
    CHECK(safetensors_refusal(safetensors(with("[1]", "[8,4]"), 8)) ==
          "F: tensor 'k': data_offsets end before they begin");
    CHECK(safetensors_refusal(safetensors(with("[1]", "[18446744073709551612,18446744073709551615]"), 8)) != "");
    CHECK(safetensors_refusal(safetensors(with("[-1]", "[0,4]"), 4)) ==
          "F: tensor 'k': shape contains something other than sizes");
    CHECK(safetensors_refusal(safetensors(with("[1.5]", "[0,4]"), 4)) ==
          "F: tensor 'k': shape contains something other than sizes");
    CHECK(safetensors_refusal(safetensors(with("7", "[0,4]"), 4)) == "F: tensor 'k': shape is not a list");
    CHECK(safetensors_refusal(safetensors(with("[1]", "[0]"), 4)) == "F: tensor 'k': data_offsets is not [begin, end]");
    CHECK(safetensors_refusal(safetensors(with("[1]", "[0,-4]"), 4)) ==
          "F: tensor 'k': data_offsets is not [begin, end]");
}

TEST_CASE("safetensors: headers that are not what they should be") {
    CHECK(safetensors_refusal(safetensors("[]", 0)) == "F: header does not begin with '{': not a safetensors file");
    CHECK(safetensors_refusal(safetensors("{", 0)) == "F: header is not a JSON object");
    CHECK(safetensors_refusal(safetensors("{\"a\":1}", 0)) == "F: tensor 'a': needs dtype, shape and data_offsets");
    CHECK(safetensors_refusal(safetensors(R"({"k":{"dtype":4,"shape":[1],"data_offsets":[0,1]}})", 1)) ==
          "F: tensor 'k': dtype is not a string");
    CHECK(safetensors_refusal(safetensors(R"({"__metadata__":{"a":1}})", 0)) == "F: __metadata__ 'a' is not a string");
    CHECK(safetensors_refusal(safetensors(R"({"__metadata__":[]})", 0)) == "F: __metadata__ is not an object");
    CHECK(safetensors_refusal(safetensors("{" + std::string(100000, '['), 0)) == "F: header is not a JSON object");
}

TEST_CASE("safetensors: tensors of other dtypes are named and left alone") {
    for (const char* tag : {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4", "C64", "F2_OF_TOMORROW"}) {
        CAPTURE(tag);
        const std::string header = fmt::format(R"({{"s":{{"dtype":"{}","shape":[3],"data_offsets":[0,3]}},)"
                                               R"("k":{{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}}})",
                                               tag);
        const auto file = parse_safetensors(safetensors(header, 7), "F");
        REQUIRE(file);
        REQUIRE(file->tensors.size() == 1);
        CHECK(file->tensors[0].name == "k");
        REQUIRE(file->unread.size() == 1);
        CHECK(file->unread[0] == UnreadTensor{"s", tag});
        CHECK(file->any_name([](std::string_view name) { return name == "s"; }));
    }
}

TEST_CASE("safetensors: offsets of a tensor that is left alone are checked") {
    const auto with = [](std::string_view offsets) {
        return safetensors(fmt::format(R"({{"s":{{"dtype":"F8_E4M3","shape":[3],"data_offsets":{}}},)"
                                       R"("k":{{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}}})",
                                       offsets),
                           7);
    };
    CHECK(safetensors_refusal(with("[0,3]")).empty());
    CHECK(safetensors_refusal(with("[0,4]")) == "F: tensor 'k': its data overlaps another tensor's");
    CHECK(safetensors_refusal(with("[0,2]")) == "F: tensor 'k': there is a gap before its data");
    CHECK(safetensors_refusal(with("[3,0]")) == "F: tensor 's': data_offsets end before they begin");
    CHECK(safetensors_refusal(with("[0]")) == "F: tensor 's': data_offsets is not [begin, end]");
}

TEST_CASE("safetensors: unsigned integers are read, and their sizes checked") {
    const auto file = parse_safetensors(safetensors(R"({"a":{"dtype":"U64","shape":[1],"data_offsets":[0,8]},)"
                                                    R"("b":{"dtype":"U32","shape":[1],"data_offsets":[8,12]},)"
                                                    R"("c":{"dtype":"U16","shape":[1],"data_offsets":[12,14]}})",
                                                    14),
                                        "F");
    REQUIRE(file);
    CHECK(file->tensors[0].tensor.dtype == DType::u64);
    CHECK(file->tensors[1].tensor.dtype == DType::u32);
    CHECK(file->tensors[2].tensor.dtype == DType::u16);
    CHECK(safetensors_refusal(safetensors(R"({"a":{"dtype":"U32","shape":[2],"data_offsets":[0,4]}})", 4)) ==
          "F: tensor 'a': [2] uint32 needs 8 bytes, data_offsets span 4");
}

using namespace gdnctl;

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
