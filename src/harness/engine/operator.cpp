#include "harness/engine/operator.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/json.h"
#include "oracle/judge/report.h"

namespace gdnctl::harness {

namespace {

class PlainReport : public JudgementReport {
public:
    PlainReport(Judgement judgement, std::string_view op) : m_judgement(std::move(judgement)), m_op(op) {}

    std::string text(const Shown& /*shown*/) const override {
        const Judgement& j = m_judgement;
        return (j.worst ? "worst: " + oracle_report::place_text(*j.worst) + "\n" : std::string()) + j.diagnosis +
               fmt::format("{:.2g} x limit\n", j.error) +
               oracle_report::verdict_text(oracle::name_of(j.verdict), j.reason);
    }

    void add_to(Json& object) const override {
        const Judgement& j = m_judgement;
        object["verdict"] = oracle::name_of(j.verdict);
        object["reason"] = j.reason;
        object["stage"] = j.stage.empty() ? Json() : Json(j.stage);
        object["error_over_budget"] = oracle_report::number(j.error);
        object["worst"] = oracle_report::worst_json(j.worst);
        object["forward_only"] = j.forward_only;
    }

    std::string page(const Json& verdict) const override {
        const Judgement& j = m_judgement;
        return oracle::page_html(verdict, {.what = std::string(m_op),
                                           .about = fmt::format("{:.2g} x limit", j.error),
                                           .why = j.diagnosis,
                                           .worst = j.worst ? std::vector{*j.worst} : std::vector<oracle::Worst>()});
    }

private:
    Judgement m_judgement;
    std::string_view m_op;
};

}  // namespace

std::shared_ptr<const JudgementReport> report_of(const Judgement& judgement, std::string_view op) {
    if (judgement.report) return judgement.report;
    return std::make_shared<PlainReport>(judgement, op);
}

bool same_bytes(const oracle::TensorFile& a, const oracle::TensorFile& b) {
    return std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                      [](const oracle::NamedTensor& x, const oracle::NamedTensor& y) {
                          return x.name == y.name && x.tensor.dtype == y.tensor.dtype &&
                                 x.tensor.bytes == y.tensor.bytes;
                      });
}

Result<Call> Problem::call(std::size_t /*pass*/, std::uint32_t /*dtypes*/, int /*threads*/) {
    return fail(ErrorKind::usage, "this operator has no interface for loaded kernels", "name a program: cmd:COMMAND");
}

Result<PreparedCase> Operator::prepare(std::string_view case_name, const CaseOptions& options) const {
    const bool bf16 = options.dtype == oracle::DType::bf16;
    std::optional<oracle::TensorFile> other;
    if (options.unseen) other = resized(case_name, options.seed.value_or(1), bf16);
    PreparedCase made;
    made.inputs =
        std::make_unique<oracle::TensorFile>(other ? std::move(*other) : inputs(case_name, options.seed, bf16));
    GDNCTL_TRY_ASSIGN(const auto needed, declare(*made.inputs, options.sets));
    if (needed) {
        made.left_out = "needs " + *needed;
        return made;
    }
    GDNCTL_TRY_ASSIGN(made.problem, read(*made.inputs));
    // The last pass gives all that there is to judge.
    std::size_t last = 0;
    for (std::size_t pass = 1; pass < passes().size(); ++pass) {
        if ((options.entries & (1U << pass)) != 0) last = pass;
    }
    made.asks = {{.entry = last, .pass = last}};
    return made;
}

Result<PreparedCase> Operator::recorded(oracle::TensorFile inputs, const CaseOptions& options) const {
    for (const std::string& set : options.sets) {
        inputs.metadata[set.substr(0, set.find('='))] = set.substr(set.find('=') + 1);
    }
    PreparedCase made;
    made.inputs = std::make_unique<oracle::TensorFile>(std::move(inputs));
    GDNCTL_TRY_ASSIGN(made.problem, read(*made.inputs));
    return made;
}

std::string text_of(const CaseList& cases) {
    std::string text, set;
    for (const CaseRow& c : cases.rows) {
        if (c.set != set) {
            text +=
                fmt::format("{}{:<26} {:<{}} {}\n", set.empty() ? "" : "\n", c.set, cases.axes, cases.width, "special");
            set = c.set;
        }
        text += fmt::format("  {:<24} {:<{}} {}{}\n", c.name, c.shape, cases.width, c.about, c.note);
    }
    return text;
}

Json json_of(std::string_view op, const CaseList& cases) {
    Json report = {{"schema", "gdnctl.oracle-cases/1"}, {"op", op}, {"cases", Json::array()}};
    for (const CaseRow& c : cases.rows) {
        Json object = {{"name", c.name}, {"set", c.set}, {"about", c.about}};
        if (c.fields) c.fields(object);
        report["cases"].push_back(std::move(object));
    }
    return report;
}

}  // namespace gdnctl::harness
