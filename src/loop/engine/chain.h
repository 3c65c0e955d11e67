// The journal that both modes of codex-loop write: one JSON object per line, on disk before the next step starts, each
// with the hash of the previous line.
//
// Envelope: {"v":1,"seq":n,"ts":"2026-03-10T16:53:07Z","type":"...","prev":"<SHA-256 of the previous line, without its
// newline>"}; `prev` of the first line is 64 zeros. Each mode defines its own types and payload.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "platform/journal.h"

namespace gdnctl::loop {

// Whether a key is part of the envelope.
bool is_envelope(std::string_view key);

// Errors about a journal, with the line number.
tl::unexpected<Error> unknown_record(std::string_view name, std::size_t line, std::string_view what);  // config
tl::unexpected<Error> damaged_journal(std::string_view name, std::size_t line, std::string_view why);  // conflict

// Passes each line of a journal to `use` after checking version, number and hash of the previous line. A torn last line
// is skipped. An error from `use` is returned only after the next lines have been checked, since only the following
// line shows whether a line was changed or written by a newer gdnctl. Returns the last line. Errors: config (an unknown
// version), conflict (exit 7: a line was changed or lost, with its number).
using UseRecord = std::function<Status(const Json& record, std::size_t line)>;
Result<std::string> read_chain(std::string_view text, std::string_view name, const UseRecord& use);
// The same for a file, line by line; a missing file counts as empty. Additional error: local_io.
Result<std::string> read_chain_file(const std::filesystem::path& path, const UseRecord& use);

// For a journal without records. Error conflict (exit 7): they were lost, because the file has NUL bytes in their
// place, or state.json beside it shows that there were some.
Status check_never_begun(const std::filesystem::path& path);

// The text of one line, without newline. `facts`: the payload that follows the envelope.
Result<std::string> chain_line(std::uint64_t seq, std::string_view time, std::string_view type, const Json& facts,
                               std::string_view previous_line);

// The only writer. Append-only: see Journal in platform.
class ChainJournal {
public:
    // Does not try to repair a journal that it cannot understand. Errors: those of read_chain() and Journal.
    static Result<ChainJournal> open(const std::filesystem::path& path, const UseRecord& use);
    std::uint64_t records() const { return m_records; }
    const std::string& last_line() const { return m_last; }
    // The incomplete line of a killed writer that open() cut off.
    const std::string& cut_off() const { return m_cut_off; }

    // Returns once the record is on disk. Errors: local_io, and none of the record is in the file; conflict: the file
    // was removed.
    Status append(std::string_view type, const Json& facts, std::string_view time);
    // Recreates a file that was removed; `text` has all its lines. Error conflict: another file exists there now.
    Status write_again(std::string_view text);

private:
    ChainJournal(std::filesystem::path path, Journal journal)
        : m_path(std::move(path)), m_journal(std::move(journal)), m_cut_off(m_journal->cut_off()) {}
    std::filesystem::path m_path;
    std::optional<Journal> m_journal;  // nullopt: it could not be recreated
    std::string m_cut_off, m_last;
    std::uint64_t m_records = 0;
};

}  // namespace gdnctl::loop
