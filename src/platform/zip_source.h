// Where the bytes of an archive come from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"

namespace gdnctl {

class ZipSource {
public:
    explicit ZipSource(std::string name) : m_name(std::move(name)) {}
    virtual ~ZipSource() = default;
    ZipSource(const ZipSource&) = delete;
    ZipSource& operator=(const ZipSource&) = delete;

    const std::string& name() const { return m_name; }
    virtual std::uint64_t size() const = 0;
    // Fills `into`. Errors: local_io, or bad_input if the file is too short. Thread-safe.
    virtual Status read_at(std::uint64_t offset, std::span<char> into) const = 0;

    tl::unexpected<Error> bad(const std::string& what) const;
    Result<std::string> text_at(std::uint64_t offset, std::uint64_t bytes) const;

private:
    std::string m_name;
};

Result<std::unique_ptr<ZipSource>> open_zip_file(const std::filesystem::path& path);
std::unique_ptr<ZipSource> zip_in_memory(std::span<const char> bytes, std::string name);

}  // namespace gdnctl
