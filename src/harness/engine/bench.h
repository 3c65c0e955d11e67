// oracle bench: one engine for all operators. It times kernels in turn with the matrix product and bare multiply-adds,
// and reports. What is timed, and whether the outputs are right, is the operator's plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "harness/engine/operator.h"
#include "harness/timing.h"

namespace gdnctl::harness {

struct BenchRequest {
    std::optional<std::string> kernel = {};  // none: ours
    std::vector<std::string> peers = {};
    bool bf16 = false;
    std::uint64_t seed = 1;
    int threads = 1;
    std::int64_t rounds = 8, runs = 5;
    oracle::Isa isa = oracle::best_isa();
    Limits limits = {};
    std::optional<double> peak_tflops = {};         // of the accelerator; none: as its name says, if that is known
    std::function<void(Json& report)> fields = {};  // adds what else the report says
};

// One pass of one kernel: its time only counts when its outputs are right.
struct Contestant {
    std::string kernel;
    std::size_t pass = 0;  // of BenchPlan::passes()
    bool peer = false;
    std::string label;                      // of its row
    std::string_view timed = "in_process";  // what a time is of
    Subject subject = {};
    // After the rounds:
    Timing timing = {};
    bool verified = false;
    double error = 0;
    std::string reason = {};  // why it is not
    std::optional<oracle::KernelFault> fault = {};
    double floor_s = 0;                       // a shorter time is impossible; 0: not known
    std::string network = {};                 // what blocked its network access
    std::string text = {};                    // lines below its row
    Json environment = nullptr;               // as KernelFacts has it
    oracle::CallTimes times = {};             // of the last run
    std::set<std::string> not_returned = {};  // results, which are not judged
    std::optional<Subject> on_device = {};    // with its times there
    std::function<void(Json&)> fields = {};   // adds what --json says besides
};

// What an operator times on some inputs.
class BenchPlan {
public:
    virtual ~BenchPlan() = default;
    virtual std::vector<std::string_view> passes() const = 0;  // as JSON names them
    virtual std::string_view error_unit() const { return "limit"; }
    // Called once, with the inputs; what subjects need is the plan's.
    virtual Result<std::vector<Contestant>> contestants() = 0;
    // Timed in the same rounds, before the contestants.
    virtual std::vector<Subject> yardsticks() { return {}; }
    // After the rounds: verdicts and floors. `timed` are those yardsticks, `peak` bare multiply-adds.
    virtual Status finish(std::vector<Contestant>& all, const std::vector<Subject>& timed, const Subject& peak) = 0;
    virtual bool peers_count() const { return false; }  // a peer that is wrong fails the command, too
    virtual double nominal_flop(std::size_t pass) const = 0;
    virtual std::string title() const = 0;  // lines
    virtual std::string notes(const std::vector<Contestant>& /*all*/) const { return {}; }
    virtual void add_fields(Json& report) const = 0;  // `shape` and more
};

struct BenchDone {
    std::string text;
    Json json = nullptr;  // gdnctl.oracle-bench/1
    ExitCode code = ExitCode::ok;
};

bool is_on_accelerator(const Json& environment);
// What nothing on that accelerator exceeds, in bf16; nullopt: it is not known, or no accelerator.
std::optional<double> peak_flop_of(const Json& environment, const std::optional<double>& peak_tflops);

// Times a plan. Error: interrupted, or what the plan says.
Result<BenchDone> bench(std::string_view op, BenchPlan& plan, const BenchRequest& request, Context& context);

// The same for inputs of an Operator, whose kernels it asks.

// What kernels are timed on.
struct BenchCase {
    oracle::TensorFile inputs;
    // Inputs of the same shape and dtypes from another seed: third-party kernels get new ones for every run.
    std::function<oracle::TensorFile(std::uint64_t seed)> fresh;
    std::string title;                        // "B 512, H 512, V 128256"
    std::function<void(Json& report)> shape;  // sets `shape`; may be empty
};

// For an instruction set that this processor has. `op`, `request` and `context` must outlive it.
std::unique_ptr<BenchPlan> plan_of(const Operator& op, BenchCase timed, const BenchRequest& request, Context& context);

}  // namespace gdnctl::harness
