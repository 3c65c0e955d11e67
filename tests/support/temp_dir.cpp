#include "support/temp_dir.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>

#include <doctest/doctest.h>

namespace gdnctl::test {

namespace fs = std::filesystem;

TempDir::TempDir() {
    std::string name = (fs::temp_directory_path() / "gdnctl-test.XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    m_path = fs::canonical(name);
}

TempDir::~TempDir() {
    std::error_code ignored;
    for (fs::recursive_directory_iterator it(m_path, ignored), end; it != end; it.increment(ignored)) {
        if (it->is_directory(ignored) && !it->is_symlink(ignored)) {
            fs::permissions(it->path(), fs::perms::owner_all, fs::perm_options::add, ignored);
        }
    }
    fs::remove_all(m_path, ignored);
}

void write_text(const fs::path& path, std::string_view bytes) {
    fs::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    REQUIRE(file.good());
}

std::string read_text(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string list_names(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
    std::string list;
    for (const auto& name : names) list += (list.empty() ? "" : " ") + name;
    return list;
}

}  // namespace gdnctl::test
