#include "platform/inflate.h"

#include <utility>

#include <fmt/format.h>

#include "platform/inflate_engine.h"

namespace gdnctl {

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

}  // namespace gdnctl
