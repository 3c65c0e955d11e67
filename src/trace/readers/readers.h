// Readers of profiler traces: bytes in, RawTrace out. Whatever the bytes are, they end with a trace or with bad_input,
// in time and memory proportional to the input.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/result.h"
#include "trace/model/trace.h"

namespace gdnctl::trace {

enum class Format : std::uint8_t { unknown, gzip, json, xplane };
// From the first bytes of a file (4 KiB are enough): gzip 1f 8b, which may hold either of the others; JSON: an optional
// BOM and white space, then { or [; xplane: 0x0a.
Format detect_format(std::string_view head);

// Chrome's trace event JSON, as XLA, Perfetto's exporter and PyTorch's kineto write it, in pieces of any size. Memory
// does not grow with the file but for the events that are kept.
class ChromeReader {
public:
    explicit ChromeReader(const ReadOptions& options);
    ~ChromeReader();
    ChromeReader(const ChromeReader&) = delete;
    ChromeReader& operator=(const ChromeReader&) = delete;

    // Error: bad_input (not such JSON), with the offset; every later call returns it again. With `salvage` there is
    // none, and what follows the damage is ignored.
    Status feed(std::string_view bytes);
    // Call once, after the last piece. Error: bad_input (the text ends too early, no list of events).
    Result<RawTrace> finish();

private:
    class Impl;
    std::unique_ptr<Impl> m_impl;
};

// Moves `next`, an offset, past the fields of an XSpace of which only the first bytes are there; it may end up past
// them. False: the field at `next` is damaged, or ends beyond `most` bytes.
bool skip_fields(std::string_view bytes, std::size_t& next, std::size_t most);

// An XSpace protobuf, the whole of it. Error: bad_input, with the field and its offset.
Result<RawTrace> read_xplane(std::string_view bytes, const ReadOptions& options);

}  // namespace gdnctl::trace
