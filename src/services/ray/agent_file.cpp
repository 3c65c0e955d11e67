#include "services/ray/agent_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::ray {

namespace {

constexpr std::uint64_t k_piece = std::uint64_t{4} << 20;
constexpr std::uint64_t k_tail_piece = std::uint64_t{64} << 10;

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view value) {
    constexpr std::string_view unit = "bytes ";
    if (!value.starts_with(unit)) return std::nullopt;
    value.remove_prefix(unit.size());
    const std::size_t slash = value.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const auto size = text::parse_int(value.substr(slash + 1));
    if (!size || *size < 0) return std::nullopt;
    ContentRange range;
    range.size = static_cast<std::uint64_t>(*size);
    const std::string_view span = value.substr(0, slash);
    if (span == "*") return range;
    const std::size_t dash = span.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto first = text::parse_int(span.substr(0, dash));
    const auto last = text::parse_int(span.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= *size) return std::nullopt;
    range.first = static_cast<std::uint64_t>(*first);
    return range;
}

Result<std::optional<AgentFile::Piece>> AgentFile::get(const std::string& range) {
    GDNCTL_TRY_ASSIGN(HttpResponse answer, m_client.get_range(m_url, range, 2 * k_piece));
    if (answer.status == 416) return std::optional<Piece>();
    const auto there = parse_content_range(answer.header("content-range").value_or(""));
    const bool fits = answer.status == 206 && there && there->first && !answer.body.empty() &&
                      *there->first + answer.body.size() <= there->size;
    if (!fits) {
        return fail(ErrorKind::infrastructure, fmt::format("{} returned {} for a byte range", m_url, answer.status));
    }
    return std::optional(Piece{*there->first, there->size, std::move(answer.body)});
}

Status AgentFile::read_from(std::uint64_t offset, const Out& out) {
    for (;;) {
        GDNCTL_TRY_ASSIGN(const auto piece, get(fmt::format("{}-{}", offset, offset + k_piece - 1)));
        if (!piece) return {};
        if (piece->first != offset) {
            return fail(ErrorKind::infrastructure, fmt::format("{} returned a different range than requested", m_url));
        }
        offset += piece->bytes.size();
        if (!out(piece->bytes) || offset >= piece->size) return {};
    }
}

Result<std::uint64_t> AgentFile::tail_offset(std::size_t lines) {
    std::uint64_t end = 0;  // end of the part that was not searched yet
    std::uint64_t size = 0;
    std::size_t found = 0;
    for (bool first = true; first || end > 0; first = false) {
        const std::uint64_t begin = end - std::min(end, k_piece);
        GDNCTL_TRY_ASSIGN(const auto piece,
                          get(first ? fmt::format("-{}", k_tail_piece) : fmt::format("{}-{}", begin, end - 1)));
        if (!piece) return 0;
        if (first) size = piece->first + piece->bytes.size();
        if (lines == 0) return size;
        for (std::size_t i = piece->bytes.size(); i > 0; --i) {
            const std::uint64_t at = piece->first + i - 1;
            if (piece->bytes[i - 1] != '\n' || at + 1 == size) continue;
            if (++found == lines) return at + 1;
        }
        end = piece->first;
    }
    return 0;
}

}  // namespace gdnctl::ray
