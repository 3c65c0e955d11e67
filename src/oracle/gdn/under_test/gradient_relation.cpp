// Compares gradients with differences of the kernel's own forward.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/under_test/checker.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle {

namespace {

struct Input {
    const char* gradient;
    const char* name;
    Reals GdnProblem::* values;
};

constexpr std::array k_inputs = {
    Input{"dq", "q", &GdnProblem::q},          Input{"dk", "k", &GdnProblem::k},
    Input{"dv", "v", &GdnProblem::v},          Input{"dg", "g", &GdnProblem::gate},
    Input{"dbeta", "beta", &GdnProblem::beta}, Input{"d_initial_state", "initial_state", &GdnProblem::initial_state},
};

double inner_product(const Reals& a, const Reals& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// A step of every element by that fraction of their size, with random signs. A few gates of -200 among weak ones must
// not make the step large: it would turn the weak ones into growth.
Reals random_step(const Reals& values, double fraction, std::uint64_t seed, std::uint64_t stream) {
    Reals sizes(values.size());
    std::transform(values.begin(), values.end(), sizes.begin(), [](double x) { return std::fabs(x); });
    const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
    std::nth_element(sizes.begin(), middle, sizes.end());
    const double rms = std::sqrt(inner_product(values, values) / static_cast<double>(values.size()));
    const double size = fraction * (values.empty() || *middle == 0 ? rms : std::min(rms, 2 * *middle));
    Random random(seed, stream);
    Reals step(values.size());
    for (double& x : step) x = random.uniform() < 0.5 ? -size : size;
    return step;
}

}  // namespace

// For L = <d_out, out> + <d_final_state, final_state>, the gradient along a random direction is the derivative of L
// along it. Four calls of the forward give it to fourth order.
Status Checker::gradient() {
    // Differences lose two digits of fp32, and the fourth order is accurate to four. Coarser arithmetic loses as much
    // of a step, so its steps are longer.
    const double longer = m_widening > 1000 ? 4 : m_widening > 100 ? 2 : 1;
    result.tolerance = 2e-4 * m_widening / (m_widening > 1000 ? 4 : 1);
    const GdnProblem p = inputs(70);
    const GdnCotangents cotangents = random_cotangents(p, m_seed);
    TensorFile file = file_of(p);
    GDNCTL_TRY_ASSIGN(const auto contract, contract_of(file));
    for (NamedTensor& entry : cotangents_file(p, contract.value, cotangents).tensors) {
        file.tensors.push_back(std::move(entry));
    }
    GDNCTL_TRY_ASSIGN(const auto passes, passes_of(m_kernel));
    const bool own_pass = std::find(passes.begin(), passes.end(), KernelPass::backward) != passes.end();
    // A program may return gradients together with its outputs.
    const KernelPass pass = own_pass ? KernelPass::backward : KernelPass::forward;
    GDNCTL_TRY_ASSIGN(KernelRun done, run_pass(m_kernel, pass, file, contract, m_threads));
    result.fault = std::move(done.fault);
    if (failed()) return {};
    result.applies = false;
    for (std::size_t i = 0; i < k_inputs.size(); ++i) {
        const Input& input = k_inputs[i];
        GDNCTL_TRY_ASSIGN(const Tensor* gradient, find_gdn_tensor(done.outputs, input.gradient));
        if (gradient == nullptr) continue;
        result.applies = true;
        const Reals& values = p.*input.values;
        if (gradient->count() != values.size()) {
            result.fault = KernelFault{KernelFaultKind::wrong_shape,
                                       fmt::format("{} and {} have different sizes", input.gradient, input.name),
                                       {}};
            return {};
        }
        const Reals step = random_step(values, 0.05 * longer, m_seed, i);
        double difference = 0;
        for (const auto& [half_steps, weight] : {std::pair{1, 4.0 / 3}, {-1, -4.0 / 3}, {2, -1.0 / 6}, {-2, 1.0 / 6}}) {
            GdnProblem moved = p;
            for (std::size_t j = 0; j < step.size(); ++j) (moved.*input.values)[j] += half_steps * step[j] / 2;
            GDNCTL_TRY_ASSIGN(const Outcome outcome, run(moved));
            if (failed()) return {};
            difference += weight * (inner_product(cotangents.d_out, outcome.out) +
                                    inner_product(cotangents.d_final_state, outcome.state));
        }
        note_derivative(to_f64(*gradient), step, difference, input.gradient);
    }
    return {};
}

void Checker::note_derivative(const Reals& gradient, const Reals& step, double difference, const char* name) {
    double size = 0;
    for (std::size_t i = 0; i < step.size(); ++i) size += std::pow(gradient[i] * step[i], 2);
    const double derivative = inner_product(gradient, step);
    const double ratio = std::fabs(derivative - difference) / std::sqrt(size);
    const double found = std::isfinite(ratio) ? ratio : HUGE_VAL;
    if (found <= result.error || derivative == difference) return;
    result.error = found;
    result.worst = fmt::format("{} gives {:.6g} along a random direction, differences of the forward {:.6g}", name,
                               derivative, difference);
}

}  // namespace gdnctl::oracle
