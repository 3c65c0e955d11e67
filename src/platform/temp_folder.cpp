#include "platform/temp_folder.h"

#include <cerrno>
#include <cstdlib>
#include <string>

#include "platform/fs.h"

namespace gdnctl {

Result<TempFolder> TempFolder::make(const std::filesystem::path& base, std::string_view name) {
    std::string path = (base / name).string() + ".XXXXXX";
    if (mkdtemp(path.data()) == nullptr) {
        return tl::unexpected(file_error(ErrorKind::local_io, "create a folder in", base, errno));
    }
    TempFolder folder;
    folder.m_path = path;
    return folder;
}

TempFolder::~TempFolder() {
    std::error_code ignored;
    if (!m_path.empty()) std::filesystem::remove_all(m_path, ignored);
}

}  // namespace gdnctl
