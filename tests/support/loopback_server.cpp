#include "support/loopback_server.h"

#include <array>
#include <optional>
#include <stdexcept>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/text.h"

namespace gdnctl::test {

namespace {

// False: `wake_fd` became readable first.
bool wait_readable(int fd, int wake_fd) {
    std::array<pollfd, 2> fds{pollfd{fd, POLLIN, 0}, pollfd{wake_fd, POLLIN, 0}};
    while (::poll(fds.data(), fds.size(), -1) < 0) {
    }
    return fds[1].revents == 0;
}

// Appends what arrives; false at the end of the stream, on an error or on teardown.
bool receive(int fd, int wake_fd, std::string& into) {
    if (!wait_readable(fd, wake_fd)) return false;
    std::array<char, 65536> buffer{};
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) return false;
    into.append(buffer.data(), static_cast<std::size_t>(got));
    return true;
}

// Reads one request; `buffer` keeps what follows it.
std::optional<SeenRequest> read_request(int fd, int wake_fd, std::string& buffer) {
    std::size_t end = 0;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
        if (!receive(fd, wake_fd, buffer)) return std::nullopt;
    }
    SeenRequest request;
    const std::string text = buffer.substr(0, end);
    buffer.erase(0, end + 4);
    const auto lines = text::split(text, '\n');
    const auto words = text::split(text::trim(lines[0]), ' ');
    request.method = std::string(words[0]);
    request.target = words.size() > 1 ? std::string(words[1]) : "";
    for (std::size_t i = 1; i < lines.size(); ++i) {
        const std::size_t colon = lines[i].find(':');
        if (colon == std::string_view::npos) continue;
        request.headers.emplace(text::to_lower(lines[i].substr(0, colon)), text::trim(lines[i].substr(colon + 1)));
    }
    const auto length = text::parse_int(request.header("content-length")).value_or(0);
    while (buffer.size() < static_cast<std::size_t>(length)) {
        if (!receive(fd, wake_fd, buffer)) return std::nullopt;
    }
    request.body = buffer.substr(0, static_cast<std::size_t>(length));
    buffer.erase(0, static_cast<std::size_t>(length));
    return request;
}

}  // namespace

std::string SeenRequest::header(const std::string& lower_case_name) const {
    const auto found = headers.find(lower_case_name);
    return found == headers.end() ? std::string() : found->second;
}

bool Peer::send(std::string_view bytes) {
    while (!bytes.empty() && !m_closed) {
        const ssize_t sent = ::send(m_fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return !m_closed;
}

bool Peer::drip(std::string_view bytes, std::size_t piece) {
    while (!bytes.empty()) {
        if (!send(bytes.substr(0, piece))) return false;
        bytes.remove_prefix(std::min(piece, bytes.size()));
        std::this_thread::yield();
    }
    return true;
}

void Peer::close() { m_closed = true; }

void Peer::half_close() { ::shutdown(m_fd, SHUT_WR); }

void Peer::reset() {
    const linger hard{1, 0};
    ::setsockopt(m_fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    m_closed = true;
}

void Peer::wait_until_gone() {
    std::string ignored;
    while (receive(m_fd, m_wake_fd, ignored)) ignored.clear();
    m_closed = true;
}

std::string head(int status, const std::vector<std::pair<std::string, std::string>>& headers) {
    std::string text = fmt::format("HTTP/1.1 {} Scripted\r\n", status);
    for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
    return text + "\r\n";
}

Script reply(int status, std::string body, std::vector<std::pair<std::string, std::string>> headers) {
    headers.emplace_back("Content-Length", std::to_string(body.size()));
    return [status, body = std::move(body), headers = std::move(headers)](Peer& peer) {
        peer.send(head(status, headers) + (peer.request().method == "HEAD" ? "" : body));
    };
}

Script reply_chunked(std::vector<std::string> chunks) {
    return [chunks = std::move(chunks)](Peer& peer) {
        peer.send(head(200, {{"Transfer-Encoding", "chunked"}}));
        for (const std::string& chunk : chunks) peer.send(fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk));
        peer.send("0\r\n\r\n");
    };
}

LoopbackServer::LoopbackServer() {
    m_listen_fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    m_wake_fd = ::eventfd(0, EFD_CLOEXEC);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(m_listen_fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(m_listen_fd, 64) != 0 ||
        ::getsockname(m_listen_fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        throw std::runtime_error("the loopback server cannot listen");
    }
    m_port = ntohs(address.sin_port);
    m_accept_thread = std::thread([this] { accept_loop(); });
}

LoopbackServer::~LoopbackServer() {
    const std::uint64_t one = 1;
    if (::write(m_wake_fd, &one, sizeof one) < 0) ::shutdown(m_listen_fd, SHUT_RDWR);
    m_accept_thread.join();
    for (std::thread& thread : m_connection_threads) thread.join();
    ::close(m_listen_fd);
    ::close(m_wake_fd);
}

LoopbackServer& LoopbackServer::then(Script script) {
    const std::lock_guard lock(m_mutex);
    m_scripts.push_back(std::move(script));
    return *this;
}

LoopbackServer& LoopbackServer::always(Script script) {
    const std::lock_guard lock(m_mutex);
    m_always = std::move(script);
    return *this;
}

LoopbackServer& LoopbackServer::on_connect(Script script) {
    const std::lock_guard lock(m_mutex);
    m_on_connect = std::move(script);
    return *this;
}

std::string LoopbackServer::url(std::string_view path) const { return fmt::format("http://{}{}", host(), path); }

std::string LoopbackServer::host() const { return fmt::format("127.0.0.1:{}", m_port); }

std::vector<SeenRequest> LoopbackServer::requests() const {
    const std::lock_guard lock(m_mutex);
    return m_requests;
}

std::vector<std::string> LoopbackServer::complaints() const {
    const std::lock_guard lock(m_mutex);
    auto all = m_complaints;
    for (std::size_t i = 0; i < m_scripts.size(); ++i) all.emplace_back("an answer was never asked for");
    return all;
}

void LoopbackServer::accept_loop() {
    while (wait_readable(m_listen_fd, m_wake_fd)) {
        const int fd = ::accept4(m_listen_fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) continue;
        const int on = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ++m_connections;
        m_connection_threads.emplace_back([this, fd] { serve(fd); });
    }
}

Script LoopbackServer::next_script(const SeenRequest& request) {
    const std::lock_guard lock(m_mutex);
    m_requests.push_back(request);
    if (!m_scripts.empty()) {
        Script script = std::move(m_scripts.front());
        m_scripts.pop_front();
        return script;
    }
    if (m_always) return m_always;
    m_complaints.push_back(fmt::format("unexpected request {} {}", request.method, request.target));
    return reply(500, "not in the script");
}

void LoopbackServer::serve(int fd) {
    Script greeting;
    {
        const std::lock_guard lock(m_mutex);
        greeting = m_on_connect;
    }
    Peer greeted(fd, m_wake_fd, {});
    if (greeting) greeting(greeted);
    std::string buffer;
    while (!greeted.closed()) {
        auto request = read_request(fd, m_wake_fd, buffer);
        if (!request) break;
        const Script script = next_script(*request);
        Peer peer(fd, m_wake_fd, std::move(*request));
        script(peer);
        if (peer.closed()) break;
    }
    ::close(fd);
}

}  // namespace gdnctl::test
