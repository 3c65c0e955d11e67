// Renders records as the Markdown of a running log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "runlog/parse/log.h"
#include "runlog/records/record.h"

namespace gdnctl::runlog {

struct RenderOptions {
    std::size_t max_bytes = 4096;  // longer lists and texts are cut, with a reference to the record; 0: no limit
};

// The entry of a record from its heading on, with \n as line ending. Metrics are spelled ``- label: `N ms
// -> N ms` ``; each number appears once.
std::string render_entry(const Json& record, const RenderOptions& options = {});
// The same between `<!-- gdnctl:begin … -->` and `<!-- gdnctl:end -->`, final newline included.
std::string render_block(const Json& record, const RenderOptions& options = {});

// `  - while: `8.886552 ms -> 8.978471 ms`` without the bullet; `unit` as in extra_metrics ("": from the key).
std::string render_metric(std::string_view key, const Json& value);
// The same for a value that a loop measured alone, with fewer digits than the record: as many as an entry shows of
// times, else five. Other values as above.
std::string render_measured(std::string_view key, const Json& value);
// With at most five digits and the unit, for text that no record is read back from.
std::string metric_for_people(std::string_view key, const Json& value);
// `1 failed, 87 passed, 2 skipped`, `OK`, `FAILED (exit 1)`.
std::string render_check_result(const Json& check);
// `none (failed attempt)`, `this commit`, a sha.
std::string render_commit(const Json& record);

// How the log differs from its records.
struct Difference {
    enum class Kind {
        missing,   // a record without an entry
        stale,     // a generated entry that is out of date with its record
        edited,    // a generated entry that was edited by hand
        orphan,    // a generated entry without a record
        unmarked,  // a hand-written entry with the number of a record
        imported,  // a hand-written entry changed after it was imported
        unclosed,  // a begin marker without its end
    };
    Kind kind = Kind::missing;
    std::string id;
    IterationNumber iteration;
    std::string message;   // "iteration 12: the entry was changed by hand"
    bool settled = false;  // fixed in Placement::text
};
const char* name_of(Difference::Kind kind);

struct Placement {
    std::string text;                     // the log with missing and stale entries written
    std::vector<Difference> differences;  // of the log before the change
    // No difference is left that a person must resolve.
    bool complete() const;
};

struct PlacementOptions {
    bool overwrite_edited = false;
    bool only_missing = false;  // stale entries are neither changed nor reported ...
    std::string rewrite_id;     // ... except for the entry of this record
    RenderOptions render;
};

// Writes the entries of `current` into the log. `current` excludes superseded records, `all` includes them. Text
// outside the markers is not changed. A missing entry is inserted by its number. Errors: usage (file over its limits).
Result<Placement> place_records(std::string_view log, std::span<const Json> current, std::span<const Json> all,
                                const PlacementOptions& options = {});

// Digest of a hand-written entry. Its imported record stores it, to detect later changes of the entry.
std::string entry_digest(std::string_view entry_text);

// Writes the commit's sha into an entry that was written before the commit existed.

struct Stamp {
    bool stamped = false;
    std::string text;        // the whole log; only set if stamped
    std::uint32_t line = 0;  // of the commit bullet
    std::string record_id;   // of the generated block that contains the bullet; empty: none
    std::string reason;      // why nothing was stamped
};

// Searches the last entry from its end for a line that starts with `- Commit:`, and stamps it if its value is `this
// commit` or `(pending)`. Indentation and line endings stay; the file ends with a newline. With any other value, or
// without an entry, nothing changes. Errors: usage (file over its limits).
Result<Stamp> stamp_last_entry(std::string_view log, std::string_view sha);

// Templates for a new log and for a new hand-written entry.

// Title, purpose and sections of a new log, without entries.
// `target`: its name, for the heading; `metric`: what its profile measures, for the goal. Empty: not known.
std::string log_head(Template kind, std::string_view target = {}, std::string_view metric = {});

// The template of an entry, with the known values of `record` filled in.
std::string entry_skeleton(const Json& record);

}  // namespace gdnctl::runlog
