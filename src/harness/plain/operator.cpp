#include "harness/plain/operator.h"

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

    std::string page() const override {
        const Judgement& j = m_judgement;
        return oracle::page_html({m_op, oracle::name_of(j.verdict), j.reason, fmt::format("{:.2g} x limit", j.error),
                                  j.diagnosis, j.worst ? oracle::worst_html({*j.worst}) : std::string()});
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

Result<Call> Problem::call(std::size_t /*pass*/, std::uint32_t /*dtypes*/, int /*threads*/) {
    return fail(ErrorKind::usage, "this operator has no interface for loaded kernels", "name a program: cmd:COMMAND");
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
