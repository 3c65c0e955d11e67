// What a piece of work has to say, kept from stderr for whoever gathers it.
#pragma once

#include <functional>
#include <string_view>

#include "core/log.h"

namespace gdnctl::log {

// While one lives, the lines of this thread go to `take` (with the prefix, redacted, without a newline and without a
// time), those of `least` and above whatever --quiet says. Lines of `shown` and above go to stderr as well. The latest
// one has them all.
class Diverted {
public:
    using Take = std::function<void(std::string_view line)>;
    explicit Diverted(Take take, Level least = Level::info, Level shown = Level::off);
    ~Diverted();
    Diverted(const Diverted&) = delete;
    Diverted& operator=(const Diverted&) = delete;

    void take(std::string_view line) const { m_take(line); }
    Level least() const { return m_least; }
    bool shows(Level level) const { return level >= m_shown && level != Level::off; }

private:
    Take m_take;
    Level m_least, m_shown;
    const Diverted* m_outer;
};

}  // namespace gdnctl::log
