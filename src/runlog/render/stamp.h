// Putting the commit into an entry that was written before it existed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl::runlog {

struct Stamp {
    bool stamped = false;
    std::string text;        // the whole log; meaningful when stamped
    std::uint32_t line = 0;  // of the commit bullet
    std::string record_id;   // of the generated block that the bullet stands in; empty: none
    std::string reason;      // why nothing was stamped
};

// The last entry's lines are read upwards; the first that starts with `- Commit:` is stamped if its value is
// `this commit` or `(pending)`: indentation and line endings stay, the file ends with a newline. Any other value, or no
// entry, changes nothing. Errors: usage (file over its limits).
Result<Stamp> stamp_last_entry(std::string_view log, std::string_view sha);

}  // namespace gdnctl::runlog
