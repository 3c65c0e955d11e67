// Turns a request into libcurl options. Every option is checked: an unknown protocol name, for example, would otherwise
// silently disable the restriction.
#include <cerrno>
#include <system_error>
#include <type_traits>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "platform/http_curl_transfer.h"

namespace gdnctl::http {

// Remembers the first option that libcurl refuses.
template <class V>
void Transfer::set(CURLoption option, V value) {
    static_assert(std::is_same_v<V, long> || std::is_same_v<V, curl_off_t> || std::is_pointer_v<V>,
                  "libcurl reads its argument as long, curl_off_t or a pointer");
    const CURLcode rc = (m_api.curl_easy_setopt)(m_easy, option, value);
    if (rc == CURLE_OK || !m_option_status) return;
    const curl_easyoption* known = m_api.curl_easy_option_by_id(option);
    m_option_status = fail(ErrorKind::infrastructure,
                           fmt::format("libcurl rejects the option {}: {}",
                                       known != nullptr ? known->name : std::to_string(static_cast<int>(option)),
                                       m_api.curl_easy_strerror(rc)),
                           "apt-get install libcurl4");
}

void Transfer::set_fixed_options() {
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_ERRORBUFFER, &m_reason[0]);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
    set(CURLOPT_USERAGENT, m_settings.user_agent.c_str());
    set(CURLOPT_NOPROXY, m_settings.no_proxy.c_str());
    if (!m_settings.ca_file.empty()) set(CURLOPT_CAINFO, m_settings.ca_file.c_str());
    if (!m_settings.ca_folder.empty()) set(CURLOPT_CAPATH, m_settings.ca_folder.c_str());
    set(CURLOPT_URL, m_hop.url.c_str());
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(m_request.connect_timeout.count()));
    // 7.87: do not wait for a resolver thread when a transfer is given up. Older versions wait, which is only slower.
    (m_api.curl_easy_setopt)(m_easy, CURLOPT_QUICK_EXIT, 1L);
    const bool to_memory = m_request.to_file.empty() && !m_request.on_chunk && m_receiver == nullptr;
    if (m_receiver != nullptr && !m_request.decoded) {
        // One connection per transfer: parallel streams of HTTP/2 would share one connection's window.
        set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    }
    if (to_memory || m_request.decoded)
        set(CURLOPT_ACCEPT_ENCODING, "");  // all encodings that libcurl can undo; files and callbacks get raw bytes
    if (!to_memory) set(CURLOPT_BUFFERSIZE, 256L << 10);
}

void Transfer::set_callbacks() {
    void* self = this;
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, self);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, self);
    set(CURLOPT_READFUNCTION, &Transfer::on_send);
    set(CURLOPT_READDATA, self);
    set(CURLOPT_SEEKFUNCTION, &Transfer::on_rewind);
    set(CURLOPT_SEEKDATA, self);
    // Only to know the phase. A libcurl without OpenSSL refuses it, and the TLS phase is then reported as connecting.
    (m_api.curl_easy_setopt)(m_easy, CURLOPT_SSL_CTX_FUNCTION, &Transfer::on_tls);
    (m_api.curl_easy_setopt)(m_easy, CURLOPT_SSL_CTX_DATA, self);
    set(CURLOPT_PREREQFUNCTION, &Transfer::on_connected);
    set(CURLOPT_PREREQDATA, self);
}

Status Transfer::set_method_and_body() {
    const std::string& method = m_hop.method;
    if (!is_valid_method(method)) {
        return fail(ErrorKind::usage, fmt::format("'{}' is not an HTTP method", method));
    }
    if (m_hop.with_body && !m_request.body_file.empty()) {
        m_body_fd.reset(::open(m_request.body_file.c_str(), O_RDONLY | O_CLOEXEC));
        struct stat facts{};
        if (!m_body_fd.valid() || ::fstat(m_body_fd.get(), &facts) != 0) {
            return fail(ErrorKind::local_io, fmt::format("cannot read {}: {}", m_request.body_file.string(),
                                                         std::generic_category().message(errno)));
        }
        m_body_size = facts.st_size;
    } else if (m_hop.with_body) {
        m_body_size = static_cast<std::int64_t>(m_request.body.size());
    }
    const bool expects_body = method == "POST" || method == "PUT" || method == "PATCH";
    if (m_body_size > 0 || expects_body || m_body_fd.valid()) {
        set(CURLOPT_UPLOAD, 1L);
        set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(m_body_size));
        set(CURLOPT_CUSTOMREQUEST, method.c_str());
    } else if (method == "HEAD") {
        set(CURLOPT_NOBODY, 1L);
    } else if (method == "GET") {
        set(CURLOPT_HTTPGET, 1L);
    } else {
        set(CURLOPT_CUSTOMREQUEST, method.c_str());
    }
    return {};
}

Status Transfer::add_header(const std::string& name, const std::string& value) {
    if (!is_valid_header(name, value)) {
        return fail(ErrorKind::usage, "a header name or value contains characters that HTTP does not allow",
                    "check the value for line breaks, for example in a token read from a file");
    }
    // In libcurl's syntax, a header without a value ends in a semicolon.
    const std::string line = value.empty() ? name + ";" : name + ": " + value;
    curl_slist* longer = m_api.curl_slist_append(m_header_list, line.c_str());
    if (longer == nullptr) return fail(ErrorKind::internal, "out of memory for a header");
    m_header_list = longer;
    return {};
}

Status Transfer::set_headers() {
    // Without this a PUT waits up to a second for "100 Continue", which the job server never sends.
    m_header_list = m_api.curl_slist_append(nullptr, "Expect:");
    for (const auto& [name, value] : m_request.headers) {
        if (!m_hop.with_credentials && is_credential_header(name)) continue;
        GDNCTL_TRY(add_header(name, value));
    }
    if (m_receiver != nullptr && !m_request.decoded) GDNCTL_TRY(add_header("Accept-Encoding", "identity"));
    if (m_hop.with_credentials) {
        for (const auto& [name, value] : m_request.secret_headers) GDNCTL_TRY(add_header(name, value));
    }
    set(CURLOPT_HTTPHEADER, m_header_list);
    return {};
}

Status Transfer::prepare() {
    m_easy = m_api.curl_easy_init();
    if (m_easy == nullptr) return fail(ErrorKind::internal, "libcurl cannot create a handle (out of memory)");
    set_fixed_options();
    set_callbacks();
    GDNCTL_TRY(set_method_and_body());
    GDNCTL_TRY(set_headers());
    return m_option_status;
}

}  // namespace gdnctl::http
