// When to ask again. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "core/time.h"
#include "platform/http_pool.h"

namespace gdnctl::hub {

bool is_worth_retrying(int status);  // 408 429 500 502 503 504

// How long the server asks to wait: `RateLimit: "api";r=0;t=55` (55 s and one more, only where nothing remains), else
// Retry-After. nullopt: it does not say.
std::optional<std::chrono::milliseconds> asked_wait(const HttpHeaders& headers, WallTime now);

// `RateLimit-Policy: "fixed window";"api";q=500;w=300` as "500 requests in 300 s"; empty: not said.
std::string shown_limit(const HttpHeaders& headers);

// Before retry number `retry` (1 = the first): somewhere between zero and what doubles from 0.5 s up to 30 s; `random`
// in 0..1.
std::chrono::milliseconds jittered_wait(int retry, double random);

}  // namespace gdnctl::hub
