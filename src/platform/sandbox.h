// Restrictions that a process applies to itself before it runs foreign code. None can be undone.
#pragma once

#include <cstddef>
#include <string_view>

#include <sys/types.h>

namespace gdnctl {

enum class NetworkBarrier {
    name_space,  // an empty network namespace, without even loopback
    seccomp,     // socket() refuses everything but Unix sockets
    none,        // the system allows neither
};

std::string_view name_of(NetworkBarrier barrier);  // "namespace", "seccomp", "none"

// Removes network access from this process and its children: by a namespace (as root, or in a user namespace that maps
// only the current user), else by a system call filter. Call it before starting a second thread.
NetworkBarrier block_network();

// Only one of the two ways, for tests. False: not allowed here.
bool enter_empty_network();
bool refuse_sockets();

// No new privileges through exec, no core dumps, and first choice of the OOM killer.
void give_up_privileges();

// Bytes of memory private to the process: neither files nor shared. 0: no such process.
std::size_t private_memory(pid_t pid);

}  // namespace gdnctl
