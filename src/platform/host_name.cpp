#include "platform/host_name.h"

#include <array>

#include <unistd.h>

namespace gdnctl {

std::optional<std::string> host_name() {
    std::array<char, 256> name{};
    return gethostname(name.data(), name.size() - 1) == 0 ? std::optional<std::string>(name.data()) : std::nullopt;
}

}  // namespace gdnctl
