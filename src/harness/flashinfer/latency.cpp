#include "harness/flashinfer/latency.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "oracle/gdn/kernels/forward32.h"
#include "oracle/gdn/under_test/call.h"
#include "platform/signals.h"

namespace gdnctl::harness::flashinfer {

namespace {

using harness::Subject;

struct Array {
    std::vector<float> values;

    Array() = default;
    explicit Array(std::size_t count) : values(count) {}
    explicit Array(const oracle::Tensor& tensor) : values(tensor.count()) {
        std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    }
};

}  // namespace

Result<Latencies> measure(Subject& solution, Subject& reference, const TrialOptions& options,
                          const std::function<void()>& chill, const std::function<bool()>& failed, Clock& clock,
                          std::stop_token stop) {
    Latencies total;
    Subject* const subjects[] = {&solution, &reference};
    for (std::int64_t trial = 0; trial < options.trials; ++trial) {
        for (Subject* s : subjects) s->seconds.clear();
        for (std::int64_t i = 0; i < options.warmup + options.iterations; ++i) {
            for (Subject* s : subjects) {
                if (stop.stop_requested()) return tl::unexpected(stopped_error());
                if (s->before) GDNCTL_TRY(s->before());
                chill();
                const auto start = clock.monotonic();
                s->run();
                const double seconds = std::chrono::duration<double>(clock.monotonic() - start).count();
                if (s->after) GDNCTL_TRY(s->after());
                if (failed()) return Latencies{};
                if (i >= options.warmup) s->seconds.push_back(seconds);
            }
        }
        total.solution_ms += oracle::spread_of(solution.seconds).median * 1e3;
        total.reference_ms += oracle::spread_of(reference.seconds).median * 1e3;
    }
    const auto trials = static_cast<double>(options.trials);
    return Latencies{total.solution_ms / trials, total.reference_ms / trials};
}

std::function<void()> make_chill() {
    constexpr long k_usual = 2L << 20U;
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const auto size = static_cast<std::size_t>(2 * std::max(cache, k_usual));
    return [bytes = std::make_shared<std::vector<unsigned char>>(size), value = 0]() mutable {
        std::fill(bytes->begin(), bytes->end(), static_cast<unsigned char>(++value));
    };
}

struct OwnKernel::Arrays {
    const oracle::GdnReference* reference = nullptr;
    std::string name;
    int threads = 1;
    oracle::KernelCall call;
    Array q, k, v, g, beta, initial_state, out, final_state;

    oracle::Forward32 forward() {
        oracle::Forward32 f;
        f.dims = call.dims;
        f.sequences = reference->problem.sequences;
        f.head_map = reference->contract.value.head_map;
        f.q = q.values.data();
        f.k = k.values.data();
        f.v = v.values.data();
        f.g = g.values.data();
        f.beta = beta.values.data();
        f.initial_state = initial_state.values.empty() ? nullptr : initial_state.values.data();
        f.out = out.values.data();
        f.final_state = final_state.values.data();
        f.scale = static_cast<float>(call.scale);
        return f;
    }

    void run() {
        const oracle::Isa isa = oracle::best_isa();
        if (name == "builtin:chunk") {
            const int chunk = reference->contract.value.chunk;
            oracle::chunk_forward(forward(), chunk, oracle::GateSum::fp64_with_resets, threads, isa);
        } else {
            oracle::fused_forward(forward(), threads, isa);
        }
    }
};

OwnKernel::OwnKernel() : m_arrays(std::make_unique<Arrays>()) {}
OwnKernel::~OwnKernel() = default;

Result<std::unique_ptr<OwnKernel>> OwnKernel::make(const std::string& name, const oracle::GdnReference& reference,
                                                   int threads) {
    if (name != "builtin:fused" && name != "builtin:chunk") {
        return fail(ErrorKind::usage, fmt::format("kernel '{}' cannot be timed, but a trace needs a time", name),
                    "use one of lib:PATH, src:FILE.c, builtin:fused, builtin:chunk");
    }
    auto kernel = std::make_unique<OwnKernel>();
    Arrays& a = *kernel->m_arrays;
    a.reference = &reference;
    a.name = name;
    a.threads = threads;
    a.call = make_call(reference.problem, reference.contract.value, false);
    a.q = Array(a.call.q);
    a.k = Array(a.call.k);
    a.v = Array(a.call.v);
    a.g = Array(a.call.g);
    a.beta = Array(a.call.beta);
    if (a.call.initial_state) a.initial_state = Array(*a.call.initial_state);
    const oracle::GdnDims& d = a.call.dims;
    a.out = Array(static_cast<std::size_t>(d.B * d.T * d.Hv * d.dv));
    a.final_state = Array(static_cast<std::size_t>(a.call.sequences * d.Hv * d.dk * d.dv));
    return kernel;
}

harness::Subject OwnKernel::subject() {
    return {m_arrays->name, 0, [a = m_arrays.get()] { a->run(); }, {}, {}};
}

}  // namespace gdnctl::harness::flashinfer
