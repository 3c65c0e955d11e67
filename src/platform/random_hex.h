// Random names: nonces, ids of runs, unpredictable folder names.
#pragma once

#include <cstddef>
#include <string>

namespace gdnctl {

std::string random_hex(std::size_t digits);  // lower-case digits, from the system's random device

}  // namespace gdnctl
