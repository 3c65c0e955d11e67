// What a kernel under test did, whatever its operator: its outputs, or what it did instead of computing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// What a kernel did instead of computing, gravest last.
enum class KernelFaultKind {
    unsupported,    // it says that it does not do this case
    refused,        // it returned another error code
    incomplete,     // outputs were left as they were found
    wrong_shape,    // outputs of another shape or dtype, or none (programs only)
    non_finite,     // NaN or infinity where the truth is finite
    unsteady,       // the same inputs gave another result in a later call
    cached,         // inputs that it has seen cost it less than fresh ones, where it is timed
    impossible,     // faster than the work can be done here
    out_of_bounds,  // touched memory beside its arrays, or wrote to its inputs
    crashed,
    memory_limit,
    timed_out,
    no_entry_point,  // not a kernel, or one without this entry point
    build_failed,
};

std::string_view name_of(KernelFaultKind kind);  // "OUT_OF_BOUNDS"

struct KernelFault {
    KernelFaultKind kind = KernelFaultKind::crashed;
    std::string text;       // one line: what happened, and where
    std::string output;     // what the kernel or the compiler printed at the end; may be empty
    bool at_start = false;  // before it could know what it was asked: it would do the same for all inputs
    // What becomes of the case: a kernel may say before the call that it does not do it, or is not asked.
    enum class Counts { as_fault, as_skipped, as_not_run } counts = Counts::as_fault;
};

// Whether other cases are not worth a try after this fault.
bool ends_everything(const KernelFault& fault);

// Keys in the metadata of outputs: with the name of a result that the kernel does not return, and with the name of a
// cotangent that was rounded to the dtype that is the value ("bfloat16").
inline constexpr std::string_view k_without = "without_", k_cotangent_dtype = "dtype_of_";
// The results that the kernel does not return.
std::set<std::string> not_returned(const TensorFile& outputs);

struct KernelRun {
    TensorFile outputs;                // what the pass gives, in the contract's layout; empty with a fault
    std::optional<KernelFault> fault;  // the kernel's doing; our own troubles are errors
};

// A kernel under test, of whatever operator and wherever it runs: what the oracle asks of it.
// harness/child/foreign_kernel.h opens those that do not run in this process.

// What a kernel does with an array.
enum class Role : std::uint32_t {
    input,
    output,    // holds nothing before the call, and has to be written
    in_place,  // an output that holds values before the call
    spare,     // an output that may be left alone
    number,    // no array: Call::reals[0]; of arguments in order
    nothing,   // no array: an argument that is not given
};
constexpr bool is_output(Role role) { return role == Role::output || role == Role::in_place || role == Role::spare; }

struct Range {
    std::size_t first = 0, last = 0;  // elements, the last one excluded
};

struct Array {
    std::string name;  // as the kernel's interface and faults name it
    Role role = Role::input;
    Tensor tensor = {};  // of an output: dtype and shape, and no values but in place
    // Of an output: what has to be written of it, the rest being 0; nullopt: all.
    std::optional<std::vector<Range>> written = std::nullopt;
};

// One call of a kernel. What `integers` and `reals` mean is its interface's.
struct Call {
    std::vector<Array> arrays;  // in the order of arguments, where a kernel gets them by their order
    std::uint32_t entry = 0;
    std::string_view entry_name = "forward";
    std::int32_t threads = 1;
    std::array<std::int64_t, 12> integers = {};
    std::array<double, 4> reals = {};
};

// Inputs as kernels get them.
class Inputs {
public:
    virtual ~Inputs() = default;
    // For a loaded kernel: the arrays and numbers of a pass. `dtypes`: bits of those that it takes, as its interface
    // numbers them.
    virtual Result<Call> call(std::size_t pass, std::uint32_t dtypes, int threads) = 0;
    // For a program: tensors, with the contract as metadata.
    virtual TensorFile file() const = 0;
};

struct Asked {
    Inputs& inputs;        // until collect()
    std::size_t pass = 0;  // as the operator numbers them: GDN_FORWARD, LINEAR_CE_GRADIENTS, ...
    int threads = 1;
};

// nullopt: all went well; errors are our own troubles.
using Faulted = Result<std::optional<KernelFault>>;

// What a kernel says about itself.
struct KernelFacts {
    std::int64_t chunk = 0;  // length of the chunks that it works in; 0: it does not say
    // What it is declared to compute, where the command does not say.
    std::optional<std::string> contract = std::nullopt;
    std::vector<std::string> sets = {};  // "field=value"
    std::string dtype = {};              // of generated inputs, as --dtype spells it; empty: as each case says
    bool takes_files = false;            // Inputs::file(), not Inputs::call()
    Json environment = nullptr;          // where it runs: an object; null: on this machine's processor
};

// What a call took where it ran, in seconds.
struct CallTimes {
    std::optional<double> wall = std::nullopt;    // until the result was there; nullopt: what our clock says
    std::optional<double> device = std::nullopt;  // of it, on the accelerator
    std::string no_device = {};                   // why that is not known, where it was to be measured
    double compile = 0;                           // in advance, of all calls so far
};

// place(), call() and collect() in turn, of which the call alone is timed.
class Kernel {
public:
    virtual ~Kernel() = default;

    // Bits 1 << pass of the passes that it has; 0: it cannot be asked, and place() says why.
    virtual Result<std::uint32_t> entries() { return ~std::uint32_t{0}; }
    Result<bool> has(std::size_t pass) {
        GDNCTL_TRY_ASSIGN(const std::uint32_t all, entries());
        return (all & (1U << pass)) != 0;
    }
    virtual KernelFacts facts() const { return {.takes_files = is_program()}; }  // once entries() has answered
    virtual Faulted place(const Asked& asked) = 0;
    virtual Faulted call() = 0;
    // What the last call of that pass gave, by the names of its interface.
    virtual Faulted collect(TensorFile& outputs) = 0;
    // What a time of it is of: "in_process" (ours), "call" or "program".
    virtual std::string_view timed() const = 0;
    bool is_foreign() const { return timed() != "in_process"; }
    bool is_program() const { return timed() == "program"; }
    // Whether other cases are not worth a try after this fault.
    virtual bool ends_everything(const KernelFault& fault) const { return oracle::ends_everything(fault); }
    // Whether another call may show what the first one did not.
    virtual bool worth_repeating() const { return is_foreign(); }
    virtual CallTimes times() const { return {}; }  // of the last call
    // How network access was blocked: "namespace", "seccomp", "none"; empty: it runs in this process, or has not run.
    virtual std::string network() const { return {}; }
};

Result<KernelRun> run_once(Kernel& kernel, const Asked& asked);

// A kernel of our own as a function from inputs to outputs.
class OwnKernel : public Kernel {
public:
    using Function = std::function<TensorFile(const Asked&)>;
    explicit OwnKernel(Function function) : m_function(std::move(function)) {}

    Faulted place(const Asked& asked) override;
    Faulted call() override;
    Faulted collect(TensorFile& outputs) override;
    std::string_view timed() const override { return "in_process"; }

private:
    Function m_function;
    std::optional<Asked> m_asked;
    std::map<std::size_t, TensorFile> m_outputs;  // by pass
};

}  // namespace gdnctl::oracle
