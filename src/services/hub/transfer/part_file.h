// The partial file of a download: bytes that a later run may go on from, and beside it a note of what they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/fd.h"
#include "services/hub/transfer/out_folder.h"

namespace gdnctl::hub {

struct Wanted;

// One part of a file: of [begin, end), everything before `at` has come.
struct Span {
    std::int64_t begin = 0, at = 0, end = 0;
    bool whole() const { return at == end; }
};

// "[[0, 10, 20], [20, 20, 40]]" in a note; empty: it has none, or they are no parts of a file of `size` bytes of which
// `there` are on disk.
std::vector<Span> parse_spans(std::string_view note, std::int64_t size, std::int64_t there);

class PartFile {
public:
    PartFile(OutFolder& folder, const Wanted& file, std::string commit)
        : m_folder(folder), m_file(file), m_commit(std::move(commit)) {}

    // Errors of all: local_io.
    Outcome<void> open();
    // What an earlier run has left of the file: its parts in order, without gaps. One empty part: nothing of use.
    Outcome<std::vector<Span>> earlier() const;
    Outcome<void> write(std::string_view bytes, std::int64_t at);
    Outcome<void> cut(std::int64_t size);
    // Says what the file is. `spans`: which parts of it have come, where it has several; otherwise its length says it.
    void note(const std::vector<Span>& spans);
    // Lets go of it. A file that nobody can go on from is removed.
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

// Bytes that come one after the other, written in blocks: libcurl gives 16 KB at a time, and a call of the system for
// each takes longer than their hash.
class BlockWriter {
public:
    explicit BlockWriter(PartFile& file) : m_file(file) {}

    // `at`: where the first of them goes, behind those that came before.
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
