// When to retry. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "core/time.h"
#include "platform/http_pool.h"

namespace gdnctl::hub {

bool is_worth_retrying(int status);  // 408 429 500 502 503 504

// How long the server asks to wait: `RateLimit: "api";r=0;t=55` (55 s plus one, only if nothing remains), else
// Retry-After. nullopt: not given.
std::optional<std::chrono::milliseconds> asked_wait(const HttpHeaders& headers, WallTime now);

// `RateLimit-Policy: "fixed window";"api";q=500;w=300` as "500 requests in 300 s"; empty: not given.
std::string shown_limit(const HttpHeaders& headers);

// The wait before retry number `retry` (1-based): a `random` (0..1) fraction of a limit that doubles from 0.5 s up to
// 30 s.
std::chrono::milliseconds jittered_wait(int retry, double random);

}  // namespace gdnctl::hub
