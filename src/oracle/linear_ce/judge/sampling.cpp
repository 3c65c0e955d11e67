#include "oracle/linear_ce/judge/sampling.h"

#include <algorithm>
#include <set>

#include "oracle/tensor/random.h"

namespace gdnctl::oracle::linear_ce {

namespace {

constexpr std::size_t k_tpu_lanes = 128;  // of a TPU: every block there is a multiple

// Draws until `chosen` has `count` of the numbers below `limit`.
std::vector<std::size_t> filled(std::set<std::size_t> chosen, std::size_t count, std::size_t limit, Random random) {
    while (chosen.size() < std::min(count, limit)) chosen.insert(random.bits() % limit);
    return {chosen.begin(), chosen.end()};
}

std::size_t last_block(std::size_t vocab) { return (vocab - 1) / k_tpu_lanes * k_tpu_lanes; }

bool beside_an_edge(std::size_t label, std::size_t block) {
    const std::size_t at = label % block;
    return label >= block - 1 && (at <= 1 || at == block - 1);
}

}  // namespace

std::vector<std::size_t> sampled_rows(const Problem& problem, std::size_t count, std::uint64_t seed) {
    if (count >= problem.batch) return filled({}, problem.batch, problem.batch, Random(seed, 1));
    const std::size_t share = std::max(count / 8, std::size_t{1});  // of each kind
    std::set<std::size_t> chosen;
    const auto take = [&](const auto& wanted) {
        std::size_t taken = 0;
        for (std::size_t i = 0; i < problem.batch && taken < share && chosen.size() < count; ++i) {
            if (wanted(i) && chosen.insert(i).second) ++taken;
        }
    };
    const auto label = [&](std::size_t i) { return static_cast<std::size_t>(problem.labels[i]); };
    take([&](std::size_t i) { return label(i) == 0; });
    take([&](std::size_t i) { return label(i) == problem.vocab - 1; });
    take([&](std::size_t i) { return label(i) >= last_block(problem.vocab); });
    take([&](std::size_t i) { return problem.weight[i] == 0; });
    take([&](std::size_t i) { return beside_an_edge(label(i), 1024); });
    take([&](std::size_t i) { return beside_an_edge(label(i), k_tpu_lanes); });
    return filled(std::move(chosen), count, problem.batch, Random(seed, 1));
}

std::vector<std::size_t> sampled_columns(const Problem& problem, const std::vector<std::size_t>& rows,
                                         std::size_t count, std::uint64_t seed) {
    if (count >= problem.vocab) return filled({}, problem.vocab, problem.vocab, Random(seed, 2));
    std::set<std::size_t> chosen;
    const auto take = [&](std::size_t column) {
        if (chosen.size() < count) chosen.insert(column);
    };
    for (const std::size_t column : {std::size_t{0}, problem.vocab - 1, last_block(problem.vocab)}) take(column);
    for (const std::size_t row : rows) take(static_cast<std::size_t>(problem.labels[row]));
    return filled(std::move(chosen), count, problem.vocab, Random(seed, 2));
}

}  // namespace gdnctl::oracle::linear_ce
