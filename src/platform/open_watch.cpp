#include "platform/open_watch.h"

#include <array>

#include <sys/inotify.h>
#include <unistd.h>

namespace gdnctl {

OpenWatch::OpenWatch(const std::filesystem::path& file) : m_events(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (m_events.valid() && inotify_add_watch(m_events.get(), file.c_str(), IN_OPEN) < 0) m_events.reset();
}

bool OpenWatch::opened() const {
    if (!m_events.valid()) return true;
    alignas(inotify_event) std::array<char, 4096> events;
    return read(m_events.get(), events.data(), events.size()) > 0;
}

}  // namespace gdnctl
