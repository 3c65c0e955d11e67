// The parts of a URL that routes need.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gdnctl::cluster {

struct Url {
    std::string scheme;  // lower case
    std::string host;    // without brackets
    int port = 0;        // the scheme's default if none is given
    std::string path;    // with query and fragment
    bool has_user = false;
};

// nullopt: no scheme, no host, or an invalid port.
std::optional<Url> parse_url(std::string_view text);

// localhost, 127.0.0.0/8, ::1.
bool is_loopback(std::string_view host);
// Loopback, or an address of one of this machine's interfaces.
bool is_own_address(std::string_view host);

}  // namespace gdnctl::cluster
