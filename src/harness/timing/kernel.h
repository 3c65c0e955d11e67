// Kernels of others among the subjects of oracle bench: loaded libraries and programs, each in a child process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/child/kernel.h"
#include "harness/timing/rounds.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "platform/context.h"

namespace gdnctl::harness {

// What all kernels are given.
struct Task {
    const oracle::TensorFile& inputs;
    const oracle::GdnReference& reference;  // the truth of it
    int threads = 1;
    std::function<oracle::TensorFile()> with_cotangents = {};  // empty: nothing but the forward is wanted
    // Of the same shape and dtypes, to be drawn anew for each run but the first; nullptr: all runs have `inputs`, each
    // with other signs.
    oracle::FreshInputs* fresh = nullptr;
    // Where a run is not OK, but the first was not either, or it is no more than suspect: what is wrong with its
    // outputs all the same, empty if nothing is. Empty: what is not OK has no time.
    std::function<Result<std::string>(const oracle::TensorFile& outputs)> complaint = {};
};

// One pass of one kernel as a subject: each run with inputs of its own (so that no result can be kept from run to run),
// with outputs that are checked after that very run. From the first fault on nothing is run.
class ForeignPass {
public:
    ForeignPass(oracle::Pass pass, const Task& task);
    virtual ~ForeignPass() = default;
    ForeignPass(const ForeignPass&) = delete;
    ForeignPass& operator=(const ForeignPass&) = delete;

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
    // What kept it from the network: "namespace", "seccomp", "none"; empty: it never ran.
    virtual std::string network() const { return {}; }

protected:
    // Before a run, the run (which alone is timed), and after it: outputs by the names of docs/reference/contracts.md,
    // with their signs still changed. `inputs` are like those of the task, with cotangents for a backward.
    virtual harness::Faulted place(const oracle::TensorFile& inputs, const oracle::Disguise& disguise) = 0;
    virtual harness::Faulted call() = 0;
    virtual harness::Faulted collect(oracle::TensorFile& outputs) = 0;
    // Outputs without the disguise, as the contract has them in files.
    virtual oracle::TensorFile in_files(oracle::TensorFile outputs, const oracle::GdnReference& /*of*/) const {
        return outputs;
    }

    const Task& task() const { return m_task; }

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
    oracle::TensorFile m_inputs;
    oracle::Disguise m_disguise;
    std::optional<Error> m_error;
    std::optional<oracle::KernelFault> m_fault;
    std::optional<oracle::TensorFile> m_first;
    oracle::GdnReport m_report;
};

class ForeignKernel {
public:
    // `spelling`: lib:PATH, src:FILE.c or cmd:COMMAND. Usage errors: another kind, a file that does not exist.
    static Result<std::unique_ptr<ForeignKernel>> open(const std::string& spelling, const harness::Limits& limits,
                                                       const Context& context);
    virtual ~ForeignKernel() = default;

    // The passes that it has, the forward first. One that cannot be asked has a forward, which says what is wrong.
    // This object and the parts of the task must outlive them.
    virtual Result<std::vector<std::unique_ptr<ForeignPass>>> passes(const Task& task) = 0;
    // What its times are of, as --json says it: "call" or "program".
    virtual std::string_view timed() const = 0;
    const std::string& name() const { return m_spelling; }

protected:
    explicit ForeignKernel(std::string spelling) : m_spelling(std::move(spelling)) {}

private:
    std::string m_spelling;
};

// A loaded library: `limits` are of one call.
std::unique_ptr<ForeignKernel> timed_library(const std::string& spelling, harness::Library library,
                                             const harness::Limits& limits, const Context& context);
// A program over files.
std::unique_ptr<ForeignKernel> timed_program(const std::string& spelling, const harness::Limits& limits,
                                             const Context& context);

}  // namespace gdnctl::harness
