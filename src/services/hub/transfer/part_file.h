// The partial file of a download, which a later run may continue, and a note that describes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/fd.h"
#include "services/hub/transfer/out_folder.h"

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
    Outcome<void> open();
    // The parts of the file from an earlier run, in order, without gaps. One empty part: nothing usable.
    Outcome<std::vector<Span>> earlier() const;
    Outcome<void> write(std::string_view bytes, std::int64_t at);
    Outcome<void> cut(std::int64_t size);
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
    Outcome<void> add(std::string_view bytes, std::int64_t at);
    Outcome<void> flush();
    void discard() { m_bytes.clear(); }
    std::int64_t held() const { return static_cast<std::int64_t>(m_bytes.size()); }

private:
    PartFile& m_file;
    std::string m_bytes;
    std::int64_t m_at = 0;
};

}  // namespace gdnctl::hub
