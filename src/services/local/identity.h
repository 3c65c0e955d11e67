// Identifies a process in a record that outlives it, since another process may have the pid by then.
#pragma once

#include <string>

#include "platform/descendants.h"

namespace gdnctl::local {

struct ProcessIdentity {
    ProcessId id;
    std::string boot_id;
    std::string pid_namespace;  // "pid:[4026531836]"
};

// Identity of a process that exists now; start_ticks is 0 if it does not.
ProcessIdentity identity_of(pid_t pid);
// Whether the pid is visible here and is that process, running (not a zombie).
bool is_same_process(const ProcessIdentity& identity);
// The same, but a record from another pid namespace of this boot cannot be checked from here and counts as alive.
bool is_alive(const ProcessIdentity& identity);

}  // namespace gdnctl::local
