// Submits a request: packs, uploads, and makes sure that it is accepted only once however often it is sent.
#pragma once

#include "services/ray/client.h"

namespace gdnctl::ray {

// Packs and uploads the working tree, if there is one, and submits. `version` is the server's. Errors: usage (rejected
// by the server, or the id is taken), authentication, infrastructure, local_io, interrupted.
Result<Submitted> submit_job(Client& client, const JobRequest& wanted, const ServerVersion& version);

}  // namespace gdnctl::ray
