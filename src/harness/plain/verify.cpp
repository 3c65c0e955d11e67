#include "harness/plain/verify.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/text.h"
#include "harness/child/kernel.h"
#include "harness/files.h"
#include "harness/verify/vectors.h"
#include "oracle/judge/report.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

using oracle::KernelFault;
using oracle::TensorFile;
using oracle::Verdict;

class CaseVerifier {
public:
    CaseVerifier(const PlainOperator& op, const VerifyRequest& request, Context& context)
        : m_operator(op), m_request(request), m_context(context) {}

    Result<Verified> run(const std::function<void(const CaseVerdict&)>& judged) {
        const CaseList cases = m_operator.cases();
        std::vector<std::pair<std::string, RecordedVector>> vectors;
        if (m_request.vectors) {
            GDNCTL_TRY_ASSIGN(vectors, find_vectors(*m_request.vectors));
        }
        GDNCTL_TRY(check_names(cases, vectors));
        GDNCTL_TRY_ASSIGN(m_kernel, m_operator.open(m_request.kernel, {m_request.limits}, m_context));
        // The last pass gives all that there is to judge.
        for (std::size_t pass = 1; pass < m_operator.passes().size(); ++pass) {
            GDNCTL_TRY_ASSIGN(const bool has, m_kernel->has(pass));
            if (has) m_pass = pass;
        }
        Verified all;
        for (const CaseRow& c : cases.rows) {
            if (!wanted(c.name)) continue;
            if (m_context.stop.stop_requested()) {
                return fail(stopped_error().kind, "stopped before all cases were judged");
            }
            if (!all.cases.empty() && all.cases.back().fault && oracle::ends_everything(all.cases.back().fault->kind)) {
                ++all.not_run;
                continue;
            }
            auto done = judge(c.name);
            if (!done) return tl::unexpected(std::move(done).error().within("case " + c.name));
            judged(*done);
            all.cases.push_back(std::move(*done));
        }
        for (const auto& [name, vector] : vectors) {
            if (!wanted(name)) continue;
            GDNCTL_TRY_ASSIGN(auto done, judge_vector(vector));
            for (CaseVerdict& item : done) {
                judged(item);
                all.cases.push_back(std::move(item));
            }
        }
        all.network = m_kernel->network();
        if (all.network == "none") log::warning("cannot block the kernel's network access on this system");
        return all;
    }

private:
    bool wanted(const std::string& name) const {
        return m_request.cases.empty() ||
               std::find(m_request.cases.begin(), m_request.cases.end(), name) != m_request.cases.end();
    }

    Status check_names(const CaseList& cases,
                       const std::vector<std::pair<std::string, RecordedVector>>& vectors) const {
        std::vector<std::string> known;
        for (const auto& [name, vector] : vectors) known.push_back(name);
        for (const CaseRow& c : cases.rows) known.push_back(c.name);
        for (const std::string& name : m_request.cases) {
            if (std::find(known.begin(), known.end(), name) != known.end()) continue;
            const auto near = text::nearest(name, known);
            return fail(ErrorKind::usage, fmt::format("unknown case '{}'", name),
                        near ? fmt::format("did you mean '{}'?", *near)
                             : fmt::format("gdnctl oracle cases {} lists them", m_operator.name()));
        }
        return {};
    }

    Result<CaseVerdict> judge(const std::string& name) {
        std::optional<TensorFile> other_shape;
        if (m_request.unseen) other_shape = m_operator.resized(name, m_request.seed.value_or(1), m_request.bf16);
        const TensorFile inputs =
            other_shape ? std::move(*other_shape) : m_operator.inputs(name, m_request.seed, m_request.bf16);
        CaseVerdict item;
        item.name = name;
        GDNCTL_TRY_ASSIGN(const TensorFile first, ask(inputs, item));
        if (item.failed() || !m_kernel->is_foreign()) return item;
        if (const auto other = m_operator.disguised(inputs)) {
            GDNCTL_TRY(ask(*other, item));
            if (item.failed()) return item;
        }
        GDNCTL_TRY_ASSIGN(const TensorFile again, ask(inputs, item));
        for (const oracle::NamedTensor& entry : first.tensors) {
            const oracle::Tensor* found = again.find(entry.name);
            item.bit_equal = item.bit_equal && found != nullptr && found->bytes == entry.tensor.bytes;
        }
        return item;
    }

    // What others computed from recorded inputs; the kernel is not asked.
    Result<std::vector<CaseVerdict>> judge_vector(const RecordedVector& vector) const {
        GDNCTL_TRY_ASSIGN(const TensorFile inputs, oracle_files::read(m_context, {vector.inputs.string()}, {}));
        const auto op = inputs.metadata.find("op");
        if (op != inputs.metadata.end() && op->second != m_operator.name()) {
            log::info("{} is for {}: skipped", vector.inputs.filename().string(), op->second);
            return std::vector<CaseVerdict>{};
        }
        auto problem = m_operator.read(inputs);
        if (!problem) return tl::unexpected(std::move(problem).error().within(vector.inputs.string()));
        std::vector<CaseVerdict> items;
        for (const auto& path : vector.outputs) {
            GDNCTL_TRY_ASSIGN(const TensorFile outputs, oracle_files::read(m_context, {path.string()}, {}));
            auto judgement = (*problem)->judge(
                outputs, {true, m_request.threads, [this] { return m_context.stop.stop_requested(); }});
            if (!judgement) return tl::unexpected(std::move(judgement).error().within(path.string()));
            items.push_back({"vector", path.filename().string(), std::move(*judgement), {}, true});
        }
        if (m_context.stop.stop_requested()) {
            return fail(stopped_error().kind, "stopped before all vectors were judged");
        }
        return items;
    }

    // Runs the kernel and judges what it gives; the outputs.
    Result<TensorFile> ask(const TensorFile& inputs, CaseVerdict& item) {
        GDNCTL_TRY_ASSIGN(const auto problem, m_operator.read(inputs));
        GDNCTL_TRY_ASSIGN(auto run, run_once(*m_kernel, {*problem, m_pass, m_request.threads}));
        item.fault = std::move(run.fault);
        if (item.fault) return TensorFile{};
        auto judgement =
            problem->judge(run.outputs, {true, m_request.threads, [this] { return m_context.stop.stop_requested(); }});
        if (!judgement) {  // what it wrote cannot be compared: its doing
            item.fault = KernelFault{oracle::KernelFaultKind::wrong_shape, judgement.error().text(), {}};
            return TensorFile{};
        }
        item.judgement = std::move(*judgement);
        if (item.judgement.verdict == Verdict::no_data) {
            item.fault = KernelFault{oracle::KernelFaultKind::incomplete, item.judgement.reason, {}};
        }
        return std::move(run.outputs);
    }

    const PlainOperator& m_operator;
    const VerifyRequest& m_request;
    Context& m_context;
    std::unique_ptr<Kernel> m_kernel;
    std::size_t m_pass = 0;
};

}  // namespace

std::string text_of(const CaseVerdict& item) {
    std::string line = fmt::format("{:<6} {:<28} {:<14} ", item.kind, item.name, item.verdict_name());
    if (item.fault) return line + fmt::format("\n       {}\n", item.fault->text) + quoted_output(*item.fault);
    line += fmt::format("{:.2g} x limit{}\n", item.judgement.error,
                        item.bit_equal ? "" : ", not bit-identical between calls");
    if (!item.failed()) return line;
    line += fmt::format("       {}\n", item.judgement.reason);
    for (const auto part : text::split(text::trim(item.judgement.diagnosis), '\n')) {
        line += fmt::format("       {}\n", part);
    }
    return line;
}

Json json_of(const CaseVerdict& item) {
    const Judgement& j = item.judgement;
    return {{"kind", item.kind},
            {"name", item.name},
            {"verdict", item.verdict_name()},
            {"expected_verdict", "OK"},
            {"error_over_budget", oracle_report::number(j.error)},
            {"reason", j.reason},
            {"worst", oracle_report::worst_json(j.worst)},
            {"fault", fault_json(item.fault)},
            {"bit_equal", item.bit_equal},
            {"forward_only", j.forward_only},
            {"stage", j.stage.empty() ? Json(nullptr) : Json(j.stage)}};
}

const KernelFault* Verified::fault() const {
    const KernelFault* gravest = nullptr;
    for (const CaseVerdict& item : cases) {
        if (item.fault && (gravest == nullptr || gravest->kind < item.fault->kind)) gravest = &*item.fault;
    }
    return gravest;
}

Verdict Verified::verdict() const {
    Verdict verdict = cases.empty() ? Verdict::no_data : Verdict::ok;
    for (const CaseVerdict& item : cases) {
        if (!item.fault && item.failed()) verdict = item.judgement.verdict;
    }
    return verdict;
}

bool Verified::forward_only() const {
    return !cases.empty() && std::all_of(cases.begin(), cases.end(), [](const CaseVerdict& item) {
        return item.fault || item.judgement.forward_only;
    });
}

std::size_t Verified::failed() const {
    return static_cast<std::size_t>(
        std::count_if(cases.begin(), cases.end(), [](const CaseVerdict& item) { return item.failed(); }));
}

std::size_t Verified::count_of(std::string_view kind) const {
    return static_cast<std::size_t>(
        std::count_if(cases.begin(), cases.end(), [&](const CaseVerdict& item) { return item.kind == kind; }));
}

Result<Verified> verify_cases(const PlainOperator& op, const VerifyRequest& request, Context& context,
                              const std::function<void(const CaseVerdict&)>& judged) {
    return CaseVerifier(op, request, context).run(judged);
}

}  // namespace gdnctl::harness
