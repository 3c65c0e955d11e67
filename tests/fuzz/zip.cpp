// An archive from anywhere: opened and read to the end, or refused.
#include "platform/zip.h"

#include <cstdint>
#include <cstdlib>

#include "fuzz/fuzz.h"

FUZZ(zip) {
    const auto* bytes = reinterpret_cast<const char*>(data);
    constexpr std::uint64_t k_most = 1u << 20;
    const auto reader = gdnctl::ZipReader::over({bytes, size}, "fuzz",
                                                {.members = 1000, .member_bytes = k_most, .total_bytes = k_most});
    if (!reader) {
        if (reader.error().kind != gdnctl::ErrorKind::bad_input) std::abort();
        return 0;
    }
    for (const gdnctl::ZipMember& member : reader->members()) {
        std::uint64_t seen = 0;
        const gdnctl::Status status = reader->read(member, [&seen](std::string_view piece) {
            seen += piece.size();
            return true;
        });
        if (seen > member.size || (status && seen != member.size)) std::abort();
    }
    return 0;
}
