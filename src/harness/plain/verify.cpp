#include "harness/plain/verify.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "harness/child/library.h"
#include "harness/files.h"
#include "oracle/judge/report.h"
#include "platform/signals.h"

namespace gdnctl::harness {

std::string text_of(const std::vector<SkippedCase>& cases) {
    std::vector<std::pair<std::string, int>> counts;
    for (const SkippedCase& c : cases) {
        const auto found =
            std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == c.reason; });
        if (found == counts.end()) {
            counts.emplace_back(c.reason, 1);
        } else {
            ++found->second;
        }
    }
    if (counts.empty()) return {};
    std::string text = fmt::format("skipped, not as declared: {} case{}\n", cases.size(), cases.size() == 1 ? "" : "s");
    for (const auto& [reason, count] : counts) text += fmt::format("       {:>4}  {}\n", count, reason);
    return text;
}

Json json_of(const std::vector<SkippedCase>& cases) {
    Json all = Json::array();
    for (const SkippedCase& c : cases) all.push_back({{"name", c.name}, {"reason", c.reason}});
    return all;
}

std::string alike_text(const std::string& analysed, const std::vector<std::string>& others) {
    std::string line = fmt::format("fault in {}", analysed);
    if (others.empty()) return line;
    line += fmt::format("; {} more look{} like it:", others.size(), others.size() == 1 ? "s" : "");
    constexpr std::size_t k_listed = 5;
    for (std::size_t i = 0; i < std::min(others.size(), k_listed); ++i) {
        line += fmt::format("{} {}", i == 0 ? "" : ",", others[i]);
    }
    return line + (others.size() > k_listed ? ", ..." : "");
}

Result<std::vector<std::pair<std::string, RecordedVector>>> find_vectors(const std::filesystem::path& folder) {
    constexpr std::string_view k_inputs = ".inputs.safetensors";
    constexpr std::string_view k_outputs = ".outputs.safetensors";
    std::error_code error;
    std::vector<std::string> files;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
        files.push_back(it->path().filename().string());
    }
    if (error)
        return fail(ErrorKind::usage, fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
    std::sort(files.begin(), files.end());
    std::vector<std::pair<std::string, RecordedVector>> vectors;
    for (const std::string& file : files) {
        if (!file.ends_with(k_inputs)) continue;
        const std::string name = file.substr(0, file.size() - k_inputs.size());
        RecordedVector vector{folder / file, {}};
        for (const std::string& other : files) {
            if (other.starts_with(name + ".") && other.ends_with(k_outputs)) vector.outputs.push_back(folder / other);
        }
        if (!vector.outputs.empty()) vectors.emplace_back(name, std::move(vector));
    }
    if (vectors.empty()) {
        return fail(ErrorKind::bad_input,
                    fmt::format("{} has no NAME.inputs.safetensors with NAME.*.outputs.safetensors", folder.string()));
    }
    return vectors;
}

namespace {

using oracle::KernelFault;
using oracle::TensorFile;
using oracle::Verdict;

// What the analysis of a failure needs.
struct Dump {
    TensorFile inputs, outputs;
};

class CaseVerifier {
public:
    CaseVerifier(const PlainOperator& op, const VerifyRequest& request, Context& context)
        : m_operator(op), m_request(request), m_context(context) {}

    Result<Verified> run(const std::function<void(const std::string&)>& said) {
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
        Verified& all = m_done;
        for (const CaseRow& c : cases.rows) {
            if (!wanted(c.name)) continue;
            GDNCTL_TRY(check_stop());
            if (!all.cases.empty() && all.cases.back().fault && oracle::ends_everything(*all.cases.back().fault)) {
                ++all.not_run;
                continue;
            }
            auto done = judge(c.name);
            if (!done) return tl::unexpected(std::move(done).error().within("case " + c.name));
            if (!*done) continue;
            said(text_of(**done));
            all.cases.push_back(std::move(**done));
        }
        for (const auto& [name, vector] : vectors) {
            if (!wanted(name)) continue;
            GDNCTL_TRY(judge_vector(vector, said));
        }
        GDNCTL_TRY(analyse(said));
        all.network = m_kernel->network();
        if (all.network == "none") log::warning("cannot block the kernel's network access on this system");
        return std::move(all);
    }

private:
    Status check_stop() const {
        if (!m_context.stop.stop_requested()) return {};
        return fail(stopped_error().kind, "stopped before everything was judged");
    }

    Judging judging(bool explain) const {
        return {true, m_request.threads, [this] { return m_context.stop.stop_requested(); }, 1, explain};
    }

    // Looks for the mistake in one item of each look.
    Status analyse(const std::function<void(const std::string&)>& said) {
        for (const auto& group : m_alike.groups()) {
            GDNCTL_TRY_ASSIGN(const auto problem, m_operator.read(group.kept.inputs));
            CaseVerdict& analysed = m_done.cases[group.analysed];
            GDNCTL_TRY_ASSIGN(analysed.judgement, problem->judge(group.kept.outputs, judging(true)));
            GDNCTL_TRY(check_stop());
            std::vector<std::string> others;
            for (const std::size_t i : group.items) {
                if (i == group.analysed) continue;
                m_done.cases[i].same_fault_as = analysed.name;
                m_done.cases[i].judgement.stage = analysed.judgement.stage;
                others.push_back(m_done.cases[i].name);
            }
            said(fault_text(analysed, others));
        }
        return {};
    }

    void keep(const CaseVerdict& item, const TensorFile& inputs, const TensorFile& outputs) {
        if (item.fault || !item.failed()) return;
        const std::string look = fmt::format("{} {}", oracle::name_of(item.judgement.verdict), item.judgement.wrong);
        m_alike.add(look, m_done.cases.size(),
                    static_cast<double>(inputs.find("w") != nullptr ? inputs.find("w")->count() : 0),
                    {inputs, outputs});
    }

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

    // Nothing: the case is left out.
    Result<std::optional<CaseVerdict>> judge(const std::string& name) {
        std::optional<TensorFile> other_shape;
        if (m_request.unseen) other_shape = m_operator.resized(name, m_request.seed.value_or(1), m_request.bf16);
        TensorFile inputs =
            other_shape ? std::move(*other_shape) : m_operator.inputs(name, m_request.seed, m_request.bf16);
        GDNCTL_TRY_ASSIGN(const auto needed, m_operator.declare(inputs, m_request.sets));
        if (needed) {
            m_done.skipped.push_back({name, "needs " + *needed});
            return std::optional<CaseVerdict>();
        }
        CaseVerdict item;
        item.name = name;
        GDNCTL_TRY_ASSIGN(const TensorFile first, ask(inputs, item));
        if (item.failed() || !m_kernel->is_foreign()) return std::optional(item);
        if (const auto other = m_operator.disguised(inputs)) {
            GDNCTL_TRY(ask(*other, item));
            if (item.failed()) return std::optional(item);
        }
        GDNCTL_TRY_ASSIGN(const TensorFile again, ask(inputs, item));
        for (const oracle::NamedTensor& entry : first.tensors) {
            const oracle::Tensor* found = again.find(entry.name);
            item.bit_equal = item.bit_equal && found != nullptr && found->bytes == entry.tensor.bytes;
        }
        return std::optional(item);
    }

    // What others computed from recorded inputs; the kernel is not asked.
    Status judge_vector(const RecordedVector& vector, const std::function<void(const std::string&)>& said) {
        GDNCTL_TRY_ASSIGN(TensorFile inputs, oracle_files::read(m_context, {vector.inputs.string()}, {}));
        const auto op = inputs.metadata.find("op");
        if (op != inputs.metadata.end() && op->second != m_operator.name()) {
            log::info("{} is for {}: skipped", vector.inputs.filename().string(), op->second);
            return {};
        }
        for (const std::string& set : m_request.sets) {
            inputs.metadata[set.substr(0, set.find('='))] = set.substr(set.find('=') + 1);
        }
        auto problem = m_operator.read(inputs);
        if (!problem) return tl::unexpected(std::move(problem).error().within(vector.inputs.string()));
        for (const auto& path : vector.outputs) {
            GDNCTL_TRY_ASSIGN(const TensorFile outputs, oracle_files::read(m_context, {path.string()}, {}));
            auto judgement = (*problem)->judge(outputs, judging(false));
            if (!judgement) return tl::unexpected(std::move(judgement).error().within(path.string()));
            GDNCTL_TRY(check_stop());
            CaseVerdict item{"vector", path.filename().string(), std::move(*judgement), {}, true};
            keep(item, inputs, outputs);
            said(text_of(item));
            m_done.cases.push_back(std::move(item));
        }
        return {};
    }

    // Runs the kernel and judges what it gives; the outputs.
    Result<TensorFile> ask(const TensorFile& inputs, CaseVerdict& item) {
        GDNCTL_TRY_ASSIGN(const auto problem, m_operator.read(inputs));
        GDNCTL_TRY_ASSIGN(auto run, run_once(*m_kernel, {*problem, m_pass, m_request.threads}));
        item.fault = std::move(run.fault);
        if (item.fault) return TensorFile{};
        auto judgement = problem->judge(run.outputs, judging(false));
        if (!judgement) {  // what it wrote cannot be compared: its doing
            item.fault = KernelFault{oracle::KernelFaultKind::wrong_shape, judgement.error().text(), {}};
            return TensorFile{};
        }
        item.judgement = std::move(*judgement);
        if (item.judgement.verdict == Verdict::no_data) {
            item.fault = KernelFault{oracle::KernelFaultKind::incomplete, item.judgement.reason, {}};
        }
        keep(item, inputs, run.outputs);
        return std::move(run.outputs);
    }

    const PlainOperator& m_operator;
    const VerifyRequest& m_request;
    Context& m_context;
    std::unique_ptr<Kernel> m_kernel;
    std::size_t m_pass = 0;
    Verified m_done;
    Alike<Dump> m_alike;
};

}  // namespace

std::string text_of(const CaseVerdict& item) {
    std::string line = fmt::format("{:<6} {:<28} {:<14} ", item.kind, item.name, item.verdict_name());
    if (item.fault) return line + fmt::format("\n       {}\n", item.fault->text) + quoted_output(*item.fault);
    line += fmt::format("{:.2g} x limit{}\n", item.judgement.error,
                        item.bit_equal ? "" : ", not bit-identical between calls");
    if (!item.failed()) return line;
    return line + fmt::format("       {}\n", item.judgement.reason);
}

std::string fault_text(const CaseVerdict& analysed, const std::vector<std::string>& others) {
    std::string lines = alike_text(fmt::format("{} {}", analysed.kind, analysed.name), others) + "\n";
    const std::string_view diagnosis = text::trim(analysed.judgement.diagnosis);
    if (diagnosis.empty()) return lines;
    for (const auto part : text::split(diagnosis, '\n')) lines += fmt::format("       {}\n", part);
    return lines;
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
            {"stage", j.stage.empty() ? Json(nullptr) : Json(j.stage)},
            {"same_fault_as", item.same_fault_as.empty() ? Json(nullptr) : Json(item.same_fault_as)}};
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
                              const std::function<void(const std::string&)>& said) {
    return CaseVerifier(op, request, context).run(said);
}

}  // namespace gdnctl::harness
