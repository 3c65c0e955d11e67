// A job as POST /api/jobs/ wants it. Pure.
#pragma once

#include <string>

#include "core/json.h"
#include "services/job/job.h"
#include "services/ray/answers.h"

namespace gdnctl::ray {

// The body of the request, with nothing in it that a server of this version does not know (one unknown key is fatal).
// `package_uri` is the uploaded working tree; empty: none. Errors: usage (what this server, or the environment of a
// node, cannot take).
Result<std::string> submission_body(const JobRequest& request, const std::string& package_uri,
                                    const ServerVersion& server);

// Nodes expand `$` in the values of environment variables, in the order of their names. A variable that sorts before
// all that need it stands for the sign itself, so that values arrive byte for byte. Errors: usage (a value that cannot
// be passed; names it, never its value).
Result<std::map<std::string, std::string>> escape_environment(const std::vector<JobEnv>& env);

}  // namespace gdnctl::ray
