// A folder of our own in TMPDIR that goes away with its owner.
#pragma once

#include <filesystem>
#include <utility>

#include "gdnctl/core/result.h"
#include "gdnctl/platform/context.h"

namespace gdnctl::commands::oracle_kernel {

class Folder {
public:
    // Error: local_io.
    static Result<Folder> make(const Context& context);

    const std::filesystem::path& path() const { return m_path; }

    Folder() = default;
    Folder(Folder&& other) noexcept : m_path(std::exchange(other.m_path, {})) {}
    Folder& operator=(Folder&& other) noexcept {
        m_path.swap(other.m_path);
        return *this;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder();

private:
    std::filesystem::path m_path;
};

}  // namespace gdnctl::commands::oracle_kernel
