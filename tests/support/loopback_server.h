// An HTTP server on 127.0.0.1 that misbehaves exactly as scripted.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace gdnctl::test {

struct SeenRequest {
    std::string method;
    std::string target;                               // path and query
    std::multimap<std::string, std::string> headers;  // names in lower case
    std::string body;
    bool has_header(const std::string& lower_case_name) const { return headers.count(lower_case_name) != 0; }
    std::string header(const std::string& lower_case_name) const;
};

// One connection, as seen by the script.
class Peer {
public:
    Peer(int fd, int wake_fd, SeenRequest request) : m_fd(fd), m_wake_fd(wake_fd), m_request(std::move(request)) {}

    const SeenRequest& request() const { return m_request; }
    // False: the client is gone.
    bool send(std::string_view bytes);
    bool drip(std::string_view bytes, std::size_t piece);  // one piece per packet
    void close();
    void half_close();  // sends nothing more; the client may continue to send
    void reset();       // RST instead of FIN
    // Waits until the client closes its side or the server is torn down. Keeps a silent server silent.
    void wait_until_gone();
    bool closed() const { return m_closed; }

private:
    int m_fd;
    int m_wake_fd;
    SeenRequest m_request;
    bool m_closed = false;
};

using Script = std::function<void(Peer&)>;

// HTTP/1.1 with Content-Length; the connection stays open.
Script reply(int status, std::string body = {}, std::vector<std::pair<std::string, std::string>> headers = {});
Script reply_chunked(std::vector<std::string> chunks);
std::string head(int status, const std::vector<std::pair<std::string, std::string>>& headers);

class LoopbackServer {
public:
    LoopbackServer();
    ~LoopbackServer();
    LoopbackServer(const LoopbackServer&) = delete;
    LoopbackServer& operator=(const LoopbackServer&) = delete;

    // The answer to the next request without one. Requests beyond the script get 500 and a complaint.
    LoopbackServer& then(Script script);
    // Answers all requests beyond the script.
    LoopbackServer& always(Script script);

    // Runs for a new connection before anything is read from it, with an empty request.
    LoopbackServer& on_connect(Script script);

    std::string url(std::string_view path = "/") const;  // http://127.0.0.1:PORT/path
    std::string host() const;                            // 127.0.0.1:PORT
    std::vector<SeenRequest> requests() const;
    int connections() const { return m_connections; }
    // Requests without a script, and scripts without a request. Empty at the end of a good test.
    std::vector<std::string> complaints() const;

private:
    void accept_loop();
    void serve(int fd);
    Script next_script(const SeenRequest& request);

    int m_listen_fd = -1;
    int m_wake_fd = -1;  // readable when the server is torn down
    int m_port = 0;
    std::atomic<int> m_connections{0};
    mutable std::mutex m_mutex;
    std::deque<Script> m_scripts;
    Script m_always;
    Script m_on_connect;
    std::vector<SeenRequest> m_requests;
    std::vector<std::string> m_complaints;
    std::vector<std::thread> m_connection_threads;
    std::thread m_accept_thread;
};

}  // namespace gdnctl::test
