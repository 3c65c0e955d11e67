#include "core/version.h"

namespace gdnctl {

std::string_view version() { return GDNCTL_VERSION; }

std::string_view commit() { return GDNCTL_COMMIT; }

}  // namespace gdnctl
