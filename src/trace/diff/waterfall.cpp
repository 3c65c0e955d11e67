#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <tuple>

#include "trace/diff/match.h"

namespace gdnctl::trace {

namespace {

// Products of a sum of picoseconds and a count do not fit into 64 bits.
__extension__ using Product = __int128;

Product floor_of(Product value, Product divisor) {
    const Product quotient = value / divisor;
    return quotient * divisor > value ? quotient - 1 : quotient;
}

// A row before it is rounded: `before` and `after` are per step, in units of 1/scale ps.
struct Share {
    Product before = 0, after = 0;
    std::string first, second;  // names on both sides: a stable order of rows with equal values
    Product delta() const { return after - before; }
};

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

// Rounds the deltas to integers with the sum `total` by the method of the largest remainder.
std::vector<Ps> rounded_deltas(const std::vector<Share>& shares, Product scale, Ps total) {
    std::vector<Ps> deltas;
    std::vector<std::size_t> order;
    Product missing = total;
    for (const Share& share : shares) {
        order.push_back(deltas.size());
        deltas.push_back(static_cast<Ps>(floor_of(share.delta(), scale)));
        missing -= deltas.back();
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return is_rounded_up_before(shares[a], shares[b], scale); });
    for (std::size_t i = 0; i < order.size() && missing > 0; ++i, --missing) ++deltas[order[i]];
    return deltas;
}

// Sets before_ps and after_ps to the integers nearest to the exact values whose difference is delta_ps. Their sum has
// the parity of the delta, which is the same if before and after are exchanged.
void round_sides(const Share& share, Product scale, WaterfallRow& row) {
    const Product parity = row.delta_ps % 2 == 0 ? 0 : 1;
    const Product sum = 2 * floor_of(share.before + share.after - parity * scale + scale, 2 * scale) + parity;
    row.before_ps = static_cast<Ps>((sum - row.delta_ps) / 2);
    row.after_ps = static_cast<Ps>((sum + row.delta_ps) / 2);
}

}  // namespace

std::vector<WaterfallRow> waterfall(const Profile& before, const Profile& after, const std::vector<OpMatch>& matches,
                                    Ps& total) {
    total = 0;
    const auto runs_before = static_cast<Product>(before.steps.size()) * before.devices;
    const auto runs_after = static_cast<Product>(after.steps.size()) * after.devices;
    if (runs_before == 0 || runs_after == 0) return {};
    const Product scale = runs_before * runs_after;
    std::vector<Share> shares;
    std::vector<WaterfallRow> rows;
    // The sums of all steps; integers, which the means are quotients of.
    Share idle{std::llround(before.mean_step_ps * static_cast<double>(runs_before)) * runs_after,
               std::llround(after.mean_step_ps * static_cast<double>(runs_after)) * runs_before,
               {},
               {}};
    const Product change = idle.delta();
    total = static_cast<Ps>((2 * change + (change < 0 ? -scale : scale)) / (2 * scale));
    for (const OpMatch& match : matches) {
        Share share{sum_of(before, match.before) * runs_after, sum_of(after, match.after) * runs_before, {}, {}};
        if (!match.before.empty()) share.first = name_in_program(before.ops[match.before.front()]);
        if (!match.after.empty()) share.second = name_in_program(after.ops[match.after.front()]);
        idle.before -= share.before;
        idle.after -= share.after;
        const OpSum& op = match.before.empty() ? after.ops[match.after.front()] : before.ops[match.before.front()];
        rows.push_back({match.label, match.kind, 0, 0, 0, match.level, op.cls});
        shares.push_back(std::move(share));
    }
    rows.push_back({"idle", "idle", 0, 0, 0, "", ""});
    shares.push_back(std::move(idle));
    const std::vector<Ps> deltas = rounded_deltas(shares, scale, total);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].delta_ps = deltas[i];
        round_sides(shares[i], scale, rows[i]);
    }
    std::sort(rows.begin(), rows.end() - 1, [](const WaterfallRow& a, const WaterfallRow& b) {
        return std::abs(a.delta_ps) != std::abs(b.delta_ps) ? std::abs(a.delta_ps) > std::abs(b.delta_ps)
                                                            : a.label < b.label;
    });
    return rows;
}

}  // namespace gdnctl::trace
