#include "loop/evolve/budget.h"

#include <algorithm>

namespace gdnctl::loop::evolve {

std::string_view ended_by(const Budget& budget, const Spent& spent) {
    const double share = 1.0 - budget.reserve;
    if (budget.attempts && spent.attempts >= *budget.attempts) return "max-attempts";
    if (budget.wall_s && spent.wall_s >= static_cast<double>(*budget.wall_s) * share) return "max-wall";
    if (budget.tokens && spent.tokens >= *budget.tokens) return "max-tokens";
    if (budget.usd && spent.usd >= *budget.usd) return "max-usd";
    if (budget.device_s && spent.device_s >= *budget.device_s * share) return "max-device-seconds";
    if (budget.no_improve && spent.since_kept >= *budget.no_improve) return "max-no-improve";
    return {};
}

std::map<std::string, double> left_of(const Budget& budget, const Spent& spent) {
    std::map<std::string, double> out;
    const auto put = [&out](const char* name, const auto& limit, double share, auto gone) {
        if (limit) out[name] = std::max(static_cast<double>(*limit) * share - static_cast<double>(gone), 0.0);
    };
    put("attempts", budget.attempts, 1, spent.attempts);
    put("wall_s", budget.wall_s, 1 - budget.reserve, spent.wall_s);
    put("tokens", budget.tokens, 1, spent.tokens);
    put("usd", budget.usd, 1, spent.usd);
    put("device_s", budget.device_s, 1 - budget.reserve, spent.device_s);
    put("no_improve", budget.no_improve, 1, spent.since_kept);
    return out;
}

bool used_up(const Budget& budget, const Spent& spent) {
    return (budget.wall_s && spent.wall_s >= static_cast<double>(*budget.wall_s)) ||
           (budget.device_s && spent.device_s >= *budget.device_s);
}

double cost_of(const Price& price, std::int64_t in, std::int64_t cached, std::int64_t out) {
    const auto fresh = static_cast<double>(std::max<std::int64_t>(in - cached, 0));
    return (fresh * price.in + static_cast<double>(cached) * price.cached + static_cast<double>(out) * price.out) / 1e6;
}

}  // namespace gdnctl::loop::evolve
