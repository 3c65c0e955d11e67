// ZIP archives. Input is never trusted; output is the same for the same input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace gdnctl {

struct ZipMember {
    std::string name;  // as stored and not sanitised: may be absolute or contain ".."
    std::uint64_t size = 0;
    std::uint64_t compressed_size = 0;
    std::uint32_t crc32 = 0;
    std::uint16_t method = 0;     // 0 stored, 8 deflate; others are listed but cannot be read
    std::uint32_t unix_mode = 0;  // st_mode from the packer, type bits included; 0: unknown
    std::uint64_t header_offset = 0;

    bool is_directory() const { return name.ends_with('/') || (unix_mode & 0170000u) == 0040000u; }
    bool is_symlink() const { return (unix_mode & 0170000u) == 0120000u; }
    bool is_executable() const { return (unix_mode & 0111u) != 0; }
};

struct ZipLimits {
    std::size_t members = 200'000;
    std::uint64_t member_bytes = 1ull << 40;  // uncompressed
    std::uint64_t total_bytes = 1ull << 42;
};

class ZipSource;

// Reads an archive by its central directory (sizes in local headers may be placeholders, as NumPy writes them).
// Supports zip64. Const functions may be called from several threads.
class ZipReader {
public:
    // Errors: local_io; bad_input (not an archive, truncated, inconsistent, members that overlap or share a name, over
    // the limits).
    static Result<ZipReader> open(const std::filesystem::path& path, const ZipLimits& limits = {});
    // `bytes` must outlive the reader. `name` is for messages.
    static Result<ZipReader> over(std::span<const char> bytes, std::string name, const ZipLimits& limits = {});
    ZipReader(ZipReader&&) noexcept;
    ZipReader& operator=(ZipReader&&) noexcept;
    ~ZipReader();

    const std::vector<ZipMember>& members() const { return m_members; }  // in the directory's order
    const ZipMember* find(std::string_view name) const;

    // Passes the member's bytes on in order; if `out` returns false, stops with the error nothing_done. Size and CRC-32
    // are checked at the end: do not use what came before an error. Errors: local_io, bad_input.
    Status read(const ZipMember& member, const std::function<bool(std::string_view)>& out) const;
    // The whole member. Error: also bad_input if it is larger than `limit` bytes.
    Result<std::string> read(const ZipMember& member, std::uint64_t limit) const;

private:
    static Result<ZipReader> from(std::unique_ptr<ZipSource> source, const ZipLimits& limits);
    explicit ZipReader(std::unique_ptr<ZipSource> source);
    std::unique_ptr<ZipSource> m_source;
    std::vector<ZipMember> m_members;
    std::uint64_t m_directory_offset = 0;
};

// Writes an archive without zip64. The same members in the same order give the same bytes, whatever their dates and
// owners. Names must be relative UTF-8 paths; modes become 0755 or 0644. Members are deflated. They are stored if that
// is smaller, or if they are large and their first piece does not shrink.
class ZipWriter {
public:
    // Called while a member is packed, at least every 256 KiB of input, with the archive's size so far; its error ends
    // the packing.
    using Watch = std::function<Status(std::uint64_t archive_bytes)>;

    // Overwrites `path`, which is complete only after finish(). Error: local_io.
    static Result<ZipWriter> create(const std::filesystem::path& path, Watch watch = {});
    ZipWriter(ZipWriter&&) noexcept;
    ZipWriter& operator=(ZipWriter&&) noexcept;
    ~ZipWriter();

    // Errors: usage (bad or repeated name); bad_input (4 GiB or 65535 members reached); local_io.
    Status add(std::string_view name, std::string_view content, bool executable);
    // Error: also local_io if the file changes while it is packed. Memory use does not depend on its size.
    Status add_file(std::string_view name, const std::filesystem::path& file, bool executable);
    // Writes the directory; returns the archive's size in bytes. Nothing may be added afterwards.
    Result<std::uint64_t> finish();
    std::uint64_t bytes_so_far() const;

private:
    struct State;
    explicit ZipWriter(std::unique_ptr<State> state);
    std::unique_ptr<State> m_state;
};

}  // namespace gdnctl
