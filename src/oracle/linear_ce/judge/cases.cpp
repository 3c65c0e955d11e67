#include "oracle/linear_ce/judge/cases.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/judge/covering.h"
#include "oracle/linear_ce/judge/truth.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle::linear_ce {

namespace {

using Change = void (*)(Case&);

Case made(const char* set, const char* name, const char* about, std::array<std::size_t, 3> shape, Change change) {
    Case c;
    c.set = set;
    c.name = name;
    c.about = about;
    c.batch = shape[0];
    c.hidden = shape[1];
    c.vocab = shape[2];
    if (change != nullptr) change(c);
    return c;
}

void cap_penalty_weights(Case& c) {
    c.soft_cap = 1.5;
    c.logsumexp_weight = 0.2;
    c.weights = Weights::pattern;
}

std::vector<Case> input_sets() {
    const char* set = "inputs";
    return {
        made(set, "unit_normal", "x, w ~ N(0,1); no multiple of any block", {64, 32, 259}, nullptr),
        made(set, "small_logits", "w std 0.02: an unmasked tail shows", {64, 128, 130},
             [](Case& c) { c.w_scale = 0.02; }),
        made(set, "small_logits_blocks", "the same over several blocks", {40, 64, 1283},
             [](Case& c) { c.w_scale = 0.02; }),
        made(set, "equal_logits", "x = 0: lse = log V", {16, 8, 130}, [](Case& c) { c.values = Values::zero; }),
        made(set, "huge_30", "logits of about 30 sqrt(H)", {32, 32, 300}, [](Case& c) { c.w_scale = 30; }),
        made(set, "huge_1000", "logits of thousands", {32, 32, 300}, [](Case& c) { c.w_scale = 1000; }),
        made(set, "label_edges", "labels at both ends and next to block edges", {64, 32, 520},
             [](Case& c) { c.labels = Labels::edges; }),
        made(set, "likely_labels", "labels are the largest logits: little is left of the loss", {32, 64, 200},
             [](Case& c) { c.labels = Labels::likely; }),
        made(set, "zero_weights", "weights 0, 1, 2, 3 in turn", {64, 32, 130},
             [](Case& c) { c.weights = Weights::pattern; }),
        made(set, "soft_cap", "cap 1.5 with logits near it", {48, 24, 130}, [](Case& c) { c.soft_cap = 1.5; }),
        made(set, "cap_small_logits", "cap 1.5 with small logits and a tail", {48, 32, 130},
             [](Case& c) {
                 c.soft_cap = 1.5;
                 c.w_scale = 0.1;
             }),
        made(set, "penalty", "lambda 0.2", {48, 24, 130},
             [](Case& c) {
                 c.logsumexp_weight = 0.2;
                 c.w_scale = 0.2;
             }),
        made(set, "penalty_weights", "lambda 0.2, weights 0, 1, 2, 3", {48, 24, 130},
             [](Case& c) {
                 c.logsumexp_weight = 0.2;
                 c.weights = Weights::pattern;
                 c.w_scale = 0.2;
             }),
        made(set, "cap_penalty_weights", "all of them", {64, 32, 130}, cap_penalty_weights),
    };
}

std::vector<Case> contract_sets() {
    const char* set = "inputs";
    return {
        made(set, "sum", "reduction sum, lambda 0.1", {48, 16, 100},
             [](Case& c) {
                 c.reduction = Reduction::sum;
                 c.logsumexp_weight = 0.1;
             }),
        made(set, "sum_weights", "reduction sum, weights 0, 1, 2, 3", {48, 16, 100},
             [](Case& c) {
                 c.reduction = Reduction::sum;
                 c.weights = Weights::pattern;
                 c.w_scale = 0.3;
             }),
        made(set, "layout_vh", "w is [V,H]", {40, 40, 150},
             [](Case& c) {
                 c.layout = Layout::vh;
                 c.w_scale = 0.1;
             }),
        made(set, "bf16", "x and w in bf16", {64, 64, 1024}, [](Case& c) { c.dtype = DType::bf16; }),
        made(set, "bf16_small_logits", "the same with small logits and a tail", {64, 64, 645},
             [](Case& c) {
                 c.dtype = DType::bf16;
                 c.w_scale = 0.02;
             }),
        made(set, "bf16_cap_penalty_weights", "bf16 with cap, penalty and weights", {64, 32, 257},
             [](Case& c) {
                 cap_penalty_weights(c);
                 c.dtype = DType::bf16;
             }),
    };
}

std::vector<Case> edge_sets() {
    const char* set = "edges";
    return {
        made(set, "one_row", "B = 1", {1, 48, 333}, [](Case& c) { c.w_scale = 0.1; }),
        made(set, "one_column", "V = 1: loss is 0", {7, 5, 1}, nullptr),
        made(set, "one_dimension", "H = 1", {20, 1, 70}, nullptr),
        made(set, "one_of_all", "B = H = V = 1", {1, 1, 1}, nullptr),
        made(set, "odd_sizes", "no multiple of anything", {37, 53, 211}, [](Case& c) { c.w_scale = 0.15; }),
        made(set, "no_weight_at_all", "every weight is 0: everything is 0 but loss and lse", {8, 8, 40},
             [](Case& c) {
                 c.weights = Weights::zero_every;
                 c.zero_every = 1;
             }),
        made(set, "many_rows", "more rows than most blocks have", {1100, 8, 70}, [](Case& c) { c.w_scale = 0.3; }),
        made(set, "large_vocabulary", "labels that 16 bits cannot hold", {12, 4, 65667},
             [](Case& c) {
                 c.labels = Labels::edges;
                 c.w_scale = 0.3;
             }),
        made(set, "llama_vocabulary", "V of Llama 3, w is [V,H]", {5, 4, 128256},
             [](Case& c) {
                 c.labels = Labels::edges;
                 c.layout = Layout::vh;
                 c.w_scale = 0.3;
             }),
        made(set, "deep", "more hidden dimensions than most blocks have", {12, 1100, 140},
             [](Case& c) { c.w_scale = 0.02; }),
    };
}

void golden(Case& c) {
    c.values = Values::formula;
    c.labels = Labels::golden;
}

std::vector<Case> golden_sets() {
    const char* set = "golden";
    return {
        made(set, "golden_a", "mean 1.262528562", {3, 4, 5}, golden),
        made(set, "golden_b", "cap 1.5, lambda 0.2, weight 1, 0, 2: mean 1.648524730", {3, 4, 5},
             [](Case& c) {
                 golden(c);
                 cap_penalty_weights(c);
             }),
        made(set, "golden_c", "lambda 0.2, weight 1, 0, 2: mean 1.619415973", {3, 4, 5},
             [](Case& c) {
                 golden(c);
                 cap_penalty_weights(c);
                 c.soft_cap = 0;
             }),
        made(set, "golden_d", "cap 1.5, lambda 0.2: mean 1.926284890", {3, 4, 5},
             [](Case& c) {
                 golden(c);
                 cap_penalty_weights(c);
                 c.weights = Weights::none;
             }),
        made(set, "identity_136", "every lse is 5.093542901668456", {128, 128, 136},
             [](Case& c) { c.values = Values::identity; }),
        made(set, "identity_130", "the same with a tail", {128, 128, 130},
             [](Case& c) { c.values = Values::identity; }),
    };
}

std::vector<Case> upstream_sets() {
    const char* set = "upstream";
    return {
        made(set, "upstream_small", "tolerance 1e-5 there", {6, 4, 5}, nullptr),
        made(set, "upstream_blocks", "blocks of 32 there", {256, 32, 96}, nullptr),
        made(set, "upstream_cap_penalty", "cap 2, lambda 0.2; 1e-4 there", {32, 64, 128},
             [](Case& c) {
                 c.soft_cap = 2;
                 c.logsumexp_weight = 0.2;
             }),
        made(set, "upstream_gradients", "cap 1.5; 1e-4 there", {16, 32, 64}, [](Case& c) { c.soft_cap = 1.5; }),
        made(set, "upstream_tpu", "the smallest a TPU takes", {128, 128, 256}, nullptr),
        made(set, "upstream_tail", "V = 130; 1e-4 there", {128, 128, 130}, nullptr),
        made(set, "upstream_bf16_1000", "bf16, scale 1000; 5 % there", {64, 64, 1024},
             [](Case& c) {
                 c.dtype = DType::bf16;
                 c.w_scale = 1000;
             }),
        made(set, "upstream_gpu", "blocks of 16 there", {6, 7, 9}, nullptr),
    };
}

std::int64_t edge_label(std::size_t i, std::size_t vocab) {
    const std::size_t last = (vocab - 1) / 128 * 128;
    const std::array<std::size_t, 12> edges = {0, vocab - 1, 63, 64, 65, 127, 128, 129, last, last + 1, vocab / 2, 1};
    return static_cast<std::int64_t>(std::min(edges[i % edges.size()], vocab - 1));
}

std::vector<double> matrix_of(const Case& c, bool of_x) {
    const std::size_t rows = of_x ? c.batch : c.hidden;
    const std::size_t columns = of_x ? c.hidden : c.vocab;
    std::vector<double> values(rows * columns);
    Random random(c.seed, of_x ? 1 : 2);
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t k = 0; k < columns; ++k) {
            double& x = values[r * columns + k];
            switch (c.values) {
                case Values::normal: x = random.normal() * (of_x ? c.x_scale : c.w_scale); break;
                case Values::zero: x = of_x ? 0 : random.normal(); break;
                case Values::identity: x = of_x ? (r == k ? 1 : 0) : (static_cast<double>((r + k) % 17) - 8) / 8; break;
                case Values::formula:
                    x = of_x ? (static_cast<double>((3 * r + 5 * k) % 7) - 3) / 4
                             : (static_cast<double>((2 * r + 3 * k) % 11) - 5) / 4;
                    break;
            }
        }
    }
    return values;
}

std::vector<double> transposed(const std::vector<double>& from, std::size_t rows, std::size_t columns) {
    std::vector<double> to(from.size());
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t k = 0; k < columns; ++k) to[k * rows + r] = from[r * columns + k];
    }
    return to;
}

std::vector<std::int64_t> labels_of(const Case& c) {
    std::vector<std::int64_t> labels(c.batch);
    Random random(c.seed, 3);
    for (std::size_t i = 0; i < c.batch; ++i) {
        constexpr std::array<std::int64_t, 3> k_golden = {0, 4, 2};
        labels[i] = c.labels == Labels::edges    ? edge_label(i, c.vocab)
                    : c.labels == Labels::golden ? k_golden[i % k_golden.size()]
                                                 : static_cast<std::int64_t>(random.bits() % c.vocab);
    }
    return labels;
}

std::vector<double> weights_of(const Case& c) {
    std::vector<double> weights(c.batch);
    for (std::size_t i = 0; i < c.batch; ++i) {
        constexpr std::array<double, 3> k_golden = {1, 0, 2};
        weights[i] = c.weights == Weights::zero_every ? ((i + 1) % c.zero_every == 0 ? 0 : 1)
                     : c.set == "golden"              ? k_golden[i % k_golden.size()]
                                                      : static_cast<double>(i % 4);
    }
    return weights;
}

constexpr std::int64_t k_ignored_label = -100;

bool ignores(const Case& c, std::size_t row) { return c.ignores_rows && row % 5 == 2; }

// In [-1, 1), with a 0 in every `zero_every`-th row. The loss of an ignored row is a constant: it has no cotangent.
std::vector<double> cotangents_of(const Case& c, std::uint64_t stream, std::size_t zero_every, bool of_loss) {
    std::vector<double> values(c.batch);
    Random random(c.seed, stream);
    for (std::size_t i = 0; i < c.batch; ++i) {
        values[i] = random.uniform(-1, 1);
        if (i % zero_every == 1 || (of_loss && ignores(c, i))) values[i] = 0;
    }
    return values;
}

// Ignored rows, and cotangents of the case's own.
void add_options(const Case& c, TensorFile& file) {
    const auto B = static_cast<std::int64_t>(c.batch);
    if (c.ignores_rows) {
        std::vector<std::int64_t> labels = to_i64(file.tensors[2].tensor);
        for (std::size_t i = 0; i < c.batch; ++i) labels[i] = ignores(c, i) ? k_ignored_label : labels[i];
        file.tensors[2].tensor = from_i64(labels, {B});
        file.metadata["ignore_index"] = fmt::format("{}", k_ignored_label);
    }
    if (c.d_loss) file.tensors.push_back({"d_loss", from_f64(cotangents_of(c, 4, 4, true), {B}, DType::f32)});
    if (c.d_lse) file.tensors.push_back({"d_lse", from_f64(cotangents_of(c, 5, 6, false), {B}, DType::f32)});
}

}  // namespace

const std::vector<Case>& cases() {
    static const std::vector<Case> k_cases = [] {
        std::vector<Case> all = input_sets();
        for (const auto& more : {contract_sets(), edge_sets(), golden_sets(), upstream_sets(), crossed_sets()}) {
            all.insert(all.end(), more.begin(), more.end());
        }
        return all;
    }();
    return k_cases;
}

const Case* find_case(std::string_view name) {
    std::string wanted = text::to_lower(name);
    std::replace(wanted.begin(), wanted.end(), '-', '_');
    for (const Case& c : cases()) {
        if (c.name == wanted) return &c;
    }
    return nullptr;
}

std::vector<std::string> case_names() {
    std::vector<std::string> names;
    for (const Case& c : cases()) names.push_back(c.name);
    return names;
}

TensorFile make_inputs(const Case& c) {
    const auto B = static_cast<std::int64_t>(c.batch);
    const auto H = static_cast<std::int64_t>(c.hidden);
    const auto V = static_cast<std::int64_t>(c.vocab);
    TensorFile file;
    file.tensors.push_back({"x", from_f64(matrix_of(c, true), {B, H}, c.dtype)});
    std::vector<double> w = matrix_of(c, false);
    if (c.layout == Layout::vh) w = transposed(w, c.hidden, c.vocab);
    file.tensors.push_back({"w", from_f64(w, c.layout == Layout::hv ? Shape{H, V} : Shape{V, H}, c.dtype)});
    file.tensors.push_back({"labels", from_i64(labels_of(c), {B})});
    if (c.weights != Weights::none) file.tensors.push_back({"weight", from_f64(weights_of(c), {B}, DType::f32)});
    file.metadata = {{"op", "linear-ce"},
                     {"case", c.name},
                     {"seed", fmt::format("{}", c.seed)},
                     {"layout", std::string(name_of(c.layout))},
                     {"logsumexp_weight", fmt::format("{}", c.logsumexp_weight)},
                     {"reduction", std::string(name_of(c.reduction))}};
    if (c.soft_cap > 0) file.metadata["soft_cap"] = fmt::format("{}", c.soft_cap);
    if (c.labels == Labels::likely) {
        const auto contract = resolve(file.metadata, {});
        const auto problem =
            contract ? read_problem(file, *contract) : Result<Problem>{tl::unexpected(contract.error())};
        if (problem) {
            file.tensors[2].tensor = from_i64(truth_of_rows(*problem, all_of(c.batch), false, {}).argmax, {B});
        }
    }
    add_options(c, file);
    return file;
}

// The crossed cases. Kernels fail where two conditions meet: a soft cap and the layout [V,H], or bf16 and a tail of the
// vocabulary. Some case has each triple of the conditions below. Without cotangents of its own, that is each pair of
// the others, and nothing stands in for weights and penalty there.

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
