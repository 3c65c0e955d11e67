// From a request to a job that the server has: package, upload, and one submission however often it is sent.
#pragma once

#include "services/ray/client.h"

namespace gdnctl::ray {

// Packs and uploads the working tree, if there is one, and submits. `version` is the server's. Errors: usage (what the
// server does not take, an id that is taken), authentication, infrastructure, local_io, interrupted.
Result<Submitted> submit_job(Client& client, const JobRequest& wanted, const ServerVersion& version);

}  // namespace gdnctl::ray
