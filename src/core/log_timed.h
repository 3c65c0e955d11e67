// Adds the local time to the lines of a long-running command.
#pragma once

#include <string_view>

#include "core/log.h"

namespace gdnctl::log {

// While an instance exists, every line has the local time after its prefix: "[gdnctl] 17:53:07+01:00 text".
class Timed {
public:
    Timed();
    ~Timed();
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
};

// Writes a line without the time, for scripts that match its beginning.
void write_as_it_is(Level level, std::string_view text);

}  // namespace gdnctl::log
