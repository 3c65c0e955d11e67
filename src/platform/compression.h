// Streaming decompression of gzip, zlib and raw deflate, and gzip for files that are kept for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "core/result.h"

namespace gdnctl {

enum class DeflateFormat { raw, zlib, gzip };
enum class InflateBackend {
    fastest,  // isa-l, or zlib where there is none
    zlib,
};

class InflateEngine;

// One compressed stream, fed in pieces of any size. gzip streams may have several members, one after another.
class Inflater {
public:
    static constexpr std::uint64_t k_no_limit = std::numeric_limits<std::uint64_t>::max();

    // Receives the output in order; false stops with the error nothing_done.
    using Output = std::function<bool(std::string_view)>;

    Inflater(DeflateFormat format, Output output, std::uint64_t output_limit = k_no_limit,
             InflateBackend backend = InflateBackend::fastest);
    ~Inflater();
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;

    // Errors, all bad_input: not such a stream, damaged, wrong checksum, bytes after the end, more output than the
    // limit. After an error, every further call returns it again.
    Status feed(std::string_view input);
    // Call after the last piece. Error: bad_input, the stream is truncated.
    Status finish();

    std::uint64_t produced() const { return m_produced; }

private:
    Status feed_once(std::string_view& input);
    Status emit(std::string_view bytes);

    const DeflateFormat m_format;
    Output m_output;
    const std::uint64_t m_limit;
    std::uint64_t m_produced = 0;
    bool m_begun = false;   // the first byte has arrived
    bool m_at_end = false;  // after a complete stream or member
    std::unique_ptr<InflateEngine> m_engine;
    std::unique_ptr<char[]> m_buffer;
    Status m_status;
};

// The backend that `fastest` selects on this machine: "isa-l" or "zlib".
std::string_view inflate_backend_name();

// Decompresses one stream or gzip member. Implemented by isa-l and by zlib.

class InflateEngine {
public:
    enum class State {
        more,      // needs more input or more room
        end,       // stream complete, checksum right
        wrapper,   // header is not of this format
        damaged,   // the compressed data is invalid
        checksum,  // length or checksum differs
    };
    struct Step {
        std::size_t consumed;
        std::size_t produced;
        State state;
    };

    virtual ~InflateEngine() = default;
    virtual Step run(std::span<const char> input, std::span<char> output) = 0;
    virtual void restart() = 0;  // for the next gzip member
};

std::unique_ptr<InflateEngine> make_zlib_engine(DeflateFormat format);
// Error: infrastructure, no isa-l on this machine.
Result<std::unique_ptr<InflateEngine>> make_isal_engine(DeflateFormat format);

// Compresses files that are kept for people.

// Replaces each PATH by PATH.gz, which is on disk before PATH is removed; overwrites an older PATH.gz. A missing PATH
// is fine if PATH.gz exists, since an earlier call may have been killed at its end. Memory use does not depend on the
// size. Error: local_io; the PATH that it names and those after it are unchanged.
Status gzip_in_place(std::span<const std::filesystem::path> paths);
inline Status gzip_in_place(const std::filesystem::path& path) { return gzip_in_place(std::span(&path, 1)); }

}  // namespace gdnctl
