// What a piece of work has to say, kept from stderr for whoever gathers it.
#pragma once

#include <functional>
#include <string_view>

#include "core/log.h"

namespace gdnctl::log {

// While one lives, the lines of this thread go to `take` (with the prefix, redacted, without a newline), those of level
// info and above whatever --quiet says, and none with a time. The latest one has them all.
class Diverted {
public:
    using Take = std::function<void(std::string_view line)>;
    explicit Diverted(Take take);
    ~Diverted();
    Diverted(const Diverted&) = delete;
    Diverted& operator=(const Diverted&) = delete;

    void take(std::string_view line) const { m_take(line); }

private:
    Take m_take;
    const Diverted* m_outer;
};

}  // namespace gdnctl::log
