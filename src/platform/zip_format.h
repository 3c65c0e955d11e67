// The records of a ZIP file (PKWARE APPNOTE 6.3), little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gdnctl::zip {

constexpr std::uint32_t k_local_signature = 0x04034b50;
constexpr std::uint32_t k_central_signature = 0x02014b50;
constexpr std::uint32_t k_end_signature = 0x06054b50;
constexpr std::uint32_t k_end64_signature = 0x06064b50;
constexpr std::uint32_t k_locator64_signature = 0x07064b50;

constexpr std::size_t k_local_bytes = 30;
constexpr std::size_t k_central_bytes = 46;
constexpr std::size_t k_end_bytes = 22;
constexpr std::size_t k_end64_bytes = 56;
constexpr std::size_t k_locator64_bytes = 20;

constexpr std::uint16_t k_stored = 0;
constexpr std::uint16_t k_deflate = 8;
constexpr std::uint16_t k_flag_encrypted = 0x0001;
constexpr std::uint16_t k_flag_utf8 = 0x0800;
constexpr std::uint16_t k_zip64_extra = 0x0001;

constexpr std::uint16_t k_max16 = 0xffff;      // "see zip64"
constexpr std::uint32_t k_max32 = 0xffffffff;  // "see zip64"

// Little-endian numbers at an offset; the caller has checked the size.
inline std::uint64_t number_at(std::string_view bytes, std::size_t offset, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = width; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[offset + i]);
    return value;
}
inline std::uint16_t u16_at(std::string_view bytes, std::size_t offset) {
    return static_cast<std::uint16_t>(number_at(bytes, offset, 2));
}
inline std::uint32_t u32_at(std::string_view bytes, std::size_t offset) {
    return static_cast<std::uint32_t>(number_at(bytes, offset, 4));
}
inline std::uint64_t u64_at(std::string_view bytes, std::size_t offset) { return number_at(bytes, offset, 8); }

inline void put(std::string& out, std::uint64_t value, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

}  // namespace gdnctl::zip
