// The time in front of what a long command says.
#pragma once

#include <string_view>

#include "core/log.h"

namespace gdnctl::log {

// While one lives, every line has the local time after its prefix: "[gdnctl] 17:53:07+01:00 text".
class Timed {
public:
    Timed();
    ~Timed();
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
};

// A line that scripts know from its beginning: never with a time.
void write_as_it_is(Level level, std::string_view text);

}  // namespace gdnctl::log
