#include "commands/oracle/linear_ce_verify.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/linear_ce_report.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "harness/child/kernel.h"
#include "harness/files.h"
#include "harness/linear_ce/kernel.h"
#include "oracle/gdn/report/report.h"
#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/compare.h"
#include "oracle/tensor/random.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::linear_ce {

namespace {

namespace lce = oracle::linear_ce;
using oracle::KernelFault;
using oracle::TensorFile;
using oracle::Verdict;

struct Judged {
    std::string name;
    lce::Report report;
    std::optional<KernelFault> fault;
    bool bit_equal = true;

    bool failed() const { return fault || report.verdict != Verdict::ok; }
    std::string_view verdict_name() const { return fault ? oracle::name_of(fault->kind) : report.verdict_name(); }
    double error() const {
        double worst = 0;
        for (const lce::TensorVerdict& t : report.tensors) worst = std::max(worst, t.error_over_limit);
        return worst;
    }
};

// The same problem with the signs of some hidden dimensions changed in x and w: logits and loss stay as they are, bit
// for bit, and a kernel that has seen the inputs before cannot know the gradients.
TensorFile disguised(const TensorFile& inputs, std::size_t hidden, bool hv, std::uint64_t seed) {
    TensorFile file = inputs;
    oracle::Random random(seed, 7);
    std::vector<bool> negative(hidden);
    for (std::size_t h = 0; h < hidden; ++h) negative[h] = (random.bits() & 1U) != 0;
    for (oracle::NamedTensor& entry : file.tensors) {
        if (entry.name != "x" && entry.name != "w") continue;
        std::vector<double> values = oracle::to_f64(entry.tensor);
        const bool by_row = entry.name == "w" && hv;
        const auto columns = static_cast<std::size_t>(entry.tensor.shape[1]);
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (negative[by_row ? i / columns : i % columns]) values[i] = -values[i];
        }
        entry.tensor = oracle::from_f64(values, entry.tensor.shape, entry.tensor.dtype);
    }
    return file;
}

class Verifier {
public:
    Verifier(const VerifyOptions& options, Context& context, int threads)
        : m_options(options), m_context(context), m_threads(threads) {}

    Status run() {
        GDNCTL_TRY(check_names());
        GDNCTL_TRY_ASSIGN(m_kernel, harness::open_linear_ce_kernel(m_options.kernel, m_options.limits, m_context));
        GDNCTL_TRY_ASSIGN(m_gradients, m_kernel->has_gradients());
        for (const lce::Case& c : lce::cases()) {
            if (!wanted(c.name)) continue;
            if (m_context.stop.stop_requested()) {
                return fail(stopped_error().kind, "stopped before all cases were judged");
            }
            if (!m_judged.empty() && m_judged.back().fault && oracle::ends_everything(m_judged.back().fault->kind)) {
                ++m_not_run;
                continue;
            }
            auto done = judge(c);
            if (!done) return tl::unexpected(std::move(done).error().within("case " + c.name));
        }
        m_network = m_kernel->network();
        if (m_network == "none") log::warning("this system lets nothing keep the kernel from the network");
        return {};
    }

    const std::vector<Judged>& judged() const { return m_judged; }
    int not_run() const { return m_not_run; }
    const std::string& network() const { return m_network; }

private:
    bool wanted(const std::string& name) const {
        return m_options.cases.empty() ||
               std::find(m_options.cases.begin(), m_options.cases.end(), name) != m_options.cases.end();
    }

    Status check_names() const {
        for (const std::string& name : m_options.cases) {
            if (lce::find_case(name) != nullptr) continue;
            const auto near = text::nearest(name, lce::case_names());
            return fail(ErrorKind::usage, fmt::format("case '{}' is not known", name),
                        near ? fmt::format("did you mean '{}'?", *near) : "gdnctl oracle cases linear-ce lists them");
        }
        return {};
    }

    Status judge(const lce::Case& listed) {
        lce::Case c = listed;
        if (m_options.seed && c.values != lce::Values::formula && c.values != lce::Values::identity)
            c.seed = *m_options.seed;
        if (m_options.bf16) c.dtype = oracle::DType::bf16;
        const TensorFile inputs = lce::make_inputs(c);
        Judged item;
        item.name = c.name;
        GDNCTL_TRY_ASSIGN(const TensorFile first, ask(inputs, item));
        if (!item.failed() && m_kernel->is_foreign()) {
            const TensorFile other = disguised(inputs, c.hidden, c.layout == lce::Layout::hv, c.seed);
            GDNCTL_TRY(ask(other, item));
            if (!item.failed()) {
                GDNCTL_TRY_ASSIGN(const TensorFile again, ask(inputs, item));
                for (const oracle::NamedTensor& entry : first.tensors) {
                    const oracle::Tensor* found = again.find(entry.name);
                    item.bit_equal = item.bit_equal && found != nullptr && found->bytes == entry.tensor.bytes;
                }
            }
        }
        if (!m_context.global.json) m_context.terminal.out(text_of(item));
        m_judged.push_back(std::move(item));
        return {};
    }

    // Runs the kernel and judges what it gives; the outputs.
    Result<TensorFile> ask(const TensorFile& inputs, Judged& item) {
        GDNCTL_TRY_ASSIGN(const lce::Problem problem, read_problem(inputs, {}));
        GDNCTL_TRY_ASSIGN(auto run, m_kernel->run(inputs, problem, m_gradients, m_threads));
        item.fault = std::move(run.fault);
        if (item.fault) return TensorFile{};
        lce::CompareOptions how;
        how.level = lce::Level::exact;
        how.work = {m_threads, [this] { return m_context.stop.stop_requested(); }};
        auto report = lce::compare(problem, run.outputs, how);
        if (!report) {  // what it wrote cannot be compared: its doing
            item.fault = KernelFault{oracle::KernelFaultKind::wrong_shape, report.error().text(), {}};
            return TensorFile{};
        }
        item.report = std::move(*report);
        if (item.report.verdict == Verdict::no_data) {
            item.fault = KernelFault{oracle::KernelFaultKind::incomplete, item.report.reason, {}};
        }
        return std::move(run.outputs);
    }

    static std::string text_of(const Judged& item) {
        std::string line = fmt::format("case   {:<28} {:<14} ", item.name, item.verdict_name());
        if (item.fault)
            return line + fmt::format("\n       {}\n", item.fault->text) + harness::quoted_output(*item.fault);
        line += fmt::format("{:.2g} x limit{}\n", item.error(), item.bit_equal ? "" : ", other bits each time");
        if (!item.failed()) return line;
        line += fmt::format("       {}\n", item.report.reason);
        const std::string diagnosis = diagnosis_text(item.report);
        for (const auto part : text::split(text::trim(diagnosis), '\n')) line += fmt::format("       {}\n", part);
        return line;
    }

    const VerifyOptions& m_options;
    Context& m_context;
    int m_threads;
    std::unique_ptr<harness::LinearCeKernel> m_kernel;
    bool m_gradients = true;
    std::vector<Judged> m_judged;
    int m_not_run = 0;
    std::string m_network;
};

Json json_of(const Judged& item) {
    return {{"kind", "case"},
            {"name", item.name},
            {"verdict", item.verdict_name()},
            {"expected_verdict", "OK"},
            {"error_over_budget", oracle_report::number(item.error())},
            {"reason", item.report.reason},
            {"worst", oracle_report::worst_json(item.report.worst)},
            {"fault", harness::fault_json(item.fault)},
            {"bit_equal", item.bit_equal},
            {"forward_only", item.report.forward_only},
            {"stage", item.report.stage.empty() ? Json(nullptr) : Json(item.report.stage)}};
}

}  // namespace

Status check_verify(std::string_view op, bool others) {
    if (op != k_op || !others) return {};
    return fail(ErrorKind::usage,
                "linear-ce takes none of --metamorphic, --slow, --vectors, --allow-suspect and --dtype f16");
}

Result<ExitCode> verify(const VerifyOptions& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    Verifier verifier(options, context, threads);
    GDNCTL_TRY(verifier.run());
    const std::vector<Judged>& all = verifier.judged();
    const KernelFault* fault = nullptr;
    Verdict verdict = all.empty() ? Verdict::no_data : Verdict::ok;
    bool forward_only = !all.empty();
    for (const Judged& item : all) {
        if (item.fault && (fault == nullptr || fault->kind < item.fault->kind)) fault = &*item.fault;
        if (!item.fault && item.report.verdict != Verdict::ok) verdict = item.report.verdict;
        forward_only = forward_only && (item.fault || item.report.forward_only);
    }
    const auto failed = std::count_if(all.begin(), all.end(), [](const Judged& i) { return i.failed(); });
    const std::string_view name = fault != nullptr ? oracle::name_of(fault->kind) : oracle::name_of(verdict);
    if (context.global.json) {
        Json report = {{"schema", "gdnctl.oracle-verify/1"}, {"op", k_op}, {"kernel", options.kernel}};
        report["dtype"] = options.bf16 ? "bf16" : "case";
        report["seed"] = options.seed ? Json(*options.seed) : Json(nullptr);
        report["verdict"] = name;
        report["forward_only"] = forward_only;
        report["cases"] = all.size();
        report["failed"] = failed;
        report["not_run"] = verifier.not_run();
        report["network_barrier"] = verifier.network().empty() ? Json(nullptr) : Json(verifier.network());
        report["items"] = Json::array();
        for (const Judged& item : all) report["items"].push_back(json_of(item));
        context.terminal.out(to_text(report, 2) + "\n");
    } else {
        if (!verifier.network().empty())
            context.terminal.out(fmt::format("network kept away by: {}\n", verifier.network()));
        if (forward_only) context.terminal.out("FORWARD ONLY: no gradient was compared\n");
        context.terminal.out(fmt::format(
            "verdict: {} ({} cases{}{})\n", name, all.size(), failed == 0 ? "" : fmt::format("; {} failed", failed),
            verifier.not_run() == 0 ? "" : fmt::format(", {} not run", verifier.not_run())));
    }
    return fault != nullptr ? harness::exit_code_of(fault->kind) : oracle_report::exit_code_of(verdict, false);
}

}  // namespace gdnctl::commands::linear_ce
