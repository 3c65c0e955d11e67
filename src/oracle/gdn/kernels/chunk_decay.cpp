#include <cmath>

#include "oracle/gdn/kernels/simd/chunk_task.h"

namespace gdnctl::oracle {

// Where exp(g) is 0, a sum would be -inf (and -inf - -inf is NaN) or lose every digit. Instead a new stretch begins,
// and decay across two stretches is exactly 0. Sums are fp64 unless the task asks for those of devices.
void chunk_decay(const ChunkGates& gates, bool fp32_sums, std::size_t count, std::size_t padded, ChunkDecay& decay) {
    const float lowest = fp32_sums ? -2e4F : -110.0F;
    double sum = 0;
    int stretch = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const float gate = gates.g[i * gates.stride];
        if (gate <= lowest) {
            ++stretch;
            sum = 0;
        } else {
            sum += static_cast<double>(gate);
            if (fp32_sums) sum = static_cast<double>(static_cast<float>(sum));
        }
        decay.high[i] = static_cast<float>(sum);
        decay.low[i] = static_cast<float>(sum - static_cast<double>(decay.high[i]));
        decay.stretch[i] = static_cast<float>(stretch);
        decay.beta[i] = gates.beta[i * gates.stride];
        decay.from_start[i] = stretch == 0 ? static_cast<float>(std::exp(sum)) : 0.0F;
    }
    decay.whole = decay.from_start[count - 1];
    for (std::size_t i = 0; i < padded; ++i) {
        if (i >= count) {
            decay.high[i] = decay.low[i] = decay.beta[i] = decay.from_start[i] = decay.to_end[i] = 0;
            decay.stretch[i] = -1;
            continue;
        }
        const double rest = sum - (static_cast<double>(decay.high[i]) + static_cast<double>(decay.low[i]));
        const bool same = decay.stretch[i] == static_cast<float>(stretch);
        decay.to_end[i] = same ? std::exp(static_cast<float>(rest)) : 0.0F;
    }
}

}  // namespace gdnctl::oracle
