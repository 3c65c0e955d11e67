#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "oracle/gdn/under_test/call.h"

namespace gdnctl::oracle {

namespace {

// A 64-bit mixer (each output bit depends on each input bit), good enough for random signs.
std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

std::vector<bool> random_signs(std::int64_t count, std::uint64_t& state) {
    std::vector<bool> signs(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < signs.size(); ++i) signs[i] = (mixed(state += 0x9e3779b97f4a7c15ULL) & 1U) != 0;
    return signs;
}

}  // namespace

Disguise::Disguise(const GdnDims& dims, HeadMap map, std::uint64_t seed) : m_dims(dims) {
    m_keys = random_signs(dims.Hk * dims.dk, seed);
    m_values = random_signs(dims.Hv * dims.dv, seed);
    for (std::int64_t h = 0; h < dims.Hv; ++h) {
        const std::int64_t first = key_head_of(h, dims, map) * dims.dk;
        for (std::int64_t i = 0; i < dims.dk; ++i) m_by_value.push_back(m_keys[static_cast<std::size_t>(first + i)]);
    }
}

// In every floating-point dtype, the sign is the top bit of the last byte.
void Disguise::flip(Tensor& tensor, const std::vector<bool>& negative) {
    const std::size_t width = size_of(tensor.dtype);
    std::size_t i = 0;
    for (std::size_t at = width - 1; at < tensor.bytes.size(); at += width) {
        if (i == negative.size()) i = 0;
        if (negative.empty()) return;
        if (negative[i++]) tensor.bytes[at] ^= 0x80U;
    }
}

void Disguise::state(Tensor& tensor, StateLayout layout) const {
    if (m_keys.empty()) return;
    const auto dk = static_cast<std::size_t>(m_dims.dk);
    const auto dv = static_cast<std::size_t>(m_dims.dv);
    const std::size_t rows = layout == StateLayout::key_value ? dk : dv;
    const std::size_t columns = layout == StateLayout::key_value ? dv : dk;
    std::vector<bool> negative;
    for (std::size_t h = 0; h < static_cast<std::size_t>(m_dims.Hv); ++h) {
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
                const std::size_t key = layout == StateLayout::key_value ? i : j;
                const std::size_t value = layout == StateLayout::key_value ? j : i;
                negative.push_back(m_by_value[h * dk + key] != m_values[h * dv + value]);
            }
        }
    }
    flip(tensor, negative);
}

void apply(const Disguise& disguise, TensorFile& file, StateLayout layout) {
    for (NamedTensor& entry : file.tensors) {
        const std::string_view name = canonical_name(entry.name).canonical;
        const auto is = [name](std::initializer_list<std::string_view> names) {
            return std::find(names.begin(), names.end(), name) != names.end();
        };
        if (is({"q", "k", "dq", "dk"})) disguise.keys(entry.tensor);
        if (is({"v", "out", "d_out", "dv"})) disguise.values(entry.tensor);
        if (is({"initial_state", "final_state", "d_final_state", "d_initial_state"})) {
            disguise.state(entry.tensor, layout);
        }
    }
}

}  // namespace gdnctl::oracle
