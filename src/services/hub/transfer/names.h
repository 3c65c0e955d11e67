// URLs, as far as downloads need them. Pure.
#pragma once

#include <optional>
#include <span>
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

// Checks file names that come from a server. Pure.

// Why `path` must not be written below the output folder ("it leads out of the folder"); nullopt: it may. '\' counts as
// '/', so that a name which is safe here is safe on any system.
std::optional<std::string_view> why_unsafe(std::string_view path);

// A path that occurs twice, or that is a file and also the folder of another path. nullopt: none.
std::optional<std::string> find_clash(std::span<const std::string> paths);
// Two paths that are the same on a file system that ignores case.
std::optional<std::string> find_case_clash(std::span<const std::string> paths);

}  // namespace gdnctl::hub
