#include "harness/timing/machine.h"

#include <cstdlib>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <malloc.h>

#include "core/text.h"
#include "platform/blas.h"

namespace gdnctl::harness {

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
