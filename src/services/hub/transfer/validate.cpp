#include "services/hub/transfer/validate.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/compression.h"
#include "platform/signals.h"
#include "services/hub/transfer/out_folder.h"

namespace gdnctl::hub {

namespace {

constexpr std::string_view k_events = "traceEvents";
constexpr std::size_t k_deepest = 10'000;
constexpr std::size_t k_longest_number = 400;
constexpr std::size_t k_read = std::size_t{256} << 10;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// RFC 8259 section 6.
bool is_number(std::string_view text) {
    const auto digits = [&text] {
        std::size_t n = 0;
        while (n < text.size() && is_digit(text[n])) ++n;
        text.remove_prefix(n);
        return n;
    };
    if (text.starts_with('-')) text.remove_prefix(1);
    const bool zero = text.starts_with('0');
    const std::size_t whole = digits();
    if (whole == 0 || (zero && whole > 1)) return false;
    if (text.starts_with('.')) {
        text.remove_prefix(1);
        if (digits() == 0) return false;
    }
    if (text.starts_with('e') || text.starts_with('E')) {
        text.remove_prefix(1);
        if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
        if (digits() == 0) return false;
    }
    return text.empty();
}

tl::unexpected<Error> bad(std::string message) { return fail(ErrorKind::bad_input, std::move(message)); }

// Reads the whole file in pieces.
Status for_each_piece(int fd, std::string_view path, const std::stop_token& stop,
                      const std::function<Status(std::string_view)>& take) {
    std::vector<char> buffer(k_read);
    for (off_t at = 0;;) {
        if (stop.stop_requested()) return tl::unexpected(stopped_error());
        const ssize_t got = ::pread(fd, buffer.data(), buffer.size(), at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tl::unexpected(local_failure("read", path, errno));
        if (got == 0) return {};
        GDNCTL_TRY(take({buffer.data(), static_cast<std::size_t>(got)}));
        at += got;
    }
}

Status check_json(int fd, std::string_view path, bool packed, const std::stop_token& stop) {
    TraceJsonCheck json;
    Status status;
    Inflater inflater(DeflateFormat::gzip, [&](std::string_view bytes) {
        status = json.feed(bytes);
        return status.has_value();
    });
    auto read = for_each_piece(fd, path, stop, [&](std::string_view bytes) -> Status {
        if (!packed) return json.feed(bytes);
        const Status fed = inflater.feed(bytes);
        return status ? fed : status;
    });
    if (!read) return read;
    if (packed) {
        GDNCTL_TRY(inflater.finish());
    }
    GDNCTL_TRY(json.finish());
    return {};
}

// Reads varints and skips fields without loading the file.
class Walker {
public:
    Walker(int fd, std::uint64_t end) : m_fd(fd), m_end(end) {}
    std::uint64_t at() const { return m_at; }
    std::uint64_t end() const { return m_end; }
    bool skip(std::uint64_t bytes) {
        if (bytes > m_end - m_at) return false;
        m_at += bytes;
        return true;
    }
    std::optional<std::uint64_t> varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            const auto byte = next();
            if (!byte) return std::nullopt;
            value |= static_cast<std::uint64_t>(*byte & 0x7FU) << shift;
            if (*byte < 0x80) return value;
        }
        return std::nullopt;
    }

private:
    std::optional<unsigned char> next() {
        if (m_at >= m_end) return std::nullopt;
        if (m_at < m_from || m_at >= m_from + m_held) {
            const ssize_t got = ::pread(m_fd, m_block.data(), m_block.size(), static_cast<off_t>(m_at));
            if (got <= 0) return std::nullopt;
            m_from = m_at;
            m_held = static_cast<std::uint64_t>(got);
        }
        return m_block[static_cast<std::size_t>(m_at++ - m_from)];
    }
    int m_fd;
    std::uint64_t m_end, m_at = 0, m_from = 0, m_held = 0;
    std::array<unsigned char, 4096> m_block{};
};

constexpr std::uint64_t k_planes_field = 1;

// One field of the message that ends at `end`; nullopt: damaged. For a field with a length, its number and length.
struct Field {
    std::uint64_t number, length;
    bool has_length;
};
std::optional<Field> next_field(Walker& walker) {
    constexpr unsigned k_varint = 0, k_fixed64 = 1, k_bytes = 2, k_fixed32 = 5;
    const auto tag = walker.varint();
    if (!tag || *tag >> 3U == 0) return std::nullopt;
    Field field{*tag >> 3U, 0, false};
    switch (*tag & 7U) {
        case k_varint:
            if (!walker.varint()) return std::nullopt;
            return field;
        case k_fixed64: return walker.skip(8) ? std::optional(field) : std::nullopt;
        case k_fixed32: return walker.skip(4) ? std::optional(field) : std::nullopt;
        case k_bytes: {
            const auto length = walker.varint();
            if (!length || *length > walker.end() - walker.at()) return std::nullopt;
            return Field{field.number, *length, true};
        }
        default: return std::nullopt;
    }
}

}  // namespace

Status TraceJsonCheck::feed(std::string_view bytes) {
    for (const char c : bytes) {
        // Most bytes are inside strings.
        if (m_expect == Expect::string && c != '"' && c != '\\' && static_cast<unsigned char>(c) >= ' ') {
            if (m_in_key && m_open.size() == 1 && m_key.size() <= k_events.size()) m_key += c;
        } else if (!step(c)) {
            return bad(fmt::format("it is not JSON: unexpected byte 0x{:02x} at offset {}",
                                   static_cast<unsigned char>(c), m_offset));
        }
        ++m_offset;
    }
    return {};
}

Status TraceJsonCheck::finish() const {
    if (m_expect != Expect::nothing) return bad(fmt::format("it is JSON truncated after {} bytes", m_offset));
    if (!m_is_object || !m_has_events) return bad("it is JSON, but has no list 'traceEvents'");
    return {};
}

void TraceJsonCheck::end_value() { m_expect = m_open.empty() ? Expect::nothing : Expect::after; }

bool TraceJsonCheck::end_container(char c) {
    if (m_open.empty() || m_open.back() != (c == '}' ? '{' : '[')) return false;
    m_open.pop_back();
    end_value();
    return true;
}

bool TraceJsonCheck::end_number() {
    if (!is_number(m_number)) return false;
    end_value();
    return true;
}

bool TraceJsonCheck::begin_value(char c) {
    constexpr std::array<std::string_view, 3> k_literals = {"true", "false", "null"};
    if (c == '{' || c == '[') {
        if (m_open.empty()) m_is_object = c == '{';
        if (c == '[' && m_open == "{" && m_key == k_events) m_has_events = true;
        m_open += c;
        m_expect = c == '{' ? Expect::key_or_end : Expect::value_or_end;
        return m_open.size() <= k_deepest;
    }
    if (c == '"') {
        m_in_key = false;
        m_expect = Expect::string;
        return true;
    }
    if (c == '-' || is_digit(c)) {
        m_number = c;
        m_expect = Expect::number;
        return true;
    }
    for (const std::string_view literal : k_literals) {
        if (literal[0] != c) continue;
        m_literal = literal.substr(1);
        m_expect = Expect::literal;
        return true;
    }
    return false;
}

bool TraceJsonCheck::step(char c) {
    switch (m_expect) {
        case Expect::string:
            if (c == '\\') m_expect = Expect::escape;
            if (c == '"' && m_in_key) m_expect = Expect::colon;
            if (c == '"' && !m_in_key) end_value();
            return c == '"' || c == '\\';
        case Expect::escape:
            m_hex_left = c == 'u' ? 4 : 0;
            m_expect = c == 'u' ? Expect::hex : Expect::string;
            if (m_in_key) m_key += '\\';  // no key of interest has one
            return std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos;
        case Expect::hex:
            if (--m_hex_left == 0) m_expect = Expect::string;
            return is_hex_digit(c);
        case Expect::literal:
            if (m_literal.front() != c) return false;
            m_literal.remove_prefix(1);
            if (m_literal.empty()) end_value();
            return true;
        case Expect::number:
            if (is_digit(c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-') {
                m_number += c;
                return m_number.size() <= k_longest_number;
            }
            return end_number() && step(c);
        default: break;
    }
    if (is_blank(c)) return true;
    switch (m_expect) {
        case Expect::value_or_end:
            if (c == ']') return end_container(c);
            return begin_value(c);
        case Expect::value: return begin_value(c);
        case Expect::key_or_end:
        case Expect::key:
            if (c == '}' && m_expect == Expect::key_or_end) return end_container(c);
            m_in_key = true;
            if (m_open.size() == 1) m_key.clear();
            m_expect = Expect::string;
            return c == '"';
        case Expect::colon: m_expect = Expect::value; return c == ':';
        case Expect::after:
            if (c != ',') return end_container(c);
            m_expect = m_open.back() == '{' ? Expect::key : Expect::value;
            return true;
        default: return false;
    }
}

Status check_xspace(int fd, std::uint64_t size) {
    Walker walker(fd, size);
    if (size == 0) return bad("it is empty");
    while (walker.at() < size) {
        const std::uint64_t start = walker.at();
        const auto damaged = [&](std::uint64_t at) {
            return bad(fmt::format("it is not an XSpace: damaged at offset {}", at));
        };
        const auto field = next_field(walker);
        if (!field) return damaged(start);
        if (!field->has_length) continue;
        const std::uint64_t end = walker.at() + field->length;
        while (field->number == k_planes_field && walker.at() < end) {
            const std::uint64_t inner = walker.at();
            const auto part = next_field(walker);
            if (!part || (part->has_length && !walker.skip(part->length)) || walker.at() > end) return damaged(inner);
        }
        walker.skip(end - walker.at());
    }
    return {};
}

Status validate_trace(int fd, std::string_view path, const std::stop_token& stop) {
    Status valid;
    struct stat facts{};
    if (path.ends_with(".pb")) {
        if (::fstat(fd, &facts) != 0) return tl::unexpected(local_failure("read", path, errno));
        if (const Status walked = check_xspace(fd, static_cast<std::uint64_t>(facts.st_size)); !walked) {
            valid = tl::unexpected(walked.error());
        }
    } else if (path.ends_with(".json") || path.ends_with(".json.gz")) {
        valid = check_json(fd, path, path.ends_with(".gz"), stop);
    }
    if (valid || valid.error().kind != ErrorKind::bad_input) return valid;
    return fail(ErrorKind::conflict, "invalid trace: " + valid.error().text(),
                "it matches the repository, so it was damaged before it was uploaded");
}

}  // namespace gdnctl::hub
