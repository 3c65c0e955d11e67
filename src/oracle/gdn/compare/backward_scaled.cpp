// Gradients that are right except for a factor, or for the order of their axes.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "oracle/gdn/compare/backward.h"
#include "oracle/gdn/compare/rearranged.h"

namespace gdnctl::oracle {

namespace {

bool near(double a, double b) { return std::fabs(a / b - 1) < 1e-3; }

// By least squares; nullopt: the truth is 0.
std::optional<double> factor_of(const GradientEvidence& g) {
    double product = 0;
    double squares = 0;
    for (std::size_t i = 0; i < g.truth->want.size(); ++i) {
        const double got = (*g.evidence.got)[i];
        const double want = g.truth->want[i];
        if (!std::isfinite(got) || !std::isfinite(want)) continue;
        product += got * want;
        squares += want * want;
    }
    if (squares == 0) return std::nullopt;
    return product / squares;
}

std::vector<double> multiple(const GradientEvidence& g, double factor) {
    std::vector<double> other = g.truth->want;
    for (double& x : other) x *= factor;
    return other;
}

// All gradients are linear in the cotangents, so one factor on all of them is a factor on the cotangents.
bool match_common_factor(const std::vector<GradientEvidence>& all, std::vector<Hint>& hints) {
    std::optional<double> common;
    std::size_t count = 0;
    for (const GradientEvidence& g : all) {
        if (!g.wrong) continue;
        ++count;
        // dv is the most stable of them.
        if (!common || g.truth->canonical == "dv") common = factor_of(g);
    }
    if (count < 2 || !common || std::fabs(*common - 1) < 1e-6) return false;
    double least = HUGE_VAL;
    for (const GradientEvidence& g : all) {
        const auto scaled = multiple(g, *common);
        // A gradient that is right with and without the factor is small compared with its reference size.
        if (!g.wrong && rms_difference(*g.evidence.got, scaled) > honest_error(g)) return false;
        if (!g.wrong) continue;
        const double better = gain_under(g, scaled);
        if (better == 0) return false;
        least = std::min(least, better);
    }
    const std::string text = *common == 0        ? std::string("every gradient is 0")
                             : near(*common, -1) ? std::string("every gradient has the wrong sign")
                                                 : fmt::format("every gradient is {:.6g} times the truth", *common);
    hints.push_back({"bwd_shared",
                     fmt::format("matches if {}: the cotangents are scaled (a mean for a sum, a loss scale)", text),
                     least});
    return true;
}

void match_factor(const GdnProblem& p, const GradientEvidence& g, std::vector<Hint>& hints) {
    const auto factor = factor_of(g);
    if (!factor || std::fabs(*factor - 1) < 1e-6) return;
    const std::string& name = g.truth->canonical;
    const auto r = static_cast<double>(p.dims.Hv) / static_cast<double>(p.dims.Hk);
    const auto offer = [&](std::string stage, const std::string& text) {
        offer_gradient(g, std::move(stage), text, multiple(g, *factor), hints);
    };
    if ((name == "dq" || name == "dk") && r > 1 && (near(*factor, 1 / r) || near(*factor, r))) {
        offer("gva_grad", fmt::format("{} is {} over the {} value heads of a key head, not summed", name,
                                      *factor < 1 ? "averaged" : "multiplied by their number", r));
        return;
    }
    offer(stage_of_gradient(name), *factor == 0        ? fmt::format("{} is 0", name)
                                   : near(*factor, -1) ? name + " has the wrong sign"
                                                       : fmt::format("{} is {:.6g} times the truth", name, *factor));
}

void match_order(const GdnProblem& p, const GradientEvidence& g, std::vector<Hint>& hints) {
    const GradientTruth& t = *g.truth;
    const bool keys = t.canonical == "dq" || t.canonical == "dk";
    const std::int64_t heads = keys ? p.dims.Hk : p.dims.Hv;
    if (!t.axes.starts_with("b,t,h") || heads < 2 || p.dims.T < 2) return;
    offer_gradient(g, "layout", t.canonical + " is written as [B,H,T,D], heads before tokens",
                   heads_first(t.want, static_cast<std::size_t>(p.dims.B), static_cast<std::size_t>(p.dims.T),
                               static_cast<std::size_t>(heads), t.groups.width),
                   hints);
}

}  // namespace

double honest_error(const GradientEvidence& g) {
    double largest = 0;
    for (const GroupBudget& b : g.evidence.budgets) largest = std::max(largest, b.rms);
    return k_ok_band * largest;
}

double gain_under(const GradientEvidence& g, const std::vector<double>& other) {
    const std::vector<double>& got = *g.evidence.got;
    for (std::size_t i = 0; i < other.size(); ++i) {
        // An explanation must be non-finite exactly where the dump is.
        if (std::isfinite(g.truth->want[i]) && std::isfinite(other[i]) != std::isfinite(got[i])) return 0;
    }
    const double before = rms_difference(got, g.truth->want);
    const double after = rms_difference(got, other);
    const double limit = honest_error(g);
    const bool fits = after <= std::max(before / 100, std::min(limit, before / 3));
    return fits ? before / std::max(after, limit / 16) : 0;
}

void offer_gradient(const GradientEvidence& g, std::string stage, const std::string& text,
                    const std::vector<double>& other, std::vector<Hint>& hints) {
    const double better = gain_under(g, other);
    if (better > 0) hints.push_back({std::move(stage), "matches if " + text, better});
}

std::string stage_of_gradient(std::string_view name) {
    if (name == "d_initial_state") return "dS0";
    if (name == "d_b") return "dbeta";
    return std::string(name.starts_with("d_") ? "dg" : name);
}

void match_scaled_gradients(const GdnProblem& problem, const std::vector<GradientEvidence>& all,
                            std::vector<Hint>& hints) {
    if (match_common_factor(all, hints)) return;
    for (const GradientEvidence& g : all) {
        if (!g.wrong) continue;
        match_factor(problem, g, hints);
        match_order(problem, g, hints);
    }
}

}  // namespace gdnctl::oracle
