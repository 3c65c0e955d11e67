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

// No new privileges through exec, no core dumps, first choice of the OOM killer, and none of root's capabilities by
// which a process reads or changes other processes, the clock or the kernel. Call it after block_network().
void give_up_privileges();

// Whether this process may write to the memory of its parent, and so change the clock that times it.
bool can_write_to_parent();
// Then that is for the parent to prevent: no process without CAP_SYS_PTRACE can read or write its memory from now on.
// As another user than root, /proc/PID/environ, fd and others of this process can then not be read either.
void close_own_memory();

// Bytes of memory private to the process: neither files nor shared. 0: no such process.
std::size_t private_memory(pid_t pid);

}  // namespace gdnctl
