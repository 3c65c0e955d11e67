// An operator whose kernels are verified and timed by nothing but what it says here: named cases, what a file of inputs
// means, and a verdict on outputs. linear-ce is one; a test registers another.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "harness/child/process.h"
#include "oracle/judge/verdict.h"
#include "oracle/simd/isa.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::harness {

// What an operator says of a kernel's outputs.
struct Judgement {
    oracle::Verdict verdict = oracle::Verdict::no_data;
    std::string reason = {}, stage = {};
    std::string diagnosis = {};  // lines for people, where something is wrong
    double error = 0;            // the largest, as a multiple of what is allowed
    std::optional<oracle::Worst> worst = {};
    bool forward_only = false;  // no gradient was compared
};

struct Judging {
    bool thorough = true;  // every element, and what explains a mistake; else a sample
    int threads = 1;
    std::function<bool()> stop = {};  // may be empty
};

// One set of inputs as its operator understands it.
class Problem {
public:
    virtual ~Problem() = default;
    // Error: outputs that cannot be compared, of another shape for instance. Interrupted work means nothing.
    virtual Result<Judgement> judge(const oracle::TensorFile& outputs, const Judging& how) const = 0;
    // The contract as a program finds it in the metadata of its inputs.
    virtual std::map<std::string, std::string> metadata() const { return {}; }
    virtual double flop(std::size_t pass) const = 0;          // nominal operations
    virtual std::size_t gradient_bytes() const { return 0; }  // of all gradients
};

// What a kernel is asked for: a pass over one set of inputs.
struct Asked {
    const Problem& problem;
    const oracle::TensorFile& inputs;  // that it was read from; kernels of our own do without
    std::size_t pass = 0;              // of PlainOperator::passes()
    int threads = 1;
};

// A kernel under test, wherever it runs: place(), call() and collect() in turn, of which the call alone is timed.
class Kernel {
public:
    virtual ~Kernel() = default;

    virtual Result<bool> has(std::size_t /*pass*/) { return true; }
    // What `asked` refers to must live until collect().
    virtual Faulted place(const Asked& asked) = 0;
    virtual Faulted call() = 0;
    // What the last call of that pass gave.
    virtual Faulted collect(oracle::TensorFile& outputs) = 0;
    // What a time of it is of: "in_process" (ours), "call" or "process".
    virtual std::string_view timed() const = 0;
    bool is_foreign() const { return timed() != "in_process"; }
    // What kept it from the network; empty: it runs in this process, or has not run.
    virtual std::string network() const { return {}; }
};

Result<oracle::KernelRun> run_once(Kernel& kernel, const Asked& asked);

// A kernel of our own as a function from inputs to outputs.
class OwnKernel : public Kernel {
public:
    using Function = std::function<oracle::TensorFile(const Asked&)>;
    explicit OwnKernel(Function function) : m_function(std::move(function)) {}

    Faulted place(const Asked& asked) override;
    Faulted call() override;
    Faulted collect(oracle::TensorFile& outputs) override;
    std::string_view timed() const override { return "in_process"; }

private:
    Function m_function;
    std::optional<Asked> m_asked;
    std::map<std::size_t, oracle::TensorFile> m_outputs;  // by pass
};

// cmd:COMMAND. A usage error when it names no command. `context` must outlive the kernel.
Result<std::unique_ptr<Kernel>> open_plain_program(const std::string& spelling, const Limits& limits,
                                                   const Context& context);

// A case as `oracle cases` lists it.
struct CaseRow {
    std::string name, set, about;
    std::string shape;                              // as CaseList::axes names the numbers
    std::string note = {};                          // follows `about` for people
    std::function<void(Json& object)> fields = {};  // adds what --json says besides
};

struct CaseList {
    std::string_view axes;  // "B,H,V"
    int width = 14;         // of that column
    std::vector<CaseRow> rows;
};

// The list, for people or as gdnctl.oracle-cases/1.
std::string text_of(const CaseList& cases);
Json json_of(std::string_view op, const CaseList& cases);

struct Opening {
    Limits limits;
    oracle::Isa isa = oracle::best_isa();  // of kernels of our own
    bool to_time = false;                  // the call shall do nothing but compute
};

class PlainOperator {
public:
    virtual ~PlainOperator() = default;
    virtual std::string_view name() const = 0;
    virtual CaseList cases() const = 0;
    // Of a case in that list; from another seed, or stored as bf16, if asked for.
    virtual oracle::TensorFile inputs(std::string_view case_name, std::optional<std::uint64_t> seed,
                                      bool bf16) const = 0;
    // Inputs that look different and that a kernel which remembers the others gets wrong; nullopt: none are known.
    virtual std::optional<oracle::TensorFile> disguised(const oracle::TensorFile& /*inputs*/) const {
        return std::nullopt;
    }
    virtual Result<std::unique_ptr<Problem>> read(const oracle::TensorFile& inputs) const = 0;
    // "forward", "gradients": each gives what those before it give, too.
    virtual std::span<const std::string_view> passes() const = 0;
    // Usage errors: an unknown kind or name, a file that does not exist. `context` must outlive the kernel.
    virtual Result<std::unique_ptr<Kernel>> open(const std::string& spelling, const Opening& how,
                                                 const Context& context) const = 0;
};

}  // namespace gdnctl::harness
