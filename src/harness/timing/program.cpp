// Timing a program over files: whole runs of it.
#include "harness/child/program.h"

#include "harness/timing/kernel.h"

namespace gdnctl::harness {

namespace {

using harness::Faulted;
using harness::ProgramRun;

class ProgramPass : public ForeignPass {
public:
    ProgramPass(oracle::Pass pass, const Task& task, ProgramRun& run) : ForeignPass(pass, task), m_run(run) {}

    std::string network() const override { return m_run.network(); }

protected:
    Faulted place(const oracle::TensorFile& inputs, const oracle::Disguise& disguise) override {
        oracle::TensorFile placed = inputs;
        apply(disguise, placed, task().reference.contract.value.state_layout);
        GDNCTL_TRY(m_run.prepare(placed, task().reference.contract.as_metadata(), task().threads));
        return std::nullopt;
    }

    Faulted call() override { return m_run.call(); }
    Faulted collect(oracle::TensorFile& outputs) override { return m_run.collect(outputs); }

private:
    ProgramRun& m_run;
};

class ProgramKernel : public ForeignKernel {
public:
    ProgramKernel(const std::string& spelling, const harness::Limits& limits, const Context& context)
        : ForeignKernel(spelling), m_run(spelling, limits, context) {}

    std::string_view timed() const override { return "program"; }

    // Whether it gives gradients only a run with cotangents can tell.
    Result<std::vector<std::unique_ptr<ForeignPass>>> passes(const Task& task) override {
        std::vector<std::unique_ptr<ForeignPass>> passes;
        passes.push_back(std::make_unique<ProgramPass>(oracle::Pass::forward, task, m_run));
        if (!task.with_cotangents) return passes;
        GDNCTL_TRY(m_run.prepare(task.with_cotangents(), task.reference.contract.as_metadata(), task.threads));
        oracle::TensorFile outputs;
        GDNCTL_TRY_ASSIGN(auto fault, m_run.call());
        if (!fault) {
            GDNCTL_TRY_ASSIGN(fault, m_run.collect(outputs));
        }
        // A run that failed does not show that there are none: the pass is timed, and says what is wrong.
        if (fault || oracle::has_gradients(outputs)) {
            passes.push_back(std::make_unique<ProgramPass>(oracle::Pass::backward, task, m_run));
        }
        return passes;
    }

private:
    ProgramRun m_run;
};

}  // namespace

std::unique_ptr<ForeignKernel> timed_program(const std::string& spelling, const harness::Limits& limits,
                                             const Context& context) {
    return std::make_unique<ProgramKernel>(spelling, limits, context);
}

}  // namespace gdnctl::harness
