#include "commands/oracle_bench.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle_bench_kernel.h"
#include "commands/oracle_bench_rounds.h"
#include "commands/oracle_files.h"
#include "commands/oracle_gdn.h"
#include "gdnctl/core/json.h"
#include "gdnctl/core/log.h"
#include "gdnctl/core/text.h"
#include "gdnctl/oracle/gdn_bench.h"
#include "gdnctl/platform/blas.h"
#include "gdnctl/platform/terminal.h"

namespace gdnctl::commands::oracle_bench {

namespace {

constexpr std::array<cli::Choice<IsaChoice>, 4> k_isas = {{
    {"best", IsaChoice::best, "the widest that this processor has"},
    {"scalar", IsaChoice::scalar, "what every processor has"},
    {"avx2", IsaChoice::avx2, "AVX2 and FMA; OpenBLAS is held to its Haswell kernels"},
    {"avx512", IsaChoice::avx512, "AVX-512"},
}};

constexpr int k_sgemm_size = 2048;
constexpr std::size_t k_peak_steps = 2'000'000;
constexpr std::string_view k_not_forward = "this version's kernels compute the forward pass";

oracle::Isa isa_of(IsaChoice choice) {
    switch (choice) {
        case IsaChoice::scalar: return oracle::Isa::scalar;
        case IsaChoice::avx2: return oracle::Isa::avx2;
        case IsaChoice::avx512: return oracle::Isa::avx512;
        case IsaChoice::best: break;
    }
    return oracle::best_isa();
}

struct Machine {
    std::string cpu;
    std::string compiler;
    double load = 0;
};

Machine this_machine() {
    Machine m{"unknown", "", 0};
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);) {
        if (!line.starts_with("model name")) continue;
        m.cpu = std::string(text::trim(std::string_view(line).substr(line.find(':') + 1)));
        break;
    }
#if defined(__clang__)
    m.compiler = fmt::format("clang {}", __clang_version__);
#else
    m.compiler = fmt::format("g++ {}", __VERSION__);
#endif
    double load[1] = {};
    if (getloadavg(load, 1) == 1) m.load = load[0];
    return m;
}

// One kernel of the table: its time only counts when its outputs are right.
struct Entry {
    std::string name;
    Timing timing;
    double error_over_budget = 0;
    bool verified = false;
    std::string reason;  // why not
    std::optional<oracle::KernelFault> fault = {};
};

// A kernel to time: one of ours, or someone else's in a child.
struct Contestant {
    oracle::TimedKernel own;
    std::unique_ptr<ForeignKernel> foreign = nullptr;
    const std::string& name() const { return foreign ? foreign->name() : own.name; }
};

class Bench {
public:
    Bench(const Options& options, Context& context, int threads)
        : m_options(options), m_context(context), m_threads(threads), m_isa(isa_of(options.isa)) {}

    Status run() {
        GDNCTL_TRY_ASSIGN(m_dims, oracle_gdn::parse_shape(m_options.shape));
        GDNCTL_TRY(oracle_files::check_memory(m_dims, static_cast<std::size_t>(m_dims.B)));
        std::vector<std::string> names = {m_options.kernel};
        names.insert(names.end(), m_options.peers.begin(), m_options.peers.end());
        std::vector<Contestant> kernels;
        for (const std::string& name : names) {
            Contestant& c = kernels.emplace_back();
            if (name.starts_with("builtin:")) {
                GDNCTL_TRY_ASSIGN(c.own, oracle::find_timed_kernel(name));
            } else {
                GDNCTL_TRY_ASSIGN(c.foreign,
                                  ForeignKernel::open(name, oracle_kernel::limits_of(m_options.limits), m_context));
            }
        }
        if (!oracle::has_isa(m_isa)) {
            m_missing = fmt::format("this processor has no {}", oracle::name_of(m_isa));
            return {};
        }
        m_load = this_machine();
        GDNCTL_TRY(add_yardsticks());
        log::info("generating inputs and the exact result");
        GDNCTL_TRY_ASSIGN(const auto inputs,
                          oracle::BenchInputs::make(m_dims, static_cast<std::uint64_t>(m_options.seed)));
        GDNCTL_TRY_ASSIGN(const auto reference, inputs.reference(m_threads));
        m_checksum = inputs.checksum();
        GDNCTL_TRY(time_kernels(kernels, inputs, reference));
        return {};
    }

    std::string text() const;
    Json json() const;
    bool measured() const { return m_missing.empty(); }
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
    Status add_yardsticks() {
        m_subjects.push_back({"multiply-adds",
                              0,
                              [this] { m_peak_flop = oracle::run_multiply_adds(k_peak_steps, m_threads, m_isa); },
                              {},
                              {}});
        auto sgemm = Sgemm::open(m_isa == oracle::Isa::avx2     ? "Haswell"
                                 : m_isa == oracle::Isa::scalar ? "Nehalem"
                                                                : "",
                                 m_threads);
        if (!sgemm) {
            m_no_sgemm = sgemm.error().message;
            return {};
        }
        m_sgemm_name = sgemm->description();
        constexpr std::size_t size = std::size_t{k_sgemm_size} * k_sgemm_size;
        m_matrices.assign(3, std::vector<float>(size, 1.0F));
        m_subjects.push_back({"sgemm",
                              2.0 * static_cast<double>(size) * k_sgemm_size,
                              [this, sgemm = *sgemm] {
                                  sgemm.multiply(k_sgemm_size, m_matrices[0].data(), m_matrices[1].data(),
                                                 m_matrices[2].data());
                              },
                              {},
                              {}});
        return {};
    }

    Status time_kernels(const std::vector<Contestant>& kernels, oracle::BenchInputs inputs,
                        const oracle::GdnReference& reference) {
        const std::size_t first = m_subjects.size();
        std::vector<std::optional<std::uint64_t>> seen(kernels.size());
        std::vector<oracle::GdnReport> reports(kernels.size());
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            const double flop = oracle::nominal_forward_flop(m_dims);
            if (kernels[i].foreign) {
                GDNCTL_TRY_ASSIGN(auto subject, kernels[i].foreign->subject(reference, m_threads, flop));
                m_subjects.push_back(std::move(subject));
                continue;
            }
            const auto run = [&, i] { kernels[i].own.run(inputs.forward(), m_threads, m_isa); };
            // The outputs of the timed runs are what is judged, the first time in full and then by their bits. Poisoned
            // before each round, so that a kernel cannot live on what an earlier one left.
            const auto check = [&, i]() -> Status {
                const std::uint64_t sum = inputs.outputs_checksum();
                if (!seen[i]) {
                    seen[i] = sum;
                    GDNCTL_TRY_ASSIGN(reports[i], oracle::judge(reference, inputs.outputs(reference), {}));
                } else if (*seen[i] != sum) {
                    return fail(ErrorKind::check_failed,
                                fmt::format("{}: the outputs of two rounds differ", kernels[i].name()));
                }
                inputs.poison_outputs();
                return {};
            };
            m_subjects.push_back({kernels[i].name(), flop, run, check, {}});
        }
        inputs.poison_outputs();
        GDNCTL_TRY(run_rounds(m_subjects, m_options.rounds, m_options.runs, m_context.clock, m_context.stop));
        m_subjects[0].flop = m_peak_flop;
        const Subject* sgemm = m_no_sgemm.empty() ? &m_subjects[1] : nullptr;
        m_peak = timing_of(m_subjects[0], nullptr, m_subjects[0]);
        if (sgemm != nullptr) m_sgemm = timing_of(*sgemm, nullptr, m_subjects[0]);
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            Entry e{kernels[i].name(), timing_of(m_subjects[first + i], sgemm, m_subjects[0]), 0, false, {}};
            if (kernels[i].foreign) {
                reports[i] = kernels[i].foreign->report();
                e.fault = kernels[i].foreign->fault();
            }
            for (const auto& t : reports[i].tensors)
                e.error_over_budget = std::max(e.error_over_budget, t.error_over_budget);
            e.verified = !e.fault && reports[i].verdict == oracle::Verdict::ok;
            e.reason =
                e.fault ? fmt::format("{}: {}", oracle::name_of(e.fault->kind), e.fault->text) : reports[i].reason;
            m_entries.push_back(std::move(e));
        }
        return {};
    }

    static Json json_of(const Entry& e) {
        if (!e.verified) {
            return {{"verified", false},
                    {"reason", e.reason},
                    {"error_over_budget", e.error_over_budget},
                    {"fault", oracle_kernel::fault_json(e.fault)}};
        }
        const Timing& t = e.timing;
        return {{"median_ms", t.seconds.median * 1e3},
                {"min_ms", t.seconds.min * 1e3},
                {"max_ms", t.seconds.max * 1e3},
                {"gflops", t.gflops},
                {"sgemm_fraction", t.of_sgemm ? Json(*t.of_sgemm) : Json(nullptr)},
                {"fma_peak_fraction", t.of_peak},
                {"verified", true},
                {"error_over_budget", e.error_over_budget},
                {"noisy", t.noisy}};
    }

    const Options& m_options;
    Context& m_context;
    int m_threads;
    oracle::Isa m_isa;
    oracle::GdnDims m_dims;
    Machine m_load;
    std::string m_missing, m_no_sgemm, m_sgemm_name;
    std::vector<std::vector<float>> m_matrices;
    double m_peak_flop = 0;
    std::uint64_t m_checksum = 0;
    std::vector<Subject> m_subjects;  // multiply-adds, sgemm if there is one, the kernels
    Timing m_peak, m_sgemm;
    std::vector<Entry> m_entries;
};

std::string Bench::text() const {
    if (!measured()) return fmt::format("forward: not measured ({})\n", m_missing);
    std::string out = fmt::format("forward of B,Hk,Hv,T,dk,dv = {}, f32, {:.3g} GFLOP nominal, inputs {:016x}\n",
                                  m_options.shape, oracle::nominal_forward_flop(m_dims) * 1e-9, m_checksum);
    out += fmt::format("{}, {} thread{}, {}, {}, load {:.2f}\n", m_load.cpu, m_threads, m_threads == 1 ? "" : "s",
                       oracle::name_of(m_isa), m_load.compiler, m_load.load);
    out += fmt::format("{:<22}{:>10}{:>11}{:>10}{:>10}{:>9}{:>9}  {}\n", "", "min ms", "median ms", "max ms", "GFLOP/s",
                       "x sgemm", "x peak", "verified");
    for (const Entry& e : m_entries) {
        // A long name has a line of its own.
        const std::string name = e.name.size() < 22 ? e.name : e.name + "\n" + std::string(22, ' ');
        if (!e.verified) {
            out += fmt::format("{:<22}no time, because the result is wrong: {}\n", name, e.reason);
            if (e.fault) out += oracle_kernel::quoted_output(*e.fault);
            continue;
        }
        const Timing& t = e.timing;
        out += fmt::format("{:<22}{:>10.2f}{:>11.2f}{:>10.2f}{:>10.1f}{:>9}{:>9.2f}  {:.2g} x budget\n", name,
                           t.seconds.min * 1e3, t.seconds.median * 1e3, t.seconds.max * 1e3, t.gflops,
                           t.of_sgemm ? fmt::format("{:.2f}", *t.of_sgemm) : "-", t.of_peak, e.error_over_budget);
    }
    out += m_no_sgemm.empty()
               ? fmt::format("sgemm: {:.1f} GFLOP/s, n = {}, {}\n", m_sgemm.gflops, k_sgemm_size, m_sgemm_name)
               : fmt::format("sgemm: not measured ({})\n", m_no_sgemm);
    out += fmt::format("multiply-add peak: {:.1f} GFLOP/s\nbackward, decode: not measured ({})\n", m_peak.gflops,
                       k_not_forward);
    for (std::size_t i = 1; i < m_entries.size(); ++i) {
        if (!m_entries[0].verified || !m_entries[i].verified) continue;
        out += fmt::format("{} takes {:.2f} times as long as {}\n", m_entries[i].name,
                           m_entries[i].timing.seconds.median / m_entries[0].timing.seconds.median, m_entries[0].name);
    }
    const bool noisy = std::any_of(m_entries.begin(), m_entries.end(), [](const Entry& e) { return e.timing.noisy; });
    if (noisy) out += "noisy: a median is beyond 1.35 times its minimum; compare ratios, not times\n";
    return out;
}

Json Bench::json() const {
    Json report = {{"schema", "gdnctl.oracle-bench/1"}, {"op", m_options.op}, {"kernel", m_options.kernel}};
    report["forward"] = m_entries.empty() ? Json(nullptr) : json_of(m_entries[0]);
    report["backward"] = nullptr;
    report["decode"] = nullptr;
    report["not_measured"] = {{"backward", k_not_forward}, {"decode", k_not_forward}};
    if (!m_missing.empty()) report["not_measured"]["forward"] = m_missing;
    if (!m_no_sgemm.empty()) report["not_measured"]["sgemm"] = m_no_sgemm;
    report["peers"] = Json::array();
    for (std::size_t i = 1; i < m_entries.size(); ++i) {
        report["peers"].push_back({{"name", m_entries[i].name}, {"forward", json_of(m_entries[i])}});
    }
    report["sgemm"] = nullptr;
    if (m_no_sgemm.empty() && !m_entries.empty()) {
        report["sgemm"] = {{"gflops", m_sgemm.gflops}, {"size", k_sgemm_size}, {"library", m_sgemm_name}};
    }
    report["machine"] = {
        {"cpu", m_load.cpu},           {"isa", oracle::name_of(m_isa)},
        {"threads", m_threads},        {"compiler", m_load.compiler},
        {"load_average", m_load.load}, {"fma_peak_gflops", m_entries.empty() ? Json(nullptr) : Json(m_peak.gflops)}};
    report["shape"] = {{"B", m_dims.B}, {"Hk", m_dims.Hk}, {"Hv", m_dims.Hv},
                       {"T", m_dims.T}, {"dk", m_dims.dk}, {"dv", m_dims.dv}};
    report["nominal_gflop"] = oracle::nominal_forward_flop(m_dims) * 1e-9;
    report["inputs_checksum"] = fmt::format("{:016x}", m_checksum);
    report["rounds"] = m_options.rounds;
    report["runs_per_round"] = m_options.runs;
    return report;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Times a kernel and its peers in turn, round after round, beside OpenBLAS' matrix product and bare "
        "multiply-adds "
        "on the same threads. Rates count the nominal work of the chunked form, whatever a kernel executes. The "
        "outputs "
        "of the timed runs are judged: a wrong result has no time. Without libopenblas sgemm is not measured.");
    oracle_gdn::describe_op(args, options.op);
    static const std::string k_kernel_help =
        "kernel to time: " + text::join(oracle::timed_kernel_names(), ", ") + ", lib:PATH, src:FILE.c";
    args.option(options.kernel, {.names = "--kernel", .value = "KERNEL", .help = k_kernel_help});
    args.option(options.peers,
                {.names = "--peer", .value = "KERNEL", .help = "another kernel to time in the same rounds"});
    args.option(options.shape, {.names = "--shape", .value = "B,Hk,Hv,T,dk,dv", .help = "shape of the inputs"});
    args.option(options.seed, {.names = "--seed", .value = "N", .help = "seed of the inputs"});
    oracle_gdn::describe_threads(args, options.threads);
    args.option(options.isa, std::span<const cli::Choice<IsaChoice>>(k_isas),
                {.names = "--isa", .value = "ISA", .help = "instruction set to use"});
    args.option(options.rounds, {.names = "--rounds", .value = "N", .help = "rounds; times are over these"});
    args.option(options.runs, {.names = "--runs", .value = "N", .help = "runs a round, of which the least counts"});
    oracle_kernel::describe_limits(args, options.limits);
    args.check([&options]() -> Status {
        if (options.rounds < 1 || options.runs < 1)
            return fail(ErrorKind::usage, "--rounds and --runs must be at least 1");
        if (options.seed < 0) return fail(ErrorKind::usage, "--seed must not be negative");
        return {};
    });
    args.example("gdnctl oracle bench gdn", "the fused forward at the shape of docs/benchmarks.md");
    args.example("gdnctl oracle bench gdn --shape 1,4,8,8192,64,64 --threads 1 --isa avx2 --json", "for a program");
    args.example("gdnctl oracle bench gdn --kernel src:kernel.c --peer builtin:fused", "a kernel of your own");
    args.exit_code(1, "a timed kernel is wrong, its outputs differ between rounds, or it crashed");
    args.exit_code(3, "this processor has no such instruction set");
    args.exit_code(9, "not enough memory; a source does not compile, or a library is no kernel");
    args.exit_code(124, "a kernel met --time-limit");
    args.see_also("oracle verify");
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    Bench bench(options, context, threads);
    GDNCTL_TRY(bench.run());
    context.terminal.out(context.global.json ? to_text(bench.json(), 2) + "\n" : bench.text());
    if (!bench.measured()) return ExitCode::nothing_done;
    return bench.exit_code();
}

}  // namespace gdnctl::commands::oracle_bench
