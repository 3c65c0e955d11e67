#include <memory>

#include <fmt/format.h>

#include "core/redact.h"
#include "platform/http_curl_transfer.h"

namespace gdnctl::http {

namespace {

std::string part_of(const CurlApi& api, CURLU* url, CURLUPart part, unsigned flags = 0) {
    char* text = nullptr;
    if (api.curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return {};
    std::string copy(text);
    api.curl_free(text);
    return copy;
}

tl::unexpected<Error> bad_url(const std::string& url, std::string_view reason) {
    return fail(ErrorKind::usage, redact(fmt::format("cannot use the URL '{}': {}", url, reason)),
                "use the form http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH");
}

}  // namespace

Result<Url> parse_url(const CurlApi& api, const std::string& url) {
    const std::unique_ptr<CURLU, void (*)(CURLU*)> handle(api.curl_url(), api.curl_url_cleanup);
    if (handle == nullptr) return fail(ErrorKind::internal, "out of memory for a URL");
    const CURLUcode rc = api.curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), CURLU_NON_SUPPORT_SCHEME);
    if (rc != CURLUE_OK) return bad_url(url, api.curl_url_strerror(rc));

    Url parsed;
    Origin& origin = parsed.origin;
    origin.scheme = part_of(api, handle.get(), CURLUPART_SCHEME);
    if (origin.scheme != "http" && origin.scheme != "https") {
        return bad_url(url, fmt::format("{} is not supported, only http and https", origin.scheme));
    }
    if (!part_of(api, handle.get(), CURLUPART_USER).empty() ||
        !part_of(api, handle.get(), CURLUPART_PASSWORD).empty()) {
        return bad_url(url, "it contains a user name or password");
    }
    origin.host = part_of(api, handle.get(), CURLUPART_HOST);
    origin.port = part_of(api, handle.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
    const std::string port = part_of(api, handle.get(), CURLUPART_PORT, CURLU_NO_DEFAULT_PORT);
    parsed.host = port.empty() ? origin.host : origin.host + ":" + port;
    parsed.place = origin.scheme + "://" + parsed.host + part_of(api, handle.get(), CURLUPART_PATH);
    return parsed;
}

}  // namespace gdnctl::http
