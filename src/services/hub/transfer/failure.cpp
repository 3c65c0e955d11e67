#include "services/hub/transfer/failure.h"

#include <algorithm>
#include <array>

#include "core/redact.h"
#include "core/text.h"
#include "services/hub/transfer/names.h"

namespace gdnctl::hub {

Failure failure_of(const Error& error) { return {error.kind, error.text(), error.hint, 0, {}}; }

Error error_of(const Failure& failure) {
    const bool stopped = failure.kind == ErrorKind::terminated;
    return {stopped ? ErrorKind::interrupted : failure.kind, failure.message, failure.hint, {}};
}

std::string_view kind_word(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::usage:
        case ErrorKind::config: return "usage";
        case ErrorKind::nothing_done: return "no_match";
        case ErrorKind::authentication: return "auth";
        case ErrorKind::remote_missing: return "not_found";
        case ErrorKind::conflict: return "integrity";
        case ErrorKind::local_io: return "local";
        case ErrorKind::interrupted:
        case ErrorKind::terminated: return "interrupted";
        default: return "network";
    }
}

ErrorKind worst_of(std::span<const ErrorKind> kinds) {
    constexpr std::array k_order = {ErrorKind::interrupted,    ErrorKind::terminated,     ErrorKind::local_io,
                                    ErrorKind::conflict,       ErrorKind::authentication, ErrorKind::remote_missing,
                                    ErrorKind::infrastructure, ErrorKind::timeout};
    for (const ErrorKind kind : k_order) {
        if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return kind;
    }
    return kinds.empty() ? ErrorKind::internal : kinds.front();
}

std::string shown(std::string_view text) {
    std::string safe = text::visible(redact(without_queries(text)));
    std::replace(safe.begin(), safe.end(), '\n', ' ');
    return safe;
}

}  // namespace gdnctl::hub
