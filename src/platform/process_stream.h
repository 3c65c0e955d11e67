// One output stream of a child: bytes or lines to a callback, or captured within a limit.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace gdnctl {

class OutputStream {
public:
    using Callback = std::function<void(std::string_view)>;
    OutputStream(const Callback& on_bytes, const Callback& on_line, std::size_t limit)
        : m_on_bytes(on_bytes), m_on_line(on_line), m_limit(limit) {}

    void feed(std::string_view bytes);
    void finish();  // passes on a last line without newline

    bool truncated() const { return m_truncated; }
    std::string take() { return std::move(m_kept); }

private:
    void keep(std::string_view bytes);

    const Callback& m_on_bytes;
    const Callback& m_on_line;
    std::size_t m_limit;
    std::string m_kept;  // captured bytes, or the current line so far
    bool m_truncated = false;
};

}  // namespace gdnctl
