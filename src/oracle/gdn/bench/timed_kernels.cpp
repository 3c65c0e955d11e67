// Our kernels under the names of oracle bench, and the work for their rates.
#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/bench/bench.h"

namespace gdnctl::oracle {

namespace {

struct TimedRow {
    std::string_view name;
    Pass pass;
    void (*run)(BenchInputs&, int, Isa);
};

// The chunk length for the nominal work.
constexpr int k_timed_chunk = 32;

constexpr TimedRow k_kernels[] = {
    {"builtin:fused", Pass::forward,
     [](BenchInputs& in, int threads, Isa isa) { fused_forward(in.forward(), threads, isa); }},
    {"builtin:chunk", Pass::forward,
     [](BenchInputs& in, int threads, Isa isa) {
         chunk_forward(in.forward(), k_timed_chunk, GateSum::fp64_with_resets, threads, isa);
     }},
    {"builtin:saving", Pass::forward,
     [](BenchInputs& in, int threads, Isa isa) {
         const Backward32 b = in.backward(threads, isa);
         saving_forward(b.inputs, b.saves, threads, isa);
     }},
    {"builtin:backward", Pass::backward,
     [](BenchInputs& in, int threads, Isa isa) { chunk_backward(in.backward(threads, isa), threads, isa); }},
    {"builtin:decode", Pass::decode, [](BenchInputs& in, int threads, Isa isa) { in.decode(threads, isa, true); }},
    {"builtin:decode-in-place", Pass::decode,
     [](BenchInputs& in, int threads, Isa isa) { in.decode(threads, isa, false); }},
};

}  // namespace

std::string_view name_of(Pass pass) {
    switch (pass) {
        case Pass::forward: return "forward";
        case Pass::backward: return "backward";
        case Pass::decode: return "decode";
    }
    return "";
}

double nominal_backward_flop(const GdnDims& d) {
    constexpr double k_chunk = 32;
    const auto dk = static_cast<double>(d.dk);
    const auto dv = static_cast<double>(d.dv);
    return (14 * dk * dv + 10 * k_chunk * dk + 8 * k_chunk * dv) * static_cast<double>(d.B * d.T * d.Hv);
}

double least_flop(const GdnDims& d, std::int64_t tokens, Pass pass, bool initial_state) {
    const double products = !initial_state ? 1 : pass == Pass::backward ? 6 : 3;
    return 2 * products * static_cast<double>(tokens) * static_cast<double>(d.Hv * d.dk * d.dv);
}

double nominal_decode_flop(const GdnDims& d) {
    return 7.0 * static_cast<double>(d.B * d.T) * static_cast<double>(d.Hv * d.dk * d.dv);
}

double nominal_decode_bytes(const GdnDims& d) {
    return 2.0 * sizeof(float) * static_cast<double>(d.B * d.T) * static_cast<double>(d.Hv * d.dk * d.dv);
}

double nominal_forward_flop(const GdnDims& d) {
    constexpr double k_chunk = 32;
    const auto dk = static_cast<double>(d.dk);
    const auto dv = static_cast<double>(d.dv);
    const double ratio = static_cast<double>(d.Hv) / static_cast<double>(d.Hk);
    const double per_token = 6 * dk * dv + 4 * k_chunk * dk / ratio + 3 * k_chunk * dv;
    return per_token * static_cast<double>(d.B * d.T * d.Hv);
}

std::vector<std::string> timed_kernel_names() {
    std::vector<std::string> names;
    for (const TimedRow& row : k_kernels) names.emplace_back(row.name);
    return names;
}

Result<TimedKernel> find_timed_kernel(std::string_view spelling) {
    for (const TimedRow& row : k_kernels) {
        if (row.name == spelling) return TimedKernel{std::string(spelling), row.pass, row.run};
    }
    const auto names = timed_kernel_names();
    const auto near = text::nearest(spelling, names);
    return fail(ErrorKind::usage, fmt::format("kernel '{}' cannot be timed", spelling),
                near ? fmt::format("did you mean '{}'?", *near) : fmt::format("known: {}", text::join(names, ", ")));
}

Spread spread_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return {values.front(), (values[(n - 1) / 2] + values[n / 2]) / 2, values.back()};
}

}  // namespace gdnctl::oracle
