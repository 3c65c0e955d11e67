// Where the body of an answer goes: memory, a file or a callback.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "platform/http.h"

namespace gdnctl::http {

// Only the body of a 2xx answer goes to the request's file or callback. The body of any other answer is kept in memory
// for the error text, cut at k_error_body bytes.
class BodySink {
public:
    static constexpr std::size_t k_error_body = 64u << 10;

    explicit BodySink(const HttpRequest& request) : m_request(request) {}
    ~BodySink();
    BodySink(const BodySink&) = delete;
    BodySink& operator=(const BodySink&) = delete;

    // False: stop the transfer. error() says why; without an error, the reader has all it wants.
    bool write(int status, std::string_view data);
    // Call after the last byte: an empty 2xx body leaves an empty file.
    void finish(int status);

    const std::optional<Error>& error() const { return m_error; }
    bool called_back() const { return m_called_back; }  // bytes reached the callback, so the request cannot be retried
    std::int64_t received() const { return m_received; }
    std::string take_body() { return std::move(m_body); }

private:
    bool open_file();
    bool write_file(std::string_view data);
    bool keep(std::string_view data, std::size_t limit, bool cut);
    bool fail_with(ErrorKind kind, std::string message, std::string hint);

    const HttpRequest& m_request;
    int m_fd = -1;
    bool m_called_back = false;
    std::int64_t m_received = 0;
    std::string m_body;
    std::optional<Error> m_error;
};

}  // namespace gdnctl::http
