// Shared libraries opened on first use. A command that needs none of them starts in a millisecond, and the binary runs
// on a host without them.
//
//     #include <curl/curl.h>
//     #define GDNCTL_CURL_API(X) X(curl_easy_init) X(curl_easy_setopt)
//     GDNCTL_LATE_API(CurlApi, GDNCTL_CURL_API, "libcurl", "libcurl.so.4", "libcurl4")
//     ...
//     GDNCTL_TRY_ASSIGN(const CurlApi* curl, late_api<CurlApi>());
//     CURL* handle = curl->curl_easy_init();
//
// Members take their types from the real header's functions, so the two cannot differ. If the header also defines a
// name as a function-like macro, call it as (api->name)(...). Without GDNCTL_LAZY_LIBS the members are the linked
// functions. Libraries are never closed, because their thread-local data and exit handlers may still be needed.
#pragma once

#include <mutex>
#include <span>
#include <string_view>

#include "core/result.h"

namespace gdnctl {

struct LateLibrary {
    const char* name;            // "libcurl"
    const char* soname;          // exactly as the headers require: "libcurl.so.4"
    const char* debian_package;  // "libcurl4"
};

struct LateSymbol {
    const char* name;
    void* slot;  // points to a function pointer, which receives the symbol's address
};

// Opens `library` and fills all slots or none. Error: infrastructure, naming library, symbol and package.
Status open_late_library(const LateLibrary& library, std::span<const LateSymbol> symbols);

// The table of functions; the first call opens the library. Thread-safe. Failures are not cached.
template <class Api>
Result<const Api*> late_api() {
    static std::mutex mutex;
    static Api api;
    static bool ready = false;
    const std::lock_guard lock(mutex);
    if (!ready) {
        GDNCTL_TRY(api.fill());
        ready = true;
    }
    return &api;
}

}  // namespace gdnctl

#define GDNCTL_LATE_MEMBER_(f) decltype(&::f) f = nullptr;
#define GDNCTL_LATE_SYMBOL_(f) ::gdnctl::LateSymbol{#f, &this->f},
#define GDNCTL_LATE_LINKED_(f) this->f = &::f;
#if defined(GDNCTL_LAZY_LIBS)
#define GDNCTL_LATE_FILL_(LIST)                                             \
    ::gdnctl::Status fill() {                                               \
        const ::gdnctl::LateSymbol symbols[] = {LIST(GDNCTL_LATE_SYMBOL_)}; \
        return ::gdnctl::open_late_library(k_library, symbols);             \
    }
#else
#define GDNCTL_LATE_FILL_(LIST)   \
    ::gdnctl::Status fill() {     \
        LIST(GDNCTL_LATE_LINKED_) \
        return {};                \
    }
#endif

// Defines struct API with one member per function of LIST. Use it in a .cpp file or a private header, after including
// the library's own header.
#define GDNCTL_LATE_API(API, LIST, NAME, SONAME, PACKAGE)                        \
    struct API {                                                                 \
        static constexpr ::gdnctl::LateLibrary k_library{NAME, SONAME, PACKAGE}; \
        LIST(GDNCTL_LATE_MEMBER_)                                                \
        GDNCTL_LATE_FILL_(LIST)                                                  \
    };
