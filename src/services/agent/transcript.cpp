#include "services/agent/transcript.h"

#include <cerrno>

#include <fcntl.h>

#include "core/redact.h"
#include "platform/fs.h"

namespace gdnctl::codex {

Status Transcript::open(const std::filesystem::path& path) {
    m_path = path;
    if (path.empty()) return {};
    m_fd.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!m_fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "write", path, errno));
    return {};
}

void Transcript::line(std::string_view text) {
    if (!m_fd.valid() || m_error != 0) return;
    std::string bytes = redact(text);
    bytes += '\n';
    m_error = write_fully(m_fd.get(), bytes);
}

Status Transcript::close() {
    m_fd.reset();
    if (m_error != 0) return tl::unexpected(file_error(ErrorKind::local_io, "write", m_path, m_error));
    return {};
}

}  // namespace gdnctl::codex
