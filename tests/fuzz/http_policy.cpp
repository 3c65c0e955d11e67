// Dates and Retry-After values from a server that wishes us ill.
#include "platform/http_policy.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/text.h"
#include "fuzz/fuzz.h"

FUZZ(http_policy) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const gdnctl::WallTime now(std::chrono::milliseconds(1'773'161'587'000));
    if (const auto wait = gdnctl::http::parse_retry_after(input, now)) {
        if (*wait < std::chrono::milliseconds(0) || *wait > std::chrono::hours(24)) std::abort();
    }
    if (gdnctl::http::parse_http_date(input, now) && gdnctl::text::trim(input).size() > 40) std::abort();
    return 0;
}
