// Archives for tests: written by hand, so that any field can be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

#include "platform/zip.h"
#include "platform/zip_format.h"

namespace gdnctl::test {

inline std::uint32_t crc_of(std::string_view text) {
    return static_cast<std::uint32_t>(
        crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

inline std::string raw_deflate(std::string_view plain) {
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&stream, plain.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
    stream.avail_in = static_cast<uInt>(plain.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

// A member as the archive will claim it to be; the defaults are the truth.
struct RawMember {
    std::string name;
    std::string data;  // as it lies in the file
    std::uint16_t method = zip::k_stored;
    std::uint16_t flags = 0;
    std::uint32_t crc = 0;
    std::uint64_t size = 0;
    std::uint64_t compressed_size = 0;
    std::uint32_t mode = 0100644;
    bool zip64 = false;
    std::uint64_t offset_shift = 0;  // added to the true offset
    std::string local_name;          // where it differs from `name`

    static RawMember stored(std::string member_name, std::string_view content) {
        return {std::move(member_name),
                std::string(content),
                zip::k_stored,
                0,
                crc_of(content),
                content.size(),
                content.size(),
                0100644,
                false,
                0,
                {}};
    }
    static RawMember deflated(std::string member_name, std::string_view content) {
        RawMember member = stored(std::move(member_name), content);
        member.data = raw_deflate(content);
        member.method = zip::k_deflate;
        member.compressed_size = member.data.size();
        return member;
    }
};

struct RawArchive {
    std::vector<RawMember> members;
    std::string comment;
    std::string before_directory;
    bool zip64_end = false;
    std::int64_t count_error = 0;

    std::string bytes() const {
        std::string out;
        std::string directory;
        for (const RawMember& m : members) {
            const std::uint64_t offset = out.size() + m.offset_shift;
            const std::string& local = m.local_name.empty() ? m.name : m.local_name;
            zip::put(out, zip::k_local_signature, 4);
            zip::put(out, 20, 2);
            zip::put(out, m.flags, 2);
            zip::put(out, m.method, 2);
            zip::put(out, 0x00210000, 4);
            zip::put(out, m.crc, 4);
            // As NumPy writes it: placeholders here, the truth in the directory.
            zip::put(out, m.zip64 ? zip::k_max32 : m.compressed_size, 4);
            zip::put(out, m.zip64 ? zip::k_max32 : m.size, 4);
            zip::put(out, local.size(), 2);
            zip::put(out, m.zip64 ? 20 : 0, 2);
            out += local;
            if (m.zip64) out += std::string("\x01\x00\x10\x00", 4) + std::string(16, '\xee');
            out += m.data;

            zip::put(directory, zip::k_central_signature, 4);
            zip::put(directory, 3 << 8 | 20, 2);
            zip::put(directory, 20, 2);
            zip::put(directory, m.flags, 2);
            zip::put(directory, m.method, 2);
            zip::put(directory, 0x00210000, 4);
            zip::put(directory, m.crc, 4);
            zip::put(directory, m.zip64 ? zip::k_max32 : m.compressed_size, 4);
            zip::put(directory, m.zip64 ? zip::k_max32 : m.size, 4);
            zip::put(directory, m.name.size(), 2);
            zip::put(directory, m.zip64 ? 28 : 0, 2);
            zip::put(directory, 0, 6);
            zip::put(directory, std::uint64_t{m.mode} << 16, 4);
            zip::put(directory, m.zip64 ? zip::k_max32 : offset, 4);
            directory += m.name;
            if (m.zip64) {
                zip::put(directory, zip::k_zip64_extra, 2);
                zip::put(directory, 24, 2);
                zip::put(directory, m.size, 8);
                zip::put(directory, m.compressed_size, 8);
                zip::put(directory, offset, 8);
            }
        }
        out += before_directory;
        const std::uint64_t directory_offset = out.size();
        out += directory;
        const auto count = static_cast<std::uint64_t>(static_cast<std::int64_t>(members.size()) + count_error);
        if (zip64_end) {
            const std::uint64_t at = out.size();
            zip::put(out, zip::k_end64_signature, 4);
            zip::put(out, 44, 8);
            zip::put(out, 45 | 45 << 16, 4);
            zip::put(out, 0, 8);
            zip::put(out, count, 8);
            zip::put(out, count, 8);
            zip::put(out, directory.size(), 8);
            zip::put(out, directory_offset, 8);
            zip::put(out, zip::k_locator64_signature, 4);
            zip::put(out, 0, 4);
            zip::put(out, at, 8);
            zip::put(out, 1, 4);
        }
        zip::put(out, zip::k_end_signature, 4);
        zip::put(out, 0, 4);
        zip::put(out, zip64_end ? zip::k_max16 : count, 2);
        zip::put(out, zip64_end ? zip::k_max16 : count, 2);
        zip::put(out, zip64_end ? zip::k_max32 : directory.size(), 4);
        zip::put(out, zip64_end ? zip::k_max32 : directory_offset, 4);
        zip::put(out, comment.size(), 2);
        return out + comment;
    }
};

}  // namespace gdnctl::test
