#include <array>

#include <fmt/format.h>

#include "oracle/tensor/formats.h"

namespace gdnctl::oracle {

namespace {

constexpr std::uint32_t k_local_header = 0x04034b50;
constexpr std::uint32_t k_central_header = 0x02014b50;
constexpr std::uint32_t k_end_of_directory = 0x06054b50;
constexpr std::uint16_t k_version = 20;     // ZIP 2.0: plain stored members
constexpr std::uint16_t k_dos_date = 0x21;  // 1980-01-01, so that equal contents give equal bytes
constexpr std::uint16_t k_utf8_names = 1 << 11;

constexpr std::array<std::uint32_t, 256> crc_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t c = i;
        for (int bit = 0; bit < 8; ++bit) c = (c & 1U) != 0 ? 0xEDB88320U ^ (c >> 1U) : c >> 1U;
        table[i] = c;
    }
    return table;
}

std::uint32_t crc32(std::span<const std::uint8_t> bytes) {
    static constexpr auto k_table = crc_table();
    std::uint32_t c = 0xFFFFFFFFU;
    for (const std::uint8_t byte : bytes) c = k_table[(c ^ byte) & 0xFFU] ^ (c >> 8U);
    return ~c;
}

class LittleEndian {
public:
    explicit LittleEndian(std::vector<std::uint8_t>& out) : m_out(out) {}
    LittleEndian& u16(std::uint16_t x) { return put(x, 2); }
    LittleEndian& u32(std::uint32_t x) { return put(x, 4); }

private:
    LittleEndian& put(std::uint32_t x, int bytes) {
        for (int i = 0; i < bytes; ++i) m_out.push_back(static_cast<std::uint8_t>(x >> (8 * i)));
        return *this;
    }
    std::vector<std::uint8_t>& m_out;
};

}  // namespace

Result<std::vector<std::uint8_t>> serialize_npz(const TensorFile& file) {
    std::vector<std::uint8_t> bytes;
    std::vector<std::uint8_t> directory;
    for (const NamedTensor& entry : file.tensors) {
        const std::string name = entry.name + ".npy";
        if (name.size() > 0xFFFF || file.tensors.size() > 0xFFFF) {
            return fail(ErrorKind::bad_input,
                        "a .npz file holds at most 65535 tensors, with names of at most 65535 bytes",
                        "write .safetensors instead");
        }
        const std::vector<std::uint8_t> member = serialize_npy(entry.tensor);
        if (bytes.size() + member.size() + directory.size() > 0xFFFF0000U) {
            return fail(ErrorKind::bad_input, "cannot write a .npz file larger than 4 GiB",
                        "write .safetensors instead");
        }
        const auto size = static_cast<std::uint32_t>(member.size());
        const auto offset = static_cast<std::uint32_t>(bytes.size());
        const std::uint32_t crc = crc32(member);
        const auto common = [&](std::vector<std::uint8_t>& out) {
            LittleEndian(out)
                .u16(k_version)
                .u16(k_utf8_names)
                .u16(0)
                .u16(0)
                .u16(k_dos_date)
                .u32(crc)
                .u32(size)
                .u32(size)
                .u16(static_cast<std::uint16_t>(name.size()))
                .u16(0);
        };
        LittleEndian(bytes).u32(k_local_header);
        common(bytes);
        bytes.insert(bytes.end(), name.begin(), name.end());
        bytes.insert(bytes.end(), member.begin(), member.end());
        LittleEndian(directory).u32(k_central_header).u16(k_version);
        common(directory);
        LittleEndian(directory).u16(0).u16(0).u16(0).u32(0).u32(offset);
        directory.insert(directory.end(), name.begin(), name.end());
    }
    const auto start = static_cast<std::uint32_t>(bytes.size());
    const auto count = static_cast<std::uint16_t>(file.tensors.size());
    bytes.insert(bytes.end(), directory.begin(), directory.end());
    LittleEndian(bytes)
        .u32(k_end_of_directory)
        .u16(0)
        .u16(0)
        .u16(count)
        .u16(count)
        .u32(static_cast<std::uint32_t>(directory.size()))
        .u32(start)
        .u16(0);
    return bytes;
}

}  // namespace gdnctl::oracle
