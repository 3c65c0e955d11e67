// Reads a job's log in the best way that works.
#pragma once

#include <memory>
#include <string>

#include "services/ray/dashboard.h"

namespace gdnctl::ray {

// Tries three ways in order:
//  1. the file from the agent of the job's node, by byte ranges;
//  2. its last lines through the dashboard, in which it searches for the end of the previous output;
//  3. all of it as JSON.
// It never uses the dashboard's stream, which never forgets a reader and in the end serves none.
// The job's state comes from `dashboard`, where a caller that follows a job updates it now and then.
std::unique_ptr<JobLog> make_log_reader(std::shared_ptr<Dashboard> dashboard, std::string id, const LogStart& start);

}  // namespace gdnctl::ray
