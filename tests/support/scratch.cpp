#include "support/scratch.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

#include <stdlib.h>

namespace gdnctl::test {

Scratch::Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "gdnctl-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    m_path = std::filesystem::canonical(name);
}

Scratch::~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(m_path, ignored);
}

std::filesystem::path Scratch::file(std::string_view name, std::string_view content) const {
    const std::filesystem::path path = m_path / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
}

std::string read_whole(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace gdnctl::test
