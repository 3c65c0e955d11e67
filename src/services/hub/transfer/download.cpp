#include "services/hub/transfer/download.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "services/hub/transfer/out_folder.h"
#include "services/hub/transfer/part_file.h"
#include "services/hub/transfer/retrying_client.h"

namespace gdnctl::hub {

namespace {

constexpr std::string_view k_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

bool is_hex(std::string_view text, std::size_t digits) {
    return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

Result<Digester> Digester::create(Digest::Kind kind, std::int64_t size) {
    Digester digester;
    if (kind == Digest::Kind::none) return digester;
    const HashKind hash = kind == Digest::Kind::sha256     ? HashKind::sha256
                          : kind == Digest::Kind::git_sha1 ? HashKind::sha1
                                                           : HashKind::md5;
    GDNCTL_TRY_ASSIGN(digester.m_hasher, Hasher::create(hash));
    if (kind == Digest::Kind::git_sha1) {
        const std::string head = fmt::format("blob {}", size);
        GDNCTL_TRY(digester.m_hasher->update(std::string_view(head.c_str(), head.size() + 1)));  // including its NUL
    }
    return digester;
}

Status Digester::update(std::string_view bytes) { return m_hasher ? m_hasher->update(bytes) : Status(); }

Result<std::string> Digester::hex() { return m_hasher ? m_hasher->hex() : Result<std::string>(std::string()); }

std::string hex_of_base64(std::string_view text) {
    std::string hex;
    unsigned bits = 0;
    int held = 0;
    for (const char c : text.substr(0, text.find('='))) {
        const std::size_t value = k_digits.find(c);
        if (value == std::string_view::npos) return {};
        bits = (bits << 6U) | static_cast<unsigned>(value);
        for (held += 6; held >= 8; held -= 8)
            hex += fmt::format("{:02x}", (bits >> static_cast<unsigned>(held - 8)) & 0xFFU);
        bits &= (1U << static_cast<unsigned>(held)) - 1;
    }
    return hex;
}

std::string base64_of_hex(std::string_view hex) {
    std::string bits;
    for (const char c : hex) bits += fmt::format("{:04b}", c <= '9' ? c - '0' : c - 'a' + 10);
    std::string text;
    for (std::size_t i = 0; i < bits.size(); i += 6) {
        std::string group = bits.substr(i, 6);
        group.resize(6, '0');
        std::size_t value = 0;
        for (const char bit : group) value = value * 2 + (bit == '1' ? 1 : 0);
        text += k_digits[value];
    }
    while (text.size() % 4 != 0) text += '=';
    return text;
}

// The transfer of one file: locks, partial file, requests, verification, publication.

class FileTransfer final : public HttpReceiver {
public:
    // `connections`: the maximum for this file.
    FileTransfer(Downloader& owner, RetryingClient& client, const Wanted& file, FileResult& result, int connections);

    void begin();
    // Checks locks, whether a retry is due, and what its other connections have received.
    void poll();
    bool done() const { return m_state == State::done; }
    // poll() can do more at once.
    bool busy() const { return m_state == State::following && !m_tails.empty() && m_tails.front().at > m_offset; }
    std::int64_t bytes() const;
    void interrupt();

    bool on_head(int status, const HttpHeaders& headers) override;
    bool on_body(std::string_view bytes) override;
    void on_end(const HttpEnd& end) override;

private:
    // following: the next part of the file arrives, or has arrived, on another connection.
    enum class State { locking, waiting, running, following, done };

    void try_lock();
    void open_part();
    Status resume_part();
    bool flush();
    void note_parts();
    void look_at_tails();
    void start_tails();
    void follow();
    bool restart_from_zero();
    void request();
    void send();
    void answered(const HttpEnd& end);
    void refused_range();
    void retry(Error failure, int status);
    void body_ended();
    void verify();
    void mismatch(std::string what);
    bool accept_range();
    bool one_stream();
    void finish(FileStatus status);
    // `status`: of the answer that is the failure; 0: none is.
    void give_up(Error failure, int status = 0);

    Downloader& m_owner;
    RetryingClient& m_client;
    const Wanted& m_file;
    FileResult& m_result;
    State m_state = State::locking;
    Clock::Monotonic m_begun, m_next_look, m_said;
    const int m_connections;
    UniqueFd m_lock;
    PartFile m_part;
    BlockWriter m_writer{m_part};
    TailRanges m_tails{m_client, m_part};
    std::int64_t m_offset = 0;  // bytes of the file received and hashed
    std::int64_t m_end = 0;     // end of the current request, where the tails begin
    std::int64_t m_noted = 0;   // bytes of all parts at the last note
    std::int64_t m_most = 0;    // the highest m_offset so far
    bool m_resumed = false;
    bool m_second_chance = true;  // one clean download after a wrong hash
    std::optional<Digester> m_digester;
    std::string m_start;  // the first bytes
    std::size_t m_url = 0;
    RedirectStep m_step;
    Tries m_tries;

    // For the current answer.
    int m_status = 0;
    HttpHeaders m_headers;
    std::string m_error_body;
    bool m_bad_range = false, m_too_long = false, m_accepted = false;
    std::optional<Error> m_local;
};

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

Error broken(std::string message) { return {ErrorKind::infrastructure, std::move(message), {}, {}}; }

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

FileTransfer::FileTransfer(Downloader& owner, RetryingClient& client, const Wanted& file, FileResult& result,
                           int connections)
    : m_owner(owner),
      m_client(client),
      m_file(file),
      m_result(result),
      m_connections(connections),
      m_part(owner.m_folder, file, owner.m_options.commit),
      m_end(file.size) {}

void FileTransfer::begin() {
    m_begun = m_said = m_client.clock().monotonic();
    auto lock = m_owner.m_folder.open_file(lock_path(m_file.local), O_RDWR | O_CREAT, k_lock_mode);
    if (!lock) return give_up(std::move(lock).error());
    m_lock = std::move(*lock);
    try_lock();
}

void FileTransfer::poll() {
    look_at_tails();
    if (m_state == State::following) return follow();
    const Clock::Monotonic now = m_client.clock().monotonic();
    if (now < m_next_look) return;
    if (m_state == State::locking) try_lock();
    const auto gate = m_client.gate();
    if (m_state == State::waiting && (!gate || now >= *gate)) request();
}

// Uses the official client's lock, so that both can work in one folder.
void FileTransfer::try_lock() {
    const Clock::Monotonic now = m_client.clock().monotonic();
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
    if (found.failure) return give_up(*std::move(found.failure));
    if (found.status != FileStatus::skipped) return finish(found.status);
    open_part();
}

void FileTransfer::open_part() {
    if (auto opened = m_part.open(); !opened) return give_up(std::move(opened).error());
    if (auto resumed = resume_part(); !resumed) return give_up(std::move(resumed).error());
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
        m_local = digester.error();
        return false;
    }
    m_digester = std::move(*digester);
    return true;
}

void FileTransfer::request() {
    ++m_result.attempts;
    const auto url = parse_url(m_file.urls.at(m_url));
    if (!url) return give_up(broken(fmt::format("the server returned no usable address for {}", shown(m_file.path))));
    m_step = first_step(m_client.service(), *url);
    if (m_url == 0 && m_file.first_without_token) m_step.with_token = false;
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
    const Status started = m_client.pool().start(m_client.request_for(m_step, "GET", std::move(headers)), *this);
    if (!started) give_up(started.error());
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
        m_local = ok.error();
        return false;
    }
    m_offset += static_cast<std::int64_t>(bytes.size());
    if (m_offset > m_most) {  // progress: earlier failures no longer count
        m_most = m_offset;
        m_tries.progress(m_client.clock());
    }
    return true;
}

void FileTransfer::on_end(const HttpEnd& end) {
    if (!flush()) return give_up(*m_local);
    if (m_too_long) return mismatch(fmt::format("the server sent more than the {} bytes that it has", m_file.size));
    if (m_bad_range) return refused_range();
    if (end.error) {
        if (end.worth_another_try) return retry(*end.error, 0);
        return give_up(*end.error);
    }
    answered(end);
}

void FileTransfer::refused_range() {
    Error failure = broken(fmt::format("the range from byte {} was answered with {} '{}'", m_offset, m_status,
                                       shown(find_header(m_headers, "content-range").value_or("no Content-Range"))));
    if (!restart_from_zero() || !one_stream()) return give_up(*m_local);
    retry(std::move(failure), m_status);
}

void FileTransfer::answered(const HttpEnd& end) {
    if (!end.redirect_url.empty()) {
        auto next = next_step(m_client.service(), m_step, end.redirect_url);
        if (!next) return give_up(std::move(next).error());
        m_step = std::move(*next);
        return send();
    }
    if (delivers(m_status)) return body_ended();
    if (m_status == k_bad_range && (m_offset > 0 || m_end < m_file.size)) return refused_range();
    Error failure = m_owner.m_explain(m_step.url.text(), m_status, m_headers, m_error_body);
    // A signed address expires; the service provides a new one.
    const bool ran_out = m_step.redirects > 0 && !m_step.with_token &&
                         (m_status == k_unauthorized || m_status == k_forbidden || m_status == k_gone);
    if (http::is_worth_retrying(m_client.policy(), "GET", m_status) || ran_out)
        return retry(std::move(failure), m_status);
    if (m_url + 1 < m_file.urls.size()) {
        ++m_url;
        return request();
    }
    give_up(std::move(failure), m_status);
}

void FileTransfer::retry(Error failure, int status) {
    const auto wait = m_client.wait_before_retry(m_tries, status, status == 0 ? nullptr : &m_headers);
    if (!wait) {
        if (m_url + 1 < m_file.urls.size()) {
            ++m_url;
            m_tries = {};
            return request();
        }
        failure.message += fmt::format(" ({})", wait.error());
        return give_up(std::move(failure), status);
    }
    constexpr milliseconds k_announced{1000};
    log::write(*wait >= k_announced ? log::Level::info : log::Level::debug,
               fmt::format("{}: {}; trying again in {} (retry {} of {})", shown(m_file.path), shown(failure.text()),
                           format_duration(*wait), m_tries.retries, m_client.retries()));
    m_state = State::waiting;
    m_next_look = m_client.clock().monotonic() + *wait;
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
    retry(broken(fmt::format("the body ended after {} of {} bytes", m_offset, m_file.size)), 0);
}

void FileTransfer::verify() {
    if (!flush()) return give_up(*m_local);
    if (auto cut = m_part.cut(m_file.size); !cut) return give_up(std::move(cut).error());
    if (m_owner.m_options.verify && m_file.digest.kind != Digest::Kind::none) {
        const auto hex = m_digester->hex();
        if (!hex) return give_up(hex.error());
        if (*hex != m_file.digest.hex) {
            return mismatch(
                fmt::format("its {} is {}, expected {}", hash_name(m_file.digest.kind), *hex, m_file.digest.hex));
        }
    }
    auto published = m_owner.publish(m_file, m_part.path());
    if (!published) return give_up(std::move(published).error());
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
    give_up({ErrorKind::conflict,
             std::move(what),
             "a proxy on the way may change files; otherwise tell the repository's owner",
             {}},
            m_status);
}

void FileTransfer::finish(FileStatus status) {
    m_result.bytes_transferred += m_tails.take_arrived();
    m_result.status = status;
    m_result.elapsed = std::chrono::duration_cast<milliseconds>(m_client.clock().monotonic() - m_begun);
    m_offset = m_file.size;
    if (status == FileStatus::failed || status == FileStatus::skipped) m_offset = 0;
    m_part.close();
    m_lock.reset();
    m_state = State::done;
}

void FileTransfer::give_up(Error failure, int status) {
    m_tails.flush();
    if (flush() && !m_tails.empty()) note_parts();
    m_tails.cancel();
    const bool stopped = kind_word(failure.kind) == "interrupted";
    m_result.failure = std::move(failure);
    m_result.http_status = status;
    if (status != 0) m_result.request_id = request_id_of(m_headers);
    finish(stopped ? FileStatus::skipped : FileStatus::failed);
}

void FileTransfer::interrupt() {
    m_client.pool().cancel(*this);
    give_up(stopped_error());
}

// Where a transfer continues, and files that arrive on several connections.

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
Status FileTransfer::resume_part() {
    if (!restart_from_zero()) return tl::unexpected(*m_local);
    auto spans = m_part.earlier();
    if (!spans) return tl::unexpected(std::move(spans).error());
    const bool usable = !m_owner.m_options.force && std::any_of(spans->begin(), spans->end(),
                                                                [](const Span& span) { return span.at > span.begin; });
    if (!usable) {
        GDNCTL_TRY(m_part.cut(0));
        *spans = {{0, 0, m_file.size}};
    }
    const std::int64_t first = spans->front().at;
    if (m_owner.m_options.verify) {
        auto read =
            digest_file(m_part.fd(), 0, first, *m_digester, m_client.stop(), m_owner.m_folder.whole(m_part.path()));
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
        m_client.pool().cancel(*this);
        return give_up(*m_tails.failure());
    }
    m_result.bytes_transferred += m_tails.take_arrived();
    start_tails();
    if (bytes() - m_noted >= k_note_step) note_parts();
}

// Once an address is known to serve ranges, requests the other parts from it, too.
void FileTransfer::start_tails() {
    if (m_accepted && m_connections > 1) m_tails.start(m_step, m_file.size);
}

// Hashes what another connection has received, and takes over where that one has stopped.
void FileTransfer::follow() {
    start_tails();  // the first part may have arrived at once
    while (!m_tails.empty()) {
        const Span next = m_tails.front();
        if (m_offset < next.at) {
            if (m_owner.m_options.verify) {
                const std::int64_t count = std::min(k_slice, next.at - m_offset);
                auto read = digest_file(m_part.fd(), m_offset, count, *m_digester, m_client.stop(),
                                        m_owner.m_folder.whole(m_part.path()));
                if (!read) return give_up(std::move(read).error());
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

// Finds what is already downloaded.

namespace {

constexpr std::size_t k_block = std::size_t{64} << 10;
constexpr std::size_t k_longest_metadata = 4096;
constexpr double k_clock_slack_s = 1;  // as in the official client

double seconds_of(const timespec& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

std::string_view word_of(FileStatus status) {
    switch (status) {
        case FileStatus::downloaded: return "downloaded";
        case FileStatus::resumed: return "resumed";
        case FileStatus::up_to_date: return "up-to-date";
        case FileStatus::copied: return "copied";
        case FileStatus::failed: return "failed";
        case FileStatus::skipped: return "skipped";
    }
    return "";
}

Status digest_file(int fd, std::int64_t begin, std::int64_t length, Digester& digester, const std::stop_token& stop,
                   const std::filesystem::path& name) {
    std::vector<char> buffer(k_block);
    for (std::int64_t at = 0; at < length;) {
        if (stop.stop_requested()) return tl::unexpected(stopped_error());
        const auto wanted =
            static_cast<std::size_t>(std::min<std::int64_t>(length - at, static_cast<std::int64_t>(k_block)));
        const ssize_t got = ::pread(fd, buffer.data(), wanted, begin + at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return tl::unexpected(local_failure("read", name, got < 0 ? errno : EIO));
        GDNCTL_TRY(digester.update({buffer.data(), static_cast<std::size_t>(got)}));
        at += got;
    }
    return {};
}

Result<bool> Downloader::has_content(const Wanted& file, const UniqueFd& fd) const {
    struct stat facts{};
    if (::fstat(fd.get(), &facts) != 0 || facts.st_size != file.size) return false;
    GDNCTL_TRY_ASSIGN(auto digester, Digester::create(file.digest.kind, file.size));
    GDNCTL_TRY(digest_file(fd.get(), 0, file.size, digester, m_stop, m_folder.whole(file.local)));
    const auto hex = digester.hex();
    return hex && *hex == file.digest.hex;
}

Status Downloader::write_metadata(const Wanted& file) {
    if (!m_options.records || m_options.dry_run) return {};
    GDNCTL_TRY_ASSIGN(auto facts, m_folder.facts(file.local));
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const double written = facts ? seconds_of(facts->st_mtim) : now;  // the server's clock may be ahead
    return m_folder.replace(metadata_path(file.local),
                            metadata_text({m_options.commit, file.etag, std::max(now, written)}));
}

// By the record of an earlier download, or by the file's own hash.
Result<Downloader::Found> Downloader::is_there(const Wanted& file) {
    GDNCTL_TRY_ASSIGN(const auto facts, m_folder.facts(file.local));
    if (!facts) return Found::missing;
    if (S_ISDIR(facts->st_mode)) return tl::unexpected(local_failure("write", m_folder.whole(file.local), EISDIR));
    if (facts->st_size != file.size) return Found::other_content;
    if (m_options.records && !m_options.hash_all) {
        const std::string path = metadata_path(file.local);
        const auto text = m_folder.read(path, k_longest_metadata);
        const auto record = text && *text ? parse_metadata(**text) : std::nullopt;
        const bool valid = record && seconds_of(facts->st_mtim) - k_clock_slack_s <= record->time;
        if (valid && record->etag == file.etag) {
            if (record->commit == m_options.commit) return Found::by_record;
            GDNCTL_TRY(write_metadata(file));
            return Found::by_record;
        }
        if (valid)
            return Found::other_content;  // the record is for another version, and the file was not modified since
        if (text && *text && !record && !m_options.dry_run) m_folder.remove(path);
    }
    GDNCTL_TRY_ASSIGN(auto fd, m_folder.open_file(file.local, O_RDONLY));
    GDNCTL_TRY_ASSIGN(const auto same, has_content(file, fd));
    if (!same) return Found::other_content;
    GDNCTL_TRY(write_metadata(file));
    return Found::by_hash;
}

Result<bool> Downloader::copy_blob(const Wanted& file) {
    if (file.blob.empty()) return false;
    const UniqueFd source(
        ::open(file.blob.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // also opens a pipe without blocking
    if (!source.valid()) return false;
    auto same = has_content(file, source);
    if (!same || !*same || m_options.dry_run) return same;
    GDNCTL_TRY_ASSIGN(const auto part, part_path(file.local, file.etag, fmt::format(".{}", ::getpid())));
    GDNCTL_TRY_ASSIGN(auto target, m_folder.open_file(part, O_WRONLY | O_CREAT | O_TRUNC));
    std::vector<char> buffer(k_block);
    for (std::int64_t at = 0; at < file.size;) {
        const ssize_t got = ::pread(source.get(), buffer.data(), buffer.size(), at);
        const int why = got <= 0 ? EIO : write_fully(target.get(), {buffer.data(), static_cast<std::size_t>(got)});
        if (why != 0) {
            m_folder.remove(part);
            return tl::unexpected(local_failure("write", m_folder.whole(part), why));
        }
        at += got;
    }
    GDNCTL_TRY(publish(file, part));
    return true;
}

Status Downloader::publish(const Wanted& file, std::string_view part) {
    GDNCTL_TRY(m_folder.move(part, file.local));
    m_folder.remove(sidecar_path(part));
    return write_metadata(file);
}

FileResult Downloader::look_at(const Wanted& file) {
    FileResult result;
    const auto failed = [&result](Error failure) {
        result.failure = std::move(failure);
        const bool stopped = kind_word(result.failure->kind) == "interrupted";
        result.status = stopped ? FileStatus::skipped : FileStatus::failed;
        return result;
    };
    bool differs = false;
    if (file.refused) return failed(*file.refused);
    if (m_stop.stop_requested()) return failed(stopped_error());
    if (!m_options.force) {
        auto there = is_there(file);
        if (!there) return failed(std::move(there).error());
        if (*there == Found::by_record || *there == Found::by_hash) {
            result.status = FileStatus::up_to_date;
            result.hashed = *there == Found::by_hash;
            return result;
        }
        auto copied = copy_blob(file);
        if (!copied) return failed(std::move(copied).error());
        if (*copied) {
            result.status = FileStatus::copied;
            result.hashed = true;
            return result;
        }
        differs = *there == Found::other_content;
    }
    if (m_options.offline) {
        return failed({differs && m_options.hash_all ? ErrorKind::conflict : ErrorKind::infrastructure,
                       fmt::format("{} {}, and nothing is fetched in offline mode", shown(file.path),
                                   differs ? "has other content on this machine" : "is not on this machine"),
                       {},
                       {}});
    }
    if (differs && m_options.hash_all) {
        log::warning("{}: the file on this machine has another hash than the service's; it is downloaded again",
                     shown(file.path));
    }
    return result;
}

std::vector<FileResult> Downloader::look(const std::vector<Wanted>& files) {
    std::vector<FileResult> results;
    results.reserve(files.size());
    for (const Wanted& file : files) results.push_back(look_at(file));
    return results;
}

namespace {

constexpr std::chrono::milliseconds k_step{50};

bool is_to_be_fetched(const FileResult& result) { return result.status == FileStatus::skipped && !result.failure; }

// Largest first, so that no large file is left alone at the end.
std::vector<std::size_t> order_of(const std::vector<Wanted>& files, const std::vector<FileResult>& results) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < files.size(); ++i) {
        if (is_to_be_fetched(results[i])) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return files[a].size > files[b].size; });
    return order;
}

}  // namespace

void Downloader::fetch(const std::vector<Wanted>& files, std::vector<FileResult>& results, const OnProgress& progress) {
    const std::vector<std::size_t> order = order_of(files, results);
    std::vector<std::unique_ptr<FileTransfer>> active;
    // With fewer files than connections, a large file may use several.
    const int connections = m_options.jobs / static_cast<int>(std::max<std::size_t>(order.size(), 1));
    std::size_t next = 0, files_done = 0;
    std::int64_t bytes_done = 0;
    const auto fail_rest = [&](const Error& failure, FileStatus status) {
        for (; next < order.size(); ++next) {
            results[order[next]].failure = failure;
            results[order[next]].status = status;
        }
    };
    while (next < order.size() || !active.empty()) {
        if (m_stop.stop_requested()) {
            for (const auto& transfer : active) transfer->interrupt();
            return fail_rest(stopped_error(), FileStatus::skipped);
        }
        const auto gate = m_client->gate();
        const bool open = !gate || m_clock.monotonic() >= *gate;
        while (open && next < order.size() && active.size() < static_cast<std::size_t>(m_options.jobs)) {
            const std::size_t file = order[next++];
            active.push_back(std::make_unique<FileTransfer>(*this, *m_client, files[file], results[file], connections));
            active.back()->begin();
        }
        for (const auto& transfer : active) transfer->poll();
        const bool busy = std::any_of(active.begin(), active.end(), [](const auto& one) { return one->busy(); });
        if (m_client->pool().idle()) {
            const bool waits = std::none_of(active.begin(), active.end(), [](const auto& one) { return one->done(); });
            if (waits && !busy && (!active.empty() || !open)) m_clock.sleep_for(k_step, m_stop);
        } else if (const Status step = m_client->pool().step(busy ? std::chrono::milliseconds(0) : k_step); !step) {
            for (const auto& transfer : active) transfer->interrupt();
            return fail_rest(step.error(), FileStatus::failed);
        }
        std::int64_t bytes = 0;
        std::erase_if(active, [&](const auto& transfer) {
            if (!transfer->done()) {
                bytes += transfer->bytes();
                return false;
            }
            bytes_done += transfer->bytes();
            ++files_done;
            return true;
        });
        progress(bytes_done + bytes, files_done);
    }
}

}  // namespace gdnctl::hub
