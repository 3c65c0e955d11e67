#include "services/iris/iris_jobs.h"
