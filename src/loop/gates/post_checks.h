// Commands that a candidate must pass: the user's --post-check, and the target's `validate`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loop/engine/options.h"
#include "loop/engine/stage.h"
#include "platform/clock.h"
#include "platform/process.h"

namespace gdnctl::loop {

struct PostChecks {
    std::string name = "post-check";    // of the stage
    bool only_changes = false;          // skip candidates that change only logs
    std::vector<std::string> commands;  // bash -lc COMMAND, in order; the first failure ends the stage
    Policy policy = Policy::fail;
    std::int64_t retries = 0;  // of each command
    std::int64_t retry_sleep_s = 20;
    std::int64_t timeout_s = 0;                      // of each command; 0: none
    std::map<std::string, std::string> environment;  // added to ours
    std::filesystem::path subfolder;                 // folder of the tree in which they run
    bool private_tree = false;      // the user's active Python environment must not be synced to that tree
    std::filesystem::path program;  // gdnctl; its folder comes last on their PATH
    std::function<void(std::string_view line)> show = {};  // called with their output
};

// Output is also written to iteration-NNN-NAME-K.log. A command that runs too long is ended along with everything it
// started. The reason for a failure is read from the end of the output (see failure_of()); the stage's exit status is
// the command's.
std::unique_ptr<Stage> make_post_checks(PostChecks checks, Process& process, Clock& clock);

}  // namespace gdnctl::loop
