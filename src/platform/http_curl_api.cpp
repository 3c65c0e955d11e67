#include "platform/http_curl_api.h"

#include <mutex>

#include <fmt/format.h>

namespace gdnctl::http {

Status check_curl_version(unsigned version_number, std::string_view version_text) {
    constexpr unsigned k_oldest = 0x075500;  // 7.85.0
    if (version_number >= k_oldest) return {};
    return fail(ErrorKind::infrastructure, fmt::format("libcurl {} is too old: 7.85 or newer is needed", version_text),
                "apt-get install libcurl4");
}

Result<const CurlApi*> curl_api() {
    GDNCTL_TRY_ASSIGN(const CurlApi* api, late_api<CurlApi>());
    static std::mutex mutex;
    static bool initialised = false;
    const std::lock_guard lock(mutex);
    if (!initialised) {
        const curl_version_info_data* info = api->curl_version_info(CURLVERSION_NOW);
        GDNCTL_TRY(check_curl_version(info->version_num, info->version));
        const CURLcode rc = api->curl_global_init(CURL_GLOBAL_DEFAULT);
        if (rc != CURLE_OK) {
            return fail(ErrorKind::infrastructure,
                        fmt::format("libcurl cannot be initialised: {}", api->curl_easy_strerror(rc)));
        }
        initialised = true;
    }
    return api;
}

}  // namespace gdnctl::http
