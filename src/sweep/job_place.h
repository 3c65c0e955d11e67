// Runs of a sweep as jobs of a backend: this machine, a cluster, or a held TPU's host.
#pragma once

#include <string>

#include "jobs/place.h"
#include "jobs/submit.h"
#include "sweep/run.h"

namespace gdnctl::sweep {

struct JobPlaceOptions {
    std::string name;                             // of the sweep
    std::map<std::string, std::string> switches;  // that a job elsewhere must get, see switches_of()
    std::map<std::string, double> resources;      // of each job
    std::string beside, tpu_name;                 // the hold, if there is one
};

// `run` and `settle`; what is left of `check` is the caller's.
Place job_place(JobBackend& backend, const JobPlaceOptions& options, Context& context);

}  // namespace gdnctl::sweep
