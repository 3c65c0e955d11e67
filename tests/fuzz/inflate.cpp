// First byte: format and size of the pieces; the rest is the stream. What zlib accepts, isa-l must accept, with the
// same bytes; a stream's bytes may not depend on how it is cut.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/fuzz.h"
#include "platform/compression.h"

namespace {

struct Outcome {
    bool good = false;
    std::string text;
};

Outcome run(gdnctl::DeflateFormat format, gdnctl::InflateBackend backend, std::string_view input, std::size_t piece) {
    constexpr std::uint64_t k_limit = 1u << 20;
    Outcome outcome;
    gdnctl::Inflater inflater(
        format,
        [&outcome](std::string_view bytes) {
            outcome.text += bytes;
            return true;
        },
        k_limit, backend);
    gdnctl::Status status;
    while (status && !input.empty()) {
        status = inflater.feed(input.substr(0, piece));
        input.remove_prefix(std::min(piece, input.size()));
    }
    outcome.good = status && inflater.finish();
    if (outcome.text.size() > k_limit) std::abort();
    return outcome;
}

}  // namespace

FUZZ(inflate) {
    if (size == 0) return 0;
    const auto format = static_cast<gdnctl::DeflateFormat>(data[0] % 3);
    const std::size_t piece = 1u + data[0] / 3u;
    const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
    const Outcome reference = run(format, gdnctl::InflateBackend::zlib, input, input.size() + 1);
    for (const auto backend : {gdnctl::InflateBackend::zlib, gdnctl::InflateBackend::fastest}) {
        const Outcome other = run(format, backend, input, piece);
        if (reference.good && (!other.good || other.text != reference.text)) std::abort();
        if (backend == gdnctl::InflateBackend::zlib && other.good != reference.good) std::abort();
    }
    return 0;
}
