// The result lines of marin's tune and bench scripts, old and new, and of the journal of `sweep run`, from any mixture
// of logs. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "sweep/record.h"

namespace gdnctl::sweep {

// In the order of their first lines. Unknown lines are passed over, those of several processes (by Ray's
// "(name pid=N)") are kept apart. A job that ended before its first result, for a reason that is known, is one failed
// record without label.
std::vector<Record> parse_results(std::string_view text, std::string_view file, const Assumed& assumed = {});

}  // namespace gdnctl::sweep
