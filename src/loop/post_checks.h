// --post-check: the user's own commands, after each iteration.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gdnctl/loop/options.h"
#include "gdnctl/platform/clock.h"
#include "gdnctl/platform/process.h"
#include "loop/stage.h"

namespace gdnctl::loop {

struct PostChecks {
    std::vector<std::string> commands;  // bash -lc COMMAND, in order; the first that fails ends the stage
    Policy policy = Policy::fail;
    std::int64_t retries = 0;  // of each command
    std::int64_t retry_sleep_s = 20;
    std::map<std::string, std::string> environment;        // on top of ours
    std::filesystem::path subfolder;                       // of the tree, where they run
    std::function<void(std::string_view line)> show = {};  // what they print
};

// Stage "post-check". Output also goes to iteration-NNN-post-check-K.log. What a command fails by is told from the end
// of its output (see failure_of()); the stage's exit status is the command's.
std::unique_ptr<Stage> make_post_checks(PostChecks checks, Process& process, Clock& clock);

}  // namespace gdnctl::loop
