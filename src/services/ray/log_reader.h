// A job's log, by the best way that works.
#pragma once

#include <memory>
#include <string>

#include "services/ray/dashboard.h"

namespace gdnctl::ray {

// Three ways, each tried when the one before it does not work:
//  1. the file as the agent of the job's node serves it, by byte ranges;
//  2. the last lines of it through the dashboard, in which the end of what was handed over is looked for;
//  3. all of it as JSON.
// Never the dashboard's stream: it never forgets a reader, and in the end serves none.
// What is known of the job comes from `dashboard`: whoever follows a job asks for its details now and then.
std::unique_ptr<JobLog> make_log_reader(std::shared_ptr<Dashboard> dashboard, std::string id, const LogStart& start);

}  // namespace gdnctl::ray
