// Changes in folders, as the system tells them.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <stop_token>
#include <string>

#include "core/result.h"
#include "platform/fd.h"

namespace gdnctl {

class FolderWatch {
public:
    // Error: local_io (no inotify).
    static Result<FolderWatch> create();

    // Watches exactly these folders from now on. Error: local_io (too many: names the limit).
    Status set(const std::set<std::filesystem::path>& folders);

    // Waits for a change of a name that `matters`, or until the time is over or a stop is requested. True: something
    // changed, or so much did that the system lost count.
    bool wait(std::chrono::milliseconds limit, const std::function<bool(std::string_view name)>& matters,
              std::stop_token stop);

private:
    explicit FolderWatch(UniqueFd fd) : m_fd(std::move(fd)) {}

    UniqueFd m_fd;
    std::map<std::filesystem::path, int> m_watched;
};

}  // namespace gdnctl
