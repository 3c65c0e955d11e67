// The partial file of a download, which a later run may continue, and a note that describes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/fs.h"
#include "services/hub/transfer/out_folder.h"
#include "services/hub/transfer/retrying_client.h"

namespace gdnctl::hub {

struct Wanted;

// One part of a file: of [begin, end), everything before `at` has been received.
struct Span {
    std::int64_t begin = 0, at = 0, end = 0;
    bool whole() const { return at == end; }
};

// Parses "[[0, 10, 20], [20, 20, 40]]" in a note; empty: none, or not valid parts of a file of `size` bytes with
// `there` bytes on disk.
std::vector<Span> parse_spans(std::string_view note, std::int64_t size, std::int64_t there);

class PartFile {
public:
    PartFile(OutFolder& folder, const Wanted& file, std::string commit)
        : m_folder(folder), m_file(file), m_commit(std::move(commit)) {}

    // Errors of all: local_io.
    Status open();
    // The parts of the file from an earlier run, in order, without gaps. One empty part: nothing usable.
    Result<std::vector<Span>> earlier() const;
    Status write(std::string_view bytes, std::int64_t at);
    Status cut(std::int64_t size);
    // Writes the note. `spans`: what was received of each part, if there are several; otherwise the file's length shows
    // it.
    void note(const std::vector<Span>& spans);
    // Closes the file, and removes it if it cannot be continued.
    void close();
    void remove();

    int fd() const { return m_fd.get(); }
    const std::string& path() const { return m_path; }

private:
    OutFolder& m_folder;
    const Wanted& m_file;
    const std::string m_commit;
    std::string m_path;
    UniqueFd m_fd, m_note;
    std::size_t m_note_size = 0;
    bool m_is_shared = true;  // the next run may continue it
};

// Combines consecutive bytes into blocks: libcurl delivers 16 KB at a time, and one system call for each takes longer
// than hashing.
class BlockWriter {
public:
    explicit BlockWriter(PartFile& file) : m_file(file) {}

    // `at`: offset of the first byte, directly after the previous ones.
    Status add(std::string_view bytes, std::int64_t at);
    Status flush();
    void discard() { m_bytes.clear(); }
    std::int64_t held() const { return static_cast<std::int64_t>(m_bytes.size()); }

private:
    PartFile& m_file;
    std::string m_bytes;
    std::int64_t m_at = 0;
};

// The later parts of a large file, each on its own connection, while the first part arrives on the transfer's. They
// only save time: if a part fails, the transfer continues from where it stopped.

// Cuts [from, size) into parts: one per connection, at most four, none below 16 MiB; a single part if less than 64 MiB
// are left.
std::vector<Span> cut_into_parts(std::int64_t from, std::int64_t size, int connections);

// Whether a Content-Range is "bytes <begin>-<end - 1>/<size>".
bool is_range(std::string_view content_range, std::int64_t begin, std::int64_t end, std::int64_t size);

class TailRanges {
public:
    TailRanges(RetryingClient& client, PartFile& part) : m_client(client), m_part(part) {}
    ~TailRanges() { cancel(); }
    TailRanges(const TailRanges&) = delete;
    TailRanges& operator=(const TailRanges&) = delete;

    // The parts after the first, in order.
    void set(const std::vector<Span>& spans);
    bool empty() const { return m_parts.empty(); }
    // Requests each incomplete part from `step`, the address that serves the first part, unless it was already
    // requested. Must not be called from a receiver's callbacks, like cancel().
    void start(const RedirectStep& step, std::int64_t size);
    // Writes received data to disk.
    void flush();
    // Stops all of them.
    void drop();
    void cancel();

    const Span& front() const { return m_parts.front()->span; }
    bool front_is_coming() const { return m_parts.front()->active; }
    // Its last byte may have arrived before its end, so the pool may still know it.
    void pop() {
        m_dropped.push_back(std::move(m_parts.front()));
        m_parts.erase(m_parts.begin());
    }

    std::vector<Span> spans() const;
    std::int64_t bytes() const;                                        // of these parts, on disk
    std::int64_t take_arrived();                                       // bytes received since the last call
    const std::optional<Error>& failure() const { return m_failure; }  // a local failure: ends the whole transfer

private:
    struct Part final : HttpReceiver {
        Part(TailRanges& its_owner, const Span& its_span)
            : owner(its_owner), span(its_span), writer(its_owner.m_part) {}
        bool on_head(int status, const HttpHeaders& headers) override;
        bool on_body(std::string_view bytes) override;
        void on_end(const HttpEnd& end) override;
        bool flush();
        bool took(std::int64_t end, Status written);

        TailRanges& owner;
        Span span;  // of what is on disk
        BlockWriter writer;
        bool asked = false, active = false;
    };

    RetryingClient& m_client;
    PartFile& m_part;
    std::vector<std::unique_ptr<Part>> m_parts, m_dropped;
    std::int64_t m_size = 0, m_arrived = 0;
    std::optional<Error> m_failure;
};

}  // namespace gdnctl::hub
