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
    // Writes bytes to stdout: unchanged to a file or a pipe. A terminal gets text and colours; anything else that it
    // would obey is escaped (text::visible()), because the text may come from a job, an agent or a file, and a carriage
    // return starts a new line. After a broken pipe (`| head`), further writes are dropped silently and
    // out_closed() is true: streaming commands then stop, others continue and keep their exit code. flush() reports any
    // other failure (disk full) once.
    virtual void out(std::string_view bytes) = 0;
    // The same for stderr; failures are ignored.
    virtual void err(std::string_view bytes) = 0;
    // Our own cursor movements, never text from outside.
    virtual void move_out(std::string_view sequence) { out(sequence); }
    virtual void move_err(std::string_view sequence) { err(sequence); }
    // Flushes the buffer. A streaming command calls it whenever the reader should see the text. Error (once): local_io,
    // stdout cannot be written.
    virtual Status flush() = 0;
    virtual bool out_closed() const = 0;

    virtual bool out_is_tty() const = 0;
    virtual bool err_is_tty() const = 0;
    virtual int columns() const = 0;  // COLUMNS, else the terminal's width, else 100; at least 40
    // Whether to colour stdout/stderr. Takes --color, NO_COLOR, TTY and TERM=dumb into account.
    virtual bool color_out() const = 0;
    virtual bool color_err() const = 0;
};

enum class ColorMode { automatic, always, never };

// The real terminal. stdout is buffered (by line on a TTY) and flushed by flush() and the destructor. Not thread-safe.
// Opens descriptors 0 to 2 if they are closed, so that no file opened later is mistaken for a standard stream. Ignores
// SIGPIPE and SIGXFSZ, so that a closed pipe or a file size limit is an error instead of ending the program.
std::unique_ptr<Terminal> make_terminal(ColorMode mode, const Env& env = process_env(), int out_fd = 1, int err_fd = 2);

// The process's own stdout and stderr. The first call decides the mode.
Terminal& system_terminal(ColorMode mode);

}  // namespace gdnctl
