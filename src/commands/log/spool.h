// Buffers a log for a JSON object in a temporary file: the log may be larger than memory, and the keys before it are
// known only when it has ended.
#pragma once

#include <string_view>

#include "core/result.h"
#include "platform/fd.h"
#include "platform/terminal.h"

namespace gdnctl::commands {

class LogSpool {
public:
    // Error: local_io.
    static Result<LogSpool> open();

    // After a failure (disk full) further bytes are dropped; status() reports it.
    void append(std::string_view bytes);
    Status status() const;
    // Prints all of it as a JSON string, with the quotes; bytes that are not UTF-8 are replaced.
    Status print(Terminal& terminal) const;

private:
    explicit LogSpool(UniqueFd fd) : m_fd(std::move(fd)) {}

    UniqueFd m_fd;
    int m_problem = 0;
};

}  // namespace gdnctl::commands
