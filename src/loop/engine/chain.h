// The journal that both modes of codex-loop write: one JSON object a line, on the disk before the next step is taken,
// each with the hash of the line before.
//
// Envelope: {"v":1,"seq":n,"ts":"2026-03-10T16:53:07Z","type":"...","prev":"<SHA-256 of the line before, without its
// newline>"}, `prev` of the first: 64 zeros. What the types and the payload beside it mean is each mode's own.
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

// Whether a key belongs to the envelope.
bool is_envelope(std::string_view key);

// The errors of a journal, with the number of the line.
tl::unexpected<Error> unknown_record(std::string_view name, std::size_t line, std::string_view what);  // config
tl::unexpected<Error> damaged_journal(std::string_view name, std::size_t line, std::string_view why);  // conflict

// Hands each line of a journal's text to `use`, checked: version, number and hash of the line before. A torn last line
// is left out. An error of `use` is returned once the lines behind have been checked: whether a line is a newer
// gdnctl's or was changed is told by the one after it. Returns the last line. Errors: config (a version that this
// program does not know), conflict (exit 7: a line was changed or lost, with its number).
using UseRecord = std::function<Status(const Json& record, std::size_t line)>;
Result<std::string> read_chain(std::string_view text, std::string_view name, const UseRecord& use);
// The same of a file, a line at a time; a file that is not there is an empty one. Error besides those: local_io.
Result<std::string> read_chain_file(const std::filesystem::path& path, const UseRecord& use);

// The text of one line, without newline. `facts`: the payload, after the envelope.
Result<std::string> chain_line(std::uint64_t seq, std::string_view time, std::string_view type, const Json& facts,
                               std::string_view previous_line);

// The one writer. Append-only: see platform's Journal.
class ChainJournal {
public:
    // A journal that cannot be understood is not repaired either. Errors: those of read_chain() and Journal.
    static Result<ChainJournal> open(const std::filesystem::path& path, const UseRecord& use);
    std::uint64_t records() const { return m_records; }
    const std::string& last_line() const { return m_last; }
    // What a killed writer left unfinished and open() cut off.
    const std::string& cut_off() const { return m_cut_off; }

    // Returns when it is on the disk. Errors: local_io, with nothing of it in the file; conflict, the file was removed.
    Status append(std::string_view type, const Json& facts, std::string_view time);
    // Makes a file that was removed again: `text` has all its lines. Error conflict: another one is there now.
    Status write_again(std::string_view text);

private:
    ChainJournal(std::filesystem::path path, Journal journal)
        : m_path(std::move(path)), m_journal(std::move(journal)), m_cut_off(m_journal->cut_off()) {}
    std::filesystem::path m_path;
    std::optional<Journal> m_journal;  // nullopt: it could not be written again
    std::string m_cut_off, m_last;
    std::uint64_t m_records = 0;
};

}  // namespace gdnctl::loop
