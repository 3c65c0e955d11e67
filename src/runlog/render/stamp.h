// Writes the commit's sha into an entry that was written before the commit existed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl::runlog {

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

}  // namespace gdnctl::runlog
