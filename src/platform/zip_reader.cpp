#include <utility>

#include <fmt/format.h>
#include <zlib.h>

#include "platform/inflate.h"
#include "platform/zip.h"
#include "platform/zip_directory.h"
#include "platform/zip_format.h"

namespace gdnctl {

namespace {

// Where the member's bytes begin. Only the lengths of the name and extra field come from the local header.
Result<std::uint64_t> data_offset(const ZipSource& source, const ZipMember& member, std::uint64_t directory_offset) {
    const std::uint64_t header_bytes = zip::k_local_bytes + member.name.size();
    GDNCTL_TRY_ASSIGN(const std::string_view header, source.text_at(member.header_offset, header_bytes));
    if (zip::u32_at(header, 0) != zip::k_local_signature || zip::u16_at(header, 26) != member.name.size() ||
        header.substr(zip::k_local_bytes) != member.name) {
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

Status read_bytes(const ZipSource& source, const ZipMember& member, std::uint64_t offset, Checked& checked) {
    GDNCTL_TRY_ASSIGN(const std::string_view packed, source.text_at(offset, member.compressed_size));
    if (member.method == zip::k_stored) {
        return packed.empty() || checked(packed) ? Status{} : fail(ErrorKind::nothing_done, "stopped by the reader");
    }
    if (member.method != zip::k_deflate) {
        return source.bad(
            fmt::format("compression method {} is not supported, only stored and deflate", member.method));
    }
    Inflater inflater(DeflateFormat::raw, [&checked](std::string_view piece) { return checked(piece); }, member.size);
    GDNCTL_TRY(inflater.feed(packed));
    return inflater.finish();
}

}  // namespace

tl::unexpected<Error> ZipSource::bad(const std::string& what) const {
    return fail(ErrorKind::bad_input, fmt::format("{}: {}", name, what));
}

Result<std::string_view> ZipSource::text_at(std::uint64_t offset, std::uint64_t size) const {
    if (offset > bytes.size() || size > bytes.size() - offset) return bad("cut");
    return bytes.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

Result<ZipReader> ZipReader::over(std::string_view bytes, std::string name, const ZipLimits& limits) {
    ZipReader reader({std::move(name), bytes});
    GDNCTL_TRY_ASSIGN(zip::Directory directory, zip::read_directory(reader.m_source, limits));
    reader.m_members = std::move(directory.members);
    reader.m_directory_offset = directory.offset;
    return reader;
}

Status ZipReader::read(const ZipMember& member, const std::function<bool(std::string_view)>& out) const {
    const auto within = [&member](Error error) {
        return tl::unexpected(std::move(error).within(fmt::format("member '{}'", member.name)));
    };
    const auto offset = data_offset(m_source, member, m_directory_offset);
    if (!offset) return within(offset.error());
    Checked checked{out};
    if (Status status = read_bytes(m_source, member, *offset, checked); !status) {
        Error error = std::move(status).error();
        // The inflater does not know the file's name.
        if (error.kind == ErrorKind::bad_input && !error.message.starts_with(m_source.name)) {
            error.message = m_source.name + ": " + error.message;
        }
        return within(std::move(error));
    }
    if (checked.bytes != member.size) {
        return within(m_source.bad(fmt::format("{} bytes instead of {}", checked.bytes, member.size)).value());
    }
    if (checked.crc != member.crc32) return within(m_source.bad("CRC-32 does not match").value());
    return {};
}

Result<std::string> ZipReader::read(const ZipMember& member, std::uint64_t limit) const {
    if (member.size > limit) {
        return m_source.bad(
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
