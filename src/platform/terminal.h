// stdout for data, stderr for people.
#pragma once

#include <memory>
#include <string_view>

#include "core/result.h"
#include "platform/env.h"

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
    // Hands what is buffered to the system; a command that streams calls it whenever its reader should see the text.
    // Error (once): local_io, stdout cannot be written.
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

// The real terminal. stdout is buffered (by line on a TTY) and flushed by flush() and the destructor. Not thread-safe.
// Makes sure that descriptors 0 to 2 are taken, so that no file opened later is written to by mistake, and ignores
// SIGPIPE and SIGXFSZ, so that a closed pipe and a file size limit are errors and not deaths.
std::unique_ptr<Terminal> make_terminal(ColorMode mode, const Env& env = process_env(), int out_fd = 1, int err_fd = 2);

// The process's own stdout and stderr. The mode of the first call stays.
Terminal& system_terminal(ColorMode mode);

}  // namespace gdnctl
