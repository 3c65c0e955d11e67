#include "harness/plain/bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "core/json.h"
#include "harness/child/library.h"
#include "harness/timing.h"
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
    bool right = false;  // some run of a third-party kernel was
    double floor_s = 0;  // a shorter time is impossible; third-party kernels only
    std::optional<oracle::KernelFault> fault;
    bool verified = false;
    double error = 0;
    std::string reason, network;
};

class PlainBench {
public:
    PlainBench(const PlainOperator& op, BenchCase timed, const BenchRequest& request, Context& context)
        : m_operator(op), m_case(std::move(timed)), m_request(request), m_context(context) {}

    Status run() {
        GDNCTL_TRY_ASSIGN(m_problem, m_operator.read(m_case.inputs));
        for (const oracle::NamedTensor& t : m_case.inputs.tensors) m_input_bytes += t.tensor.bytes.size();
        m_case.inputs.tensors.clear();  // the problem has its own copy
        forget_peak_rss();
        GDNCTL_TRY(add_kernels());
        add_yardsticks();
        for (std::int64_t round = 0; round < m_request.rounds; ++round) {
            for (Subject* s : {&m_peak, m_sgemm ? &*m_sgemm : nullptr}) {
                if (s != nullptr) time_yardstick(*s);
            }
            for (Timed& t : m_timed) {
                if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
                if (t.fault || !t.reason.empty()) continue;
                GDNCTL_TRY(m_kernels.at(t.kernel)->is_foreign() ? time_foreign(t) : time_own(t));
            }
        }
        m_peak_rss = peak_rss();
        for (Timed& t : m_timed) GDNCTL_TRY(verify(t));
        check_floors();
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
                out += fmt::format("{:<34} no time: {}\n", label, t.reason.empty() ? t.fault->text : t.reason);
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
            m_kernels.emplace(name, std::move(kernel));
        }
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

    // Of a kernel of our own nothing but the last outputs are looked at.
    Status time_own(Timed& t) {
        Kernel& kernel = *m_kernels.at(t.kernel);
        GDNCTL_TRY_ASSIGN(t.fault, kernel.place({*m_problem, t.pass, m_request.threads}));
        Faulted called = std::nullopt;
        const double least = least_of_runs([&] { return seconds_of([&] { called = kernel.call(); }); });
        t.subject.seconds.push_back(least);
        GDNCTL_TRY_ASSIGN(t.fault, std::move(called));
        return {};
    }

    // New inputs for each run, so that nothing that a kernel keeps is of use, and a look at what each run gave.
    Status time_foreign(Timed& t) {
        Kernel& kernel = *m_kernels.at(t.kernel);
        double least = 0;
        for (std::int64_t run = 0; run < m_request.runs; ++run) {
            TensorFile file = m_case.fresh(secret_seed());
            GDNCTL_TRY_ASSIGN(const auto problem, m_operator.read(file));
            if (!kernel.is_program()) file.tensors.clear();
            GDNCTL_TRY_ASSIGN(t.fault, kernel.place({*problem, t.pass, m_request.threads}));
            if (t.fault) return {};
            Faulted called = std::nullopt;
            const double seconds = seconds_of([&] { called = kernel.call(); });
            t.network = kernel.network();
            GDNCTL_TRY_ASSIGN(t.fault, std::move(called));
            if (t.fault) return {};
            TensorFile outputs;
            GDNCTL_TRY_ASSIGN(t.fault, kernel.collect(outputs));
            if (t.fault) return {};
            GDNCTL_TRY(judge(*problem, outputs, t));
            if (!t.reason.empty()) return {};
            least = run == 0 ? seconds : std::min(least, seconds);
        }
        t.subject.seconds.push_back(least);
        return {};
    }

    // Where a run is not right, t.reason says why.
    Status judge(Problem& problem, const TensorFile& outputs, Timed& t) const {
        const auto judged = problem.judge(
            outputs, {false, m_request.threads, [this] { return m_context.stop.stop_requested(); }, secret_seed()});
        if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
        if (!judged) {
            t.reason = judged.error().text();
            return {};
        }
        t.error = std::max(t.error, judged->error);
        if (judged->verdict == oracle::Verdict::ok && (t.pass == 0 || !judged->forward_only)) {
            t.right = true;
            return {};
        }
        t.reason = fmt::format("{}: {}", oracle::name_of(judged->verdict), judged->reason);
        if (!t.right) return {};
        t.reason =
            fmt::format("an earlier run was right, a later one is not ({}): does the kernel return cached results?",
                        judged->reason);
        t.fault = oracle::KernelFault{oracle::KernelFaultKind::unsteady, t.reason, {}};
        return {};
    }

    Status verify(Timed& t) {
        Kernel& kernel = *m_kernels.at(t.kernel);
        if (!t.fault && !kernel.is_foreign()) {
            GDNCTL_TRY(kernel.place({*m_problem, t.pass, m_request.threads}));
            TensorFile outputs;
            GDNCTL_TRY(kernel.collect(outputs));
            GDNCTL_TRY(judge(*m_problem, outputs, t));
        }
        t.verified = !t.fault && t.reason.empty();
        return {};
    }

    // Every pass gives what the first one gives, so no kernel does with less than its operations.
    void check_floors() {
        const auto foreign = [this](const Timed& t) { return t.verified && m_kernels.at(t.kernel)->is_foreign(); };
        if (std::none_of(m_timed.begin(), m_timed.end(), foreign)) return;
        const double least = m_problem->flop(0) / most_flop_a_second(m_request.threads, m_context.clock);
        for (Timed& t : m_timed) {
            if (!foreign(t)) continue;
            t.floor_s = least;
            t.fault = impossible_time(oracle::spread_of(t.subject.seconds).min, least, m_request.threads);
            if (t.fault) t.reason = fmt::format("{}: {}", oracle::name_of(t.fault->kind), t.fault->text);
            t.verified = !t.fault;
        }
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
        json["floor_ms"] = t.floor_s == 0 ? Json(nullptr) : Json(t.floor_s * 1e3);
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
