// What users of a development TPU held by a run need to know about it.
#pragma once

#include <string>
#include <string_view>

namespace gdnctl::loop {

class HeldTpu {
public:
    virtual ~HeldTpu() = default;
    virtual bool active() const = 0;
    virtual std::string cluster() const = 0;  // the current one; it may change when the TPU is lost
    virtual std::string name() const = 0;
    // Allocates a TPU again on any of its clusters; false: none is available. The holder limits how often it tries.
    virtual bool reacquire(std::string_view reason) = 0;
};

}  // namespace gdnctl::loop
