// New inputs for every timed run of a user's kernel, and the results that it must give.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "oracle/gdn/bench/bench_arrays.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle {

namespace {

// How far two correct fp32 results may be apart: the root mean square of the difference and its largest value, in units
// of the tensor's root mean square, or of a value's own size if that is larger. For fp32, these limits are above the
// measured differences of correct kernels and below what the judge allows for a value. Results that are farther apart
// are compared with the truth.
struct Allowed {
    double rms, largest;
};
constexpr Allowed k_f32 = {1e-6, 1e-5};
constexpr Allowed k_bf16 = {5e-3, 0x1p-6};

// Uniform, with variance 1: fast to draw.
void draw_values(BenchArray& array, Random& random, double size) {
    const auto factor = static_cast<float>(size * std::sqrt(3.0) * 0x1p-31);
    for (std::size_t i = 0; i < array.size; i += 2) {
        const std::uint64_t two = random.bits();
        array.set(i, factor * static_cast<float>(static_cast<std::int32_t>(two)));
        if (i + 1 < array.size) array.set(i + 1, factor * static_cast<float>(static_cast<std::int32_t>(two >> 32U)));
    }
}

void make_unit(BenchArray& array, std::size_t width) {
    for (std::size_t first = 0; first < array.size; first += width) {
        float sum = 0;
        for (std::size_t i = first; i < first + width; ++i) sum += array.at(i) * array.at(i);
        const float factor = sum > 0 ? 1 / std::sqrt(sum) : 0;
        for (std::size_t i = first; i < first + width; ++i) array.set(i, factor * array.at(i));
    }
}

// Stores the array's values in the tensor, and replaces them by what the tensor's dtype keeps.
void put(BenchArray& array, Tensor& tensor) {
    if (array.size == 0) return;
    if (tensor.dtype == array.dtype()) {
        std::memcpy(tensor.bytes.data(), array.data(), tensor.bytes.size());
        return;
    }
    tensor = from_f64(array.wide(), tensor.shape, tensor.dtype);
    for (std::size_t i = 0; i < array.size; ++i) array.set(i, static_cast<float>(element(tensor, i)));
}

}  // namespace

double distance_of(const Tensor* got, const BenchArray& want) {
    constexpr double k_infinite = std::numeric_limits<double>::infinity();
    if (got == nullptr || got->count() != want.size) return k_infinite;
    const auto* bytes = got->bytes.data();
    double sum = 0;
    for (std::size_t i = 0; i < want.size; ++i)
        sum += static_cast<double>(want.at(i)) * static_cast<double>(want.at(i));
    const double size = std::sqrt(sum / static_cast<double>(std::max<std::size_t>(want.size, 1)));
    const bool narrow = want.storage == Storage::bf16;
    const Allowed allowed = narrow ? k_bf16 : k_f32;
    double errors = 0;
    double worst = 0;
    for (std::size_t i = 0; i < want.size; ++i) {
        float value = 0;
        Bf16 half{};
        switch (got->dtype) {
            case DType::f32: std::memcpy(&value, bytes + i * sizeof value, sizeof value); break;
            case DType::bf16:
                std::memcpy(&half, bytes + i * sizeof half, sizeof half);
                value = widened(half);
                break;
            default: value = static_cast<float>(element(*got, i));
        }
        const auto exact = static_cast<double>(want.at(i));
        const double error = std::fabs(static_cast<double>(value) - exact);
        if (!std::isfinite(error)) return k_infinite;
        errors += error * error;
        worst = std::max(worst, error * size / std::max(size, std::fabs(exact)));
    }
    if (worst == 0) return 0;
    const double rms = std::sqrt(errors / static_cast<double>(want.size));
    return std::max(rms / allowed.rms, worst / allowed.largest) / size;
}

Status BenchInputs::draw(std::uint64_t seed) {
    Arrays& a = *m_arrays;
    Random random(seed, 0);
    const auto width = static_cast<std::size_t>(a.dims.dk);
    for (BenchArray* keys : {&a.q, &a.k}) {
        draw_values(*keys, random, 1);
        make_unit(*keys, width);
    }
    draw_values(a.v, random, 1);
    draw_values(a.initial_state, random, 0.1);
    draw_values(a.g, random, 0.1);
    for (std::size_t i = 0; i < a.g.size; ++i) a.g.set(i, -std::fabs(a.g.at(i)));
    for (std::size_t i = 0; i < a.beta.size; ++i) a.beta.set(i, static_cast<float>(random.uniform()));
    for (const auto& [name, array] : {std::pair<std::string_view, BenchArray*>{"q", &a.q},
                                      {"k", &a.k},
                                      {"v", &a.v},
                                      {"g", &a.g},
                                      {"beta", &a.beta},
                                      {"initial_state", &a.initial_state}}) {
        for (NamedTensor& entry : a.file.tensors) {
            if (entry.name == name) put(*array, entry.tensor);
        }
    }
    a.saved = false;
    if (a.d_out.size == 0) return {};
    draw_values(a.d_out, random, 1);
    draw_values(a.d_state, random, 1);
    return {};
}

double BenchInputs::distance(const TensorFile& outputs, Pass pass, int threads) {
    Arrays& a = *m_arrays;
    const Isa isa = best_isa();
    std::vector<std::pair<std::string_view, const BenchArray*>> wanted = {{"out", &a.out},
                                                                          {"final_state", &a.final_state}};
    if (pass == Pass::backward) {
        chunk_backward(backward(threads, isa), threads, isa);
        wanted = {{"dq", &a.dq}, {"dk", &a.dk},       {"dv", &a.dv},
                  {"dg", &a.dg}, {"dbeta", &a.dbeta}, {"d_initial_state", &a.d_initial_state}};
    } else {
        fused_forward(forward(), threads, isa);
    }
    double largest = 0;
    for (const auto& [name, array] : wanted) {
        const auto found = find_gdn_tensor(outputs, name);
        largest = std::max(largest, distance_of(found ? *found : nullptr, *array));
    }
    return largest;
}

}  // namespace gdnctl::oracle
