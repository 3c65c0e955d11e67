// The functions of libcurl that gdnctl uses, opened on first use.
#pragma once

#include <string_view>

#include <curl/curl.h>

#include "core/result.h"
#include "platform/late_library.h"

// clang-format off: it has no stable layout for such a list
#define GDNCTL_CURL_API(X) \
    X(curl_global_init) X(curl_version_info) X(curl_easy_init) X(curl_easy_cleanup) X(curl_easy_setopt) \
    X(curl_easy_getinfo) X(curl_easy_nextheader) X(curl_easy_strerror) X(curl_easy_option_by_id) X(curl_multi_init) \
    X(curl_multi_cleanup) X(curl_multi_add_handle) X(curl_multi_remove_handle) X(curl_multi_perform) \
    X(curl_multi_poll) X(curl_multi_info_read) X(curl_multi_strerror) X(curl_slist_append) \
    X(curl_slist_free_all) X(curl_url) X(curl_url_cleanup) X(curl_url_set) X(curl_url_get) \
    X(curl_url_strerror) X(curl_free)
// clang-format on

namespace gdnctl::http {

GDNCTL_LATE_API(CurlApi, GDNCTL_CURL_API, "libcurl", "libcurl.so.4", "libcurl4")

// Opens libcurl, checks its version and initialises it, once. Thread-safe; called before any transfer.
Result<const CurlApi*> curl_api();

// CURLOPT_PROTOCOLS_STR, without which a redirect could reach file:// or smb://, came with 7.85.
Status check_curl_version(unsigned version_number, std::string_view version_text);

}  // namespace gdnctl::http
