// Watches folders for changes, and files for being opened (inotify).
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <stop_token>
#include <string>

#include "core/result.h"
#include "platform/fs.h"

namespace gdnctl {

class FolderWatch {
public:
    // Error: local_io (no inotify).
    static Result<FolderWatch> create();

    // Watches exactly these folders from now on. Error: local_io (too many folders: the message names the limit).
    Status set(const std::set<std::filesystem::path>& folders);

    // Waits until a name that `matters` changes, the time is over, or a stop is requested. True: something changed, or
    // the system's event queue overflowed.
    bool wait(std::chrono::milliseconds limit, const std::function<bool(std::string_view name)>& matters,
              std::stop_token stop);

private:
    explicit FolderWatch(UniqueFd fd) : m_fd(std::move(fd)) {}

    UniqueFd m_fd;
    std::map<std::filesystem::path, int> m_watched;
};

// Whether anybody has opened a file since we began to look.

class OpenWatch {
public:
    explicit OpenWatch(const std::filesystem::path& file);

    // True too where the system cannot tell.
    bool opened() const;

private:
    UniqueFd m_events;
};

}  // namespace gdnctl
