#include "services/hub/transfer/file_transfer.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/signals.h"
#include "services/hub/transfer/layout.h"
#include "services/hub/transfer/rate_limit.h"

namespace gdnctl::hub {

namespace {

using std::chrono::milliseconds;

constexpr int k_ok = 200;
constexpr int k_partial = 206;
constexpr int k_unauthorized = 401;
constexpr int k_forbidden = 403;
constexpr int k_gone = 410;
constexpr int k_bad_range = 416;
constexpr std::size_t k_error_body = std::size_t{64} << 10;
constexpr std::string_view k_pointer = "version https://git-lfs.github.com/spec/v1";
constexpr milliseconds k_lock_poll{100};
constexpr std::chrono::seconds k_lock_word{10};
constexpr mode_t k_lock_mode = 0664;

bool delivers(int status) { return status == k_ok || status == k_partial; }

std::string_view hash_name(Digest::Kind kind) {
    switch (kind) {
        case Digest::Kind::sha256: return "sha256";
        case Digest::Kind::git_sha1: return "git sha1";
        case Digest::Kind::md5: return "md5";
        case Digest::Kind::none: break;
    }
    return "no hash";
}

}  // namespace

FileTransfer::FileTransfer(Downloader& owner, Wire& wire, const Wanted& file, FileResult& result, int connections)
    : m_owner(owner),
      m_wire(wire),
      m_file(file),
      m_result(result),
      m_connections(connections),
      m_part(owner.m_folder, file, owner.m_options.commit),
      m_end(file.size) {}

void FileTransfer::begin() {
    m_begun = m_said = m_wire.clock().monotonic();
    auto lock = m_owner.m_folder.open_file(lock_path(m_file.local), O_RDWR | O_CREAT, k_lock_mode);
    if (!lock) return fail(std::move(lock).error());
    m_lock = std::move(*lock);
    try_lock();
}

void FileTransfer::poll() {
    look_at_tails();
    if (m_state == State::following) return follow();
    const Clock::Monotonic now = m_wire.clock().monotonic();
    if (now < m_next_look) return;
    if (m_state == State::locking) try_lock();
    const auto gate = m_wire.gate();
    if (m_state == State::waiting && (!gate || now >= *gate)) request();
}

// Uses the official client's lock, so that both can work in one folder.
void FileTransfer::try_lock() {
    const Clock::Monotonic now = m_wire.clock().monotonic();
    if (::flock(m_lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        m_next_look = now + k_lock_poll;
        if (now - m_said >= k_lock_word) {
            m_said = now;
            log::info("waiting for another process that downloads {}", shown(m_file.path));
        }
        return;
    }
    // Another process may have fetched it in the meantime.
    FileResult found = m_owner.look_at(m_file);
    if (found.failure) return fail(*std::move(found.failure));
    if (found.status != FileStatus::skipped) return finish(found.status);
    open_part();
}

void FileTransfer::open_part() {
    if (auto opened = m_part.open(); !opened) return fail(std::move(opened).error());
    if (auto resumed = resume_part(); !resumed) return fail(std::move(resumed).error());
    note_parts();
    if (m_offset < m_end) return request();
    m_state = State::following;
    follow();
}

// False: m_local says why. Keeps the partial file as it is.
bool FileTransfer::restart_from_zero() {
    m_offset = 0;
    m_resumed = false;
    m_start.clear();
    auto digester = Digester::create(m_owner.m_options.verify ? m_file.digest.kind : Digest::Kind::none, m_file.size);
    if (!digester) {
        m_local = failure_of(digester.error());
        return false;
    }
    m_digester = std::move(*digester);
    return true;
}

void FileTransfer::request() {
    ++m_result.attempts;
    const auto url = parse_url(m_file.urls.at(m_url));
    if (!url) {
        Failure failure;
        failure.message = fmt::format("the server gives no usable address for {}", shown(m_file.path));
        return fail(std::move(failure));
    }
    m_hop = first_hop(m_wire.realm(), *url);
    if (m_url == 0 && m_file.first_without_token) m_hop.with_token = false;
    send();
}

void FileTransfer::send() {
    m_state = State::running;
    m_status = 0;
    m_headers.clear();
    m_error_body.clear();
    m_bad_range = m_too_long = m_accepted = false;
    HttpHeaders headers;
    if (m_end < m_file.size) {
        headers.emplace_back("Range", fmt::format("bytes={}-{}", m_offset, m_end - 1));
    } else if (m_offset > 0) {
        headers.emplace_back("Range", fmt::format("bytes={}-", m_offset));
    }
    const Status started = m_wire.pool().start(m_wire.request_for(m_hop, "GET", std::move(headers)), *this);
    if (!started) fail(failure_of(started.error()));
}

bool FileTransfer::on_head(int status, const HttpHeaders& headers) {
    m_status = status;
    m_headers = headers;
    if (status == k_ok && (m_offset > 0 || m_end < m_file.size)) {  // the server ignored the range
        return restart_from_zero() && one_stream();
    }
    if (status == k_partial) m_accepted = accept_range();
    m_bad_range = status == k_partial && !m_accepted;
    return !m_bad_range;
}

bool FileTransfer::on_body(std::string_view bytes) {
    if (m_local) return false;
    if (!delivers(m_status)) {
        m_error_body += bytes.substr(0, k_error_body - std::min(k_error_body, m_error_body.size()));
        return m_error_body.size() < k_error_body;
    }
    if (m_start.size() < k_pointer.size()) m_start += bytes.substr(0, k_pointer.size() - m_start.size());
    if (static_cast<std::int64_t>(bytes.size()) > m_end - m_offset) {
        m_too_long = true;
        return false;
    }
    m_result.bytes_transferred += static_cast<std::int64_t>(bytes.size());
    if (auto written = m_writer.add(bytes, m_offset); !written) {
        m_local = std::move(written).error();
        return false;
    }
    if (const Status ok = m_digester->update(bytes); !ok) {
        m_local = failure_of(ok.error());
        return false;
    }
    m_offset += static_cast<std::int64_t>(bytes.size());
    if (m_offset > m_most) {  // progress: earlier failures no longer count
        m_most = m_offset;
        m_tries.progress(m_wire.clock());
    }
    return true;
}

void FileTransfer::on_end(const HttpEnd& end) {
    if (!flush()) return fail(*m_local);
    if (m_too_long) return mismatch(fmt::format("the server sent more than the {} bytes that it has", m_file.size));
    if (m_bad_range) return refused_range();
    if (end.error) {
        if (end.worth_another_try) return retry(failure_of(*end.error), 0);
        return fail(failure_of(*end.error));
    }
    answered(end);
}

void FileTransfer::refused_range() {
    Failure failure;
    failure.message = fmt::format("the range from byte {} was answered with {} '{}'", m_offset, m_status,
                                  shown(find_header(m_headers, "content-range").value_or("no Content-Range")));
    failure.http_status = m_status;
    if (!restart_from_zero() || !one_stream()) return fail(*m_local);
    retry(std::move(failure), 0);
}

void FileTransfer::answered(const HttpEnd& end) {
    if (!end.redirect_url.empty()) {
        auto next = next_hop(m_wire.realm(), m_hop, end.redirect_url);
        if (!next) return fail(std::move(next).error());
        m_hop = std::move(*next);
        return send();
    }
    if (delivers(m_status)) return body_ended();
    if (m_status == k_bad_range && (m_offset > 0 || m_end < m_file.size)) return refused_range();
    Failure failure = m_owner.m_explain(m_hop.url.text(), m_status, m_headers, m_error_body);
    // A signed address expires; the service provides a new one.
    const bool ran_out = m_hop.redirects > 0 && !m_hop.with_token &&
                         (m_status == k_unauthorized || m_status == k_forbidden || m_status == k_gone);
    if (is_worth_retrying(m_status) || ran_out) return retry(std::move(failure), m_status);
    if (m_url + 1 < m_file.urls.size()) {
        ++m_url;
        return request();
    }
    fail(std::move(failure));
}

void FileTransfer::retry(Failure failure, int status) {
    const auto wait = m_wire.wait_before_retry(m_tries, status, status == 0 ? nullptr : &m_headers);
    if (!wait) {
        if (m_url + 1 < m_file.urls.size()) {
            ++m_url;
            m_tries = {};
            return request();
        }
        failure.message += fmt::format(" ({})", wait.error());
        return fail(std::move(failure));
    }
    constexpr milliseconds k_announced{1000};
    log::write(*wait >= k_announced ? log::Level::info : log::Level::debug,
               fmt::format("{}: {}; trying again in {} (retry {} of {})", shown(m_file.path), shown(failure.message),
                           format_duration(*wait), m_tries.retries, m_wire.policy().retries));
    m_state = State::waiting;
    m_next_look = m_wire.clock().monotonic() + *wait;
}

void FileTransfer::body_ended() {
    if (m_offset == m_end) {
        m_state = State::following;
        return follow();
    }
    const auto length = text::parse_int(find_header(m_headers, "content-length").value_or(""));
    // With a length, this is the server's whole file; without one, the connection may have been cut.
    if (m_status == k_ok && length == m_offset) {
        return mismatch(fmt::format("the server sent {} bytes instead of {}", m_offset, m_file.size));
    }
    Failure failure;
    failure.message = fmt::format("the body ended after {} of {} bytes", m_offset, m_file.size);
    retry(std::move(failure), 0);
}

void FileTransfer::verify() {
    if (!flush()) return fail(*m_local);
    if (auto cut = m_part.cut(m_file.size); !cut) return fail(std::move(cut).error());
    if (m_owner.m_options.verify && m_file.digest.kind != Digest::Kind::none) {
        const auto hex = m_digester->hex();
        if (!hex) return fail(failure_of(hex.error()));
        if (*hex != m_file.digest.hex) {
            return mismatch(
                fmt::format("its {} is {}, expected {}", hash_name(m_file.digest.kind), *hex, m_file.digest.hex));
        }
    }
    auto published = m_owner.publish(m_file, m_part.path());
    if (!published) return fail(std::move(published).error());
    m_result.hashed = m_owner.m_options.verify && m_file.digest.kind != Digest::Kind::none;
    finish(m_resumed ? FileStatus::resumed : FileStatus::downloaded);
}

void FileTransfer::mismatch(std::string what) {
    if (m_start.starts_with(k_pointer)) what = "the server sent the LFS pointer instead of the file";
    m_tails.cancel();
    m_part.remove();
    if (std::exchange(m_second_chance, false)) {
        log::warning("{}: {}; downloading it once more", shown(m_file.path), what);
        m_tries = {};
        m_most = 0;
        return open_part();
    }
    Failure failure;
    failure.kind = ErrorKind::conflict;
    failure.message = std::move(what);
    failure.hint = "a proxy on the way may change files; otherwise tell the repository's owner";
    failure.http_status = m_status;
    fail(std::move(failure));
}

void FileTransfer::finish(FileStatus status) {
    m_result.bytes_transferred += m_tails.take_arrived();
    m_result.status = status;
    m_result.elapsed = std::chrono::duration_cast<milliseconds>(m_wire.clock().monotonic() - m_begun);
    m_offset = m_file.size;
    if (status == FileStatus::failed || status == FileStatus::skipped) m_offset = 0;
    m_part.close();
    m_lock.reset();
    m_state = State::done;
}

void FileTransfer::fail(Failure failure) {
    m_tails.flush();
    if (flush() && !m_tails.empty()) note_parts();
    m_tails.cancel();
    const bool stopped = kind_word(failure.kind) == "interrupted";
    m_result.failure = std::move(failure);
    finish(stopped ? FileStatus::skipped : FileStatus::failed);
}

void FileTransfer::interrupt() {
    m_wire.pool().cancel(*this);
    fail(failure_of(stopped_error()));
}

}  // namespace gdnctl::hub
