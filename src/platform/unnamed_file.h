// A temporary file without a name, so that nothing is left behind however this process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "platform/fs.h"

namespace gdnctl {

class UnnamedFile {
public:
    // In the folder for temporary files. Error: local_io.
    static Result<UnnamedFile> create();

    // A path to it that this process can open.
    std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(m_fd.get()); }
    // At most `most` bytes from `offset`; fewer at its end. Error: local_io.
    Result<std::string> read(std::uint64_t offset, std::size_t most) const;
    // Error: local_io.
    Status append(std::string_view bytes);

private:
    explicit UnnamedFile(UniqueFd fd) : m_fd(std::move(fd)) {}
    UniqueFd m_fd;
};

}  // namespace gdnctl
