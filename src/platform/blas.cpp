#include "platform/blas.h"

#include <cstdlib>

#include <fmt/format.h>

#include "core/log.h"
#include "platform/late_library.h"

namespace gdnctl {

namespace {

constexpr LateLibrary k_openblas{"libopenblas", "libopenblas.so.0", "libopenblas0-pthread"};
constexpr const char* k_core_variable = "OPENBLAS_CORETYPE";
constexpr int k_row_major = 101;
constexpr int k_no_transpose = 111;

// "OpenBLAS 0.3.21" from "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...".
std::string version_of(const std::string& config) {
    const auto first = config.find(' ');
    return config.substr(0, first == std::string::npos ? first : config.find(' ', first + 1));
}

}  // namespace

Result<Sgemm> Sgemm::open(const std::string& core, int threads) {
    // OpenBLAS reads this when it is loaded. Otherwise its threads spin after a call and slow down the next
    // measurement.
    setenv("OPENBLAS_THREAD_TIMEOUT", "4", 0);
    // A kernel forced through the environment would make the comparison meaningless.
    if (const char* set = std::getenv(k_core_variable); set != nullptr && core != set) {
        log::info("ignoring {}={}: sgemm is measured with {}", k_core_variable, set,
                  core.empty() ? "the kernels that OpenBLAS chooses for this processor" : core + " kernels");
    }
    if (core.empty()) {
        unsetenv(k_core_variable);
    } else {
        setenv(k_core_variable, core.c_str(), 1);
    }
    Multiply multiply = nullptr;
    void (*set_threads)(int) = nullptr;
    char* (*config)() = nullptr;
    char* (*core_name)() = nullptr;
    const LateSymbol symbols[] = {{"cblas_sgemm", &multiply},
                                  {"openblas_set_num_threads", &set_threads},
                                  {"openblas_get_config", &config},
                                  {"openblas_get_corename", &core_name}};
    GDNCTL_TRY(open_late_library(k_openblas, symbols));
    set_threads(threads);
    return Sgemm(multiply, fmt::format("{} {}", version_of(config()), core_name()));
}

void Sgemm::multiply(int n, const float* a, const float* b, float* c) const {
    m_multiply(k_row_major, k_no_transpose, k_no_transpose, n, n, n, 1, a, n, b, n, 0, c, n);
}

}  // namespace gdnctl
