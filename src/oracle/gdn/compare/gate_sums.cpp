#include "oracle/gdn/compare/gate_sums.h"

#include <algorithm>
#include <vector>

#include "oracle/gdn/kernels/prepare.h"

namespace gdnctl::oracle {

namespace {

std::vector<double> sums_one_by_one(DType dtype, std::span<const double> values) {
    std::vector<double> sums(values.begin(), values.end());
    for (std::size_t i = 1; i < sums.size(); ++i) sums[i] = rounded_to(sums[i - 1] + sums[i], dtype);
    return sums;
}

std::vector<double> sums_by_blocks(DType dtype, std::span<const double> values) {
    constexpr std::size_t k_block = 16;
    std::vector<double> sums;
    double before = 0;
    for (std::size_t first = 0; first < values.size(); first += k_block) {
        const auto block = sums_one_by_one(dtype, values.subspan(first, std::min(k_block, values.size() - first)));
        for (const double x : block) sums.push_back(first == 0 ? x : rounded_to(x + before, dtype));
        before = first == 0 ? block.back() : rounded_to(before + block.back(), dtype);
    }
    return sums;
}

// Like jax.lax.associative_scan: sums of pairs, then their sums, then those in between.
std::vector<double> sums_by_pairs(DType dtype, std::span<const double> values) {
    const std::size_t n = values.size();
    if (n < 2) return {values.begin(), values.end()};
    std::vector<double> pairs;
    for (std::size_t i = 0; i + 1 < n; i += 2) pairs.push_back(rounded_to(values[i] + values[i + 1], dtype));
    const std::vector<double> odd = sums_by_pairs(dtype, pairs);
    std::vector<double> sums(n, values[0]);
    for (std::size_t i = 1; i < n; ++i) {
        sums[i] = i % 2 == 1 ? odd[i / 2] : rounded_to(odd[i / 2 - 1] + values[i], dtype);
    }
    return sums;
}

}  // namespace

void sum_gates_in(DType dtype, SumOrder order, std::span<double> gates) {
    const auto sums = order == SumOrder::one_by_one     ? sums_one_by_one(dtype, gates)
                      : order == SumOrder::blocks_of_16 ? sums_by_blocks(dtype, gates)
                                                        : sums_by_pairs(dtype, gates);
    for (std::size_t i = gates.size(); i-- > 0;) gates[i] = i == 0 ? sums[0] : sums[i] - sums[i - 1];
}

bool sums_narrow(const GdnProblem& p, const GdnContract& c) {
    return c.gate_sum == SumDType::given && (p.gate_dtype == DType::bf16 || p.gate_dtype == DType::f16);
}

GdnProblem with_narrow_sums(const GdnProblem& p, const GdnContract& c, SumOrder order) {
    GdnProblem summed = p;
    summed.gate = log_gates(p, c);
    const auto heads = static_cast<std::size_t>(p.dims.Hv);
    std::vector<double> chunk;
    for (const GdnSequence& s : p.sequences) {
        for (std::size_t h = 0; h < heads; ++h) {
            for (std::int64_t first = s.begin; first < s.end; first += c.chunk) {
                const auto last = std::min<std::int64_t>(s.end, first + c.chunk);
                chunk.clear();
                for (auto row = first; row < last; ++row)
                    chunk.push_back(summed.gate[static_cast<std::size_t>(row) * heads + h]);
                // A sum that overflows anyway loses nothing.
                if (std::any_of(chunk.begin(), chunk.end(), [](double g) { return !(g > -1e4); })) continue;
                sum_gates_in(p.gate_dtype, order, chunk);
                for (auto row = first; row < last; ++row) {
                    summed.gate[static_cast<std::size_t>(row) * heads + h] =
                        chunk[static_cast<std::size_t>(row - first)];
                }
            }
        }
    }
    return summed;
}

}  // namespace gdnctl::oracle
