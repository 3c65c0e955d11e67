#include "commands/oracle/linear_ce_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/bench_run.h"
#include "commands/oracle/linear_ce_arrays.h"
#include "core/json.h"
#include "core/log.h"
#include "harness/child/kernel.h"
#include "harness/files.h"
#include "harness/linear_ce/kernel.h"
#include "harness/timing/rounds.h"
#include "oracle/linear_ce/judge/compare.h"
#include "oracle/tensor/random.h"
#include "platform/blas.h"
#include "platform/clock.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::linear_ce {

namespace {

namespace lce = oracle::linear_ce;
using harness::Subject;
using oracle::Tensor;
using oracle::TensorFile;

struct Timed {
    std::string kernel;
    bool gradients = false, peer = false;
    Subject subject;
    TensorFile outputs;  // of the last run
    std::optional<oracle::KernelFault> fault;
    bool verified = false;
    double error = 0;
    std::string reason, network;
};

class Bench {
public:
    Bench(const BenchOptions& options, Context& context, int threads)
        : m_options(options), m_context(context), m_threads(threads) {}

    Status run() {
        GDNCTL_TRY(make_inputs());
        GDNCTL_TRY(add_kernels());
        add_yardsticks();
        forget_peak();
        for (std::int64_t round = 0; round < m_options.rounds; ++round) {
            for (Subject* s : {&m_peak, m_sgemm ? &*m_sgemm : nullptr}) {
                if (s != nullptr) time_yardstick(*s);
            }
            for (Timed& t : m_timed) {
                if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
                if (!t.fault) GDNCTL_TRY(time_kernel(t));
            }
        }
        m_peak_rss = peak_rss();
        for (Timed& t : m_timed) GDNCTL_TRY(verify(t));
        return {};
    }

    bool right() const {
        return std::all_of(m_timed.begin(), m_timed.end(), [](const Timed& t) { return t.peer || t.verified; });
    }

    std::string text() const {
        std::string out =
            fmt::format("B {}, H {}, V {}, {}; {} thread{}\n", m_options.sizes.batch, m_options.sizes.hidden,
                        m_options.sizes.vocab, m_options.bf16 ? "bf16" : "f32", m_threads, m_threads == 1 ? "" : "s");
        out += fmt::format("{:<34} {:>9} {:>9} {:>9} {:>8} {:>7}\n", "kernel", "min ms", "median ms", "GFLOP/s",
                           "x sgemm", "x limit");
        for (const Timed& t : m_timed) {
            const std::string label = fmt::format("{}, {}", t.kernel, pass_name(t));
            if (!t.verified) {
                out += fmt::format("{:<34} no time: {}\n", label, t.fault ? t.fault->text : t.reason);
                continue;
            }
            const harness::Timing timing = harness::timing_of(t.subject, m_sgemm ? &*m_sgemm : nullptr, m_peak);
            out += fmt::format("{:<34} {:>9.1f} {:>9.1f} {:>9.1f} {:>8} {:>7.2g}{}\n", label, timing.seconds.min * 1e3,
                               timing.seconds.median * 1e3, timing.gflops,
                               timing.of_sgemm ? fmt::format("{:.2f}", *timing.of_sgemm) : "-", t.error,
                               timing.noisy ? "  noisy" : "");
        }
        if (!m_no_sgemm.empty()) out += fmt::format("sgemm: not measured\n  {}\n", m_no_sgemm);
        constexpr double k_mib = 1 << 20;
        if (m_peak_rss) {
            out += fmt::format("peak memory {:.0f} MiB: inputs {:.0f}, gradients {:.0f}\n",
                               static_cast<double>(*m_peak_rss) / k_mib, static_cast<double>(m_input_bytes) / k_mib,
                               static_cast<double>(gradient_bytes()) / k_mib);
        }
        return out;
    }

    Json json() const {
        Json report = {
            {"schema", "gdnctl.oracle-bench/1"}, {"op", k_op}, {"kernel", m_options.kernel.value_or("builtin:fused")}};
        report["not_measured"] = Json::object();
        if (!m_no_sgemm.empty()) report["not_measured"]["sgemm"] = m_no_sgemm;
        for (const char* pass : {"forward", "gradients"}) {
            report[pass] = {{"kernel", nullptr}, {"median_ms", nullptr},      {"min_ms", nullptr},
                            {"gflops", nullptr}, {"sgemm_fraction", nullptr}, {"verified", nullptr}};
        }
        report["peers"] = Json::array();
        for (const Timed& t : m_timed) {
            if (t.peer) {
                Json& peers = report["peers"];
                if (peers.empty() || peers.back()["name"] != t.kernel) peers.push_back({{"name", t.kernel}});
                peers.back()[pass_name(t)] = json_of(t);
            } else {
                report[pass_name(t)] = json_of(t);
            }
        }
        report["sgemm"] = nullptr;
        if (m_sgemm) {
            report["sgemm"] = {{"gflops", harness::timing_of(*m_sgemm, nullptr, m_peak).gflops},
                               {"size", oracle_bench::k_sgemm_size},
                               {"library", m_sgemm_name}};
        }
        const oracle_bench::Machine machine = oracle_bench::this_machine();
        report["machine"] = {{"cpu", machine.cpu},
                             {"isa", oracle::name_of(m_options.isa)},
                             {"threads", m_threads},
                             {"compiler", machine.compiler},
                             {"load_average", machine.load}};
        report["shape"] = {
            {"batch", m_options.sizes.batch}, {"hidden", m_options.sizes.hidden}, {"vocab", m_options.sizes.vocab}};
        report["dtype"] = m_options.bf16 ? "bf16" : "f32";
        report["nominal_gflop"] = {{"forward", flop(false) * 1e-9}, {"gradients", flop(true) * 1e-9}};
        report["peak_rss_bytes"] = m_peak_rss ? Json(*m_peak_rss) : Json();
        report["input_bytes"] = m_input_bytes;
        report["gradient_bytes"] = gradient_bytes();
        report["rounds"] = m_options.rounds;
        report["runs_per_round"] = m_options.runs;
        return report;
    }

private:
    static const char* pass_name(const Timed& t) { return t.gradients ? "gradients" : "forward"; }

    double flop(bool gradients) const {
        const BenchSizes& s = m_options.sizes;
        return (gradients ? 6.0 : 2.0) * static_cast<double>(s.batch) * static_cast<double>(s.hidden) *
               static_cast<double>(s.vocab);
    }
    std::size_t gradient_bytes() const { return m_problem.x.bytes.size() + m_problem.w.bytes.size(); }

    Status make_inputs() {
        const BenchSizes& s = m_options.sizes;
        GDNCTL_TRY(check_memory(static_cast<std::size_t>(s.batch), static_cast<std::size_t>(s.hidden),
                                static_cast<std::size_t>(s.vocab), false));
        log::info("generating inputs");
        const auto seed = static_cast<std::uint64_t>(m_options.seed);
        m_inputs.tensors.push_back({"x", random_matrix({s.batch, s.hidden, 1, m_options.bf16, seed, 1})});
        m_inputs.tensors.push_back({"w", random_matrix({s.hidden, s.vocab, 0.05, m_options.bf16, seed, 2})});
        std::vector<std::int64_t> labels(static_cast<std::size_t>(s.batch));
        oracle::Random random(seed, 3);
        for (std::int64_t& y : labels)
            y = static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(s.vocab));
        m_inputs.tensors.push_back({"labels", oracle::from_i64(labels, {s.batch})});
        m_inputs.metadata = {{"op", std::string(k_op)},
                             {"layout", "hv"},
                             {"logsumexp_weight", fmt::format("{}", s.logsumexp_weight)},
                             {"reduction", "mean"}};
        if (s.soft_cap > 0) m_inputs.metadata["soft_cap"] = fmt::format("{}", s.soft_cap);
        GDNCTL_TRY_ASSIGN(m_problem, read_problem(m_inputs, {}));
        for (const oracle::NamedTensor& t : m_inputs.tensors) m_input_bytes += t.tensor.bytes.size();
        return {};
    }

    Status add_kernels() {
        m_own.emplace(m_problem, lce::Run{m_threads, m_options.isa, {}, 0});
        std::vector<std::pair<std::string, bool>> all = {{m_options.kernel.value_or("builtin:fused"), false}};
        for (const std::string& peer : m_options.peers) all.emplace_back(peer, true);
        bool foreign = false;
        for (const auto& [name, peer] : all) {
            GDNCTL_TRY_ASSIGN(auto kernel, harness::open_linear_ce_kernel(name, m_options.limits, m_context));
            GDNCTL_TRY_ASSIGN(const bool gradients, kernel->has_gradients());
            for (const bool pass : {false, true}) {
                if (pass && !gradients) continue;
                Timed t;
                t.kernel = name;
                t.gradients = pass;
                t.peer = peer;
                t.subject.flop = flop(pass);
                m_timed.push_back(std::move(t));
            }
            foreign = foreign || kernel->is_foreign();
            m_kernels.emplace(name, std::move(kernel));
        }
        // Kernels of others alone need the file; the problem has its own copy.
        if (!foreign) m_inputs.tensors.clear();
        return {};
    }

    void add_yardsticks() {
        m_peak.name = "multiply-adds";
        auto sgemm = Sgemm::open(m_options.isa == oracle::Isa::avx2     ? "Haswell"
                                 : m_options.isa == oracle::Isa::scalar ? "Nehalem"
                                                                        : "",
                                 m_threads);
        if (!sgemm) {
            m_no_sgemm = sgemm.error().message;
            return;
        }
        m_sgemm_name = sgemm->description();
        constexpr std::size_t k_size = oracle_bench::k_sgemm_size;
        m_matrices.assign(3, std::vector<float>(k_size * k_size, 1.0F));
        m_sgemm.emplace();
        m_sgemm->name = "sgemm";
        m_sgemm->flop = 2.0 * static_cast<double>(k_size * k_size * k_size);
        m_sgemm->run = [this, sgemm = *sgemm] {
            sgemm.multiply(oracle_bench::k_sgemm_size, m_matrices[0].data(), m_matrices[1].data(),
                           m_matrices[2].data());
        };
    }

    template <class Once>
    double least_of_runs(const Once& once) const {
        double least = 0;
        for (std::int64_t run = 0; run < m_options.runs; ++run) {
            const double seconds = once();
            least = run == 0 ? seconds : std::min(least, seconds);
        }
        return least;
    }

    template <class Work>
    double seconds_of(const Work& work) const {
        const auto start = m_context.clock.monotonic();
        work();
        return std::chrono::duration<double>(m_context.clock.monotonic() - start).count();
    }

    void time_yardstick(Subject& s) {
        constexpr std::size_t k_steps = 2'000'000;
        if (!s.run) s.run = [this, &s] { s.flop = oracle::run_multiply_adds(k_steps, m_threads, m_options.isa); };
        s.seconds.push_back(least_of_runs([&] { return seconds_of(s.run); }));
    }

    Status time_kernel(Timed& t) {
        if (t.kernel == "builtin:fused") {
            t.subject.seconds.push_back(least_of_runs([&] { return seconds_of([&] { m_own->run(t.gradients); }); }));
            return {};
        }
        harness::LinearCeKernel& kernel = *m_kernels.at(t.kernel);
        double least = 0;
        for (std::int64_t run = 0; run < m_options.runs; ++run) {
            GDNCTL_TRY_ASSIGN(auto result, kernel.run(m_inputs, m_problem, t.gradients, m_threads));
            t.network = kernel.network();
            t.fault = std::move(result.fault);
            if (t.fault) return {};
            t.outputs = std::move(result.outputs);
            least = run == 0 ? kernel.seconds() : std::min(least, kernel.seconds());
        }
        t.subject.seconds.push_back(least);
        return {};
    }

    Status verify(Timed& t) {
        if (t.fault) return {};
        lce::CompareOptions how;
        how.hints = false;
        how.rows = 8;
        how.columns = 32;
        how.work = {m_threads, [this] { return m_context.stop.stop_requested(); }};
        if (t.kernel == "builtin:fused") t.outputs = m_own->outputs(t.gradients);
        auto report = lce::compare(m_problem, t.outputs, how);
        t.outputs = {};
        if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
        if (!report) {
            t.reason = report.error().text();
            return {};
        }
        t.verified = report->verdict == oracle::Verdict::ok && (!t.gradients || !report->forward_only);
        t.reason = t.verified ? std::string() : fmt::format("{}: {}", report->verdict_name(), report->reason);
        for (const lce::TensorVerdict& tensor : report->tensors) t.error = std::max(t.error, tensor.error_over_limit);
        return {};
    }

    Json json_of(const Timed& t) const {
        Json json = {{"kernel", t.kernel},
                     {"median_ms", nullptr},
                     {"min_ms", nullptr},
                     {"gflops", nullptr},
                     {"sgemm_fraction", nullptr}};
        json["timed"] = t.kernel == "builtin:fused" ? "in_process" : t.kernel.starts_with("cmd:") ? "process" : "call";
        json["verified"] = t.verified;
        json["error_over_budget"] = t.error;
        json["network_barrier"] = t.network.empty() ? Json() : Json(t.network);
        if (!t.verified) {
            json.update({{"reason", t.reason}, {"fault", harness::fault_json(t.fault)}});
            return json;
        }
        const harness::Timing timing = harness::timing_of(t.subject, m_sgemm ? &*m_sgemm : nullptr, m_peak);
        json["median_ms"] = timing.seconds.median * 1e3;
        json["min_ms"] = timing.seconds.min * 1e3;
        json["max_ms"] = timing.seconds.max * 1e3;
        json["gflops"] = timing.gflops;
        if (timing.of_sgemm) json["sgemm_fraction"] = *timing.of_sgemm;
        json["fma_peak_fraction"] = timing.of_peak;
        json["noisy"] = timing.noisy;
        return json;
    }

    const BenchOptions& m_options;
    Context& m_context;
    int m_threads;
    TensorFile m_inputs;
    lce::Problem m_problem;
    std::size_t m_input_bytes = 0;
    std::optional<OwnArrays> m_own;
    std::map<std::string, std::unique_ptr<harness::LinearCeKernel>> m_kernels;
    std::vector<Timed> m_timed;
    Subject m_peak;
    std::optional<Subject> m_sgemm;
    std::vector<std::vector<float>> m_matrices;
    std::string m_sgemm_name, m_no_sgemm;
    std::optional<std::int64_t> m_peak_rss;
};

}  // namespace

void describe_bench(cli::Args& args, BenchSizes& sizes) {
    const char* group = "linear-ce";
    args.option(sizes.batch, {.names = "--batch", .value = "B", .help = "linear-ce: rows", .group = group});
    args.option(sizes.hidden,
                {.names = "--hidden", .value = "H", .help = "linear-ce: hidden dimensions", .group = group});
    args.option(sizes.vocab,
                {.names = "--vocab", .value = "V", .help = "linear-ce: size of the vocabulary", .group = group});
    args.option(
        sizes.soft_cap,
        {.names = "--soft-cap", .value = "C", .help = "linear-ce: soft cap", .group = group, .default_text = "none"});
    args.option(sizes.logsumexp_weight,
                {.names = "--logsumexp-weight", .value = "L", .help = "linear-ce: penalty L lse^2", .group = group});
    args.check([&sizes]() -> Status {
        constexpr std::int64_t k_most = std::int64_t{1} << 31U;
        for (const std::int64_t size : {sizes.batch, sizes.hidden, sizes.vocab}) {
            if (size < 1 || size >= k_most)
                return fail(ErrorKind::usage, "--batch, --hidden and --vocab must be 1 to 2147483647");
        }
        if (sizes.soft_cap < 0) return fail(ErrorKind::usage, "--soft-cap must be positive");
        return {};
    });
}

Result<ExitCode> bench(const BenchOptions& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    if (!oracle::has_isa(options.isa)) {
        return fail(ErrorKind::nothing_done, fmt::format("this processor has no {}", oracle::name_of(options.isa)));
    }
    Bench bench(options, context, threads);
    GDNCTL_TRY(bench.run());
    context.terminal.out(context.global.json ? to_text(bench.json(), 2) + "\n" : bench.text());
    return bench.right() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::linear_ce
