// Whether anybody has opened a file since we began to look.
#pragma once

#include <filesystem>

#include "platform/fd.h"

namespace gdnctl {

class OpenWatch {
public:
    explicit OpenWatch(const std::filesystem::path& file);

    // True too where the system cannot tell.
    bool opened() const;

private:
    UniqueFd m_events;
};

}  // namespace gdnctl
