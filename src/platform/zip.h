// ZIP archives. Input is never trusted; output is the same for the same input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
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
};

struct ZipLimits {
    std::size_t members = 200'000;
    std::uint64_t member_bytes = 1ull << 40;  // uncompressed
    std::uint64_t total_bytes = 1ull << 42;
};

// The bytes of an archive, with a name for messages.
struct ZipSource {
    std::string name;
    std::string_view bytes;

    tl::unexpected<Error> bad(const std::string& what) const;
    Result<std::string_view> text_at(std::uint64_t offset, std::uint64_t size) const;  // bad_input: it is cut
};

// Reads an archive by its central directory (sizes in local headers may be placeholders, as NumPy writes them).
// Supports zip64. Const functions may be called from several threads.
class ZipReader {
public:
    // `bytes` must outlive the reader. `name` is for messages. Error: bad_input (not an archive, truncated,
    // inconsistent, members that overlap or share a name, over the limits).
    static Result<ZipReader> over(std::string_view bytes, std::string name, const ZipLimits& limits = {});

    const std::vector<ZipMember>& members() const { return m_members; }  // in the directory's order

    // Passes the member's bytes on in order; if `out` returns false, stops with the error nothing_done. Size and CRC-32
    // are checked at the end: do not use what came before an error. Error: bad_input.
    Status read(const ZipMember& member, const std::function<bool(std::string_view)>& out) const;
    // The whole member. Error: also bad_input if it is larger than `limit` bytes.
    Result<std::string> read(const ZipMember& member, std::uint64_t limit) const;

private:
    explicit ZipReader(ZipSource source) : m_source(std::move(source)) {}

    ZipSource m_source;
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

// The same in memory, of members that are stored.
class StoredZip {
public:
    // False: the archive would have 4 GiB, the name 64 KiB.
    bool add(std::string_view name, std::string_view content);
    std::string finish();

private:
    std::string m_bytes, m_directory;
    std::size_t m_members = 0;
};

}  // namespace gdnctl
