#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trace/diff/match.h"

namespace gdnctl::trace {

namespace {

using Share = ExactShare;
using Product = ExactShare::Product;

Product floor_of(Product value, Product divisor) {
    const Product quotient = value / divisor;
    return quotient * divisor > value ? quotient - 1 : quotient;
}

std::string name_in_program(const OpSum& op) { return op.program + '\n' + op.name; }

Product sum_of(const Profile& profile, const std::vector<std::size_t>& ops) {
    Product sum = 0;
    for (const std::size_t i : ops) sum += profile.ops[i].self_ps;
    return sum;
}

// Which of two rows is rounded up first. Under an exchange of before and after the order is reversed, because then the
// rows that were rounded up must be the ones that are rounded down.
bool is_rounded_up_before(const Share& a, const Share& b, Product scale) {
    const Product rest_a = a.delta() - floor_of(a.delta(), scale) * scale;
    const Product rest_b = b.delta() - floor_of(b.delta(), scale) * scale;
    if (rest_a != rest_b) return rest_a > rest_b;
    if (a.delta() != b.delta()) return a.delta() > b.delta();
    if (a.delta() > 0) return std::tie(a.first, a.second) < std::tie(b.first, b.second);
    return std::tie(a.second, a.first) > std::tie(b.second, b.first);
}

// Sets before_ps and after_ps to the integers nearest to the exact values whose difference is delta_ps. Their sum has
// the parity of the delta, which is the same if before and after are exchanged.
void round_sides(const Share& share, Product scale, WaterfallRow& row) {
    const Product parity = row.delta_ps % 2 == 0 ? 0 : 1;
    const Product sum = 2 * floor_of(share.before + share.after - parity * scale + scale, 2 * scale) + parity;
    row.before_ps = static_cast<Ps>((sum - row.delta_ps) / 2);
    row.after_ps = static_cast<Ps>((sum + row.delta_ps) / 2);
}

// Rounds the deltas to integers with the sum `total` by the method of the largest remainder, and the sides with them.
void round_rows(std::vector<WaterfallRow>& rows, Product scale, Ps total) {
    std::vector<WaterfallRow*> order;
    Product missing = total;
    for (WaterfallRow& row : rows) {
        order.push_back(&row);
        row.delta_ps = static_cast<Ps>(floor_of(row.exact.delta(), scale));
        missing -= row.delta_ps;
    }
    std::stable_sort(order.begin(), order.end(), [&](const WaterfallRow* a, const WaterfallRow* b) {
        return is_rounded_up_before(a->exact, b->exact, scale);
    });
    for (std::size_t i = 0; i < order.size() && missing > 0; ++i, --missing) ++order[i]->delta_ps;
    for (WaterfallRow& row : rows) round_sides(row.exact, scale, row);
}

}  // namespace

void set_waterfall(Diff& diff, const Profile& before, const Profile& after, const std::vector<OpMatch>& matches) {
    const auto runs_before = static_cast<std::int64_t>(before.steps.size()) * before.devices;
    const auto runs_after = static_cast<std::int64_t>(after.steps.size()) * after.devices;
    if (runs_before == 0 || runs_after == 0) return;
    diff.scale = runs_before * runs_after;
    const Product scale = diff.scale;
    std::vector<WaterfallRow>& rows = diff.rows;
    // The sums of all steps; integers, which the means are quotients of.
    Share idle{Product{std::llround(before.mean_step_ps * static_cast<double>(runs_before))} * runs_after,
               Product{std::llround(after.mean_step_ps * static_cast<double>(runs_after))} * runs_before,
               {},
               {}};
    const Product change = idle.delta();
    diff.total_delta_ps = static_cast<Ps>((2 * change + (change < 0 ? -scale : scale)) / (2 * scale));
    for (const OpMatch& match : matches) {
        Share share{sum_of(before, match.before) * runs_after, sum_of(after, match.after) * runs_before, {}, {}};
        if (!match.before.empty()) share.first = name_in_program(before.ops[match.before.front()]);
        if (!match.after.empty()) share.second = name_in_program(after.ops[match.after.front()]);
        idle.before -= share.before;
        idle.after -= share.after;
        const OpSum& op = match.before.empty() ? after.ops[match.after.front()] : before.ops[match.before.front()];
        rows.push_back({match.label, match.kind, 0, 0, 0, match.level, op.cls, std::move(share)});
    }
    rows.push_back({"idle", "idle", 0, 0, 0, "", "", std::move(idle)});
    round_rows(rows, scale, diff.total_delta_ps);
    std::sort(rows.begin(), rows.end() - 1, [](const WaterfallRow& a, const WaterfallRow& b) {
        return std::abs(a.delta_ps) != std::abs(b.delta_ps) ? std::abs(a.delta_ps) > std::abs(b.delta_ps)
                                                            : a.label < b.label;
    });
}

std::vector<WaterfallRow> shown_waterfall(const Diff& diff, std::int64_t top) {
    std::vector<WaterfallRow> rows = diff.rows;
    if (top < 0 || rows.size() <= static_cast<std::size_t>(top) + 1) return rows;
    WaterfallRow idle = std::move(rows.back());
    rows.pop_back();
    WaterfallRow rest{fmt::format("{} more", rows.size() - static_cast<std::size_t>(top)), "rest", 0, 0, 0, "", "", {}};
    for (; rows.size() > static_cast<std::size_t>(top); rows.pop_back()) {
        rest.exact.before += rows.back().exact.before;
        rest.exact.after += rows.back().exact.after;
    }
    rows.push_back(std::move(rest));
    rows.push_back(std::move(idle));
    round_rows(rows, diff.scale, diff.total_delta_ps);
    return rows;
}

}  // namespace gdnctl::trace
