#include "harness/timing/floor.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/bench/bench.h"
#include "platform/fs.h"

namespace gdnctl::harness {

double gain_of_short_types(std::string_view cpuinfo) {
    constexpr double k_tiles = 16;   // AMX: 2,048 operations on bf16 a cycle, AVX-512 on fp32 64 to 128
    constexpr double k_vectors = 2;  // bf16 or fp16 in vectors
    double gain = 1;
    for (const std::string_view line : text::split(cpuinfo, '\n')) {
        if (!line.starts_with("flags")) continue;
        for (const std::string_view flag : text::split(line, ' ')) {
            if (flag.starts_with("amx_")) gain = std::max(gain, k_tiles);
            if (flag == "avx512_bf16" || flag == "avx512_fp16") gain = std::max(gain, k_vectors);
        }
        break;
    }
    return gain;
}

double least_seconds(const std::function<void()>& run, Clock& clock, int runs) {
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < runs; ++i) {
        const auto start = clock.monotonic();
        run();
        least = std::min(least, std::chrono::duration<double>(clock.monotonic() - start).count());
    }
    return least;
}

double most_flop_a_second(int threads, Clock& clock) {
    constexpr std::size_t k_steps = 50'000;  // a third of a millisecond: most fit between what other processes do
    constexpr int k_bursts = 200;
    double flop = 0;
    const auto burst = [&flop] { flop = oracle::run_multiply_adds(k_steps, 1, oracle::best_isa()); };
    const double seconds = least_seconds(burst, clock, k_bursts);
    const auto cpuinfo = read_file_if_exists("/proc/cpuinfo");
    const double gain = gain_of_short_types(cpuinfo && *cpuinfo ? std::string_view(**cpuinfo) : std::string_view());
    return flop / seconds * gain * std::max(threads, 1);
}

double least_seconds_of_bytes(double bytes, int threads, Clock& clock) {
    constexpr double k_most = 64 << 20U;
    constexpr double k_other_caches = 0.5;
    const double share = bytes / std::max(threads, 1);
    std::vector<float> values(static_cast<std::size_t>(std::min(share, k_most) / (2 * sizeof(float))), 1.0F);
    if (values.empty()) return 0;
    const double best = least_seconds([&values] { oracle::negate_values(values, oracle::best_isa()); }, clock);
    return best * k_other_caches * std::max(share / k_most, 1.0);
}

std::optional<oracle::KernelFault> impossible_time(double seconds, double least, int threads) {
    constexpr double k_margin = 0.8;
    if (!(seconds < k_margin * least)) return std::nullopt;
    return oracle::KernelFault{oracle::KernelFaultKind::impossible,
                               fmt::format("took {:.3g} ms for work that needs at least {:.3g} ms on {} thread{} of "
                                           "this CPU: it uses more threads, or does its work before or after the call",
                                           seconds * 1e3, least * 1e3, threads, threads == 1 ? "" : "s"),
                               {}};
}

}  // namespace gdnctl::harness
