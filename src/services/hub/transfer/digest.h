// The expected hash of a file's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/hash.h"

namespace gdnctl::hub {

struct Digest {
    enum class Kind { none, sha256, git_sha1, md5 };
    Kind kind = Kind::none;
    std::string hex;  // lower case
};

inline constexpr std::size_t k_md5_digits = 32;
inline constexpr std::size_t k_sha1_digits = 40;
inline constexpr std::size_t k_sha256_digits = 64;
bool is_hex(std::string_view text, std::size_t digits);  // lower case

// MD5 in manifests is base64. Empty: not base64.
std::string hex_of_base64(std::string_view text);
std::string base64_of_hex(std::string_view hex);

// Hashes a file's bytes in order, as required by its Digest.
class Digester {
public:
    // `size`: of the whole file, which git hashes first.
    static Result<Digester> create(Digest::Kind kind, std::int64_t size);
    Status update(std::string_view bytes);
    Result<std::string> hex();

private:
    Digester() = default;
    std::optional<Hasher> m_hasher;  // none: no hash
};

}  // namespace gdnctl::hub
