#include "platform/home_folder.h"

#include <algorithm>

#include <pwd.h>
#include <unistd.h>

namespace gdnctl {

std::string expand_home(std::string_view path, std::string_view home) {
    if (!path.starts_with('~')) return std::string(path);
    const std::string_view user = path.substr(1, std::min(path.size(), path.find('/')) - 1);
    std::string folder(user.empty() ? home : "");
    if (folder.empty()) {
        const passwd* known = user.empty() ? getpwuid(geteuid()) : getpwnam(std::string(user).c_str());
        if (known == nullptr || known->pw_dir == nullptr) return std::string(path);
        folder = known->pw_dir;
    }
    return folder + std::string(path.substr(user.size() + 1));
}

}  // namespace gdnctl
