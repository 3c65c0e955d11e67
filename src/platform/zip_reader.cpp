#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>

#include "platform/inflate.h"
#include "platform/zip.h"
#include "platform/zip_directory.h"
#include "platform/zip_format.h"
#include "platform/zip_source.h"

namespace gdnctl {

namespace {

constexpr std::size_t k_read_piece = 256u << 10;

// Where the member's bytes begin. Only the lengths of the name and extra field come from the local header.
Result<std::uint64_t> data_offset(const ZipSource& source, const ZipMember& member, std::uint64_t directory_offset) {
    const std::uint64_t header_bytes = zip::k_local_bytes + member.name.size();
    GDNCTL_TRY_ASSIGN(const std::string header, source.text_at(member.header_offset, header_bytes));
    if (zip::u32_at(header, 0) != zip::k_local_signature || zip::u16_at(header, 26) != member.name.size() ||
        std::string_view(header).substr(zip::k_local_bytes) != member.name) {
        return source.bad("header and central directory differ");
    }
    const std::uint64_t offset = member.header_offset + header_bytes + zip::u16_at(header, 28);
    if (offset > directory_offset || directory_offset - offset < member.compressed_size) {
        return source.bad("reaches beyond the archive's data");
    }
    return offset;
}

// Counts the bytes and updates the checksum as they pass to the caller.
struct Checked {
    const std::function<bool(std::string_view)>& out;
    std::uint64_t bytes = 0;
    uLong crc = ::crc32(0, nullptr, 0);

    bool operator()(std::string_view piece) {
        bytes += piece.size();
        crc = crc32_z(crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size());
        return out(piece);
    }
};

Status for_each_piece(const ZipSource& source, std::uint64_t offset, std::uint64_t bytes,
                      const std::function<Status(std::string_view)>& use) {
    std::string buffer(static_cast<std::size_t>(std::min<std::uint64_t>(bytes, k_read_piece)), '\0');
    while (bytes > 0) {
        const std::size_t piece = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, buffer.size()));
        GDNCTL_TRY(source.read_at(offset, std::span(buffer.data(), piece)));
        GDNCTL_TRY(use({buffer.data(), piece}));
        offset += piece;
        bytes -= piece;
    }
    return {};
}

Status read_bytes(const ZipSource& source, const ZipMember& member, std::uint64_t offset, Checked& checked) {
    if (member.method == zip::k_stored) {
        return for_each_piece(source, offset, member.compressed_size, [&checked](std::string_view piece) -> Status {
            if (!checked(piece)) return fail(ErrorKind::nothing_done, "stopped by the reader");
            return {};
        });
    }
    if (member.method != zip::k_deflate) {
        return source.bad(
            fmt::format("compression method {} is not supported, only stored and deflate", member.method));
    }
    Inflater inflater(DeflateFormat::raw, [&checked](std::string_view piece) { return checked(piece); }, member.size);
    GDNCTL_TRY(for_each_piece(source, offset, member.compressed_size,
                              [&inflater](std::string_view piece) { return inflater.feed(piece); }));
    return inflater.finish();
}

}  // namespace

ZipReader::ZipReader(std::unique_ptr<ZipSource> source) : m_source(std::move(source)) {}
ZipReader::ZipReader(ZipReader&&) noexcept = default;
ZipReader& ZipReader::operator=(ZipReader&&) noexcept = default;
ZipReader::~ZipReader() = default;

Result<ZipReader> ZipReader::open(const std::filesystem::path& path, const ZipLimits& limits) {
    GDNCTL_TRY_ASSIGN(auto source, open_zip_file(path));
    return from(std::move(source), limits);
}

Result<ZipReader> ZipReader::over(std::span<const char> bytes, std::string name, const ZipLimits& limits) {
    return from(zip_in_memory(bytes, std::move(name)), limits);
}

Result<ZipReader> ZipReader::from(std::unique_ptr<ZipSource> source, const ZipLimits& limits) {
    ZipReader reader(std::move(source));
    GDNCTL_TRY_ASSIGN(zip::Directory directory, zip::read_directory(*reader.m_source, limits));
    reader.m_members = std::move(directory.members);
    reader.m_directory_offset = directory.offset;
    return reader;
}

const ZipMember* ZipReader::find(std::string_view name) const {
    const auto found =
        std::find_if(m_members.begin(), m_members.end(), [name](const ZipMember& m) { return m.name == name; });
    return found == m_members.end() ? nullptr : &*found;
}

Status ZipReader::read(const ZipMember& member, const std::function<bool(std::string_view)>& out) const {
    const auto within = [&member](Error error) {
        return tl::unexpected(std::move(error).within(fmt::format("member '{}'", member.name)));
    };
    const auto offset = data_offset(*m_source, member, m_directory_offset);
    if (!offset) return within(offset.error());
    Checked checked{out};
    if (Status status = read_bytes(*m_source, member, *offset, checked); !status) {
        Error error = std::move(status).error();
        // The inflater does not know the file's name.
        if (error.kind == ErrorKind::bad_input && !error.message.starts_with(m_source->name())) {
            error.message = m_source->name() + ": " + error.message;
        }
        return within(std::move(error));
    }
    if (checked.bytes != member.size) {
        return within(m_source->bad(fmt::format("{} bytes instead of {}", checked.bytes, member.size)).value());
    }
    if (checked.crc != member.crc32) return within(m_source->bad("CRC-32 does not match").value());
    return {};
}

Result<std::string> ZipReader::read(const ZipMember& member, std::uint64_t limit) const {
    if (member.size > limit) {
        return m_source->bad(
            fmt::format("member '{}' has {} bytes, more than the limit of {}", member.name, member.size, limit));
    }
    std::string text;
    text.reserve(static_cast<std::size_t>(member.size));
    GDNCTL_TRY(read(member, [&text](std::string_view piece) {
        text += piece;
        return true;
    }));
    return text;
}

}  // namespace gdnctl
