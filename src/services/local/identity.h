// Identifies a process in a record that outlives it: a pid alone may belong to another process by now.
#pragma once

#include <string>

#include "platform/descendants.h"

namespace gdnctl::local {

struct ProcessIdentity {
    ProcessId id;
    std::string boot_id;
    std::string pid_namespace;  // "pid:[4026531836]"
};

// Identity of a process that exists now; start_ticks is 0 when it does not.
ProcessIdentity identity_of(pid_t pid);
// The pid is visible here, and it is that process, running (a zombie is not).
bool is_same_process(const ProcessIdentity& identity);
// The same; but a record of another pid namespace on this boot cannot be judged from here and counts as alive.
bool is_alive(const ProcessIdentity& identity);

}  // namespace gdnctl::local
