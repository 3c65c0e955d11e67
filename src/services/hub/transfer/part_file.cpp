#include "services/hub/transfer/part_file.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/json.h"
#include "core/log.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/out_folder.h"

namespace gdnctl::hub {

namespace {

constexpr std::int64_t k_worth_a_note = std::int64_t{1} << 20;
constexpr std::size_t k_read_block = std::size_t{256} << 10;
constexpr std::size_t k_longest_note = std::size_t{64} << 10;

}  // namespace

std::vector<Span> parse_spans(std::string_view note, std::int64_t size, std::int64_t there) {
    const Json json = Json::parse(note, nullptr, false);
    const Json* listed = json::array(json, "spans");
    if (listed == nullptr) return {};
    std::vector<Span> spans;
    std::int64_t end = 0;
    for (const Json& one : *listed) {
        if (!one.is_array() || one.size() != 3) return {};
        for (const Json& number : one) {
            if (!number.is_number_integer()) return {};
        }
        const Span span{one[0].get<std::int64_t>(), one[1].get<std::int64_t>(), one[2].get<std::int64_t>()};
        const bool sound = span.begin == end && span.begin <= span.at && span.at <= span.end && span.at <= there;
        if (!sound) return {};
        end = span.end;
        spans.push_back(span);
    }
    return end == size ? spans : std::vector<Span>();
}

Status PartFile::open() {
    m_is_shared = m_folder.locks_can_be_trusted();
    for (;;) {
        const std::string owner = m_is_shared ? "" : fmt::format(".{}-{:x}", ::getpid(), std::time(nullptr));
        GDNCTL_TRY_ASSIGN(auto path, part_path(m_file.local, m_file.etag, owner));
        m_path = std::move(path);
        GDNCTL_TRY_ASSIGN(auto fd, m_folder.open_file(m_path, O_RDWR | O_CREAT));
        m_fd = std::move(fd);
        // Without working locks, use a name of our own, which cannot be continued.
        if (!m_is_shared || ::flock(m_fd.get(), LOCK_EX | LOCK_NB) == 0) return {};
        m_is_shared = false;
    }
}

Result<std::vector<Span>> PartFile::earlier() const {
    const std::vector<Span> nothing = {{0, 0, m_file.size}};
    struct stat facts{};
    if (::fstat(m_fd.get(), &facts) != 0) return tl::unexpected(local_failure("read", m_path, errno));
    if (facts.st_size == 0 || facts.st_size > m_file.size) return nothing;
    auto note = m_folder.read(sidecar_path(m_path), k_longest_note);
    if (!note) return tl::unexpected(std::move(note).error());
    // If parts arrive out of order, the file is longer than what was received.
    const bool in_parts = *note && (*note)->find("\"spans\"") != std::string::npos;
    if (!in_parts) return std::vector<Span>{{0, facts.st_size, m_file.size}};
    std::vector<Span> spans = parse_spans(**note, m_file.size, facts.st_size);
    return spans.empty() ? nothing : spans;
}

Status PartFile::write(std::string_view bytes, std::int64_t at) {
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(m_fd.get(), bytes.data(), bytes.size(), at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            return tl::unexpected(local_failure("write", m_folder.whole(m_file.local), written < 0 ? errno : EIO));
        }
        bytes.remove_prefix(static_cast<std::size_t>(written));
        at += written;
    }
    return {};
}

Status PartFile::cut(std::int64_t size) {
    if (::ftruncate(m_fd.get(), size) == 0) return {};
    return tl::unexpected(local_failure("write", m_folder.whole(m_file.local), errno));
}

void PartFile::note(const std::vector<Span>& spans) {
    if (m_file.size < k_worth_a_note) return;
    Json note;
    if (spans.size() > 1) {
        Json list = Json::array();
        for (const Span& span : spans) list.push_back(Json::array({span.begin, span.at, span.end}));
        note["spans"] = std::move(list);
    }
    note["commit"] = m_commit;
    note["path"] = m_file.path;
    note["hash"] = m_file.digest.hex;
    note["size"] = m_file.size;
    note["pid"] = ::getpid();
    std::string text = to_text(note) + "\n";
    // Overwrites the note in place. The changes fit in the first page, which a kill cannot tear; a new file each time
    // would cost more than it saves.
    if (text.size() < m_note_size) text.insert(text.size() - 1, m_note_size - text.size(), ' ');
    if (m_note.valid() && ::pwrite(m_note.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
        m_note_size = text.size();
        return;
    }
    m_note.reset();
    auto written = m_folder.replace(sidecar_path(m_path), text);
    if (!written) return log::debug("{}", written.error().message);
    m_note_size = text.size();
    if (auto fd = m_folder.open_file(sidecar_path(m_path), O_WRONLY)) m_note = std::move(*fd);
}

void PartFile::close() {
    struct stat facts{};
    const bool empty = m_fd.valid() && ::fstat(m_fd.get(), &facts) == 0 && facts.st_size == 0;
    if (empty || (m_fd.valid() && !m_is_shared)) remove();
    m_fd.reset();
    m_note.reset();
}

void PartFile::remove() {
    m_note.reset();
    m_note_size = 0;
    m_folder.remove(m_path);
    m_folder.remove(sidecar_path(m_path));
}

Status BlockWriter::add(std::string_view bytes, std::int64_t at) {
    if (m_bytes.empty()) m_at = at;
    m_bytes += bytes;
    return m_bytes.size() < k_read_block ? Status() : flush();
}

Status BlockWriter::flush() {
    auto written = m_file.write(m_bytes, m_at);
    m_bytes.clear();
    return written;
}

namespace {

constexpr std::int64_t k_mebibyte = std::int64_t{1} << 20;
constexpr std::int64_t k_worth_cutting = 64 * k_mebibyte;
constexpr std::int64_t k_smallest_part = 16 * k_mebibyte;
constexpr std::int64_t k_most_parts = 4;
constexpr int k_partial_content = 206;

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

void TailRanges::start(const RedirectStep& step, std::int64_t size) {
    m_size = size;
    for (const auto& part : m_parts) {
        if (part->asked || part->span.whole()) continue;
        part->asked = true;
        HttpRequest request = m_client.request_for(
            step, "GET", {{"Range", fmt::format("bytes={}-{}", part->span.at, part->span.end - 1)}});
        part->active = m_client.pool().start(std::move(request), *part).has_value();
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
    for (const auto& part : m_dropped) m_client.pool().cancel(*part);
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
    return status == k_partial_content &&
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
bool TailRanges::Part::took(std::int64_t end, Status written) {
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
