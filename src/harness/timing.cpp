#include "harness/timing.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <malloc.h>

#include "core/text.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/tensor/random.h"
#include "platform/blas.h"
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

namespace {

constexpr double k_noise = 1.35;

struct Taken {
    double seconds = 0;
    std::optional<double> on_device;
};

Result<Taken> seconds_of(const Subject& subject, const Clock& clock) {
    if (subject.before) GDNCTL_TRY(subject.before());
    const auto start = clock.monotonic();
    subject.run();
    const double seconds = std::chrono::duration<double>(clock.monotonic() - start).count();
    const double counted = subject.counted ? subject.counted(seconds) : seconds;
    if (subject.after) GDNCTL_TRY(subject.after());
    return Taken{counted, subject.device ? subject.device() : std::nullopt};
}

// Median over rounds of subject's rate / other's.
double ratio_of_rates(const Subject& subject, const Subject& other) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < subject.seconds.size(); ++i) {
        ratios.push_back(subject.flop / subject.seconds[i] / (other.flop / other.seconds[i]));
    }
    return oracle::spread_of(std::move(ratios)).median;
}

}  // namespace

Status run_rounds(std::vector<Subject>& subjects, std::int64_t rounds, std::int64_t runs, Clock& clock,
                  std::stop_token stop, const std::function<void(std::int64_t, const Subject&)>& at) {
    for (Subject& s : subjects) {
        if (at) at(0, s);
        GDNCTL_TRY(seconds_of(s, clock));
    }
    for (std::int64_t round = 0; round < rounds; ++round) {
        for (Subject& s : subjects) {
            if (stop.stop_requested()) return fail(ErrorKind::interrupted, "stopped before all rounds were run");
            if (at) at(round + 1, s);
            double least = std::numeric_limits<double>::infinity();
            std::vector<double> there;
            for (std::int64_t i = 0; i < runs; ++i) {
                GDNCTL_TRY_ASSIGN(const Taken taken, seconds_of(s, clock));
                least = std::min(least, taken.seconds);
                if (taken.on_device) there.push_back(*taken.on_device);
            }
            if (!there.empty()) s.device_seconds.push_back(oracle::spread_of(std::move(there)).median);
            // A clock that does not advance would give a rate of infinity.
            s.seconds.push_back(std::max(least, 1e-9));
            if (s.check) GDNCTL_TRY(s.check());
        }
    }
    return {};
}

double ratio_of_times(const Subject& one, const Subject& other) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < one.seconds.size(); ++i) ratios.push_back(one.seconds[i] / other.seconds[i]);
    return oracle::spread_of(std::move(ratios)).median;
}

RatioOfTimes interval_of_ratio(const Subject& one, const Subject& other) {
    constexpr std::size_t k_draws = 2000;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < one.seconds.size(); ++i) ratios.push_back(one.seconds[i] / other.seconds[i]);
    oracle::Random random(1, 1);
    std::vector<double> medians;
    for (std::size_t draw = 0; draw < k_draws && !ratios.empty(); ++draw) {
        std::vector<double> drawn;
        for (std::size_t i = 0; i < ratios.size(); ++i) drawn.push_back(ratios[random.bits() % ratios.size()]);
        medians.push_back(oracle::spread_of(std::move(drawn)).median);
    }
    std::sort(medians.begin(), medians.end());
    if (medians.empty()) return {};
    return {oracle::spread_of(std::move(ratios)).median, medians[k_draws / 40], medians[k_draws - 1 - k_draws / 40]};
}

bool disagree(const RatioOfTimes& one, const RatioOfTimes& other) {
    return (one.low > 1 && other.high < 1) || (one.high < 1 && other.low > 1);
}

std::optional<Subject> on_device(const Subject& subject) {
    const std::vector<double>& taken = subject.device_seconds;
    const bool all = !taken.empty() && taken.size() == subject.seconds.size();
    if (!all || *std::min_element(taken.begin(), taken.end()) <= 0) return std::nullopt;
    Subject there = subject;
    there.seconds = taken;
    return there;
}

Timing timing_of(const Subject& subject, const Subject* sgemm, const Subject& peak) {
    Timing t;
    t.seconds = oracle::spread_of(subject.seconds);
    t.gflops = subject.flop / t.seconds.median * 1e-9;
    if (sgemm != nullptr) t.of_sgemm = ratio_of_rates(subject, *sgemm);
    t.of_peak = ratio_of_rates(subject, peak);
    t.noisy = t.seconds.median > k_noise * t.seconds.min;
    return t;
}

Machine this_machine() {
    Machine m{"unknown", "", 0};
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);) {
        if (!line.starts_with("model name")) continue;
        m.cpu = std::string(text::trim(std::string_view(line).substr(line.find(':') + 1)));
        break;
    }
#if defined(__clang__)
    m.compiler = fmt::format("clang {}", __clang_version__);
#else
    m.compiler = fmt::format("g++ {}", __VERSION__);
#endif
    double load[1] = {};
    if (getloadavg(load, 1) == 1) m.load = load[0];
    return m;
}

Result<SgemmSubject> sgemm_subject(oracle::Isa isa, int threads) {
    const char* kernels = isa == oracle::Isa::avx2 ? "Haswell" : isa == oracle::Isa::scalar ? "Nehalem" : "";
    GDNCTL_TRY_ASSIGN(const Sgemm sgemm, Sgemm::open(kernels, threads));
    constexpr std::size_t k_count = std::size_t{k_sgemm_size} * k_sgemm_size;
    const auto matrices = std::make_shared<std::vector<std::vector<float>>>(3, std::vector<float>(k_count, 1.0F));
    SgemmSubject result;
    result.library = sgemm.description();
    result.subject.name = "sgemm";
    result.subject.flop = 2.0 * static_cast<double>(k_count) * k_sgemm_size;
    result.subject.run = [sgemm, matrices] {
        auto& m = *matrices;
        sgemm.multiply(k_sgemm_size, m[0].data(), m[1].data(), m[2].data());
    };
    return result;
}

std::optional<std::int64_t> peak_rss() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (!line.starts_with("VmHWM:")) continue;
        const std::string_view value = text::trim(std::string_view(line).substr(6));
        if (const auto kib = text::parse_int(value.substr(0, value.find(' ')))) return *kib * 1024;
    }
    return std::nullopt;
}

void forget_peak_rss() {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace gdnctl::harness
