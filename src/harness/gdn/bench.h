// oracle bench for gdn: kernels timed in turn with the matrix product, bare multiply-adds and moving the states.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/json.h"
#include "harness/gdn/kernel.h"
#include "harness/gdn/read.h"
#include "harness/timing.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/kernels/decode32.h"
#include "platform/clock.h"
#include "platform/context.h"

namespace gdnctl::harness {

// One run of oracle bench: what is timed, and its results.

struct GdnBenchRequest {
    TruthOf truth_of;
    std::string op;
    std::optional<std::string> kernel;  // none: one of ours for each pass
    std::vector<std::string> peers;
    oracle::GdnDims dims;
    std::string shape;  // the same for people
    oracle::Storage storage = oracle::Storage::f32;
    std::uint64_t seed = 1;
    int threads = 1;
    std::int64_t rounds = 8, runs = 5;
    oracle::Isa isa = oracle::best_isa();
    Limits limits;
};

// One kernel of the table: its time only counts when its outputs are right.
struct BenchEntry {
    std::string name;
    bool peer = false;
    std::string_view timed = {};
    oracle::Pass pass = oracle::Pass::forward;
    Timing timing;
    double error_over_budget = 0;
    bool verified = false;
    std::string reason;   // why not
    double floor_s = 0;   // a shorter time is impossible; third-party kernels only
    std::string network;  // what blocked a third-party kernel's network access
    // Decode only: median over rounds of the time that moving the states takes on as many threads as a step uses, over
    // the kernel's; that number; and the same of the multiply-adds that no step can do without, at their peak.
    double of_floor = 0;
    int floor_threads = 0;
    double of_arithmetic = 0;
    std::optional<oracle::KernelFault> fault = {};
};

// One pass to time: of a built-in kernel, or of another one in a child process.
struct Contestant {
    std::string name;
    oracle::Pass pass = oracle::Pass::forward;
    bool peer = false;
    std::string_view timed = "in_process";  // what a time is of
    oracle::TimedKernel own = {};
    std::unique_ptr<TimedPass> foreign = nullptr;
    // Of the first run.
    std::optional<std::uint64_t> outputs = {};
    oracle::GdnReport report = {};
    double gradient_error = 0;  // of our own backward
    double floor_s = 0;         // of others: less is impossible
};

// A kernel named by an option: a built-in one, or a file or command.
struct Named {
    std::string name;
    bool peer = false;
    oracle::TimedKernel own = {};
    std::shared_ptr<Kernel> foreign = nullptr;
};

class GdnBench {
public:
    // `request` and `context` must outlive it.
    GdnBench(const GdnBenchRequest& request, Context& context) : m_request(request), m_context(context) {}

    Status run();

    std::string text() const;
    std::string decode_text(const BenchEntry& e) const;
    Json json() const;
    bool measured() const { return m_missing.empty(); }
    // Of the first kernel that has a fault.
    ExitCode exit_code() const {
        for (const BenchEntry& e : m_entries) {
            if (e.fault) return exit_code_of(e.fault->kind);
        }
        return right() ? ExitCode::ok : ExitCode::check_failed;
    }
    bool right() const {
        return std::all_of(m_entries.begin(), m_entries.end(), [](const BenchEntry& e) { return e.verified; });
    }

private:
    Status add_yardsticks();
    Result<std::vector<Named>> find_kernels() const;
    // Their passes, in the order of the table.
    Result<std::vector<Contestant>> contestants(std::vector<Named>& kernels, const Task& task) const;
    Subject subject_of(Contestant& c, oracle::BenchInputs& inputs, const oracle::GdnReference& reference);
    Status time_kernels(std::vector<Contestant>& kernels, oracle::BenchInputs& inputs,
                        const oracle::GdnReference& reference);
    // After the rounds: whether others are faster than can be.
    void check_floors(std::vector<Contestant>& kernels, std::size_t first, oracle::BenchInputs& inputs);
    // The entries, of the subjects from `first` on.
    void sum_up(const std::vector<Contestant>& kernels, std::size_t first);

    static void set_verdict(const Contestant& c, BenchEntry& e);

    std::string_view dtype() const { return m_request.storage == oracle::Storage::bf16 ? "bf16" : "f32"; }

    double nominal_flop(oracle::Pass pass) const {
        switch (pass) {
            case oracle::Pass::backward: return oracle::nominal_backward_flop(m_request.dims);
            case oracle::Pass::decode: return oracle::nominal_decode_flop(m_request.dims);
            case oracle::Pass::forward: break;
        }
        return oracle::nominal_forward_flop(m_request.dims);
    }

    double gigabytes_a_second(const BenchEntry& e) const {
        return oracle::nominal_decode_bytes(m_request.dims) / e.timing.seconds.median * 1e-9;
    }

    std::string notes() const;

    double step_us(const BenchEntry& e) const {
        return e.timing.seconds.median * 1e6 / static_cast<double>(std::max<std::int64_t>(m_request.dims.T, 1));
    }

    // That the states are moved on to compare a decoding kernel with. How many another's uses is not known: all.
    int floor_threads(const Contestant& c) const {
        return c.foreign ? m_request.threads
                         : oracle::decode_threads(m_request.dims, static_cast<std::size_t>(m_request.dims.B),
                                                  m_request.threads);
    }

    Json json_of(const BenchEntry& e) const;
    // What was measured of a pass, of --kernel or of ours; nullptr: nothing.
    const BenchEntry* measured_of(oracle::Pass pass) const;
    std::string kernels() const { return m_request.kernel.value_or("our kernels"); }

    const GdnBenchRequest& m_request;
    Context& m_context;
    Machine m_load;
    std::string m_missing, m_no_sgemm, m_sgemm_name;
    double m_peak_flop = 0;
    // The subjects that move the states, by their threads, each before one of bare multiply-adds on as many.
    std::map<int, std::size_t> m_floors;
    std::uint64_t m_checksum = 0;
    std::vector<Subject> m_subjects;  // multiply-adds, sgemm if there is one, the kernels
    Timing m_peak, m_sgemm;
    std::vector<BenchEntry> m_entries;
};

}  // namespace gdnctl::harness
