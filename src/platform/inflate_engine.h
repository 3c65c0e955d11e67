// Decompresses one stream or gzip member. Implemented by isa-l and by zlib.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "core/result.h"
#include "platform/inflate.h"

namespace gdnctl {

class InflateEngine {
public:
    enum class State {
        more,      // needs more input or more room
        end,       // stream complete, checksum right
        wrapper,   // header is not of this format
        damaged,   // the compressed data is invalid
        checksum,  // length or checksum differs
    };
    struct Step {
        std::size_t consumed;
        std::size_t produced;
        State state;
    };

    virtual ~InflateEngine() = default;
    virtual Step run(std::span<const char> input, std::span<char> output) = 0;
    virtual void restart() = 0;  // for the next gzip member
};

std::unique_ptr<InflateEngine> make_zlib_engine(DeflateFormat format);
// Error: infrastructure, no isa-l on this machine.
Result<std::unique_ptr<InflateEngine>> make_isal_engine(DeflateFormat format);

}  // namespace gdnctl
