#include "services/hub/transfer/tail_ranges.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace gdnctl::hub {

namespace {

constexpr std::int64_t k_mib = std::int64_t{1} << 20;
constexpr std::int64_t k_worth_cutting = 64 * k_mib;
constexpr std::int64_t k_smallest_part = 16 * k_mib;
constexpr std::int64_t k_most_parts = 4;
constexpr int k_partial = 206;

}  // namespace

std::vector<Span> cut_into_parts(std::int64_t from, std::int64_t size, int connections) {
    const std::int64_t left = size - from;
    const std::int64_t count =
        left < k_worth_cutting
            ? 1
            : std::clamp(std::min<std::int64_t>(connections, left / k_smallest_part), std::int64_t{1}, k_most_parts);
    std::vector<Span> spans;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t begin = from + left / count * i;
        spans.push_back({begin, begin, i + 1 == count ? size : from + left / count * (i + 1)});
    }
    spans.front().begin = 0;
    return spans;
}

bool is_range(std::string_view content_range, std::int64_t begin, std::int64_t end, std::int64_t size) {
    return content_range == fmt::format("bytes {}-{}/{}", begin, end - 1, size);
}

void TailRanges::set(const std::vector<Span>& spans) {
    drop();
    for (const Span& span : spans) m_parts.push_back(std::make_unique<Part>(*this, span));
}

void TailRanges::start(const Hop& hop, std::int64_t size) {
    m_size = size;
    for (const auto& part : m_parts) {
        if (part->asked || part->span.whole()) continue;
        part->asked = true;
        HttpRequest request =
            m_wire.request_for(hop, "GET", {{"Range", fmt::format("bytes={}-{}", part->span.at, part->span.end - 1)}});
        part->active = m_wire.pool().start(std::move(request), *part).has_value();
    }
}

void TailRanges::flush() {
    for (const auto& part : m_parts) (void)part->flush();
}

void TailRanges::drop() {
    for (auto& part : m_parts) {
        part->writer.discard();
        m_dropped.push_back(std::move(part));
    }
    m_parts.clear();
}

void TailRanges::cancel() {
    drop();
    for (const auto& part : m_dropped) m_wire.pool().cancel(*part);
    m_dropped.clear();
}

std::vector<Span> TailRanges::spans() const {
    std::vector<Span> spans;
    for (const auto& part : m_parts) spans.push_back(part->span);
    return spans;
}

std::int64_t TailRanges::bytes() const {
    std::int64_t bytes = 0;
    for (const auto& part : m_parts) bytes += part->span.at - part->span.begin;
    return bytes;
}

std::int64_t TailRanges::take_arrived() { return std::exchange(m_arrived, 0); }

bool TailRanges::Part::on_head(int status, const HttpHeaders& headers) {
    return status == k_partial &&
           is_range(find_header(headers, "content-range").value_or(""), span.at, span.end, owner.m_size);
}

bool TailRanges::Part::on_body(std::string_view bytes) {
    const auto& kept = owner.m_parts;
    const bool wanted = std::any_of(kept.begin(), kept.end(), [this](const auto& part) { return part.get() == this; });
    const std::int64_t at = span.at + writer.held();
    const auto count = static_cast<std::int64_t>(bytes.size());
    if (!wanted || count > span.end - at) return false;
    auto written = writer.add(bytes, at);
    if (written && at + count == span.end) written = writer.flush();
    return took(at + count, std::move(written));
}

// Data that is no longer buffered is on disk, up to `end`. False: it is not.
bool TailRanges::Part::took(std::int64_t end, Outcome<void> written) {
    if (!written) {
        owner.m_failure = std::move(written).error();
        return false;
    }
    const std::int64_t on_disk = end - writer.held();
    owner.m_arrived += on_disk - span.at;
    span.at = on_disk;
    return true;
}

bool TailRanges::Part::flush() {
    const std::int64_t end = span.at + writer.held();
    return took(end, writer.flush());
}

void TailRanges::Part::on_end(const HttpEnd& end) {
    active = false;
    (void)flush();
    if (!span.whole())
        log::debug("a part of a file stops at byte {}{}", span.at, end.error ? ": " + end.error->text() : "");
}

}  // namespace gdnctl::hub
