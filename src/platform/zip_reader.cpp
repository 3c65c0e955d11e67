// Finds and reads the central directory of an archive, and checks it against the rest of the file.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include "platform/compression.h"
#include "platform/zip.h"
#include "platform/zip_format.h"

namespace gdnctl::zip {

namespace {

struct Directory {
    std::vector<ZipMember> members;
    std::uint64_t offset = 0;  // of the directory in the file; the members' data end before it
};

// The contents of the end record, with zip64 taken into account.
struct End {
    std::uint64_t members = 0;
    std::uint64_t directory_bytes = 0;
    std::uint64_t directory_offset = 0;
    std::uint64_t directory_limit = 0;  // the directory ends here at the latest
};

Result<End> read_end64(const ZipSource& source, std::uint64_t end_offset, End end) {
    if (end_offset < k_locator64_bytes) return source.bad("damaged zip64 end of archive");
    GDNCTL_TRY_ASSIGN(const std::string_view locator,
                      source.text_at(end_offset - k_locator64_bytes, k_locator64_bytes));
    if (u32_at(locator, 0) != k_locator64_signature) return source.bad("damaged zip64 end of archive");
    const std::uint64_t at = u64_at(locator, 8);
    if (at > end_offset - k_locator64_bytes || end_offset - k_locator64_bytes - at < k_end64_bytes) {
        return source.bad("damaged zip64 end of archive");
    }
    GDNCTL_TRY_ASSIGN(const std::string_view record, source.text_at(at, k_end64_bytes));
    if (u32_at(record, 0) != k_end64_signature) return source.bad("damaged zip64 end of archive");
    if (u32_at(record, 16) != 0 || u32_at(record, 20) != 0) return source.bad("multi-part archives are not supported");
    end.members = u64_at(record, 32);
    end.directory_bytes = u64_at(record, 40);
    end.directory_offset = u64_at(record, 48);
    end.directory_limit = at;
    return end;
}

Result<End> read_end(const ZipSource& source) {
    const std::uint64_t tail_bytes = std::min<std::uint64_t>(source.bytes.size(), k_end_bytes + k_max16);
    GDNCTL_TRY_ASSIGN(const std::string_view tail, source.text_at(source.bytes.size() - tail_bytes, tail_bytes));
    std::optional<std::size_t> found;
    for (std::size_t at = tail.size(); !found && at-- > 0;) {
        if (tail.size() - at < k_end_bytes || u32_at(tail, at) != k_end_signature) continue;
        // The comment must reach exactly to the end of the file; otherwise this is data that looks like the record.
        if (u16_at(tail, at + 20) == tail.size() - at - k_end_bytes) found = at;
    }
    if (!found) return source.bad("not a ZIP archive, or truncated");
    const std::string_view record = tail.substr(*found, k_end_bytes);
    const std::uint64_t end_offset = source.bytes.size() - tail_bytes + *found;
    End end;
    end.members = u16_at(record, 10);
    end.directory_bytes = u32_at(record, 12);
    end.directory_offset = u32_at(record, 16);
    end.directory_limit = end_offset;
    const bool zip64 = end.members == k_max16 || end.directory_bytes == k_max32 || end.directory_offset == k_max32;
    if (zip64) return read_end64(source, end_offset, end);
    if (u16_at(record, 4) != 0 || u16_at(record, 6) != 0) return source.bad("multi-part archives are not supported");
    return end;
}

// Replaces the placeholders in `member` by the values of the zip64 extra field; false: the values are missing.
bool apply_zip64(std::string_view extra, ZipMember& member) {
    while (extra.size() >= 4) {
        const std::uint16_t id = u16_at(extra, 0);
        const std::uint16_t bytes = u16_at(extra, 2);
        if (bytes > extra.size() - 4) return false;
        std::string_view field = extra.substr(4, bytes);
        extra.remove_prefix(4u + bytes);
        if (id != k_zip64_extra) continue;
        for (std::uint64_t* value : {&member.size, &member.compressed_size, &member.header_offset}) {
            if (*value != k_max32) continue;
            if (field.size() < 8) return false;
            *value = u64_at(field, 0);
            field.remove_prefix(8);
        }
        return true;
    }
    return member.size != k_max32 && member.compressed_size != k_max32 && member.header_offset != k_max32;
}

Status check_member(const ZipSource& source, const ZipMember& member, std::uint16_t flags, const ZipLimits& limits) {
    const auto bad = [&](std::string_view what) {
        return source.bad(fmt::format("member '{}': {}", member.name, what));
    };
    if (member.name.empty() || member.name.find('\0') != std::string::npos) return bad("impossible name");
    if ((flags & k_flag_encrypted) != 0) return bad("encrypted");
    if (member.method == k_stored && member.size != member.compressed_size) return bad("stored with two sizes");
    // Deflate's limit: 258 bytes from two bits.
    constexpr std::uint64_t k_best_ratio = 1032;
    if (member.method == k_deflate && member.size / k_best_ratio > member.compressed_size) {
        return bad(fmt::format("{} bytes cannot come from {}", member.size, member.compressed_size));
    }
    if (member.size > limits.member_bytes) {
        return bad(fmt::format("{} bytes, more than the limit of {}", member.size, limits.member_bytes));
    }
    return {};
}

// Removes the next member from the front of `directory`.
Result<ZipMember> take_member(const ZipSource& source, std::string_view& directory, const ZipLimits& limits) {
    if (directory.size() < k_central_bytes || u32_at(directory, 0) != k_central_signature) {
        return source.bad("damaged central directory");
    }
    const std::size_t name_bytes = u16_at(directory, 28);
    const std::size_t extra_bytes = u16_at(directory, 30);
    const std::size_t all = k_central_bytes + name_bytes + extra_bytes + u16_at(directory, 32);
    if (directory.size() < all) return source.bad("damaged central directory");
    ZipMember member;
    member.name = directory.substr(k_central_bytes, name_bytes);
    member.method = u16_at(directory, 10);
    member.crc32 = u32_at(directory, 16);
    member.compressed_size = u32_at(directory, 20);
    member.size = u32_at(directory, 24);
    member.header_offset = u32_at(directory, 42);
    const unsigned made_by = u16_at(directory, 4) >> 8;
    constexpr unsigned k_unix = 3;
    constexpr unsigned k_macos = 19;
    if (made_by == k_unix || made_by == k_macos) member.unix_mode = u32_at(directory, 38) >> 16;
    if (!apply_zip64(directory.substr(k_central_bytes + name_bytes, extra_bytes), member)) {
        return source.bad(fmt::format("member '{}': damaged zip64 field", member.name));
    }
    GDNCTL_TRY(check_member(source, member, u16_at(directory, 8), limits));
    directory.remove_prefix(all);
    return member;
}

// Overlapping members let a small archive claim to hold petabytes.
Status check_layout(const ZipSource& source, const Directory& directory) {
    std::vector<std::size_t> order(directory.members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return directory.members[a].header_offset < directory.members[b].header_offset;
    });
    for (std::size_t i = 0; i < order.size(); ++i) {
        const ZipMember& member = directory.members[order[i]];
        const bool last = i + 1 == order.size();
        const std::uint64_t limit = last ? directory.offset : directory.members[order[i + 1]].header_offset;
        const std::uint64_t header = k_local_bytes + member.name.size();
        if (member.header_offset > limit || limit - member.header_offset < header ||
            limit - member.header_offset - header < member.compressed_size) {
            return source.bad(
                last ? fmt::format("member '{}' reaches beyond the archive's data", member.name)
                     : fmt::format("members '{}' and '{}' overlap", member.name, directory.members[order[i + 1]].name));
        }
    }
    return {};
}

Result<Directory> read_directory(const ZipSource& source, const ZipLimits& limits) {
    GDNCTL_TRY_ASSIGN(const End end, read_end(source));
    if (end.directory_offset > end.directory_limit ||
        end.directory_bytes > end.directory_limit - end.directory_offset) {
        return source.bad("the central directory lies outside the archive");
    }
    if (end.members > limits.members) {
        return source.bad(fmt::format("{} members, more than the limit of {}", end.members, limits.members));
    }
    if (end.directory_bytes / k_central_bytes < end.members) return source.bad("damaged central directory");
    GDNCTL_TRY_ASSIGN(std::string_view rest, source.text_at(end.directory_offset, end.directory_bytes));
    Directory directory;
    directory.offset = end.directory_offset;
    std::unordered_set<std::string> names;
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < end.members; ++i) {
        GDNCTL_TRY_ASSIGN(ZipMember member, take_member(source, rest, limits));
        if (!names.insert(member.name).second) {
            return source.bad(fmt::format("two members have the name '{}'", member.name));
        }
        if (member.size > limits.total_bytes - total) {
            return source.bad(fmt::format("more than {} bytes in all", limits.total_bytes));
        }
        total += member.size;
        directory.members.push_back(std::move(member));
    }
    if (!rest.empty()) return source.bad("damaged central directory");
    GDNCTL_TRY(check_layout(source, directory));
    return directory;
}

}  // namespace

}  // namespace gdnctl::zip

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
