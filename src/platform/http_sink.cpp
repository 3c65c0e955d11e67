#include "platform/http_sink.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace gdnctl::http {

namespace {

bool is_success(int status) { return status >= 200 && status < 300; }

std::string reason_of(int error_number) { return std::generic_category().message(error_number); }

}  // namespace

BodySink::~BodySink() {
    if (m_fd >= 0) ::close(m_fd);
}

bool BodySink::fail_with(ErrorKind kind, std::string message, std::string hint) {
    m_error = Error{kind, std::move(message), std::move(hint), {}};
    return false;
}

bool BodySink::open_file() {
    if (m_fd >= 0) return true;
    m_fd = ::open(m_request.to_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (m_fd >= 0) return true;
    return fail_with(ErrorKind::local_io,
                     fmt::format("cannot write {}: {}", m_request.to_file.string(), reason_of(errno)),
                     "check that the folder exists and is writable");
}

bool BodySink::write_file(std::string_view data) {
    if (!open_file()) return false;
    while (!data.empty()) {
        const ssize_t written = ::write(m_fd, data.data(), data.size());
        if (written < 0) {
            if (errno == EINTR) continue;
            return fail_with(ErrorKind::local_io,
                             fmt::format("cannot write {}: {}", m_request.to_file.string(), reason_of(errno)),
                             "free space on that disk, or choose another place");
        }
        data.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

bool BodySink::keep(std::string_view data, std::size_t limit, bool cut) {
    const std::size_t room = limit - std::min(limit, m_body.size());
    m_body.append(data.substr(0, room));
    if (data.size() <= room) return true;
    if (cut) return false;
    return fail_with(ErrorKind::bad_input, fmt::format("the answer is larger than {} bytes", limit),
                     "request less, or write the answer to a file");
}

bool BodySink::write(int status, std::string_view data) {
    m_received += static_cast<std::int64_t>(data.size());
    if (!is_success(status)) return keep(data, std::min(k_error_body, m_request.body_limit), true);
    if (!m_request.to_file.empty()) return write_file(data);
    if (m_request.on_chunk) {
        m_called_back = true;
        return m_request.on_chunk(data);
    }
    return keep(data, m_request.body_limit, false);
}

void BodySink::finish(int status) {
    if (is_success(status) && !m_request.to_file.empty() && !open_file()) return;
    if (m_fd >= 0 && ::close(std::exchange(m_fd, -1)) != 0) {
        fail_with(ErrorKind::local_io, fmt::format("cannot write {}: {}", m_request.to_file.string(), reason_of(errno)),
                  {});
    }
}

}  // namespace gdnctl::http
