// From records to the Markdown of a running log.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "runlog/records/record.h"

namespace gdnctl::runlog {

struct RenderOptions {
    std::size_t max_bytes = 4096;  // longer lists and texts are cut, with a pointer to the record; 0: no limit
};

// The entry of a record, from its heading on, lines ended by \n. Metrics are spelled ``- label: `N ms -> N ms` ``; each
// number stands in one place.
std::string render_entry(const Json& record, const RenderOptions& options = {});
// The same between `<!-- gdnctl:begin … -->` and `<!-- gdnctl:end -->`, final newline included.
std::string render_block(const Json& record, const RenderOptions& options = {});

// `  - while: `8.886552 ms -> 8.978471 ms`` without the bullet; `unit` as in extra_metrics ("" by the key).
std::string render_metric(std::string_view key, const Json& value);
// The same of what a loop has measured alone, whose record has more digits than anybody reads: as many as an entry
// shows of times, else five. Other values as above.
std::string render_measured(std::string_view key, const Json& value);
// With at most five digits and the unit, where no record follows from it.
std::string metric_for_people(std::string_view key, const Json& value);
// `1 failed, 87 passed, 2 skipped`, `OK`, `FAILED (exit 1)`.
std::string render_check_result(const Json& check);
// `none (failed attempt)`, `this commit`, a sha.
std::string render_commit(const Json& record);

// Where the log is not what its records give.
struct Difference {
    enum class Kind {
        missing,   // a record without an entry
        stale,     // a generated entry that differs from its record
        edited,    // a generated entry that was changed by hand since
        orphan,    // a generated entry without a record
        unmarked,  // an entry written by hand has the number of a record
        imported,  // a hand-written entry changed after it was imported
        unclosed,  // a begin marker without its end
    };
    Kind kind = Kind::missing;
    std::string id;
    IterationNumber iteration;
    std::string message;   // "iteration 12: the entry was changed by hand"
    bool settled = false;  // Placement::text no longer has it
};
const char* name_of(Difference::Kind kind);

struct Placement {
    std::string text;                     // the log with missing and stale entries written
    std::vector<Difference> differences;  // of the log as it was
    // Nothing is left that only a person can decide.
    bool complete() const;
};

struct PlaceOptions {
    bool overwrite_edited = false;
    bool only_missing = false;  // stale entries stay as they are, and are not reported ...
    std::string rewrite_id;     // ... but for the one of this record
    RenderOptions render;
};

// Puts the entries of `current` (superseded records already dropped; `all` knows them too) into the log. Text outside
// the markers is not touched. A missing entry goes where its number belongs. Errors: usage (file over its limits).
Result<Placement> place_records(std::string_view log, std::span<const Json> current, std::span<const Json> all,
                                const PlaceOptions& options = {});

// Digest of a hand-written entry, kept by its imported record to tell whether the entry changed since.
std::string entry_digest(std::string_view entry_text);

}  // namespace gdnctl::runlog
