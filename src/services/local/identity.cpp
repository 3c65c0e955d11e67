#include "services/local/identity.h"

#include <array>

#include <unistd.h>

namespace gdnctl::local {

namespace {

const std::string& this_boot() {
    static const std::string id = boot_id();
    return id;
}

const std::string& this_pid_namespace() {
    static const std::string name = [] {
        std::array<char, 64> buffer{};
        const ssize_t n = readlink("/proc/self/ns/pid", buffer.data(), buffer.size());
        return std::string(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0U);
    }();
    return name;
}

}  // namespace

ProcessIdentity identity_of(pid_t pid) {
    const auto info = process_info(pid);
    return {{pid, info ? info->id.start_ticks : 0}, this_boot(), this_pid_namespace()};
}

bool is_same_process(const ProcessIdentity& identity) {
    return identity.boot_id == this_boot() && identity.pid_namespace == this_pid_namespace() && is_running(identity.id);
}

bool is_alive(const ProcessIdentity& identity) {
    if (identity.boot_id == this_boot() && identity.pid_namespace != this_pid_namespace()) return true;
    return is_same_process(identity);
}

}  // namespace gdnctl::local
