// A file that grows line by line during an attempt, with secrets masked.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/result.h"
#include "platform/fd.h"

namespace gdnctl::codex {

class Transcript {
public:
    // Creates the file (0600), replacing an old one; an empty path discards everything. Error: local_io.
    Status open(const std::filesystem::path& path);
    void line(std::string_view text);
    bool failed() const { return m_error != 0; }
    Status close();  // the first error, if any: local_io

private:
    std::filesystem::path m_path;
    UniqueFd m_fd;
    int m_error = 0;
};

}  // namespace gdnctl::codex
