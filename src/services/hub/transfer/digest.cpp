#include "services/hub/transfer/digest.h"

#include <algorithm>

#include <fmt/format.h>

namespace gdnctl::hub {

bool is_hex(std::string_view text, std::size_t digits) {
    return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

Result<Digester> Digester::create(Digest::Kind kind, std::int64_t size) {
    Digester digester;
    if (kind == Digest::Kind::none) return digester;
    const HashKind hash = kind == Digest::Kind::sha256     ? HashKind::sha256
                          : kind == Digest::Kind::git_sha1 ? HashKind::sha1
                                                           : HashKind::md5;
    GDNCTL_TRY_ASSIGN(digester.m_hasher, Hasher::create(hash));
    if (kind == Digest::Kind::git_sha1) {
        const std::string head = fmt::format("blob {}", size);
        GDNCTL_TRY(digester.m_hasher->update(std::string_view(head.c_str(), head.size() + 1)));  // including its NUL
    }
    return digester;
}

Status Digester::update(std::string_view bytes) { return m_hasher ? m_hasher->update(bytes) : Status(); }

Result<std::string> Digester::hex() { return m_hasher ? m_hasher->hex() : Result<std::string>(std::string()); }

}  // namespace gdnctl::hub
