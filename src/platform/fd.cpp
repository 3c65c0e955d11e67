#include "platform/fd.h"

#include <cerrno>

#include <unistd.h>

namespace gdnctl {

void UniqueFd::reset(int fd) {
    const int saved_errno = errno;
    if (m_fd >= 0) close(m_fd);
    errno = saved_errno;
    m_fd = fd;
}

}  // namespace gdnctl
