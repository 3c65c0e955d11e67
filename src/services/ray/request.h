// Builds the body of POST /api/jobs/. Pure.
#pragma once

#include <string>

#include "core/json.h"
#include "services/job/job.h"
#include "services/ray/answers.h"

namespace gdnctl::ray {

// The body of the request, without keys that a server of this version does not know (one unknown key is fatal).
// `package_uri` is the uploaded working tree; empty: none. Errors: usage (not supported by this server or by a node's
// environment).
Result<std::string> submission_body(const JobRequest& request, const std::string& package_uri,
                                    const ServerVersion& server);

// Nodes expand `$` in the values of environment variables, in the order of their names. To pass values byte for byte,
// `$` is replaced by a reference to a variable that holds it and sorts before all that need it. Errors: usage (a value
// that cannot be passed; names the variable, never its value).
Result<std::map<std::string, std::string>> escape_environment(const std::vector<JobEnv>& env);

}  // namespace gdnctl::ray
