#include "harness/linear_ce/variation.h"

#include <algorithm>

#include "oracle/tensor/random.h"

namespace gdnctl::harness::linear_ce {

namespace {

// Turns the order of the first axis, so that row `first` comes first.
void rotate(oracle::Tensor& tensor, std::size_t first, std::size_t rows) {
    const auto bytes = static_cast<std::ptrdiff_t>(tensor.bytes.size() / rows * first);
    std::rotate(tensor.bytes.begin(), tensor.bytes.begin() + bytes, tensor.bytes.end());
}

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Variation::Variation(std::uint64_t seed, std::size_t batch, std::size_t hidden, oracle::linear_ce::Layout layout)
    : m_batch(batch), m_negative(hidden), m_hv(layout == oracle::linear_ce::Layout::hv) {
    oracle::Random random(seed, 7);
    for (std::size_t h = 0; h < hidden; ++h) m_negative[h] = (random.bits() & 1U) != 0;
    m_first = batch > 1 ? 1 + random.bits() % (batch - 1) : 0;
}

void Variation::flip(oracle::Tensor& tensor, bool rows) const {
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    const std::size_t size = oracle::size_of(tensor.dtype);
    for (std::size_t i = 0; i < tensor.count(); ++i) {
        // The sign is the highest bit of the last byte.
        if (m_negative[rows ? i / columns : i % columns]) tensor.bytes[(i + 1) * size - 1] ^= 0x80U;
    }
}

void Variation::apply(std::string_view input, oracle::Tensor& tensor) const {
    if (is_any_of(input, {"x", "w"})) flip(tensor, input == "w" && m_hv);
    if (is_any_of(input, {"x", "labels", "weight", "d_loss", "d_lse"})) rotate(tensor, m_first, m_batch);
}

}  // namespace gdnctl::harness::linear_ce
