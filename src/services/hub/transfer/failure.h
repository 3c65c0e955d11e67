// What keeps a download, or one of its files, from being done.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/exit_code.h"
#include "core/result.h"

namespace gdnctl::hub {

struct Failure {
    ErrorKind kind = ErrorKind::infrastructure;
    std::string message;
    std::string hint;
    int http_status = 0;     // 0: no answer
    std::string request_id;  // of the server, for its operators
};

template <class T>
using Outcome = tl::expected<T, Failure>;

Failure failure_of(const Error& error);
// SIGTERM ends a download as SIGINT does: partial files are kept.
Error error_of(const Failure& failure);

// The word for `kind` in manifests: usage, no_match, network, auth, not_found, integrity, local, interrupted.
std::string_view kind_word(ErrorKind kind);

// The one of several that a caller should act on first: interrupted, local, integrity, auth, not found, network.
ErrorKind worst_of(std::span<const ErrorKind> kinds);

// What a server sent, for people: control characters shown as "\x1b", tokens masked, signatures out of URLs.
std::string shown(std::string_view text);

}  // namespace gdnctl::hub
