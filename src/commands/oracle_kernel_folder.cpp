#include "commands/oracle_kernel_folder.h"

#include "platform/env.h"

namespace gdnctl::commands::oracle_kernel {

Result<Folder> make_folder(const Context& context) {
    const auto configured = context.env.get("TMPDIR").value_or("");
    return Folder::make(context.cwd / (configured.empty() ? "/tmp" : configured), "gdnctl-kernel");
}

}  // namespace gdnctl::commands::oracle_kernel
