#include <algorithm>
#include <limits>
#include <new>
#include <string_view>

#include <zlib.h>

#include "platform/inflate_engine.h"

namespace gdnctl {

namespace {

int window_bits(DeflateFormat format) {
    switch (format) {
        case DeflateFormat::raw: return -MAX_WBITS;
        case DeflateFormat::zlib: return MAX_WBITS;
        case DeflateFormat::gzip: return MAX_WBITS + 16;
    }
    return MAX_WBITS;
}

InflateEngine::State state_of(int rc, const char* message) {
    if (rc == Z_STREAM_END) return InflateEngine::State::end;
    if (rc == Z_OK || rc == Z_BUF_ERROR) return InflateEngine::State::more;
    if (rc == Z_NEED_DICT) return InflateEngine::State::wrapper;
    const std::string_view text = message != nullptr ? message : "";
    if (text == "incorrect data check" || text == "incorrect length check" || text == "header crc mismatch") {
        return InflateEngine::State::checksum;
    }
    for (const std::string_view header :
         {"incorrect header check", "unknown compression method", "invalid window size", "unknown header flags set"}) {
        if (text == header) return InflateEngine::State::wrapper;
    }
    return InflateEngine::State::damaged;
}

class ZlibEngine final : public InflateEngine {
public:
    explicit ZlibEngine(DeflateFormat format) {
        if (inflateInit2(&m_stream, window_bits(format)) != Z_OK) throw std::bad_alloc();
    }
    ~ZlibEngine() override { inflateEnd(&m_stream); }
    ZlibEngine(const ZlibEngine&) = delete;
    ZlibEngine& operator=(const ZlibEngine&) = delete;

    Step run(std::span<const char> input, std::span<char> output) override {
        constexpr std::size_t k_most = std::numeric_limits<uInt>::max();
        const std::size_t given = std::min(input.size(), k_most);
        const std::size_t room = std::min(output.size(), k_most);
        m_stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
        m_stream.avail_in = static_cast<uInt>(given);
        m_stream.next_out = reinterpret_cast<Bytef*>(output.data());
        m_stream.avail_out = static_cast<uInt>(room);
        const int rc = inflate(&m_stream, Z_NO_FLUSH);
        return {given - m_stream.avail_in, room - m_stream.avail_out, state_of(rc, m_stream.msg)};
    }

    void restart() override { inflateReset(&m_stream); }

private:
    z_stream m_stream{};
};

}  // namespace

std::unique_ptr<InflateEngine> make_zlib_engine(DeflateFormat format) { return std::make_unique<ZlibEngine>(format); }

}  // namespace gdnctl
