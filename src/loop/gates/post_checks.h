// Commands that a candidate must pass: --post-check, the user's own, and `validate` of the target.
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
    bool only_changes = false;          // not spent on a candidate that changes nothing but logs
    std::vector<std::string> commands;  // bash -lc COMMAND, in order; the first that fails ends the stage
    Policy policy = Policy::fail;
    std::int64_t retries = 0;  // of each command
    std::int64_t retry_sleep_s = 20;
    std::int64_t timeout_s = 0;                            // of each command; 0: none
    std::map<std::string, std::string> environment;        // on top of ours
    std::filesystem::path subfolder;                       // of the tree, where they run
    std::function<void(std::string_view line)> show = {};  // what they print
};

// Output also goes to iteration-NNN-NAME-K.log. A command that runs too long is ended with all that it started. What a
// command fails by is told from the end of its output (see failure_of()); the stage's exit status is the command's.
std::unique_ptr<Stage> make_post_checks(PostChecks checks, Process& process, Clock& clock);

}  // namespace gdnctl::loop
