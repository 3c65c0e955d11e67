// A log served as a file with byte ranges.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "services/ray/client.h"

namespace gdnctl::ray {

// "bytes 100-289/290", "bytes */290".
struct ContentRange {
    std::optional<std::uint64_t> first;  // nullopt: nothing of the file in the range
    std::uint64_t size = 0;              // of the whole file
};
std::optional<ContentRange> parse_content_range(std::string_view value);

class AgentFile {
public:
    using Out = std::function<bool(std::string_view)>;  // false: stop

    AgentFile(Client& client, std::string url) : m_client(client), m_url(std::move(url)) {}

    // Passes on the bytes from `offset`, in pieces. Errors: infrastructure (no such file, no support for ranges).
    Status read_from(std::uint64_t offset, const Out& out);
    // Where the last `lines` lines of the current file begin. Memory use does not depend on their length.
    Result<std::uint64_t> tail_offset(std::size_t lines);

private:
    struct Piece {
        std::uint64_t first = 0, size = 0;
        std::string bytes;
    };
    // nullopt: the file ends before the range.
    Result<std::optional<Piece>> get(const std::string& range);

    Client& m_client;
    std::string m_url;
};

}  // namespace gdnctl::ray
