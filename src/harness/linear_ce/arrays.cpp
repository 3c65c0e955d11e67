#include "harness/linear_ce/arrays.h"

#include <cstring>

#include "oracle/tensor/random.h"

namespace gdnctl::harness::linear_ce {

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

}  // namespace gdnctl::harness::linear_ce
