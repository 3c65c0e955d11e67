#include <cmath>

#include "oracle/gdn/kernels/simd/fused_task.h"

namespace gdnctl::oracle {

namespace {

// Beyond this, the stored state is multiplied: far from the limits of fp32, and needed by at most one block in a
// hundred.
constexpr double k_lowest_sigma = 0x1p-20;
constexpr double k_highest_sigma = 0x1p20;

}  // namespace

void fused_factors(const FusedTask& task, std::size_t value_head, std::size_t first, std::size_t count,
                   std::size_t tokens_a_block, const float* dots, FusedHead& head, FusedBlock* blocks) {
    for (std::size_t t = 0; t < count; t += tokens_a_block, ++blocks, dots += 4) {
        double alpha[2] = {1, 1};
        double beta[2] = {0, 0};
        for (std::size_t x = 0; x < tokens_a_block && t + x < count; ++x) {
            const std::size_t at = (first + t + x) * task.Hv + value_head;
            alpha[x] = std::exp(static_cast<double>(task.g[at]));
            beta[x] = static_cast<double>(task.beta[at]);
        }
        const double scale = static_cast<double>(task.scale);
        const double decay0 = head.sigma * alpha[0];
        const double decay1 = decay0 * alpha[1];
        const double next = tokens_a_block == 1 ? decay0 : decay1;
        double keep = 1;
        if (next >= k_lowest_sigma && next <= k_highest_sigma) {
            head.sigma = next;
        } else {
            keep = next;
            head.sigma = 1;
        }
        const auto rounded = [](double x) { return static_cast<float>(x); };
        blocks->beta[0] = rounded(beta[0]);
        blocks->beta[1] = rounded(beta[1]);
        blocks->from_state[0] = rounded(-beta[0] * decay0);
        blocks->from_state[1] = rounded(-beta[1] * decay1);
        blocks->d0_in_d1 = rounded(-beta[1] * alpha[1] * static_cast<double>(dots[0]));
        blocks->out_state[0] = rounded(scale * decay0);
        blocks->out_state[1] = rounded(scale * decay1);
        blocks->out_d0[0] = rounded(scale * static_cast<double>(dots[1]));
        blocks->out_d0[1] = rounded(scale * alpha[1] * static_cast<double>(dots[2]));
        blocks->out_d1 = rounded(scale * static_cast<double>(dots[3]));
        blocks->write[0] = rounded(alpha[1] / head.sigma);
        blocks->write[1] = rounded(1 / head.sigma);
        blocks->keep = rounded(keep);
    }
}

}  // namespace gdnctl::oracle
