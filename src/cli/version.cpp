#include "cli/version.h"

namespace gdnctl::cli {

std::string version_text(bool json) {
    return json ? "{\"schema\":\"gdnctl.version/1\",\"version\":\"0.1.0\"}\n" : "gdnctl 0.1.0\n";
}

}  // namespace gdnctl::cli
