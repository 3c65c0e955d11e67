#include "platform/hash.h"

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include "core/sha256.h"
#include "platform/fs.h"
#include "platform/late_library.h"

#define GDNCTL_CRYPTO_API(X) \
    X(EVP_MD_CTX_new)        \
    X(EVP_MD_CTX_free)       \
    X(EVP_DigestInit_ex) X(EVP_DigestUpdate) X(EVP_DigestFinal_ex) X(EVP_sha1) X(EVP_sha256) X(EVP_md5)

namespace gdnctl {

namespace {

GDNCTL_LATE_API(CryptoApi, GDNCTL_CRYPTO_API, "libcrypto", "libcrypto.so.3", "libssl3")

tl::unexpected<Error> refused(std::string_view step) {
    return fail(ErrorKind::infrastructure, fmt::format("libcrypto cannot {} a hash", step),
                "this machine's OpenSSL may be limited to FIPS algorithms");
}

}  // namespace

// libcrypto's hash or, on a machine without libcrypto, our own.
struct Hasher::State {
    State(const CryptoApi* crypto, EVP_MD_CTX* handle) : api(crypto), context(handle) {}
    ~State() {
        if (api != nullptr) api->EVP_MD_CTX_free(context);
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    const CryptoApi* api;
    EVP_MD_CTX* context;
    Sha256 own;
};

Hasher::Hasher(std::unique_ptr<State> state) : m_state(std::move(state)) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

Result<Hasher> Hasher::create(HashKind kind) {
    const auto opened = late_api<CryptoApi>();
    if (!opened && kind == HashKind::sha256) return Hasher(std::make_unique<State>(nullptr, nullptr));
    GDNCTL_TRY_ASSIGN(const CryptoApi* api, opened);
    EVP_MD_CTX* context = api->EVP_MD_CTX_new();
    if (context == nullptr) return refused("begin");
    Hasher hasher(std::make_unique<State>(api, context));
    const EVP_MD* algorithm = kind == HashKind::sha1     ? api->EVP_sha1()
                              : kind == HashKind::sha256 ? api->EVP_sha256()
                                                         : api->EVP_md5();
    if (api->EVP_DigestInit_ex(context, algorithm, nullptr) != 1) return refused("begin");
    return hasher;
}

Status Hasher::update(std::string_view bytes) {
    if (m_state->api == nullptr) {
        m_state->own.update(bytes);
        return {};
    }
    if (m_state->api->EVP_DigestUpdate(m_state->context, bytes.data(), bytes.size()) != 1) return refused("continue");
    return {};
}

Result<std::string> Hasher::hex() {
    if (m_state->api == nullptr) return m_state->own.hex();
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    if (m_state->api->EVP_DigestFinal_ex(m_state->context, digest.data(), &size) != 1) return refused("finish");
    std::string text;
    text.reserve(std::size_t{size} * 2);
    for (unsigned i = 0; i < size; ++i) fmt::format_to(std::back_inserter(text), "{:02x}", digest[i]);
    return text;
}

Result<std::string> hash_hex(HashKind kind, std::string_view bytes) {
    GDNCTL_TRY_ASSIGN(Hasher hasher, Hasher::create(kind));
    GDNCTL_TRY(hasher.update(bytes));
    return hasher.hex();
}

Result<std::string> hash_file_hex(HashKind kind, const std::filesystem::path& path) {
    GDNCTL_TRY_ASSIGN(Hasher hasher, Hasher::create(kind));
    const auto unreadable = [&path] {
        return fail(ErrorKind::local_io,
                    fmt::format("cannot read {}: {}", path.string(), std::generic_category().message(errno)));
    };
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return unreadable();
    std::vector<char> buffer(256u << 10);
    while (true) {
        const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable();
        if (got == 0) break;
        GDNCTL_TRY(hasher.update({buffer.data(), static_cast<std::size_t>(got)}));
    }
    return hasher.hex();
}

}  // namespace gdnctl
