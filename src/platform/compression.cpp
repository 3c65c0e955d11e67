#include "platform/compression.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <new>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <isa-l/igzip_lib.h>
#include <unistd.h>
#include <zlib.h>

#include "platform/fs.h"
#include "platform/late_library.h"

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

namespace {

constexpr std::size_t k_buffer_bytes = 128u << 10;
constexpr char k_gzip_first_byte = '\x1f';

std::string_view name_of(DeflateFormat format) {
    switch (format) {
        case DeflateFormat::raw: return "deflate";
        case DeflateFormat::zlib: return "zlib";
        case DeflateFormat::gzip: return "gzip";
    }
    return "";
}

std::unique_ptr<InflateEngine> make_engine(DeflateFormat format, InflateBackend backend) {
    if (backend == InflateBackend::fastest) {
        if (auto engine = make_isal_engine(format)) return std::move(*engine);
    }
    return make_zlib_engine(format);
}

}  // namespace

Inflater::Inflater(DeflateFormat format, Output output, std::uint64_t output_limit, InflateBackend backend)
    : m_format(format),
      m_output(std::move(output)),
      m_limit(output_limit),
      m_engine(make_engine(format, backend)),
      m_buffer(std::make_unique<char[]>(k_buffer_bytes)) {}

Inflater::~Inflater() = default;

Status Inflater::emit(std::string_view bytes) {
    if (bytes.size() > m_limit - m_produced) {
        return fail(ErrorKind::bad_input, fmt::format("inflates to more than {} bytes", m_limit));
    }
    m_produced += bytes.size();
    if (!bytes.empty() && !m_output(bytes)) return fail(ErrorKind::nothing_done, "stopped by the reader");
    return {};
}

Status Inflater::feed_once(std::string_view& input) {
    if (m_at_end) {
        if (m_format != DeflateFormat::gzip || input.front() != k_gzip_first_byte) {
            return fail(ErrorKind::bad_input,
                        fmt::format("bytes follow after the end of the {} data", name_of(m_format)));
        }
        m_engine->restart();
        m_at_end = false;
    }
    m_begun = true;
    while (true) {
        const InflateEngine::Step step = m_engine->run(input, {m_buffer.get(), k_buffer_bytes});
        input.remove_prefix(step.consumed);
        GDNCTL_TRY(emit({m_buffer.get(), step.produced}));
        switch (step.state) {
            case InflateEngine::State::end: m_at_end = true; return {};
            case InflateEngine::State::wrapper:
                return fail(ErrorKind::bad_input, fmt::format("not {} data", name_of(m_format)));
            case InflateEngine::State::damaged:
                return fail(ErrorKind::bad_input,
                            fmt::format("damaged {} data after {} bytes of output", name_of(m_format), m_produced));
            case InflateEngine::State::checksum:
                return fail(ErrorKind::bad_input,
                            fmt::format("checksum of the {} data does not match", name_of(m_format)));
            case InflateEngine::State::more: break;
        }
        // A full buffer may mean that more output is ready without further input.
        if (input.empty() && step.produced < k_buffer_bytes) return {};
        if (step.consumed == 0 && step.produced == 0) {
            return fail(ErrorKind::bad_input,
                        fmt::format("damaged {} data after {} bytes of output", name_of(m_format), m_produced));
        }
    }
}

Status Inflater::feed(std::string_view input) {
    while (m_status && !input.empty()) m_status = feed_once(input);
    return m_status;
}

Status Inflater::finish() {
    if (!m_status || m_at_end) return m_status;
    m_status = fail(ErrorKind::bad_input, m_begun ? fmt::format("the {} data is truncated after {} bytes of output",
                                                                name_of(m_format), m_produced)
                                                  : fmt::format("no {} data: empty", name_of(m_format)));
    return m_status;
}

std::string_view inflate_backend_name() { return make_isal_engine(DeflateFormat::raw) ? "isa-l" : "zlib"; }

namespace fs = std::filesystem;

namespace {

// 0 or errno.
int pack(int from, int to) {
    constexpr std::size_t k_step = std::size_t{256} << 10;
    constexpr int k_level = 6;
    constexpr int k_gzip_window = MAX_WBITS + 16;
    z_stream stream{};
    if (deflateInit2(&stream, k_level, Z_DEFLATED, k_gzip_window, 8, Z_DEFAULT_STRATEGY) != Z_OK) return ENOMEM;
    std::vector<unsigned char> in(k_step), out(k_step);
    int problem = 0;
    for (bool end = false; !end && problem == 0;) {
        const ssize_t n = read(from, in.data(), in.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            problem = errno;
            break;
        }
        end = n == 0;
        stream.next_in = in.data();
        stream.avail_in = static_cast<uInt>(n);
        do {
            stream.next_out = out.data();
            stream.avail_out = static_cast<uInt>(out.size());
            deflate(&stream, end ? Z_FINISH : Z_NO_FLUSH);
            const std::size_t made = out.size() - stream.avail_out;
            problem = write_fully(to, std::string_view(reinterpret_cast<const char*>(out.data()), made));
        } while (stream.avail_out == 0 && problem == 0);
    }
    deflateEnd(&stream);
    return problem;
}

// Creates PATH.gz next to PATH. False: only PATH.gz existed.
Result<bool> pack_beside(const fs::path& path) {
    const fs::path packed = path.string() + ".gz";
    const fs::path temporary = path.string() + ".gz.part";
    const UniqueFd from(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!from.valid()) {
        if (errno == ENOENT && access(packed.c_str(), F_OK) == 0) return false;
        return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    }
    const UniqueFd to(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    int problem = to.valid() ? pack(from.get(), to.get()) : errno;
    if (problem == 0 && fsync(to.get()) != 0) problem = errno;
    if (problem == 0 && std::rename(temporary.c_str(), packed.c_str()) != 0) problem = errno;
    if (problem != 0) {
        unlink(temporary.c_str());
        return tl::unexpected(file_error(ErrorKind::local_io, "write", packed, problem));
    }
    return true;
}

}  // namespace

Status gzip_in_place(std::span<const fs::path> paths) {
    std::vector<fs::path> done;
    std::set<fs::path> folders;
    Status packed;
    for (const auto& path : paths) {
        const auto made = pack_beside(path);
        if (!made) {
            packed = tl::unexpected(made.error());
            break;
        }
        if (!*made) continue;
        done.push_back(path);
        folders.insert(path.parent_path());
    }
    for (const auto& folder : folders) GDNCTL_TRY(sync_directory(folder));
    for (const auto& path : done) {
        if (unlink(path.c_str()) != 0) return tl::unexpected(file_error(ErrorKind::local_io, "remove", path, errno));
    }
    return packed;
}

}  // namespace gdnctl
