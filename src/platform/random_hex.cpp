#include "platform/random_hex.h"

#include <random>

#include <fmt/format.h>

namespace gdnctl {

std::string random_hex(std::size_t digits) {
    std::random_device random;
    std::string text;
    while (text.size() < digits) text += fmt::format("{:08x}", random());
    return text.substr(0, digits);
}

}  // namespace gdnctl
