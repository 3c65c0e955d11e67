// Shared libraries that are opened on first use, so that a command which needs none of them starts in a millisecond
// and the one file runs on a host that has none of them.
//
//     #include <curl/curl.h>
//     #define GDNCTL_CURL_API(X) X(curl_easy_init) X(curl_easy_setopt)
//     GDNCTL_LATE_API(CurlApi, GDNCTL_CURL_API, "libcurl", "libcurl.so.4", "libcurl4")
//     ...
//     GDNCTL_TRY_ASSIGN(const CurlApi* curl, late_api<CurlApi>());
//     CURL* handle = curl->curl_easy_init();
//
// Members have the types of the real header's functions, so they cannot drift. A name that the header also defines as
// a function-like macro is called as (api->name)(...). Without GDNCTL_LAZY_LIBS the members are the linked functions.
// A library is never closed again: its thread-local data and exit handlers outlive any use of ours.
#pragma once

#include <mutex>
#include <span>
#include <string_view>

#include "core/result.h"

namespace gdnctl {

struct LateLibrary {
    const char* name;            // "libcurl"
    const char* soname;          // exactly that of the headers: "libcurl.so.4"
    const char* debian_package;  // "libcurl4"
};

struct LateSymbol {
    const char* name;
    void* slot;  // address of a function pointer, filled with the symbol's address
};

// Opens `library` and fills every slot, or none. Error: infrastructure, naming library, symbol and package.
Status open_late_library(const LateLibrary& library, std::span<const LateSymbol> symbols);

// The filled table of functions; the first call opens the library. Thread-safe. A failure is not remembered.
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

// Defines struct API with one member per function of LIST. Use it in a .cpp file or a private header, after the
// library's own header.
#define GDNCTL_LATE_API(API, LIST, NAME, SONAME, PACKAGE)                        \
    struct API {                                                                 \
        static constexpr ::gdnctl::LateLibrary k_library{NAME, SONAME, PACKAGE}; \
        LIST(GDNCTL_LATE_MEMBER_)                                                \
        GDNCTL_LATE_FILL_(LIST)                                                  \
    };
