// One file on its way: locks, partial file, requests, check, publication.
#pragma once

#include <optional>
#include <string>

#include "gdnctl/platform/fd.h"
#include "services/hub/transfer/download.h"

namespace gdnctl::hub {

class FileTransfer final : public HttpReceiver {
public:
    FileTransfer(Downloader& owner, Wire& wire, const Wanted& file, FileResult& result);

    void begin();
    // Looks at locks and at the time for another try.
    void poll();
    bool done() const { return m_state == State::done; }
    std::int64_t bytes() const { return m_offset; }
    void interrupt();

    bool on_head(int status, const HttpHeaders& headers) override;
    bool on_body(std::string_view bytes) override;
    void on_end(const HttpEnd& end) override;

private:
    enum class State { locking, waiting, running, done };

    void try_lock();
    void open_part();
    Outcome<void> resume_part();
    void write_sidecar();
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
    void finish(FileStatus status);
    void fail(Failure failure);

    Downloader& m_owner;
    Wire& m_wire;
    const Wanted& m_file;
    FileResult& m_result;
    State m_state = State::locking;
    Clock::Monotonic m_begun, m_next_look, m_said;
    bool m_waited = false;
    UniqueFd m_lock, m_part_fd;
    std::string m_part;
    bool m_part_is_shared = true;  // the next run may continue it
    std::int64_t m_offset = 0;     // bytes in the partial file
    std::int64_t m_most = 0;       // the highest m_offset so far
    bool m_resumed = false;
    bool m_second_chance = true;  // one clean download after a wrong hash
    std::optional<Digester> m_digester;
    std::string m_start;  // the first bytes
    std::size_t m_url = 0;
    Hop m_hop;
    Tries m_tries;

    // Of the answer that is coming in.
    int m_status = 0;
    HttpHeaders m_headers;
    std::string m_error_body;
    bool m_bad_range = false, m_too_long = false;
    std::optional<Failure> m_local;
};

}  // namespace gdnctl::hub
