// Kernels of gdn by their spelling, as the oracle judges them: they are asked with oracle::GdnInputs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/child/foreign_kernel.h"
#include "harness/timing.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "platform/context.h"

namespace gdnctl::harness {

// builtin:NAME, lib:PATH, src:FILE.c or cmd:COMMAND. `context` must outlive the kernel. Usage errors: an unknown kind
// or name, a file that does not exist. A source that does not compile and a library that is no kernel are faults of the
// first run, not errors here.
Result<std::unique_ptr<Kernel>> open_kernel(const std::string& spelling, const Limits& limits, const Context& context);

// Third-party kernels as subjects of oracle bench: loaded libraries, programs and solutions, each in a child process.

// What all kernels are given.
struct Task {
    const oracle::TensorFile& inputs;
    const oracle::GdnReference& reference;  // the truth of it
    int threads = 1;
    std::function<oracle::TensorFile()> with_cotangents = {};  // empty: nothing but the forward is wanted
    // Inputs of the same shape and dtypes, drawn again for every run after the first; nullptr: all runs use `inputs`,
    // each with other signs.
    oracle::FreshInputs* fresh = nullptr;
    // Where a run is not OK, but the first was not either, or it is no more than suspect: what is wrong with its
    // outputs all the same, empty if nothing is. Empty: what is not OK has no time.
    std::function<Result<std::string>(const oracle::TensorFile& outputs)> complaint = {};
};

// What a pass is timed on: inputs that change from run to run, and what becomes of its outputs.
class TimedInputs : public Inputs {
public:
    // Those of the next run, which live until its outputs were collected: like the task's, with cotangents for a
    // backward. Kernels get them with the disguise's signs.
    virtual void set(const oracle::TensorFile& inputs, const oracle::Disguise& disguise) = 0;
    // Names what was collected as docs/reference/contracts.md does, with its signs still changed.
    virtual Faulted name(oracle::TensorFile& outputs) = 0;
    // Outputs without the disguise, as the contract has them in files.
    virtual oracle::TensorFile in_files(oracle::TensorFile outputs, const oracle::GdnReference& /*of*/) const {
        return outputs;
    }
};

// One pass of one kernel as a subject: each run has its own inputs (so that no result can be kept from run to run), and
// its outputs are checked after that run. From the first fault on nothing is run.
class TimedPass {
public:
    TimedPass(oracle::Pass pass, const Task& task, std::shared_ptr<Kernel> kernel, std::unique_ptr<TimedInputs> inputs);
    TimedPass(const TimedPass&) = delete;
    TimedPass& operator=(const TimedPass&) = delete;

    // This object and the task's parts must outlive the subject.
    Subject subject(std::string name, double flop);
    // After all rounds: whether inputs that it has seen cost it as much as fresh ones. If not, that is its fault.
    // `chill` is called before each run; may be empty.
    Status check_memory_of_results(Clock& clock, const std::function<void()>& chill = {});

    // After that: where the best run took less than `least` seconds, which is impossible, that is its fault.
    void check_floor(double seconds, double least);

    oracle::Pass pass() const { return m_pass; }
    const std::optional<oracle::KernelFault>& fault() const { return m_fault; }
    const oracle::GdnReport& report() const { return m_report; }  // of the first run
    const std::set<std::string>& not_returned() const { return m_not_returned; }
    std::string_view timed() const { return m_kernel->timed(); }
    const Kernel& kernel() const { return *m_kernel; }
    // What kept it from the network: "namespace", "seccomp", "none"; empty: it never ran.
    std::string network() const { return m_ran ? m_kernel->network() : std::string(); }

private:
    // What a run is given: the task's inputs (in the first), others, or those of the last run once more.
    enum class Given { fresh, again, again_with_other_signs };

    Status before(Given given = Given::fresh);
    void run();
    Status after();
    oracle::KernelVerdict judged(const oracle::TensorFile& outputs, const oracle::GdnReference& reference) const;
    void note_later(const oracle::KernelVerdict& verdict);
    Status complain(const oracle::TensorFile& outputs);
    Status judge_first(oracle::TensorFile outputs);
    Status judge_fresh(const oracle::TensorFile& outputs);
    Result<double> seconds_of(Given given, Clock& clock, const std::function<void()>& chill);

    oracle::Pass m_pass;
    Task m_task;
    std::shared_ptr<Kernel> m_kernel;
    std::unique_ptr<TimedInputs> m_timed;
    oracle::TensorFile m_inputs;
    oracle::Disguise m_disguise;
    bool m_ran = false;
    std::optional<Error> m_error;
    std::optional<oracle::KernelFault> m_fault;
    std::optional<oracle::TensorFile> m_first;
    oracle::GdnReport m_report;
    std::set<std::string> m_not_returned;  // results of the last run
};

// The passes that a kernel of gdn has, the forward first. One that cannot be asked has a forward, which says what is
// wrong. The parts of the task must outlive them.
Result<std::vector<std::unique_ptr<TimedPass>>> timed_passes(const std::shared_ptr<Kernel>& kernel, const Task& task);

// Of a kernel of gdn/gdn_kernel.h, or a program.
std::unique_ptr<TimedInputs> timed_inputs(oracle::Pass pass, const Task& task);

class BenchPlan;
struct BenchRequest;
// What oracle bench times for gdn (engine/bench.h). `shape` is `dims` for people. `request` and `context` must outlive
// it.
std::unique_ptr<BenchPlan> gdn_plan(const oracle::GdnDims& dims, const std::string& shape, const BenchRequest& request,
                                    Context& context);

}  // namespace gdnctl::harness
