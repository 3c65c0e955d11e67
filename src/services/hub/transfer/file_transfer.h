// The transfer of one file: locks, partial file, requests, verification, publication.
#pragma once

#include <optional>
#include <string>

#include "platform/fd.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/part_file.h"
#include "services/hub/transfer/tail_ranges.h"

namespace gdnctl::hub {

class FileTransfer final : public HttpReceiver {
public:
    // `connections`: the maximum for this file.
    FileTransfer(Downloader& owner, Wire& wire, const Wanted& file, FileResult& result, int connections);

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
    Outcome<void> resume_part();
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
    void retry(Failure failure, int status);
    void body_ended();
    void verify();
    void mismatch(std::string what);
    bool accept_range();
    bool one_stream();
    void finish(FileStatus status);
    void fail(Failure failure);

    Downloader& m_owner;
    Wire& m_wire;
    const Wanted& m_file;
    FileResult& m_result;
    State m_state = State::locking;
    Clock::Monotonic m_begun, m_next_look, m_said;
    const int m_connections;
    UniqueFd m_lock;
    PartFile m_part;
    BlockWriter m_writer{m_part};
    TailRanges m_tails{m_wire, m_part};
    std::int64_t m_offset = 0;  // bytes of the file received and hashed
    std::int64_t m_end = 0;     // end of the current request, where the tails begin
    std::int64_t m_noted = 0;   // bytes of all parts at the last note
    std::int64_t m_most = 0;    // the highest m_offset so far
    bool m_resumed = false;
    bool m_second_chance = true;  // one clean download after a wrong hash
    std::optional<Digester> m_digester;
    std::string m_start;  // the first bytes
    std::size_t m_url = 0;
    Hop m_hop;
    Tries m_tries;

    // For the current answer.
    int m_status = 0;
    HttpHeaders m_headers;
    std::string m_error_body;
    bool m_bad_range = false, m_too_long = false, m_accepted = false;
    std::optional<Failure> m_local;
};

}  // namespace gdnctl::hub
