// SHA-256 as in FIPS 180-4, for a few kilobytes, where opening a crypto library would cost more, and for machines
// without one. libcrypto is several times as fast (platform/hash.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace gdnctl {

class Sha256 {
public:
    void update(std::string_view bytes);
    std::string hex();  // lower-case, 64 digits. Finishes the hash: no call may follow.

private:
    void block();  // takes in m_open, which is full

    std::array<std::uint32_t, 8> m_state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<unsigned char, 64> m_open{};  // the block that is not full yet
    std::uint64_t m_bytes = 0;
};

}  // namespace gdnctl
