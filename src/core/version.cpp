#include "core/version.h"

namespace gdnctl {

std::string_view version() { return GDNCTL_VERSION; }

std::string_view commit() { return GDNCTL_COMMIT; }

bool is_release() { return GDNCTL_RELEASE != 0; }

}  // namespace gdnctl
