// stdout for data, stderr for people.
#pragma once

#include <string_view>

#include "gdnctl/core/result.h"

namespace gdnctl {

class Terminal {
public:
    virtual ~Terminal() = default;
    // Writes bytes to stdout as they are. After a broken pipe (`| head`) further writes are dropped silently and
    // out_closed() is true: streaming commands stop then, others go on and keep their exit code. Any other failure
    // (disk full) is reported once, by flush().
    virtual void out(std::string_view bytes) = 0;
    // Writes bytes to stderr as they are; failures are ignored.
    virtual void err(std::string_view bytes) = 0;
    virtual Status flush() = 0;
    virtual bool out_closed() const = 0;

    virtual bool out_is_tty() const = 0;
    virtual bool err_is_tty() const = 0;
    virtual int columns() const = 0;  // COLUMNS, else the terminal's width, else 100; at least 40
    // Whether to colour what goes to stdout/stderr: --color, NO_COLOR, TTY and TERM=dumb are already considered.
    virtual bool color_out() const = 0;
    virtual bool color_err() const = 0;
};

enum class ColorMode { automatic, always, never };

// The process's own stdout and stderr. The mode of the first call stays.
Terminal& system_terminal(ColorMode mode);

}  // namespace gdnctl
