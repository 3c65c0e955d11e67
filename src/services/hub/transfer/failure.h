// Why a download or one of its files failed.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl::hub {

struct Failure {
    ErrorKind kind = ErrorKind::infrastructure;
    std::string message;
    std::string hint;
    int http_status = 0;     // 0: no answer
    std::string request_id;  // from the server, for its operators
};

template <class T>
using Outcome = tl::expected<T, Failure>;

Failure failure_of(const Error& error);
// SIGTERM ends a download like SIGINT: partial files are kept.
Error error_of(const Failure& failure);

// The word for `kind` in manifests: usage, no_match, network, auth, not_found, integrity, local, interrupted.
std::string_view kind_word(ErrorKind kind);

// The most important of several for the caller: interrupted, local, integrity, auth, not found, network.
ErrorKind worst_of(std::span<const ErrorKind> kinds);

// Text from a server, for people: control characters as "\x1b", tokens masked, signatures removed from URLs.
std::string shown(std::string_view text);

}  // namespace gdnctl::hub
