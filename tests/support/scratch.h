// A folder for one test, removed at its end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gdnctl::test {

class Scratch {
public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    const std::filesystem::path& path() const { return m_path; }
    std::filesystem::path operator/(std::string_view name) const { return m_path / name; }
    // Writes a file and creates its parent folders; returns its path.
    std::filesystem::path file(std::string_view name, std::string_view content) const;

private:
    std::filesystem::path m_path;
};

std::string read_whole(const std::filesystem::path& path);

}  // namespace gdnctl::test
