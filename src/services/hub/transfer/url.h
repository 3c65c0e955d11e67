// URLs, as far as downloads need them. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl::hub {

struct Url {
    std::string scheme;  // "http" or "https"
    std::string host;    // lower case, including the brackets of IPv6
    int port = 0;        // the scheme's default if none is given
    std::string path;    // with the leading slash; "/" if there is none
    std::string query;   // with the leading "?"; without the fragment

    std::string origin() const;  // scheme://host[:port], without the scheme's default port
    std::string text() const { return origin() + path + query; }
    std::string place() const { return origin() + path; }  // safe to show
    bool same_origin(const Url& other) const {
        return scheme == other.scheme && host == other.host && port == other.port;
    }
};

// nullopt: not absolute, another scheme, a user name, control characters or blanks, an invalid port.
std::optional<Url> parse_url(std::string_view text);

bool is_loopback(const Url& url);

// Removes the query from every http(s) address in `text`, since it may contain a signature.
std::string without_queries(std::string_view text);

}  // namespace gdnctl::hub
