#include "harness/plain/operator.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "harness/child/program.h"

namespace gdnctl::harness {

namespace {

class PlainProgram : public Kernel {
public:
    PlainProgram(const std::string& spelling, const Limits& limits, const Context& context)
        : m_run(spelling, limits, context) {}

    Faulted place(const Asked& asked) override {
        GDNCTL_TRY(m_run.prepare(asked.inputs, asked.problem.metadata(), asked.threads));
        return std::nullopt;
    }
    Faulted call() override { return m_run.call(); }
    Faulted collect(oracle::TensorFile& outputs) override { return m_run.collect(outputs); }
    std::string_view timed() const override { return "process"; }
    std::string network() const override { return m_run.network(); }

private:
    ProgramRun m_run;
};

}  // namespace

Result<oracle::KernelRun> run_once(Kernel& kernel, const Asked& asked) {
    oracle::KernelRun run;
    GDNCTL_TRY_ASSIGN(run.fault, kernel.place(asked));
    if (run.fault) return run;
    GDNCTL_TRY_ASSIGN(run.fault, kernel.call());
    if (run.fault) return run;
    GDNCTL_TRY_ASSIGN(run.fault, kernel.collect(run.outputs));
    return run;
}

Faulted OwnKernel::place(const Asked& asked) {
    m_asked.emplace(asked);
    return std::nullopt;
}

Faulted OwnKernel::call() {
    m_outputs[m_asked->pass] = m_function(*m_asked);
    return std::nullopt;
}

Faulted OwnKernel::collect(oracle::TensorFile& outputs) {
    outputs = std::move(m_outputs[m_asked->pass]);
    return std::nullopt;
}

Result<std::unique_ptr<Kernel>> open_plain_program(const std::string& spelling, const Limits& limits,
                                                   const Context& context) {
    GDNCTL_TRY(check_program(spelling));
    return std::make_unique<PlainProgram>(spelling, limits, context);
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
