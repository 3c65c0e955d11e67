#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "oracle/tensor/formats.h"

namespace gdnctl::oracle {

namespace {

// The limit of the reference implementation.
constexpr std::uint64_t k_max_header = 100'000'000;

struct DTypeTag {
    std::string_view tag;
    DType dtype;
};
constexpr DTypeTag k_tags[] = {
    {"F64", DType::f64}, {"F32", DType::f32}, {"F16", DType::f16},      {"BF16", DType::bf16}, {"I64", DType::i64},
    {"I32", DType::i32}, {"I16", DType::i16}, {"I8", DType::i8},        {"U64", DType::u64},   {"U32", DType::u32},
    {"U16", DType::u16}, {"U8", DType::u8},   {"BOOL", DType::boolean},
};

// Headers with very many tensors need fast lookups, hence not gdnctl::Json, which scans.
using Header = nlohmann::json;

struct Entry {
    std::string name;
    std::string tag;                          // of the dtype, as in the file
    std::optional<DType> dtype = DType::f32;  // nullopt: unsupported
    Shape shape;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

tl::unexpected<Error> bad_safetensors(std::string_view what, std::string_view detail) {
    return fail(ErrorKind::bad_input, fmt::format("{}: {}", what, detail));
}

tl::unexpected<Error> malformed_tensor(std::string_view what, std::string_view name, std::string_view detail) {
    return fail(ErrorKind::bad_input, fmt::format("{}: tensor '{}': {}", what, name, detail));
}

Result<Header> parse_header(std::string_view text, std::string_view what) {
    std::set<std::string> names;
    std::string duplicate;
    const auto watch = [&](int depth, Header::parse_event_t event, Header& parsed) {
        if (event == Header::parse_event_t::key && depth == 1) {
            const auto& key = parsed.get_ref<const std::string&>();
            if (!names.insert(key).second && duplicate.empty()) duplicate = key;
        }
        return true;
    };
    Header header = Header::parse(text, watch, false);
    if (header.is_discarded() || !header.is_object()) return bad_safetensors(what, "header is not a JSON object");
    if (!duplicate.empty()) return malformed_tensor(what, duplicate, "is named twice in the header");
    return header;
}

Result<std::map<std::string, std::string>> parse_metadata(const Header& value, std::string_view what) {
    if (!value.is_object()) return bad_safetensors(what, "__metadata__ is not an object");
    std::map<std::string, std::string> metadata;
    for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) return bad_safetensors(what, fmt::format("__metadata__ '{}' is not a string", key));
        metadata[key] = text.get<std::string>();
    }
    return metadata;
}

Result<Shape> parse_shape(const Header& value, std::string_view what, std::string_view name) {
    Shape shape;
    if (!value.is_array()) return malformed_tensor(what, name, "shape is not a list");
    for (const Header& dimension : value) {
        if (!dimension.is_number_unsigned() || dimension.get<std::uint64_t>() > (1ULL << 62U)) {
            return malformed_tensor(what, name, "shape contains something other than sizes");
        }
        shape.push_back(dimension.get<std::int64_t>());
    }
    return shape;
}

Result<Entry> parse_entry(const std::string& name, const Header& value, std::string_view what) {
    Entry entry;
    entry.name = name;
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets")) {
        return malformed_tensor(what, name, "needs dtype, shape and data_offsets");
    }
    const Header& dtype = value["dtype"];
    if (!dtype.is_string()) return malformed_tensor(what, name, "dtype is not a string");
    const auto* tag = std::find_if(std::begin(k_tags), std::end(k_tags),
                                   [&](const DTypeTag& row) { return row.tag == dtype.get_ref<const std::string&>(); });
    entry.tag = dtype.get<std::string>();
    entry.dtype = tag == std::end(k_tags) ? std::nullopt : std::optional(tag->dtype);
    GDNCTL_TRY_ASSIGN(entry.shape, parse_shape(value["shape"], what, name));
    const Header& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
        return malformed_tensor(what, name, "data_offsets is not [begin, end]");
    }
    entry.begin = offsets[0].get<std::uint64_t>();
    entry.end = offsets[1].get<std::uint64_t>();
    if (entry.begin > entry.end) return malformed_tensor(what, name, "data_offsets end before they begin");
    if (!entry.dtype) return entry;
    const auto count = element_count(entry.shape);
    if (!count) return malformed_tensor(what, name, fmt::format("shape {} is too large", text_of(entry.shape)));
    if (entry.end - entry.begin != *count * size_of(*entry.dtype)) {
        return malformed_tensor(
            what, name,
            fmt::format("{} {} needs {} bytes, data_offsets span {}", text_of(entry.shape), name_of(*entry.dtype),
                        *count * size_of(*entry.dtype), entry.end - entry.begin));
    }
    return entry;
}

// Checks that the entries, in the order of their offsets, cover the data exactly.
Status check_cover(const std::vector<Entry>& entries, std::uint64_t start, std::uint64_t file_size,
                   std::string_view what) {
    std::uint64_t position = 0;
    for (const Entry& entry : entries) {
        if (entry.begin < position) return malformed_tensor(what, entry.name, "its data overlaps another tensor's");
        if (entry.begin > position) return malformed_tensor(what, entry.name, "there is a gap before its data");
        position = entry.end;
    }
    const std::uint64_t available = file_size - start;
    if (position > available) {
        // Offsets may be absurd, so the sum is only printed if it fits.
        const std::uint64_t needed = position > ~start ? position : start + position;
        return bad_safetensors(what, fmt::format("truncated: header says {} bytes, file has {}", needed, file_size));
    }
    if (position < available) {
        return bad_safetensors(what, fmt::format("{} bytes follow the last tensor", available - position));
    }
    return {};
}

}  // namespace

Status check_not_lfs_pointer(std::span<const std::uint8_t> bytes, std::string_view what) {
    constexpr std::string_view k_pointer = "version https://git-lfs.github.com/spec/v1";
    if (bytes.size() < k_pointer.size() || std::memcmp(bytes.data(), k_pointer.data(), k_pointer.size()) != 0)
        return {};
    return fail(ErrorKind::bad_input,
                fmt::format("{}: Git LFS pointer, not data (run: git lfs pull --include {})", what, what));
}

Result<TensorFile> parse_safetensors(std::span<const std::uint8_t> bytes, std::string_view what) {
    GDNCTL_TRY(check_not_lfs_pointer(bytes, what));
    if (bytes.size() < 8)
        return bad_safetensors(what, fmt::format("truncated: header says 8 bytes, file has {}", bytes.size()));
    std::uint64_t header_size = 0;
    std::memcpy(&header_size, bytes.data(), 8);
    if (header_size > k_max_header) {
        return bad_safetensors(what, fmt::format("header length {} is beyond the {} allowed: not a safetensors file",
                                                 header_size, k_max_header));
    }
    if (header_size > bytes.size() - 8) {
        return bad_safetensors(
            what, fmt::format("truncated: header says {} bytes, file has {}", header_size + 8, bytes.size()));
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_size);
    if (!text.starts_with('{')) return bad_safetensors(what, "header does not begin with '{': not a safetensors file");
    GDNCTL_TRY_ASSIGN(const Header header, parse_header(text, what));

    TensorFile file;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
        if (name == "__metadata__") {
            GDNCTL_TRY_ASSIGN(file.metadata, parse_metadata(value, what));
            continue;
        }
        GDNCTL_TRY_ASSIGN(auto entry, parse_entry(name, value, what));
        entries.push_back(std::move(entry));
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    GDNCTL_TRY(check_cover(entries, 8 + header_size, bytes.size(), what));
    const std::span<const std::uint8_t> data = bytes.subspan(8 + header_size);
    for (Entry& entry : entries) {
        if (!entry.dtype) {
            file.unread.push_back({std::move(entry.name), std::move(entry.tag)});
            continue;
        }
        const auto part = data.subspan(entry.begin, entry.end - entry.begin);
        file.tensors.push_back(
            {std::move(entry.name), {*entry.dtype, std::move(entry.shape), {part.begin(), part.end()}}});
    }
    return file;
}

std::vector<std::uint8_t> serialize_safetensors(const TensorFile& file) {
    Json header = Json::object();
    if (!file.metadata.empty()) {
        Json& metadata = header["__metadata__"] = Json::object();
        for (const auto& [key, text] : file.metadata) metadata[key] = text;
    }
    std::size_t position = 0;
    for (const NamedTensor& entry : file.tensors) {
        const auto* tag = std::find_if(std::begin(k_tags), std::end(k_tags),
                                       [&](const DTypeTag& row) { return row.dtype == entry.tensor.dtype; });
        const std::size_t end = position + entry.tensor.bytes.size();
        header[entry.name] = {{"dtype", tag->tag}, {"shape", entry.tensor.shape}, {"data_offsets", {position, end}}};
        position = end;
    }
    std::string text = to_text(header);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t header_size = text.size();
    std::vector<std::uint8_t> bytes(8 + text.size());
    bytes.reserve(bytes.size() + position);
    std::memcpy(bytes.data(), &header_size, 8);
    std::memcpy(bytes.data() + 8, text.data(), text.size());
    for (const NamedTensor& entry : file.tensors) {
        bytes.insert(bytes.end(), entry.tensor.bytes.begin(), entry.tensor.bytes.end());
    }
    return bytes;
}

}  // namespace gdnctl::oracle
