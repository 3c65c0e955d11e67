#include "harness/plain/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "harness/child/kernel.h"
#include "harness/timing/machine.h"
#include "harness/timing/rounds.h"
#include "oracle/gdn/bench/bench.h"
#include "platform/clock.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

using oracle::TensorFile;

struct Timed {
    std::string kernel;
    std::size_t pass = 0;
    bool peer = false;
    Subject subject;
    TensorFile outputs;          // of the last run
    std::vector<double> sample;  // of the first run's
    bool kept = false;           // some run gave what its inputs do not
    std::optional<oracle::KernelFault> fault;
    bool verified = false;
    double error = 0;
    std::string reason, network;
};

// Some elements of all that is not an integer; inputs that a program wrote again are none of its results.
std::vector<double> sample_of(const TensorFile& outputs, const TensorFile& inputs) {
    constexpr std::size_t k_most = 4096;
    std::vector<double> sample;
    for (const oracle::NamedTensor& t : outputs.tensors) {
        if (!oracle::is_floating(t.tensor.dtype) || inputs.find(t.name) != nullptr) continue;
        const std::size_t count = t.tensor.count();
        const std::size_t step = count / k_most * 2 + 1;  // odd: in many columns
        double largest = 0;
        const std::size_t first = sample.size();
        for (std::size_t i = 0; i < count; i += step) {
            sample.push_back(oracle::element(t.tensor, i));
            largest = std::max(largest, std::fabs(sample.back()));
        }
        for (std::size_t i = first; i < sample.size() && largest > 0; ++i) sample[i] /= largest;
    }
    return sample;
}

// The tolerance is well above the effect of reordering rows.
bool alike(const std::vector<double>& a, const std::vector<double>& b) {
    constexpr double k_enough = 0.02;
    const auto near = [](double x, double y) { return std::fabs(x - y) <= k_enough || (x != x && y != y); };
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), near);
}

class PlainBench {
public:
    PlainBench(const PlainOperator& op, BenchCase timed, const BenchRequest& request, Context& context)
        : m_operator(op), m_case(std::move(timed)), m_request(request), m_context(context) {}

    Status run() {
        GDNCTL_TRY_ASSIGN(m_problem, m_operator.read(m_case.inputs));
        for (const oracle::NamedTensor& t : m_case.inputs.tensors) m_input_bytes += t.tensor.bytes.size();
        GDNCTL_TRY(add_kernels());
        add_yardsticks();
        forget_peak_rss();
        for (std::int64_t round = 0; round < m_request.rounds; ++round) {
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
        std::string out = fmt::format("{}, {}; {} thread{}\n", m_case.title, dtype(), m_request.threads,
                                      m_request.threads == 1 ? "" : "s");
        out += fmt::format("{:<34} {:>9} {:>9} {:>9} {:>8} {:>7}\n", "kernel", "min ms", "median ms", "GFLOP/s",
                           "x sgemm", "x limit");
        for (const Timed& t : m_timed) {
            const std::string label = fmt::format("{}, {}", t.kernel, pass_name(t));
            if (!t.verified) {
                out += fmt::format("{:<34} no time: {}\n", label, t.fault ? t.fault->text : t.reason);
                continue;
            }
            const Timing timing = timing_of(t.subject, m_sgemm ? &*m_sgemm : nullptr, m_peak);
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
                               static_cast<double>(m_problem->gradient_bytes()) / k_mib);
        }
        return out;
    }

    Json json() const {
        Json report = {{"schema", "gdnctl.oracle-bench/1"}, {"op", m_operator.name()}, {"kernel", m_request.kernel}};
        report["not_measured"] = Json::object();
        if (!m_no_sgemm.empty()) report["not_measured"]["sgemm"] = m_no_sgemm;
        for (const std::string_view pass : m_operator.passes()) {
            report[std::string(pass)] = {{"kernel", nullptr}, {"median_ms", nullptr},      {"min_ms", nullptr},
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
            report["sgemm"] = {{"gflops", timing_of(*m_sgemm, nullptr, m_peak).gflops},
                               {"size", k_sgemm_size},
                               {"library", m_sgemm_name}};
        }
        const Machine machine = this_machine();
        report["machine"] = {{"cpu", machine.cpu},
                             {"isa", oracle::name_of(m_request.isa)},
                             {"threads", m_request.threads},
                             {"compiler", machine.compiler},
                             {"load_average", machine.load}};
        if (m_case.shape) m_case.shape(report);
        report["dtype"] = dtype();
        report["nominal_gflop"] = Json::object();
        for (std::size_t pass = 0; pass < m_operator.passes().size(); ++pass) {
            report["nominal_gflop"][std::string(m_operator.passes()[pass])] = m_problem->flop(pass) * 1e-9;
        }
        report["peak_rss_bytes"] = m_peak_rss ? Json(*m_peak_rss) : Json();
        report["input_bytes"] = m_input_bytes;
        report["gradient_bytes"] = m_problem->gradient_bytes();
        report["rounds"] = m_request.rounds;
        report["runs_per_round"] = m_request.runs;
        return report;
    }

private:
    std::string pass_name(const Timed& t) const { return std::string(m_operator.passes()[t.pass]); }
    const char* dtype() const { return m_request.bf16 ? "bf16" : "f32"; }

    Status add_kernels() {
        std::vector<std::pair<std::string, bool>> all = {{m_request.kernel, false}};
        for (const std::string& peer : m_request.peers) all.emplace_back(peer, true);
        bool foreign = false;
        for (const auto& [name, peer] : all) {
            GDNCTL_TRY_ASSIGN(auto kernel, m_operator.open(name, {m_request.limits, m_request.isa, true}, m_context));
            for (std::size_t pass = 0; pass < m_operator.passes().size(); ++pass) {
                GDNCTL_TRY_ASSIGN(const bool has, kernel->has(pass));
                if (pass > 0 && !has) continue;
                Timed t;
                t.kernel = name;
                t.pass = pass;
                t.peer = peer;
                t.subject.flop = m_problem->flop(pass);
                m_timed.push_back(std::move(t));
            }
            foreign = foreign || kernel->is_foreign();
            m_kernels.emplace(name, std::move(kernel));
        }
        // Only third-party kernels need the file; the problem has its own copy.
        if (!foreign) m_case.inputs.tensors.clear();
        return {};
    }

    void add_yardsticks() {
        m_peak.name = "multiply-adds";
        auto sgemm = sgemm_subject(m_request.isa, m_request.threads);
        if (!sgemm) {
            m_no_sgemm = sgemm.error().message;
            return;
        }
        m_sgemm_name = sgemm->library;
        m_sgemm = std::move(sgemm->subject);
    }

    template <class Once>
    double least_of_runs(const Once& once) const {
        double least = 0;
        for (std::int64_t run = 0; run < m_request.runs; ++run) {
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
        if (!s.run)
            s.run = [this, &s] { s.flop = oracle::run_multiply_adds(k_steps, m_request.threads, m_request.isa); };
        s.seconds.push_back(least_of_runs([&] { return seconds_of(s.run); }));
    }

    Asked asked(const Timed& t) const { return {*m_problem, t.pass, m_request.threads}; }

    // Of a kernel of our own nothing but the last outputs are looked at: they are collected then.
    Status time_kernel(Timed& t) {
        Kernel& kernel = *m_kernels.at(t.kernel);
        double least = 0;
        for (std::int64_t run = 0; run < m_request.runs; ++run) {
            if (kernel.is_foreign()) m_problem->vary(++m_variations);
            GDNCTL_TRY_ASSIGN(t.fault, kernel.place(asked(t)));
            if (t.fault) return {};
            Faulted called = std::nullopt;
            const double seconds = seconds_of([&] { called = kernel.call(); });
            t.network = kernel.network();
            GDNCTL_TRY_ASSIGN(t.fault, std::move(called));
            if (t.fault) return {};
            t.outputs = {};
            if (kernel.is_foreign()) {
                GDNCTL_TRY_ASSIGN(t.fault, kernel.collect(t.outputs));
                if (t.fault) return {};
                m_problem->restore(t.outputs);
                std::vector<double> sample = sample_of(t.outputs, m_case.inputs);
                t.kept = t.kept || (!t.sample.empty() && !alike(t.sample, sample));
                if (t.sample.empty()) t.sample = std::move(sample);
            }
            least = run == 0 ? seconds : std::min(least, seconds);
        }
        t.subject.seconds.push_back(least);
        return {};
    }

    Status verify(Timed& t) {
        if (t.fault) return {};
        Kernel& kernel = *m_kernels.at(t.kernel);
        if (!kernel.is_foreign()) {
            GDNCTL_TRY(kernel.place(asked(t)));
            GDNCTL_TRY(kernel.collect(t.outputs));
        }
        auto judged =
            m_problem->judge(t.outputs, {false, m_request.threads, [this] { return m_context.stop.stop_requested(); }});
        t.outputs = {};
        if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
        if (!judged) {
            t.reason = judged.error().text();
            return {};
        }
        t.verified = !t.kept && judged->verdict == oracle::Verdict::ok && (t.pass == 0 || !judged->forward_only);
        if (t.kept) {
            t.reason = "runs on different inputs do not agree: does the kernel return cached results?";
        } else if (!t.verified) {
            t.reason = fmt::format("{}: {}", oracle::name_of(judged->verdict), judged->reason);
        }
        t.error = judged->error;
        return {};
    }

    Json json_of(const Timed& t) const {
        Json json = {{"kernel", t.kernel},
                     {"median_ms", nullptr},
                     {"min_ms", nullptr},
                     {"gflops", nullptr},
                     {"sgemm_fraction", nullptr}};
        const Kernel& kernel = *m_kernels.at(t.kernel);
        json["timed"] = kernel.is_program() ? "process" : kernel.timed();
        json["verified"] = t.verified;
        json["error_over_budget"] = t.error;
        json["network_barrier"] = t.network.empty() ? Json() : Json(t.network);
        if (!t.verified) {
            json.update({{"reason", t.reason}, {"fault", fault_json(t.fault)}});
            return json;
        }
        const Timing timing = timing_of(t.subject, m_sgemm ? &*m_sgemm : nullptr, m_peak);
        json["median_ms"] = timing.seconds.median * 1e3;
        json["min_ms"] = timing.seconds.min * 1e3;
        json["max_ms"] = timing.seconds.max * 1e3;
        json["gflops"] = timing.gflops;
        if (timing.of_sgemm) json["sgemm_fraction"] = *timing.of_sgemm;
        json["fma_peak_fraction"] = timing.of_peak;
        json["noisy"] = timing.noisy;
        return json;
    }

    const PlainOperator& m_operator;
    BenchCase m_case;
    const BenchRequest& m_request;
    Context& m_context;
    std::unique_ptr<Problem> m_problem;
    std::size_t m_input_bytes = 0;
    std::uint64_t m_variations = 0;
    std::map<std::string, std::unique_ptr<Kernel>> m_kernels;
    std::vector<Timed> m_timed;
    Subject m_peak;
    std::optional<Subject> m_sgemm;
    std::string m_sgemm_name, m_no_sgemm;
    std::optional<std::int64_t> m_peak_rss;
};

}  // namespace

Result<BenchDone> bench_case(const PlainOperator& op, BenchCase timed, const BenchRequest& request, Context& context) {
    PlainBench bench(op, std::move(timed), request, context);
    GDNCTL_TRY(bench.run());
    return BenchDone{bench.text(), to_text(bench.json(), 2) + "\n", bench.right()};
}

}  // namespace gdnctl::harness
