// URLs as far as downloads need them. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl::hub {

struct Url {
    std::string scheme;  // "http" or "https"
    std::string host;    // lower case, brackets of IPv6 included
    int port = 0;        // the scheme's own where none is given
    std::string path;    // with the leading slash; "/" where there is none
    std::string query;   // with the leading "?"; without the fragment

    std::string origin() const;  // scheme://host[:port], the port where it is not the scheme's own
    std::string text() const { return origin() + path + query; }
    std::string place() const { return origin() + path; }  // may be shown
    bool same_origin(const Url& other) const {
        return scheme == other.scheme && host == other.host && port == other.port;
    }
};

// nullopt: not absolute, another scheme, a user name, control characters or blanks, a bad port.
std::optional<Url> parse_url(std::string_view text);

bool is_loopback(const Url& url);

// RFC 3986: letters, digits and -._~ stay, and what `also` lists.
std::string percent_encode(std::string_view text, std::string_view also = {});
// nullopt: a % without two hex digits, or a NUL.
std::optional<std::string> percent_decode(std::string_view text);

// Takes the query out of every http(s) address in `text`: it may hold a signature.
std::string without_queries(std::string_view text);

}  // namespace gdnctl::hub
