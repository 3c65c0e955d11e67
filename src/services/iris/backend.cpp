#include "services/iris/iris_jobs.h"

namespace gdnctl {

std::unique_ptr<JobBackend> make_iris_jobs(IrisJobsConfig /*config*/) { return nullptr; }

}  // namespace gdnctl
