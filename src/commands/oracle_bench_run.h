// One run of oracle bench: what is timed, and what is said of it.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands/oracle_bench.h"
#include "commands/oracle_bench_kernel.h"
#include "commands/oracle_bench_phases.h"
#include "commands/oracle_bench_rounds.h"
#include "gdnctl/core/json.h"
#include "gdnctl/oracle/gdn_bench.h"
#include "gdnctl/platform/context.h"

namespace gdnctl::commands::oracle_bench {

inline constexpr int k_sgemm_size = 2048;

struct Machine {
    std::string cpu;
    std::string compiler;
    double load = 0;
};

// One kernel of the table: its time only counts when its outputs are right.
struct Entry {
    std::string name;
    oracle::Pass pass = oracle::Pass::forward;
    Timing timing;
    double error_over_budget = 0;
    bool verified = false;
    std::string reason;   // why not
    double of_floor = 0;  // decode only: median over rounds of the time that moving the states takes, over the kernel's
    std::optional<oracle::KernelFault> fault = {};
    std::vector<PhaseRow> phases = {};
};

// A kernel to time: one of ours, or someone else's in a child.
struct Contestant {
    oracle::TimedKernel own;
    std::unique_ptr<ForeignKernel> foreign = nullptr;
    const std::string& name() const { return foreign ? foreign->name() : own.name; }
};

class Bench {
public:
    Bench(const Options& options, Context& context, int threads, oracle::Isa isa)
        : m_options(options), m_context(context), m_threads(threads), m_isa(isa) {}

    Status run();

    std::string text() const;
    std::string decode_text(const Entry& e) const;
    Json json() const;
    bool measured() const { return m_missing.empty(); }
    const std::vector<Entry>& entries() const { return m_entries; }
    // Of the first kernel that has a fault.
    ExitCode exit_code() const {
        for (const Entry& e : m_entries) {
            if (e.fault) return oracle_kernel::exit_code_of(e.fault->kind);
        }
        return right() ? ExitCode::ok : ExitCode::check_failed;
    }
    bool right() const {
        return std::all_of(m_entries.begin(), m_entries.end(), [](const Entry& e) { return e.verified; });
    }

private:
    Status add_yardsticks();
    // After the rounds: the entries, of the subjects from `first` on.
    void sum_up(const std::vector<Contestant>& kernels, std::size_t first, std::vector<oracle::GdnReport>& reports,
                const std::vector<double>& gradient_errors);
    void add_phases(const std::vector<Contestant>& kernels, oracle::BenchInputs& inputs, std::size_t first);

    Status time_kernels(const std::vector<Contestant>& kernels, oracle::BenchInputs inputs,
                        const oracle::GdnReference& reference);

    static void set_verdict(const oracle::GdnReport& report, double gradient_error, Entry& e) {
        if (e.pass == oracle::Pass::backward) {
            e.error_over_budget = gradient_error;
            e.verified = gradient_error <= oracle::k_ok_band;
            e.reason = fmt::format("a gradient is off by {:.2g} times the budget", gradient_error);
            return;
        }
        for (const auto& t : report.tensors) e.error_over_budget = std::max(e.error_over_budget, t.error_over_budget);
        e.verified = !e.fault && report.verdict == oracle::Verdict::ok;
        e.reason = e.fault ? fmt::format("{}: {}", oracle::name_of(e.fault->kind), e.fault->text) : report.reason;
    }

    std::string_view dtype() const { return m_options.dtype == DTypeChoice::bf16 ? "bf16" : "f32"; }

    double nominal_flop(oracle::Pass pass) const {
        return pass == oracle::Pass::backward ? oracle::nominal_backward_flop(m_dims)
                                              : oracle::nominal_forward_flop(m_dims);
    }

    double gigabytes_a_second(const Entry& e) const {
        return oracle::nominal_decode_bytes(m_dims) / e.timing.seconds.median * 1e-9;
    }

    Json json_of(const Entry& e) const;

    const Options& m_options;
    Context& m_context;
    int m_threads;
    oracle::Isa m_isa;
    oracle::GdnDims m_dims;
    Machine m_load;
    std::string m_missing, m_no_sgemm, m_sgemm_name;
    std::vector<std::vector<float>> m_matrices;
    double m_peak_flop = 0;
    std::size_t m_floor = 0;  // the subject that moves the states
    std::uint64_t m_checksum = 0;
    std::vector<Subject> m_subjects;  // multiply-adds, sgemm if there is one, the kernels
    Timing m_peak, m_sgemm;
    std::vector<Entry> m_entries;
    // With --phases.
    std::vector<PhaseRuns> m_phases;  // of each kernel
    std::size_t m_memory = 0;         // the subject that reads and writes memory
    double m_memory_bytes = 0;
    Ceilings m_ceilings;
};

}  // namespace gdnctl::commands::oracle_bench
