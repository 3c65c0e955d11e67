#include "cli/errors.h"

#include "core/log.h"
#include "core/text.h"

namespace gdnctl::cli {

int print_error(const Error& error, Terminal& terminal) {
    // stdout first, so that output from before the failure also appears before it on a terminal. An error of the flush
    // would hide the one being reported.
    (void)terminal.flush();
    // The error may contain names from other people's files.
    log::error("error: {}", text::visible(error.text()));
    std::string hint = error.hint;
    if (error.kind == ErrorKind::internal && hint.empty()) {
        hint = "this is a bug in gdnctl: please report the command line and the output of `gdnctl --version`";
    }
    if (!hint.empty()) log::warning("hint: {}", text::visible(hint));
    return static_cast<int>(exit_code_of(error.kind));
}

}  // namespace gdnctl::cli
