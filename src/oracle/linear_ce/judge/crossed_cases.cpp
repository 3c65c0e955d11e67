// The crossed cases. Kernels fail where two conditions meet: a soft cap and the layout [V,H], or bf16 and a tail of the
// vocabulary. Some case has each triple of the conditions below. Without cotangents of its own, that is each pair of
// the others, and nothing stands in for weights and penalty there.
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/judge/covering.h"
#include "oracle/linear_ce/judge/cases.h"

namespace gdnctl::oracle::linear_ce {

namespace {

enum Condition : std::size_t {
    by_layout,
    by_soft_cap,
    by_penalty,
    by_weights,
    by_ignored_rows,
    by_reduction,
    by_cotangents,  // none, d_loss, d_lse, both
    by_width,
    by_vocabulary,
    condition_count,
};

// For blocks of 128: one, two, two and a column, three and five columns, less than one.
constexpr std::array<std::size_t, 5> k_vocabularies = {128, 256, 257, 389, 77};
constexpr std::array<std::size_t, condition_count> k_values = {2, 2, 2, 2, 2, 3, 4, 2, k_vocabularies.size()};

Case case_of(const Row& row, std::size_t index) {
    constexpr std::array k_ways = {Reduction::mean, Reduction::sum, Reduction::none};
    Case c;
    c.name = fmt::format("crossed_{:03}", index + 1);
    c.set = "crossed";
    c.seed = 1000 + index;
    c.batch = 14 + index % 3;
    c.hidden = 12 + 5 * (index % 4);
    c.vocab = k_vocabularies[row[by_vocabulary]];
    // Logits of about 0.6: small enough for an unmasked tail to count, large enough for the cap to bend them.
    c.w_scale = 0.6 / static_cast<double>(1 + index % 4);
    c.labels = index % 2 == 0 ? Labels::random : Labels::edges;
    c.layout = row[by_layout] == 0 ? Layout::hv : Layout::vh;
    c.soft_cap = row[by_soft_cap] == 0 ? 0 : 1.5;
    c.logsumexp_weight = row[by_penalty] == 0 ? 0 : 0.2;
    c.weights = row[by_weights] == 0 ? Weights::none : Weights::pattern;
    c.ignores_rows = row[by_ignored_rows] != 0;
    c.reduction = k_ways[row[by_reduction]];
    c.d_loss = row[by_cotangents] % 2 == 1;
    c.d_lse = row[by_cotangents] >= 2;
    c.dtype = row[by_width] == 0 ? DType::f32 : DType::bf16;

    std::vector<std::string> about;
    const auto say = [&](bool said, std::string words) {
        if (said) about.push_back(std::move(words));
    };
    say(c.layout == Layout::vh, "vh");
    say(c.soft_cap > 0, "cap");
    say(c.logsumexp_weight > 0, "penalty");
    say(c.weights != Weights::none, "weights");
    say(c.ignores_rows, "ignored");
    say(c.reduction != Reduction::mean, c.reduction == Reduction::sum ? "sum" : "per-row");
    say(c.d_loss, "d_loss");
    say(c.d_lse, "d_lse");
    say(c.dtype == DType::bf16, "bf16");
    c.about = about.empty() ? "none of the conditions" : text::join(about, " ");
    return c;
}

}  // namespace

std::vector<Case> crossed_sets() {
    Covering covering({k_values.begin(), k_values.end()}, {});
    std::vector<std::size_t> all(k_values.size());
    std::iota(all.begin(), all.end(), 0);
    covering.want_triples(all);
    covering.add_rows(all, [](Row&) {});
    std::vector<Case> cases;
    for (const Row& row : covering.rows()) cases.push_back(case_of(row, cases.size()));
    return cases;
}

}  // namespace gdnctl::oracle::linear_ce
