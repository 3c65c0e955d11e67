#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "oracle/tensor/formats.h"

namespace gdnctl::oracle {

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
