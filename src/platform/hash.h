// SHA-1, SHA-256 and MD5 through libcrypto, which is opened on first use. SHA-256 needs no libcrypto, but is slower
// then.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl {

enum class HashKind { sha1, sha256, md5 };

// One hash over bytes that arrive in pieces.
class Hasher {
public:
    // Error: infrastructure (no libcrypto, and not SHA-256).
    static Result<Hasher> create(HashKind kind);
    Hasher(Hasher&&) noexcept;
    Hasher& operator=(Hasher&&) noexcept;
    ~Hasher();

    Status update(std::string_view bytes);
    // Lower-case hex, 40, 64 or 32 digits. Finishes the hash: no call may follow.
    Result<std::string> hex();

private:
    struct State;
    explicit Hasher(std::unique_ptr<State> state);
    std::unique_ptr<State> m_state;
};

Result<std::string> hash_hex(HashKind kind, std::string_view bytes);
// Errors besides those of Hasher: local_io.
Result<std::string> hash_file_hex(HashKind kind, const std::filesystem::path& path);

}  // namespace gdnctl
