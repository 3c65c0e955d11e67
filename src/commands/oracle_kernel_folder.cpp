#include "commands/oracle_kernel_folder.h"

#include <cerrno>
#include <cstdlib>

#include "gdnctl/platform/env.h"
#include "gdnctl/platform/fs.h"

namespace gdnctl::commands::oracle_kernel {

Result<Folder> Folder::make(const Context& context) {
    const auto configured = context.env.get("TMPDIR").value_or("");
    const std::filesystem::path base = context.cwd / (configured.empty() ? "/tmp" : configured);
    std::string name = (base / "gdnctl-kernel.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
        return tl::unexpected(file_error(ErrorKind::local_io, "create a folder in", base, errno));
    }
    Folder folder;
    folder.m_path = name;
    return folder;
}

Folder::~Folder() {
    std::error_code ignored;
    if (!m_path.empty()) std::filesystem::remove_all(m_path, ignored);
}

}  // namespace gdnctl::commands::oracle_kernel
