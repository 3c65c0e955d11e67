// A development TPU that a run holds, as far as those who use it need to know.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::loop {

class HeldTpu {
public:
    virtual ~HeldTpu() = default;
    virtual bool active() const = 0;
    virtual std::string cluster() const = 0;  // the one it is on now: another one may follow when it is lost
    virtual std::string name() const = 0;
    // Allocates it again, on any of its clusters; false: not available. The holder limits how often it tries.
    virtual bool reacquire(std::string_view reason) = 0;
};

}  // namespace gdnctl::loop
