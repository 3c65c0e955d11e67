#include "oracle/tensor/formats.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "core/json.h"

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

namespace {

constexpr std::string_view k_magic = "\x93NUMPY";
constexpr std::size_t k_alignment = 64;
constexpr std::size_t k_max_dimensions = 32;
constexpr std::string_view k_structured = "structured";

// The contents of the header's Python dict literal.
struct Description {
    std::string descr;
    bool fortran_order = false;
    Shape shape;
    bool has_descr = false, has_order = false, has_shape = false;
};

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } and no other Python.
class HeaderParser {
public:
    explicit HeaderParser(std::string_view text) : m_text(text) {}

    // nullopt: error() says why.
    std::optional<Description> parse() {
        Description d;
        if (!take('{')) return stop("is not a dict");
        while (!take('}')) {
            const auto key = string();
            if (!key || !take(':')) return stop("has a malformed key");
            if (!value(*key, d)) return std::nullopt;
            if (!take(',') && peek() != '}') return stop("lacks a comma");
        }
        skip_blanks();
        if (m_at != m_text.size()) return stop("has text after the dict");
        if (!d.has_descr || !d.has_order || !d.has_shape) return stop("lacks descr, fortran_order or shape");
        return d;
    }
    const std::string& error() const { return m_error; }

private:
    std::nullopt_t stop(std::string_view why) {
        if (m_error.empty()) m_error = fmt::format("header {}", why);
        return std::nullopt;
    }
    void skip_blanks() {
        while (m_at < m_text.size() && (m_text[m_at] == ' ' || m_text[m_at] == '\n' || m_text[m_at] == '\t')) ++m_at;
    }
    char peek() {
        skip_blanks();
        return m_at < m_text.size() ? m_text[m_at] : '\0';
    }
    bool take(char c) {
        if (peek() != c) return false;
        ++m_at;
        return true;
    }
    std::optional<std::string> string() {
        const char quote = peek();
        if (quote != '\'' && quote != '"') return std::nullopt;
        const std::size_t begin = ++m_at;
        const std::size_t end = m_text.find(quote, begin);
        if (end == std::string_view::npos) return std::nullopt;
        m_at = end + 1;
        return std::string(m_text.substr(begin, end - begin));
    }
    bool value(const std::string& key, Description& d) {
        if (key == "descr" && !d.has_descr) {
            d.has_descr = true;
            if (peek() == '[') {
                d.descr = k_structured;
                return skip_list();
            }
            const auto text = string();
            if (!text) return stop("has a malformed descr"), false;
            d.descr = *text;
            return true;
        }
        if (key == "fortran_order" && !d.has_order) {
            d.has_order = true;
            skip_blanks();
            for (const auto& [word, meaning] : {std::pair{"True", true}, std::pair{"False", false}}) {
                if (m_text.substr(m_at).starts_with(word)) {
                    m_at += std::strlen(word);
                    d.fortran_order = meaning;
                    return true;
                }
            }
            return stop("has a malformed fortran_order"), false;
        }
        if (key == "shape" && !d.has_shape) {
            d.has_shape = true;
            return tuple(d.shape);
        }
        return stop(fmt::format("has an unexpected key '{}'", key)), false;
    }
    // A structured dtype: nested lists and tuples of strings and numbers.
    bool skip_list() {
        std::string open;
        do {
            const char c = peek();
            if (c == '\'' || c == '"') {
                if (!string()) return stop("has a malformed descr"), false;
                continue;
            }
            if (c == '\0') return stop("has a malformed descr"), false;
            if (c == '[' || c == '(') open += c == '[' ? ']' : ')';
            if (c == ']' || c == ')') {
                if (open.back() != c) return stop("has a malformed descr"), false;
                open.pop_back();
            }
            ++m_at;
        } while (!open.empty());
        return true;
    }
    bool tuple(Shape& shape) {
        if (!take('(')) return stop("has a malformed shape"), false;
        while (!take(')')) {
            const auto n = number();
            if (!n || shape.size() == k_max_dimensions) return stop("has a malformed shape"), false;
            shape.push_back(*n);
            if (!take(',') && (peek() != ')' || shape.size() < 2)) return stop("has a malformed shape"), false;
        }
        return true;
    }
    std::optional<std::int64_t> number() {
        std::int64_t n = 0;
        int digits = 0;
        for (char c = peek(); c >= '0' && c <= '9'; c = m_at < m_text.size() ? m_text[m_at] : '\0') {
            if (++digits > 18) return std::nullopt;
            n = n * 10 + (c - '0');
            ++m_at;
        }
        if (digits == 0) return std::nullopt;
        if (m_at < m_text.size() && m_text[m_at] == 'L') ++m_at;  // Python 2 wrote long integers like this
        return n;
    }

    std::string_view m_text;
    std::size_t m_at = 0;
    std::string m_error;
};

struct DescrRow {
    std::string_view kind;
    DType dtype;
};
constexpr DescrRow k_kinds[] = {
    {"f8", DType::f64}, {"f4", DType::f32},     {"f2", DType::f16},  {"i8", DType::i64}, {"i4", DType::i32},
    {"i2", DType::i16}, {"i1", DType::i8},      {"u8", DType::u64},  {"u4", DType::u32}, {"u2", DType::u16},
    {"u1", DType::u8},  {"b1", DType::boolean}, {"V2", DType::bf16},
};

tl::unexpected<Error> malformed(std::string_view what, std::string_view detail) {
    return fail(ErrorKind::bad_input, fmt::format("{}: {}", what, detail));
}

struct ElementType {
    DType dtype = DType::f32;
    bool big_endian = false;
    bool bf16_assumed = false;
};

// nullopt: not supported.
std::optional<ElementType> element_type(std::string_view descr, const NpyOptions& options) {
    if (descr.size() < 3 || std::string_view("<>|=").find(descr.front()) == std::string_view::npos) return std::nullopt;
    const bool big_endian = descr.front() == '>';
    const std::string_view kind = descr.substr(1);
    if (kind == "u2" && options.u2_as_bf16) return ElementType{DType::bf16, big_endian, true};
    const auto* row =
        std::find_if(std::begin(k_kinds), std::end(k_kinds), [&](const DescrRow& r) { return r.kind == kind; });
    if (row == std::end(k_kinds)) return std::nullopt;
    return ElementType{row->dtype, big_endian, kind == "V2"};
}

void swap_bytes(std::vector<std::uint8_t>& bytes, std::size_t width) {
    for (std::size_t i = 0; i + width <= bytes.size(); i += width) {
        std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                     bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
    }
}

// Column-major (first axis fastest) to row-major.
std::vector<std::uint8_t> to_row_major(const std::vector<std::uint8_t>& bytes, const Shape& shape, std::size_t width) {
    std::vector<std::uint8_t> result(bytes.size());
    Shape index(shape.size(), 0);
    for (std::size_t from = 0; from * width < bytes.size(); ++from) {
        std::size_t to = 0;
        for (std::size_t axis = 0; axis < shape.size(); ++axis) {
            to = to * static_cast<std::size_t>(shape[axis]) + static_cast<std::size_t>(index[axis]);
        }
        std::memcpy(result.data() + to * width, bytes.data() + from * width, width);
        for (std::size_t axis = 0; axis < shape.size() && ++index[axis] == shape[axis]; ++axis) index[axis] = 0;
    }
    return result;
}

std::string_view descr_of(DType dtype) {
    switch (dtype) {
        case DType::f64: return "<f8";
        case DType::f32: return "<f4";
        case DType::f16: return "<f2";
        case DType::bf16: return "<V2";
        case DType::i64: return "<i8";
        case DType::i32: return "<i4";
        case DType::i16: return "<i2";
        case DType::i8: return "|i1";
        case DType::u64: return "<u8";
        case DType::u32: return "<u4";
        case DType::u16: return "<u2";
        case DType::u8: return "|u1";
        case DType::boolean: return "|b1";
    }
    return "";
}

std::string shape_tuple(const Shape& shape) {
    return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

}  // namespace

Result<NpyArray> parse_npy(std::span<const std::uint8_t> bytes, std::string_view what, const NpyOptions& options) {
    GDNCTL_TRY(check_not_lfs_pointer(bytes, what));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with(k_magic)) return malformed(what, "does not begin with \\x93NUMPY: not a .npy file");
    if (bytes.size() < 10)
        return malformed(what, fmt::format("truncated: header says 10 bytes, file has {}", bytes.size()));
    const int major = bytes[6];
    if (major < 1 || major > 3)
        return malformed(what, fmt::format("format version {}.{} is not known", major, bytes[7]));
    const std::size_t prefix = major == 1 ? 10 : 12;
    if (bytes.size() < prefix)
        return malformed(what, fmt::format("truncated: header says {} bytes, file has {}", prefix, bytes.size()));
    std::size_t header_size = bytes[8] | static_cast<std::size_t>(bytes[9]) << 8U;
    if (major > 1)
        header_size |= static_cast<std::size_t>(bytes[10]) << 16U | static_cast<std::size_t>(bytes[11]) << 24U;
    if (header_size > bytes.size() - prefix) {
        return malformed(
            what, fmt::format("truncated: header says {} bytes, file has {}", prefix + header_size, bytes.size()));
    }
    HeaderParser parser(text.substr(prefix, header_size));
    const auto description = parser.parse();
    if (!description) return malformed(what, parser.error());
    const auto type = element_type(description->descr, options);
    if (!type) return NpyArray{{}, description->descr.empty() ? "none" : description->descr, false};
    const auto count = element_count(description->shape);
    if (!count) return malformed(what, fmt::format("shape {} is too large", text_of(description->shape)));

    const std::size_t start = prefix + header_size;
    const std::size_t width = size_of(type->dtype);
    const std::size_t needed = *count * width;
    if (needed > bytes.size() - start) {
        return malformed(what,
                         fmt::format("truncated: header says {} bytes, file has {}", start + needed, bytes.size()));
    }
    if (needed < bytes.size() - start) {
        return malformed(what, fmt::format("{} bytes follow the array", bytes.size() - start - needed));
    }
    const auto data = bytes.subspan(start);
    NpyArray array{{type->dtype, description->shape, {data.begin(), data.end()}}, {}, type->bf16_assumed};
    if (type->big_endian && width > 1) swap_bytes(array.tensor.bytes, width);
    if (description->fortran_order && description->shape.size() > 1) {
        array.tensor.bytes = to_row_major(array.tensor.bytes, array.tensor.shape, width);
    }
    return array;
}

std::vector<std::uint8_t> serialize_npy(const Tensor& tensor) {
    std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr_of(tensor.dtype),
                                     shape_tuple(tensor.shape));
    const std::size_t used = 10 + header.size() + 1;
    header.append((k_alignment - used % k_alignment) % k_alignment, ' ');
    header += '\n';
    std::vector<std::uint8_t> bytes(k_magic.begin(), k_magic.end());
    bytes.insert(bytes.end(), {1, 0, static_cast<std::uint8_t>(header.size() & 0xFFU),
                               static_cast<std::uint8_t>(header.size() >> 8U)});
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    return bytes;
}

}  // namespace gdnctl::oracle
