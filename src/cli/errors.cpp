#include "cli/errors.h"

#include "core/log.h"
#include "core/text.h"

namespace gdnctl::cli {

int print_error(const Error& error, Terminal& terminal) {
    // stdout first, so that what was written before the failure stands before it on a terminal. Its own failure would
    // hide the one being reported.
    (void)terminal.flush();
    // Names out of other people's files may be in there.
    log::error("error: {}", text::visible(error.text()));
    std::string hint = error.hint;
    if (error.kind == ErrorKind::internal && hint.empty()) {
        hint = "this is a bug in gdnctl: please report the command line and the output of `gdnctl --version`";
    }
    if (!hint.empty()) log::warning("hint: {}", text::visible(hint));
    return static_cast<int>(exit_code_of(error.kind));
}

}  // namespace gdnctl::cli
