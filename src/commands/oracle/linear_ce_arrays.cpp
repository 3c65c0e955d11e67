#include "commands/oracle/linear_ce_arrays.h"

#include <cstring>
#include <fstream>

#include <malloc.h>

#include "core/text.h"
#include "oracle/tensor/random.h"

namespace gdnctl::commands::linear_ce {

oracle::Tensor random_matrix(const RandomMatrix& m) {
    oracle::Tensor t{m.bf16 ? oracle::DType::bf16 : oracle::DType::f32, {m.rows, m.columns}, {}};
    const auto count = static_cast<std::size_t>(m.rows * m.columns);
    t.bytes.resize(count * size_of(t.dtype));
    oracle::Random random(m.seed, m.stream);
    for (std::size_t i = 0; i < count; ++i) {
        const auto x = static_cast<float>(random.normal() * m.scale);
        if (m.bf16) {
            const oracle::Bf16 narrow = oracle::narrowed(x);
            std::memcpy(t.bytes.data() + i * sizeof narrow, &narrow, sizeof narrow);
        } else {
            std::memcpy(t.bytes.data() + i * sizeof x, &x, sizeof x);
        }
    }
    return t;
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

void forget_peak() {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace gdnctl::commands::linear_ce
