#include <doctest/doctest.h>
#include <fmt/format.h>

#include "oracle/tensor/formats.h"
#include "unit/oracle/bytes.h"

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
