// An operator whose kernels are verified and timed by nothing but what it says here: named cases, what a file of inputs
// means, and a verdict on outputs. linear-ce is one; a test registers another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "harness/child/foreign_kernel.h"
#include "oracle/judge/verdict.h"
#include "oracle/simd/isa.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::harness {

// Where a judgement is shown: the files that it is on, and whether with a map of errors.
struct Shown {
    const std::vector<std::string>&inputs, &outputs;
    bool heatmap = false;
};

// How a judgement looks.
class JudgementReport {
public:
    virtual ~JudgementReport() = default;
    virtual std::string text(const Shown& shown) const = 0;
    virtual void add_to(Json& object) const = 0;                            // gdnctl.oracle-compare/1 but schema and op
    virtual std::string page(const Json& /*verdict*/) const { return {}; }  // of what add_to() says; empty: none
};

// An operator's verdict on a kernel's outputs.
struct Judgement {
    oracle::Verdict verdict = oracle::Verdict::no_data;
    std::string reason = {}, stage = {};
    std::string diagnosis = {};  // lines for people, where something is wrong
    double error = 0;            // the largest, as a multiple of what is allowed
    std::optional<oracle::Worst> worst = {};
    bool forward_only = false;  // no gradient was compared
    // Where the operator has more to say; nullptr: report_of() has what there is. Valid as long as its reading.
    std::shared_ptr<const JudgementReport> report = nullptr;
    std::string wrong = {};  // the tensors that are: verdicts with the same probably have the same cause
};
// Whether `oracle run` wrote `dump` with its exact `method`: its metadata says so, or it has none and `equal` holds for
// all tensors. Floating-point results are then stored as float64.
template <class Tensors, class Equal>
bool is_written_truth(const oracle::TensorFile& dump, std::string_view method, const Tensors& tensors, Equal equal) {
    const auto exact = [](const auto& t) { return t.stored == oracle::DType::f64 || t.stored == oracle::DType::i64; };
    if (tensors.empty() || !std::all_of(tensors.begin(), tensors.end(), exact)) return false;
    const auto named = dump.metadata.find("method");
    return named != dump.metadata.end() ? named->second == method : std::all_of(tensors.begin(), tensors.end(), equal);
}
std::shared_ptr<const JudgementReport> report_of(const Judgement& judgement, std::string_view op);

struct Judging {
    bool thorough = true;  // every element, and what explains a mistake; else a sample
    int threads = 1;
    std::function<bool()> stop = {};  // may be empty
    std::uint64_t seed = 1;           // which sample
    bool explain = true;              // look for the mistake, if it is thorough
};

// A file of inputs, read and checked, as its operator understands it.
class Reading {
public:
    virtual ~Reading() = default;
    // Error: outputs that cannot be compared, of another shape for instance. Interrupted work means nothing.
    virtual Result<Judgement> judge(const oracle::TensorFile& outputs, const Judging& how) = 0;
};

// The same for the kernels of a PlainOperator.
class Problem : public Reading, public Inputs {
public:
    // A usage error: an operator without an interface in C has no loaded kernels.
    Result<Call> call(std::size_t pass, std::uint32_t dtypes, int threads) override;
    virtual double flop(std::size_t pass) const = 0;          // nominal; no kernel can do with less than flop(0)
    virtual std::size_t gradient_bytes() const { return 0; }  // of all gradients
};

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
    bool to_time = false;                  // the call must only compute
};

class PlainOperator {
public:
    virtual ~PlainOperator() = default;
    virtual std::string_view name() const = 0;
    virtual CaseList cases() const = 0;
    // Of a case in that list; from another seed, or stored as bf16, if asked for.
    virtual oracle::TensorFile inputs(std::string_view case_name, std::optional<std::uint64_t> seed,
                                      bool bf16) const = 0;
    // The same of another shape, which no case has; nullopt: none is known.
    virtual std::optional<oracle::TensorFile> resized(std::string_view /*case_name*/, std::uint64_t /*seed*/,
                                                      bool /*bf16*/) const {
        return std::nullopt;
    }
    // Inputs that look different and that a kernel which remembers the others gets wrong; nullopt: none are known.
    virtual std::optional<oracle::TensorFile> disguised(const oracle::TensorFile& /*inputs*/) const {
        return std::nullopt;
    }
    // Changes inputs to what a kernel is declared to compute ("field=value"). The value that they need instead, if they
    // need another: such a case is left out. Usage errors: an unknown field or value.
    virtual Result<std::optional<std::string>> declare(oracle::TensorFile& /*inputs*/,
                                                       std::span<const std::string> sets) const {
        if (sets.empty()) return std::optional<std::string>();
        return fail(ErrorKind::usage, "this operator has no contract that --set could change");
    }
    // `inputs` must outlive the problem: programs get them.
    virtual Result<std::unique_ptr<Problem>> read(const oracle::TensorFile& inputs) const = 0;
    // "forward", "gradients": each gives what those before it give, too.
    virtual std::span<const std::string_view> passes() const = 0;
    // Usage errors: an unknown kind or name, a file that does not exist. `context` must outlive the kernel.
    virtual Result<std::unique_ptr<Kernel>> open(const std::string& spelling, const Opening& how,
                                                 const Context& context) const = 0;
};

}  // namespace gdnctl::harness
