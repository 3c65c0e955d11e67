// A folder for one test.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gdnctl::test {

class TempDir {
public:
    TempDir();
    ~TempDir();
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    const std::filesystem::path& path() const { return m_path; }
    std::filesystem::path operator/(std::string_view name) const { return m_path / name; }

private:
    std::filesystem::path m_path;
};

void write_text(const std::filesystem::path& path, std::string_view bytes);  // creates parents
std::string read_text(const std::filesystem::path& path);                    // "" if it does not exist
// Names in the folder, sorted, separated by blanks.
std::string list_names(const std::filesystem::path& folder);

}  // namespace gdnctl::test
