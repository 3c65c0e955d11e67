#include "harness/child/folder.h"

#include "platform/env.h"

namespace gdnctl::harness {

Result<Folder> make_folder(const Context& context) {
    const auto configured = context.env.get("TMPDIR").value_or("");
    return Folder::make(context.cwd / (configured.empty() ? "/tmp" : configured), "gdnctl-kernel");
}

}  // namespace gdnctl::harness
