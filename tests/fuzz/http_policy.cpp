// Dates, waits, addresses and redirects from a server that wishes us ill.
#include "platform/http_policy.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/text.h"
#include "fuzz/fuzz.h"

namespace {

// Wherever a redirect leads, the token goes to the endpoint's own origin only, and never back to it from elsewhere.
void check_redirect(const std::string& location) {
    namespace http = gdnctl::http;
    http::ServiceEndpoint service;
    service.endpoint = *http::parse_url("https://mirror.example/hub");
    service.aliases = {"huggingface.co"};
    if (const auto url = http::parse_url(location)) {
        if (!http::parse_url(url->text())) std::abort();
    }
    const auto first = http::first_step(service, service.endpoint);
    const auto next = http::next_step(service, first, location);
    if (!next) return;
    if (next->url.scheme != "https" || next->with_token != next->url.same_origin(service.endpoint)) std::abort();
    if (next->with_token) return;
    const auto back = http::next_step(service, *next, "https://mirror.example/back");
    if (back && back->with_token) std::abort();
}

}  // namespace

FUZZ(http_policy) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const gdnctl::WallTime now(std::chrono::milliseconds(1'773'161'587'000));
    if (const auto wait = gdnctl::http::parse_retry_after(input, now)) {
        if (*wait < std::chrono::milliseconds(0) || *wait > std::chrono::hours(24)) std::abort();
    }
    if (gdnctl::http::parse_http_date(input, now) && gdnctl::text::trim(input).size() > 40) std::abort();
    if (const auto wait = gdnctl::http::asked_wait({{"ratelimit", std::string(input)}}, now)) {
        if (*wait < std::chrono::seconds(1) || *wait > std::chrono::hours(25)) std::abort();
    }
    (void)gdnctl::http::shown_limit({{"ratelimit-policy", std::string(input)}});
    if (gdnctl::http::shown(input).find('\n') != std::string::npos) std::abort();
    check_redirect(std::string(input));
    return 0;
}
