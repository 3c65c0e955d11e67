#include <algorithm>
#include <limits>

#include <isa-l/igzip_lib.h>

#include "platform/inflate_engine.h"
#include "platform/late_library.h"

#define GDNCTL_ISAL_API(X) X(isal_inflate_init) X(isal_inflate_reset) X(isal_inflate)

namespace gdnctl {

namespace {

GDNCTL_LATE_API(IsalApi, GDNCTL_ISAL_API, "isa-l", "libisal.so.2", "libisal2")

std::uint32_t crc_flag(DeflateFormat format) {
    switch (format) {
        case DeflateFormat::raw: return ISAL_DEFLATE;
        case DeflateFormat::zlib: return ISAL_ZLIB;
        case DeflateFormat::gzip: return ISAL_GZIP;
    }
    return ISAL_DEFLATE;
}

class IsalEngine final : public InflateEngine {
public:
    IsalEngine(const IsalApi& api, DeflateFormat format) : m_api(api), m_flag(crc_flag(format)) {
        m_api.isal_inflate_init(&m_state);
        m_state.crc_flag = m_flag;
    }

    Step run(std::span<const char> input, std::span<char> output) override {
        constexpr std::size_t k_most = std::numeric_limits<std::uint32_t>::max();
        const std::size_t given = std::min(input.size(), k_most);
        const std::size_t room = std::min(output.size(), k_most);
        m_state.next_in = reinterpret_cast<std::uint8_t*>(const_cast<char*>(input.data()));
        m_state.avail_in = static_cast<std::uint32_t>(given);
        m_state.next_out = reinterpret_cast<std::uint8_t*>(output.data());
        m_state.avail_out = static_cast<std::uint32_t>(room);
        const int rc = m_api.isal_inflate(&m_state);
        const State state = state_of(rc);
        const std::size_t produced = room - std::min<std::size_t>(room, m_state.avail_out);
        // After an error, the input counter may be negative.
        if (state != State::more && state != State::end) return {0, produced, state};
        // isa-l counts whole bytes that it read beyond the end of the stream; they belong to the caller.
        const std::size_t ahead =
            state == State::end ? static_cast<std::size_t>(std::max(0, m_state.read_in_length) / 8) : 0;
        const std::size_t consumed = given - std::min<std::size_t>(given, m_state.avail_in + ahead);
        return {consumed, produced, state};
    }

    void restart() override {
        m_api.isal_inflate_reset(&m_state);
        m_state.crc_flag = m_flag;
    }

private:
    State state_of(int rc) const {
        switch (rc) {
            case ISAL_DECOMP_OK:
            case ISAL_END_INPUT:
            case ISAL_OUT_OVERFLOW: return m_state.block_state == ISAL_BLOCK_FINISH ? State::end : State::more;
            case ISAL_INVALID_WRAPPER:
            case ISAL_UNSUPPORTED_METHOD:
            case ISAL_NEED_DICT: return State::wrapper;
            case ISAL_INCORRECT_CHECKSUM: return State::checksum;
            default: return State::damaged;
        }
    }

    const IsalApi& m_api;
    const std::uint32_t m_flag;
    inflate_state m_state{};
};

}  // namespace

Result<std::unique_ptr<InflateEngine>> make_isal_engine(DeflateFormat format) {
    GDNCTL_TRY_ASSIGN(const IsalApi* api, late_api<IsalApi>());
    return std::make_unique<IsalEngine>(*api, format);
}

}  // namespace gdnctl
