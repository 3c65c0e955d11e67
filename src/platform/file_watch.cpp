#include "platform/file_watch.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "platform/fs.h"

namespace gdnctl {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds k_slice{200};  // a stop request is noticed within this time
constexpr std::uint32_t k_events =
    IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;

// Whether any event in the buffer counts.
bool any_matters(const char* bytes, std::size_t size, const std::function<bool(std::string_view)>& matters) {
    bool any = false;
    for (std::size_t at = 0; at + sizeof(inotify_event) <= size;) {
        inotify_event event{};
        std::memcpy(&event, bytes + at, sizeof event);
        const char* name = bytes + at + sizeof event;
        const std::size_t length = event.len == 0 ? 0 : strnlen(name, event.len);
        const bool lost_count = (event.mask & IN_Q_OVERFLOW) != 0;
        const bool own = (event.mask & IN_IGNORED) != 0;
        any = any || lost_count || (!own && matters({name, length}));
        at += sizeof event + event.len;
    }
    return any;
}

}  // namespace

Result<FolderWatch> FolderWatch::create() {
    UniqueFd fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "watch", "the file system", errno));
    return FolderWatch(std::move(fd));
}

Status FolderWatch::set(const std::set<std::filesystem::path>& folders) {
    for (auto it = m_watched.begin(); it != m_watched.end();) {
        if (folders.contains(it->first)) {
            ++it;
            continue;
        }
        inotify_rm_watch(m_fd.get(), it->second);
        it = m_watched.erase(it);
    }
    for (const auto& folder : folders) {
        const int id = inotify_add_watch(m_fd.get(), folder.c_str(), k_events | IN_ONLYDIR);
        if (id >= 0) {
            m_watched[folder] = id;
            continue;
        }
        if (errno == ENOENT || errno == ENOTDIR) continue;  // removed in the meantime
        Error error = file_error(ErrorKind::local_io, "watch", folder, errno);
        if (errno == ENOSPC) error.hint = "raise fs.inotify.max_user_watches";
        return tl::unexpected(std::move(error));
    }
    return {};
}

bool FolderWatch::wait(milliseconds limit, const std::function<bool(std::string_view)>& matters, std::stop_token stop) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    alignas(inotify_event) std::array<char, 16384> buffer{};
    while (!stop.stop_requested()) {
        const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd ready{m_fd.get(), POLLIN, 0};
        if (poll(&ready, 1, static_cast<int>(std::min(left, k_slice).count())) <= 0) continue;
        const ssize_t n = read(m_fd.get(), buffer.data(), buffer.size());
        if (n > 0 && any_matters(buffer.data(), static_cast<std::size_t>(n), matters)) return true;
    }
    return false;
}

OpenWatch::OpenWatch(const std::filesystem::path& file) : m_events(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    if (m_events.valid() && inotify_add_watch(m_events.get(), file.c_str(), IN_OPEN) < 0) m_events.reset();
}

bool OpenWatch::opened() const {
    if (!m_events.valid()) return true;
    alignas(inotify_event) std::array<char, 4096> events;
    return read(m_events.get(), events.data(), events.size()) > 0;
}

}  // namespace gdnctl
