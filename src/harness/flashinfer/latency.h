// FlashInfer-Bench's rule of speed, on a processor: inputs outside the nearest caches, the median of a trial, the mean
// over trials.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "core/result.h"
#include "harness/timing.h"
#include "oracle/gdn/compare/compare.h"
#include "platform/clock.h"

namespace gdnctl::harness::flashinfer {

struct TrialOptions {
    std::int64_t warmup = 10, iterations = 50, trials = 3;
};

struct Latencies {
    double solution_ms = 0, reference_ms = 0;
};

// Runs the two in turn: `warmup` untimed and `iterations` timed runs a trial. `chill` is called before each run, and
// `failed` after it; once that says so, nothing more is run and the result means nothing. Error: interrupted, or what a
// subject's before or after says.
Result<Latencies> measure(harness::Subject& solution, harness::Subject& reference, const TrialOptions& options,
                          const std::function<void()>& chill, const std::function<bool()>& failed, Clock& clock,
                          std::stop_token stop);

// Overwrites memory of twice the size of the second-level cache.
std::function<void()> make_chill();

// Our own kernels on arrays of their own; nothing but the kernel is timed.
class OwnKernel {
public:
    // builtin:fused or builtin:chunk. Usage error for others: their other work would be timed as well.
    static Result<std::unique_ptr<OwnKernel>> make(const std::string& name, const oracle::GdnReference& reference,
                                                   int threads);
    harness::Subject subject();  // this object and the reference must outlive it

    OwnKernel();
    OwnKernel(const OwnKernel&) = delete;
    OwnKernel& operator=(const OwnKernel&) = delete;
    ~OwnKernel();

private:
    struct Arrays;
    std::unique_ptr<Arrays> m_arrays;
};

}  // namespace gdnctl::harness::flashinfer
