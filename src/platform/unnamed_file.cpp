#include "platform/unnamed_file.h"

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace gdnctl {

Result<UnnamedFile> UnnamedFile::create() {
    std::error_code problem;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(problem);
    if (problem) {
        return fail(ErrorKind::local_io, "no folder for temporary files: " + problem.message(), "set TMPDIR");
    }
    std::string name = (folder / "gdnctl-package-XXXXXX").string();
    UniqueFd fd(mkostemp(name.data(), O_CLOEXEC));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "create", name, errno));
    unlink(name.c_str());
    return UnnamedFile(std::move(fd));
}

Result<std::string> UnnamedFile::read(std::uint64_t offset, std::size_t most) const {
    std::string bytes(most, '\0');
    std::size_t done = 0;
    while (done < most) {
        const ssize_t n = pread(m_fd.get(), bytes.data() + done, most - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tl::unexpected(file_error(ErrorKind::local_io, "read", "a temporary file", errno));
        if (n == 0) break;
        done += static_cast<std::size_t>(n);
    }
    bytes.resize(done);
    return bytes;
}

Status UnnamedFile::append(std::string_view bytes) {
    if (const int problem = write_fully(m_fd.get(), bytes); problem != 0) {
        return tl::unexpected(file_error(ErrorKind::local_io, "write", "a temporary file", problem));
    }
    return {};
}

}  // namespace gdnctl
