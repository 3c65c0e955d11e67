#include "harness/engine/bench.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/json.h"
#include "harness/child/library.h"
#include "oracle/gdn/bench/bench.h"
#include "platform/clock.h"
#include "platform/progress.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

using oracle::TensorFile;

class Bench {
public:
    Bench(std::string_view op, BenchPlan& plan, const BenchRequest& request, Context& context)
        : m_op(op), m_plan(plan), m_request(request), m_context(context) {}

    Result<BenchDone> run() {
        m_machine = this_machine();
        if (!oracle::has_isa(m_request.isa)) {
            m_missing = fmt::format("this processor has no {}", oracle::name_of(m_request.isa));
            return BenchDone{fmt::format("{}: not measured ({})\n", kernels(), m_missing), report_json(),
                             ExitCode::nothing_done};
        }
        GDNCTL_TRY_ASSIGN(m_all, m_plan.contestants());
        add_yardsticks();
        const std::size_t own = m_subjects.size();
        for (Subject& s : m_plan.yardsticks()) m_subjects.push_back(std::move(s));
        const std::size_t first = m_subjects.size();
        for (Contestant& c : m_all) m_subjects.push_back(std::move(c.subject));
        GDNCTL_TRY(time_subjects());
        m_subjects[0].flop = m_peak_flop;
        const Subject* sgemm = m_no_sgemm.empty() ? &m_subjects[1] : nullptr;
        m_peak = timing_of(m_subjects[0], nullptr, m_subjects[0]);
        if (sgemm != nullptr) m_sgemm = timing_of(*sgemm, nullptr, m_subjects[0]);
        for (std::size_t i = 0; i < m_all.size(); ++i) {
            m_all[i].subject = std::move(m_subjects[first + i]);
            m_all[i].timing = timing_of(m_all[i].subject, sgemm, m_subjects[0]);
        }
        const std::vector<Subject> timed(m_subjects.begin() + static_cast<std::ptrdiff_t>(own),
                                         m_subjects.begin() + static_cast<std::ptrdiff_t>(first));
        GDNCTL_TRY(m_plan.finish(m_all, timed, m_subjects[0]));
        for (Contestant& c : m_all) {
            check_peak(c);
            c.on_device = on_device(c.subject);
            const bool measured = !c.subject.device_seconds.empty();
            if (!c.on_device && measured) c.times.no_device = "the differences are too small to be measured";
        }
        return BenchDone{text(), report_json(), code()};
    }

private:
    Status time_subjects() {
        const auto turns = static_cast<std::uint64_t>(m_request.rounds) * m_subjects.size();
        Progress progress(m_context.terminal, m_context.clock,
                          {.label = "timing",
                           .unit = "turns",
                           .total = turns,
                           .quiet = m_context.global.quiet,
                           .after = std::chrono::seconds(2)});
        std::uint64_t turn = 0;
        return run_rounds(m_subjects, m_request.rounds, m_request.runs, m_context.clock, m_context.stop,
                          [&](std::int64_t round, const Subject& subject) {
                              progress.note(round == 0 ? "first run of " + subject.name : subject.name);
                              progress.update(round == 0 ? 0 : turn++);
                          });
    }

    void add_yardsticks() {
        constexpr std::size_t k_steps = 2'000'000;
        m_subjects.push_back(
            {"multiply-adds",
             0,
             [this] { m_peak_flop = oracle::run_multiply_adds(k_steps, m_request.threads, m_request.isa); },
             {},
             {}});
        auto sgemm = sgemm_subject(m_request.isa, m_request.threads);
        if (!sgemm) {
            m_no_sgemm = sgemm.error().message;
            return;
        }
        m_sgemm_name = sgemm->library;
        m_subjects.push_back(std::move(sgemm->subject));
    }

    // Nothing is faster than its accelerator.
    void check_peak(Contestant& c) const {
        const auto peak = peak_flop_of(c.environment, m_request.peak_tflops);
        if (!peak || !c.verified) return;
        c.floor_s = c.subject.flop / *peak;
        if (c.timing.seconds.min >= c.floor_s) return;
        c.verified = false;
        c.fault = oracle::KernelFault{
            oracle::KernelFaultKind::impossible,
            fmt::format("{:.3g} ms, less than the {:.3g} ms that {} needs at its peak", c.timing.seconds.min * 1e3,
                        c.floor_s * 1e3, json::text(c.environment, "device_kind")),
            {}};
        c.reason = "IMPOSSIBLE: " + c.fault->text;
    }

    // Of the first kernel that has a fault.
    ExitCode code() const {
        const bool peers = m_plan.peers_count();
        for (const Contestant& c : m_all) {
            if (c.fault && peers) return exit_code_of(c.fault->kind);
        }
        const bool right = std::all_of(m_all.begin(), m_all.end(),
                                       [&](const Contestant& c) { return c.verified || (c.peer && !peers); });
        return right ? ExitCode::ok : ExitCode::check_failed;
    }

    std::string kernels() const { return m_request.kernel.value_or("our kernels"); }

    // What was measured of a pass, of --kernel or of ours; nullptr: nothing.
    const Contestant* measured_of(std::size_t pass) const {
        const auto found =
            std::find_if(m_all.begin(), m_all.end(), [pass](const Contestant& c) { return !c.peer && c.pass == pass; });
        return found == m_all.end() ? nullptr : &*found;
    }

    // Rows of 80 columns.
    static constexpr std::size_t k_name_width = 15;

    std::string row(const Contestant& c) const {
        // A long name gets a separate line.
        std::string name = c.label;
        if (name.size() >= k_name_width) name += "\n" + std::string(k_name_width, ' ');
        if (!c.verified) {
            const bool died = c.fault && c.fault->kind == oracle::KernelFaultKind::crashed;
            return fmt::format("{:<{}}not timed, because the {}: {}\n", name, k_name_width,
                               died ? "kernel died" : "result is wrong", c.reason) +
                   (c.fault ? quoted_output(*c.fault) : std::string());
        }
        const Timing& t = c.timing;
        return fmt::format("{:<{}}{:>8.2f}{:>10.2f}{:>9.2f}{:>8.1f}{:>8}{:>7.2f}  {:.2g} x {}\n", name, k_name_width,
                           t.seconds.min * 1e3, t.seconds.median * 1e3, t.seconds.max * 1e3, t.gflops,
                           t.of_sgemm ? fmt::format("{:.2f}", *t.of_sgemm) : "-", t.of_peak, c.error,
                           m_plan.error_unit()) +
               c.text + accelerator_text(c);
    }

    static double device_ms(const Contestant& c) { return oracle::spread_of(c.on_device->seconds).median * 1e3; }

    std::string accelerator_text(const Contestant& c) const {
        std::string text;
        if (c.times.compile > 0) text += fmt::format("  compiled in {:.1f} s\n", c.times.compile);
        if (c.on_device) text += fmt::format("  {:.3f} ms on the device\n", device_ms(c));
        if (!c.times.no_device.empty()) text += fmt::format("  no time on the device: {}\n", c.times.no_device);
        for (const std::string& name : c.not_returned) text += fmt::format("  {} was not returned: not judged\n", name);
        const auto peak = peak_flop_of(c.environment, m_request.peak_tflops);
        if (!peak) return text;
        return text + fmt::format("  {:.3f} of the {:.0f} TFLOP/s of {}\n", c.timing.gflops * 1e9 / *peak,
                                  *peak * 1e-12, json::text(c.environment, "device_kind"));
    }

    // How much longer a peer takes.
    struct Comparison {
        const Contestant& first;
        RatioOfTimes ratio;
        std::optional<RatioOfTimes> on_device;

        bool is_doubtful() const { return on_device && disagree(ratio, *on_device); }
    };
    std::optional<Comparison> comparison(const Contestant& c) const {
        const Contestant* first = measured_of(c.pass);
        if (!c.peer || first == nullptr || !c.verified || !first->verified) return std::nullopt;
        Comparison compared{*first, interval_of_ratio(c.subject, first->subject), std::nullopt};
        if (c.on_device && first->on_device) compared.on_device = interval_of_ratio(*c.on_device, *first->on_device);
        return compared;
    }

    std::string comparison_text(const Contestant& c) const {
        const auto compared = comparison(c);
        if (!compared) return {};
        const auto pace = [](const RatioOfTimes& r, const std::string& than) {
            return r.median < 1
                       ? fmt::format("{:.2f}x faster{} ({:.2f}-{:.2f}x)\n", 1 / r.median, than, 1 / r.high, 1 / r.low)
                       : fmt::format("{:.2f}x slower{} ({:.2f}-{:.2f}x)\n", r.median, than, r.low, r.high);
        };
        std::string text = c.label + " is " + pace(compared->ratio, " than " + compared->first.label);
        if (compared->on_device) text += "  on the device " + pace(*compared->on_device, {});
        if (compared->is_doubtful()) text += "  the two disagree about which is faster\n";
        return text;
    }

    std::string text() const {
        std::string out = m_plan.title();
        out += fmt::format("{}, {} thread{}, {}, {}, load {:.2f}\n", m_machine.cpu, m_request.threads,
                           m_request.threads == 1 ? "" : "s", oracle::name_of(m_request.isa), m_machine.compiler,
                           m_machine.load);
        out += fmt::format("{:<{}}{:>8}{:>10}{:>9}{:>8}{:>8}{:>7}  {}\n", "", k_name_width, "min ms", "median ms",
                           "max ms", "GFLOP/s", "x sgemm", "x peak", "verified");
        for (const Contestant& c : m_all) out += row(c);
        out += m_no_sgemm.empty()
                   ? fmt::format("sgemm: {:.1f} GFLOP/s, n = {}, {}\n", m_sgemm.gflops, k_sgemm_size, m_sgemm_name)
                   : fmt::format("sgemm: not measured\n  {}\n", m_no_sgemm);
        out += fmt::format("multiply-add peak: {:.1f} GFLOP/s\n", m_peak.gflops);
        for (const Contestant& c : m_all) out += comparison_text(c);
        out += m_plan.notes(m_all);
        if (std::any_of(m_all.begin(), m_all.end(), [](const Contestant& c) { return c.timing.noisy; })) {
            out += "noisy: a median is more than 1.35 times its minimum; compare ratios, not times\n";
        }
        return out;
    }

    // What every pass has, measured or not.
    static Json not_measured() {
        return {{"kernel", nullptr}, {"median_ms", nullptr},      {"min_ms", nullptr},
                {"gflops", nullptr}, {"sgemm_fraction", nullptr}, {"verified", nullptr}};
    }

    static Json json_of(const RatioOfTimes& ratio) {
        return {{"median", ratio.median}, {"low", ratio.low}, {"high", ratio.high}};
    }

    static Json json_of(const Contestant& c, const std::optional<double>& peak_tflops) {
        Json json = not_measured();
        json["kernel"] = c.kernel;
        json["timed"] = c.timed;
        json["verified"] = c.verified;
        json["error_over_budget"] = c.error;
        json["network_barrier"] = c.network.empty() ? Json(nullptr) : Json(c.network);
        json["floor_ms"] = c.floor_s == 0 ? Json(nullptr) : Json(c.floor_s * 1e3);
        if (!c.verified) {
            json.update({{"reason", c.reason}, {"fault", fault_json(c.fault)}});
            return json;
        }
        const Timing& t = c.timing;
        json["median_ms"] = t.seconds.median * 1e3;
        json["min_ms"] = t.seconds.min * 1e3;
        json["gflops"] = t.gflops;
        if (t.of_sgemm) json["sgemm_fraction"] = *t.of_sgemm;
        json.update({{"max_ms", t.seconds.max * 1e3}, {"fma_peak_fraction", t.of_peak}, {"noisy", t.noisy}});
        if (c.environment.is_object()) {
            json["compile_s"] = c.times.compile;
            json["device_ms"] = c.on_device ? Json(device_ms(c)) : Json(nullptr);
            if (!c.times.no_device.empty()) json["no_device_ms"] = c.times.no_device;
            const auto peak = peak_flop_of(c.environment, peak_tflops);
            json["peak_fraction"] = peak ? Json(t.gflops * 1e9 / *peak) : Json(nullptr);
        }
        if (!c.not_returned.empty()) json["not_returned"] = c.not_returned;
        if (c.fields) c.fields(json);
        return json;
    }

    Json report_json() const {
        Json report = {{"schema", "gdnctl.oracle-bench/1"}, {"op", m_op}, {"kernel", nullptr}};
        if (m_request.kernel) report["kernel"] = *m_request.kernel;
        report["not_measured"] = Json::object();
        const auto passes = m_plan.passes();
        for (std::size_t pass = 0; pass < passes.size(); ++pass) {
            const std::string name(passes[pass]);
            const Contestant* c = measured_of(pass);
            report[name] = c != nullptr ? json_of(*c, m_request.peak_tflops) : not_measured();
            if (c != nullptr) continue;
            report["not_measured"][name] = m_missing.empty() ? fmt::format("{} has no {}", kernels(), name) : m_missing;
        }
        if (!m_no_sgemm.empty()) report["not_measured"]["sgemm"] = m_no_sgemm;
        report["peers"] = Json::array();
        for (const Contestant& c : m_all) {
            if (!c.peer) continue;
            // The passes of one kernel follow each other; one that is named twice has two rows.
            Json& peers = report["peers"];
            const std::string pass(passes[c.pass]);
            if (peers.empty() || peers.back()["name"] != c.kernel || peers.back().contains(pass)) {
                peers.push_back({{"name", c.kernel}});
            }
            peers.back()[pass] = json_of(c, m_request.peak_tflops);
            const auto compared = comparison(c);
            if (!compared) continue;
            peers.back()[pass]["ratio"] = json_of(compared->ratio);
            if (!compared->on_device) continue;
            peers.back()[pass]["device_ratio"] = json_of(*compared->on_device);
            peers.back()[pass]["ratios_disagree"] = compared->is_doubtful();
        }
        report["sgemm"] = nullptr;
        if (m_no_sgemm.empty() && !m_all.empty()) {
            report["sgemm"] = {{"gflops", m_sgemm.gflops}, {"size", k_sgemm_size}, {"library", m_sgemm_name}};
        }
        report["machine"] = {
            {"cpu", m_machine.cpu},           {"isa", oracle::name_of(m_request.isa)},
            {"threads", m_request.threads},   {"compiler", m_machine.compiler},
            {"load_average", m_machine.load}, {"fma_peak_gflops", m_all.empty() ? Json(nullptr) : Json(m_peak.gflops)}};
        report["environment"] = nullptr;
        for (const Contestant& c : m_all) {
            if (report["environment"].is_null()) report["environment"] = c.environment;
        }
        report["dtype"] = m_request.bf16 ? "bf16" : "f32";
        report["nominal_gflop"] = Json::object();
        for (std::size_t pass = 0; pass < passes.size(); ++pass) {
            report["nominal_gflop"][std::string(passes[pass])] = m_plan.nominal_flop(pass) * 1e-9;
        }
        m_plan.add_fields(report);
        report["rounds"] = m_request.rounds;
        report["runs_per_round"] = m_request.runs;
        if (m_request.fields) m_request.fields(report);
        return report;
    }

    std::string_view m_op;
    BenchPlan& m_plan;
    const BenchRequest& m_request;
    Context& m_context;
    Machine m_machine;
    std::string m_missing, m_no_sgemm, m_sgemm_name;
    double m_peak_flop = 0;
    std::vector<Subject> m_subjects;  // multiply-adds, sgemm if there is one, the plan's
    std::vector<Contestant> m_all;
    Timing m_peak, m_sgemm;
};

// Kernels of an Operator, as it opens and judges them.
class OperatorPlan : public BenchPlan {
public:
    OperatorPlan(const Operator& op, BenchCase timed, const BenchRequest& request, Context& context)
        : m_operator(op), m_case(std::move(timed)), m_request(request), m_context(context) {}

    std::vector<std::string_view> passes() const override {
        return {m_operator.passes().begin(), m_operator.passes().end()};
    }
    std::string_view error_unit() const override { return m_operator.error_unit(); }
    double nominal_flop(std::size_t pass) const override { return m_problem->flop(pass); }
    std::string title() const override {
        return fmt::format("{}, {}\n", m_case.title, m_request.bf16 ? "bf16" : "f32");
    }

    Result<std::vector<Contestant>> contestants() override {
        GDNCTL_TRY_ASSIGN(m_problem, m_operator.read(m_case.inputs));
        for (const oracle::NamedTensor& t : m_case.inputs.tensors) m_input_bytes += t.tensor.bytes.size();
        m_case.inputs.tensors.clear();  // the problem has its own copy
        forget_peak_rss();
        std::vector<std::pair<std::string, bool>> names = {{m_request.kernel.value_or("builtin:fused"), false}};
        for (const std::string& peer : m_request.peers) names.emplace_back(peer, true);
        std::vector<Contestant> all;
        for (const auto& [name, peer] : names) {
            GDNCTL_TRY_ASSIGN(auto opened, m_operator.open(name, {m_request.limits, m_request.isa, true}, m_context));
            const std::shared_ptr<Kernel> kernel = std::move(opened);
            for (std::size_t pass = 0; pass < m_operator.passes().size(); ++pass) {
                GDNCTL_TRY_ASSIGN(const bool has, kernel->has(pass));
                if (pass > 0 && !has) continue;
                m_trials.push_back(std::make_unique<Trial>());
                m_trials.back()->kernel = kernel;
                m_trials.back()->pass = pass;
                Contestant& c = all.emplace_back();
                c.kernel = name;
                c.pass = pass;
                c.peer = peer;
                c.label = fmt::format("{}, {}", name, m_operator.passes()[pass]);
                c.timed = kernel->is_program() ? "process" : kernel->timed();
                c.subject = subject_of(*m_trials.back(), name);
            }
        }
        return all;
    }

    Status finish(std::vector<Contestant>& all, const std::vector<Subject>& /*timed*/,
                  const Subject& /*peak*/) override {
        m_peak_rss = peak_rss();
        const bool foreign =
            std::any_of(m_trials.begin(), m_trials.end(), [](const auto& t) { return t->kernel->is_foreign(); });
        // Every pass gives what the first one gives, so no kernel does with less than its operations.
        const double least = foreign ? m_problem->flop(0) / most_flop_a_second(m_request.threads, m_context.clock) : 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            Trial& t = *m_trials[i];
            Contestant& c = all[i];
            if (t.good() && !t.kernel->is_foreign()) GDNCTL_TRY(judge_own(t));
            c.environment = t.kernel->facts().environment;
            c.times = t.kernel->times();
            c.not_returned = t.not_returned;
            if (t.good() && t.kernel->is_foreign() && !is_on_accelerator(c.environment)) {
                c.floor_s = least;
                t.fault = impossible_time(c.timing.seconds.min, least, m_request.threads);
            }
            c.verified = t.good();
            c.error = t.error;
            c.network = t.network;
            c.reason = !t.reason.empty() ? t.reason
                       : t.fault         ? fmt::format("{}: {}", oracle::name_of(t.fault->kind), t.fault->text)
                                         : std::string();
            c.fault = std::move(t.fault);
        }
        return {};
    }

    std::string notes(const std::vector<Contestant>& /*all*/) const override {
        if (!m_peak_rss) return {};
        const auto mib = [](auto bytes) { return static_cast<double>(bytes) / (1 << 20); };
        return fmt::format("peak memory {:.0f} MiB: inputs {:.0f}, gradients {:.0f}\n", mib(*m_peak_rss),
                           mib(m_input_bytes), mib(m_problem->gradient_bytes()));
    }

    void add_fields(Json& report) const override {
        if (m_case.shape) m_case.shape(report);
        report["peak_rss_bytes"] = m_peak_rss ? Json(*m_peak_rss) : Json();
        report["input_bytes"] = m_input_bytes;
        report["gradient_bytes"] = m_problem->gradient_bytes();
    }

private:
    // One kernel and pass, run by run.
    struct Trial {
        std::shared_ptr<Kernel> kernel;
        std::size_t pass = 0;
        TensorFile file;                   // of a third-party kernel's run
        std::unique_ptr<Problem> problem;  // the same
        std::optional<Error> error_of_ours;
        std::optional<oracle::KernelFault> fault;
        std::string reason, network;
        std::set<std::string> not_returned;
        bool right = false;  // some run of a third-party kernel was
        double error = 0;

        bool good() const { return !fault && reason.empty(); }
    };

    Subject subject_of(Trial& t, const std::string& name) {
        Subject subject{name,
                        m_problem->flop(t.pass),
                        [&t] {
                            if (!t.good()) return;
                            auto fault = t.kernel->call();
                            if (!fault) {
                                t.error_of_ours = std::move(fault).error();
                            } else {
                                t.fault = std::move(*fault);
                            }
                        },
                        {},
                        {}};
        subject.before = [this, &t] { return place(t); };
        subject.after = [this, &t] { return look_at(t); };
        subject.counted = [&t](double ours) { return t.kernel->times().wall.value_or(ours); };
        subject.device = [&t] { return t.kernel->times().device; };
        return subject;
    }

    // New inputs for each run of a third-party kernel, so that nothing that it keeps is of use.
    Status place(Trial& t) {
        if (!t.good()) return {};
        if (t.kernel->is_foreign()) {
            t.file = m_case.fresh(secret_seed());
            GDNCTL_TRY_ASSIGN(t.problem, m_operator.read(t.file));
            if (!t.kernel->is_program()) t.file.tensors.clear();
        }
        Problem& problem = t.problem ? *t.problem : *m_problem;
        GDNCTL_TRY_ASSIGN(t.fault, t.kernel->place({problem, t.pass, m_request.threads}));
        return {};
    }

    // Of a kernel of our own nothing but the last outputs are looked at, after the rounds.
    Status look_at(Trial& t) {
        if (t.error_of_ours) return tl::unexpected(*t.error_of_ours);
        if (!t.good() || !t.kernel->is_foreign()) return {};
        t.network = t.kernel->network();
        TensorFile outputs;
        GDNCTL_TRY_ASSIGN(t.fault, t.kernel->collect(outputs));
        t.not_returned = oracle::not_returned(outputs);
        return t.fault ? Status{} : judge(*t.problem, outputs, t);
    }

    Status judge_own(Trial& t) {
        GDNCTL_TRY(t.kernel->place({*m_problem, t.pass, m_request.threads}));
        TensorFile outputs;
        GDNCTL_TRY(t.kernel->collect(outputs));
        return judge(*m_problem, outputs, t);
    }

    // Where a run is not right, t.reason says why.
    Status judge(Problem& problem, const TensorFile& outputs, Trial& t) const {
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

    const Operator& m_operator;
    BenchCase m_case;
    const BenchRequest& m_request;
    Context& m_context;
    std::unique_ptr<Problem> m_problem;
    std::size_t m_input_bytes = 0;
    std::vector<std::unique_ptr<Trial>> m_trials;  // of each contestant
    std::optional<std::int64_t> m_peak_rss;
};

}  // namespace

std::optional<double> peak_flop_of(const Json& environment, const std::optional<double>& peak_tflops) {
    struct Chip {
        std::string_view name;
        double tflops;
    };
    // Longer names first: "TPU v5" is a v5p.
    constexpr Chip k_chips[] = {{"v5 lite", 197}, {"v5e", 197},  {"v6 lite", 918}, {"v6e", 918},  {"v4", 275},
                                {"v5", 459},      {"H100", 989}, {"H200", 989},    {"B200", 2250}};
    if (!is_on_accelerator(environment)) return std::nullopt;
    constexpr double k_tera = 1e12;
    if (peak_tflops) return *peak_tflops * k_tera;
    const std::string kind = json::text(environment, "device_kind");
    for (const Chip& chip : k_chips) {
        if (kind.find(chip.name) != std::string::npos) return chip.tflops * k_tera;
    }
    return std::nullopt;
}

bool is_on_accelerator(const Json& environment) {
    const std::string platform = json::text(environment, "platform");
    return !platform.empty() && platform != "cpu";
}

Result<BenchDone> bench(std::string_view op, BenchPlan& plan, const BenchRequest& request, Context& context) {
    return Bench(op, plan, request, context).run();
}

std::unique_ptr<BenchPlan> plan_of(const Operator& op, BenchCase timed, const BenchRequest& request, Context& context) {
    return std::make_unique<OperatorPlan>(op, std::move(timed), request, context);
}

}  // namespace gdnctl::harness
