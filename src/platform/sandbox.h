// What a program that runs foreign code takes away from itself first. None of it can be undone.
#pragma once

#include <cstddef>
#include <string_view>

#include <sys/types.h>

namespace gdnctl {

enum class NetworkBarrier {
    name_space,  // an empty network namespace: not even loopback is up
    seccomp,     // socket() refuses everything but Unix sockets
    none,        // the system allows neither
};

std::string_view name_of(NetworkBarrier barrier);  // "namespace", "seccomp", "none"

// Takes the network away from this process and all that it starts: by a namespace (as root, or in a user namespace of
// its own that maps only the present user), else by a system call filter. Call it before there is a second thread.
NetworkBarrier block_network();

// Of the two ways one alone, for tests. False: not allowed here.
bool enter_empty_network();
bool refuse_sockets();

// No more privileges through exec, no core dumps, and the first to go should the machine run out of memory.
void give_up_privileges();

// Bytes of memory that are this process' own: neither files nor shared. 0: there is no such process.
std::size_t private_memory(pid_t pid);

}  // namespace gdnctl
