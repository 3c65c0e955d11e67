// Where a transfer continues, and files that arrive on several connections.
#include <algorithm>

#include "services/hub/transfer/file_transfer.h"

namespace gdnctl::hub {

namespace {

constexpr std::int64_t k_mib = std::int64_t{1} << 20;
constexpr std::int64_t k_note_step = 4 * k_mib;  // the most that a kill can lose of each file
constexpr std::int64_t k_slice = 4 * k_mib;      // hashed at a time, between checks of the network

}  // namespace

std::int64_t FileTransfer::bytes() const {
    const std::int64_t ahead = m_tails.bytes();
    return std::min(m_offset, m_end) + ahead;
}

// Sets where to continue, and which parts use their own connections.
Outcome<void> FileTransfer::resume_part() {
    if (!restart_from_zero()) return tl::unexpected(*m_local);
    auto spans = m_part.earlier();
    if (!spans) return tl::unexpected(std::move(spans).error());
    const bool usable = !m_owner.m_options.force && std::any_of(spans->begin(), spans->end(),
                                                                [](const Span& span) { return span.at > span.begin; });
    if (!usable) {
        if (auto empty = m_part.cut(0); !empty) return empty;
        *spans = {{0, 0, m_file.size}};
    }
    const std::int64_t first = spans->front().at;
    if (m_owner.m_options.verify) {
        auto read =
            digest_file(m_part.fd(), 0, first, *m_digester, m_wire.stop(), m_owner.m_folder.whole(m_part.path()));
        if (!read) return read;
    }
    if (spans->size() == 1) *spans = cut_into_parts(first, m_file.size, m_connections);
    m_offset = m_most = first;
    m_end = spans->front().end;
    m_tails.set({spans->begin() + 1, spans->end()});
    m_resumed = usable;
    return {};
}

// False: m_local says why. Data that was hashed but is not on disk must never be published.
bool FileTransfer::flush() {
    if (auto written = m_writer.flush(); !written && !m_local) m_local = std::move(written).error();
    return !m_local;
}

// For whoever finds the partial file: after a kill, that is us.
void FileTransfer::note_parts() {
    if (!flush()) return;  // a note must not claim more than what is on disk
    std::vector<Span> spans = m_tails.spans();
    spans.insert(spans.begin(), {0, std::min(m_offset, m_end), m_end});
    m_part.note(spans);
    m_noted = bytes();
}

void FileTransfer::look_at_tails() {
    if (m_state == State::done || m_tails.empty()) return;
    if (m_tails.failure()) {
        m_wire.pool().cancel(*this);
        return fail(*m_tails.failure());
    }
    m_result.bytes_transferred += m_tails.take_arrived();
    start_tails();
    if (bytes() - m_noted >= k_note_step) note_parts();
}

// Once an address is known to serve ranges, requests the other parts from it, too.
void FileTransfer::start_tails() {
    if (m_accepted && m_connections > 1) m_tails.start(m_hop, m_file.size);
}

// Hashes what another connection has received, and takes over where that one has stopped.
void FileTransfer::follow() {
    start_tails();  // the first part may have arrived at once
    while (!m_tails.empty()) {
        const Span next = m_tails.front();
        if (m_offset < next.at) {
            if (m_owner.m_options.verify) {
                const std::int64_t count = std::min(k_slice, next.at - m_offset);
                auto read = digest_file(m_part.fd(), m_offset, count, *m_digester, m_wire.stop(),
                                        m_owner.m_folder.whole(m_part.path()));
                if (!read) return fail(std::move(read).error());
                m_offset += count;
                return;  // the network must not wait
            }
            m_offset = next.at;
        }
        if (!next.whole() && m_tails.front_is_coming()) return;
        m_tails.pop();
        m_end = next.end;
        note_parts();
        if (!next.whole()) return request();
    }
    verify();
}

// Fetches the rest in one piece, from m_offset on. False: m_local says why.
bool FileTransfer::one_stream() {
    const bool in_parts = !m_tails.empty();
    m_tails.drop();
    m_end = m_file.size;
    // Data after m_offset must not count as received.
    if (auto done = m_part.cut(m_offset); !done) {
        m_local = std::move(done).error();
        return false;
    }
    if (in_parts) note_parts();
    return true;
}

// "bytes 100-199/200" continues at our position.
bool FileTransfer::accept_range() {
    const std::string range = find_header(m_headers, "content-range").value_or("");
    if (is_range(range, m_offset, m_end, m_file.size)) return true;
    if (!is_range(range, m_offset, m_file.size, m_file.size)) return false;
    return one_stream();  // the server sends the whole rest
}

}  // namespace gdnctl::hub
