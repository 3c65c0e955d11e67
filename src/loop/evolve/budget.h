// What a run may spend, and when that ends it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace gdnctl::loop::evolve {

struct Budget {
    std::optional<std::int64_t> attempts, wall_s, tokens, no_improve;
    std::optional<double> usd, device_s;
    double reserve = 0.10;  // of wall and device time: for the final verification alone
    bool any() const { return attempts || wall_s || tokens || no_improve || usd || device_s; }
};

struct Spent {
    std::int64_t attempts = 0;  // that have a verdict; abandoned ones do not count
    double wall_s = 0;
    std::int64_t tokens = 0;
    double usd = 0;
    double device_s = 0;
    std::int64_t since_kept = 0;  // attempts
    bool operator==(const Spent&) const = default;
};

// Why no further attempt begins: "max-attempts", "max-wall", "max-tokens", "max-usd", "max-device-seconds",
// "max-no-improve"; empty: one may.
std::string_view ended_by(const Budget& budget, const Spent& spent);
// What is left of each limit that is set, by its word above with `_` ("wall_s", "device_s": the reserve aside).
std::map<std::string, double> left_of(const Budget& budget, const Spent& spent);

// Whether a limit of wall or device time is used up, the reserve included.
bool used_up(const Budget& budget, const Spent& spent);

struct Price {  // USD for a million tokens
    double in = 0, cached = 0, out = 0;
};
// `in` counts the cached ones, too.
double cost_of(const Price& price, std::int64_t in, std::int64_t cached, std::int64_t out);

}  // namespace gdnctl::loop::evolve
