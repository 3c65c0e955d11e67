// Names and words of a download: which file names are safe, what a failure is called, what a server says. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "platform/http_policy.h"

namespace gdnctl::hub {

using http::first_step;
using http::next_step;
using http::parse_url;
using http::RedirectStep;
using http::ServiceEndpoint;
using http::shown;
using http::Url;

// The word for `kind` in manifests: usage, no_match, network, auth, not_found, integrity, local, interrupted.
std::string_view kind_word(ErrorKind kind);
// The most important of several for the caller: interrupted, local, integrity, auth, not found, network.
ErrorKind worst_of(std::span<const ErrorKind> kinds);
// The server's name for the request, for its operators; empty: none.
std::string request_id_of(const HttpHeaders& headers);

// Checks file names that come from a server. Pure.

// Why `path` must not be written below the output folder ("it leads out of the folder"); nullopt: it may. '\' counts as
// '/', so that a name which is safe here is safe on any system.
std::optional<std::string_view> why_unsafe(std::string_view path);

// A path that occurs twice, or that is a file and also the folder of another path. nullopt: none.
std::optional<std::string> find_clash(std::span<const std::string> paths);
// Two paths that are the same on a file system that ignores case.
std::optional<std::string> find_case_clash(std::span<const std::string> paths);

}  // namespace gdnctl::hub
