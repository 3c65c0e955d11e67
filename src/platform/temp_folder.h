// A private folder that is removed with its owner.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace gdnctl {

class TempFolder {
public:
    // Creates <base>/<name>.XXXXXX with access for us alone. Error: local_io.
    static Result<TempFolder> make(const std::filesystem::path& base, std::string_view name);

    const std::filesystem::path& path() const { return m_path; }

    TempFolder() = default;
    TempFolder(TempFolder&& other) noexcept : m_path(std::exchange(other.m_path, {})) {}
    TempFolder& operator=(TempFolder&& other) noexcept {
        m_path.swap(other.m_path);
        return *this;
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    ~TempFolder();

private:
    std::filesystem::path m_path;
};

}  // namespace gdnctl
