// What verify and bench have to know of an operator: named cases, what a file of inputs means, what a kernel is asked,
// and a verdict on outputs. A test registers an operator of its own.
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
    std::string hint = {};   // the known mistake that explains it best
    // What is no result: outputs that are missing, or not finite.
    std::optional<oracle::KernelFault> fault = {};
    std::vector<std::string> missing_gradients = {};  // where some were compared: the others
    std::function<void(Json&)> fields = {};           // adds what verify's --json says besides

    bool gradients_compared() const {
        return !forward_only && (verdict != oracle::Verdict::no_data || worst.has_value());
    }
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

// What a kernel is asked of a case.
struct Question {
    std::string_view kind = "case";  // as items are counted: "case", "backward", "decode"
    std::string_view suffix = {};    // of the item's name: " in place"
    std::size_t entry = 0;           // the pass, as the kernel's interface numbers them
    std::size_t pass = 0;            // the same as the operator numbers them
    bool recorded = false;           // nothing: outputs of somebody else are judged
};

struct Judging {
    bool thorough = true;  // every element, and what explains a mistake; else a sample
    int threads = 1;
    std::function<bool()> stop = {};  // may be empty
    std::uint64_t seed = 1;           // which sample
    bool explain = true;              // look for the mistake, if it is thorough
    Question ask = {};                // what the outputs are of
};

// A file of inputs, read and checked, as its operator understands it.
class Reading {
public:
    virtual ~Reading() = default;
    // Error: outputs that cannot be compared, of another shape for instance. Interrupted work means nothing.
    virtual Result<Judgement> judge(const oracle::TensorFile& outputs, const Judging& how) = 0;
};

class Problem;

// The one rule for "the same bits": names, dtypes and all bytes.
bool same_bytes(const oracle::TensorFile& a, const oracle::TensorFile& b);

// Inputs that look different and whose exact results are known, too.
struct Disguised {
    std::unique_ptr<oracle::TensorFile> file;
    std::unique_ptr<Problem> problem;  // that the kernel is asked
    // Turns outputs into those of the original inputs, by which they are judged then; empty: `problem` judges them.
    std::function<void(oracle::TensorFile&)> undo = {};
};

// The same for kernels.
class Problem : public Reading, public Inputs {
public:
    // What the kernel gets for that. Errors: as reading the file.
    virtual Result<Inputs*> inputs_of(const Question& /*ask*/, int /*threads*/) { return this; }
    // For kernels that remember what they were asked before; nullopt: none are known.
    virtual Result<std::optional<Disguised>> disguised(std::uint64_t /*seed*/) { return std::optional<Disguised>(); }
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

// A relation between results of a kernel that holds for all values, without a reference.
struct RelationRow {
    std::string name;   // "continuation"
    std::string about;  // one line
};

// The options that cases are made and judged by.
struct CaseOptions {
    // What the kernel is declared to compute: a contract's name, and "field=value".
    std::optional<std::string> contract = {};
    std::vector<std::string> sets = {};
    std::optional<oracle::DType> dtype = {};  // nullopt: as each case says
    std::string_view dtype_name = "case";
    std::optional<std::uint64_t> seed = {};  // of all generated inputs, instead of each case's own
    bool unseen = false;                     // other shapes than those of the cases, where the operator knows any
    int threads = 1;
    // Of the kernel: bits 1 << entry of what it has, whether it is a program, and its chunk length if it states one.
    std::uint32_t entries = ~std::uint32_t{0};
    bool program = false;
    std::int64_t stated_chunk = 0;

    bool declares() const { return contract || !sets.empty(); }
};

// A case with its options applied.
struct PreparedCase {
    std::unique_ptr<oracle::TensorFile> inputs = {};
    std::unique_ptr<Problem> problem = {};  // nullptr: the case is left out,
    std::string left_out = {};              // because it "needs layout=vh"; empty: as was logged
    std::vector<Question> asks = {};
    std::uint64_t seed = 1;
    oracle::Verdict expected = oracle::Verdict::ok;
};

struct Opening {
    Limits limits;
    oracle::Isa isa = oracle::best_isa();  // of kernels of our own
    bool to_time = false;                  // the call must only compute
};

class Operator {
public:
    virtual ~Operator() = default;
    virtual std::string_view name() const = 0;
    virtual std::string_view error_unit() const { return "limit"; }  // that errors are multiples of
    // The kinds of items that verify may have, as Question has them; "vector" and "relation" are others.
    virtual std::vector<std::string_view> kinds() const { return {"case", "vector"}; }
    virtual CaseList cases() const = 0;
    // Of a case in that list; from another seed, or stored as bf16, if asked for.
    virtual oracle::TensorFile inputs(std::string_view case_name, std::optional<std::uint64_t> seed,
                                      bool bf16) const = 0;
    // The same of another shape, which no case has; nullopt: none is known.
    virtual std::optional<oracle::TensorFile> resized(std::string_view /*case_name*/, std::uint64_t /*seed*/,
                                                      bool /*bf16*/) const {
        return std::nullopt;
    }
    // Changes inputs to what a kernel is declared to compute ("field=value"). The value that they need instead, if they
    // need another: such a case is left out. Usage errors: an unknown field or value.
    virtual Result<std::optional<std::string>> declare(oracle::TensorFile& /*inputs*/,
                                                       std::span<const std::string> sets) const {
        if (sets.empty()) return std::optional<std::string>();
        return fail(ErrorKind::usage, "this operator has no contract that --set could change");
    }
    // Of a case in the list. Usage errors: as declare().
    virtual Result<PreparedCase> prepare(std::string_view case_name, const CaseOptions& options) const;
    // The same for recorded inputs.
    virtual Result<PreparedCase> recorded(oracle::TensorFile inputs, const CaseOptions& options) const;
    // The passes of a kernel, as bits 1 << entry. One that cannot be asked has a forward, which says why.
    virtual Result<std::uint32_t> entries(Kernel& kernel) const {
        GDNCTL_TRY_ASSIGN(const std::uint32_t all, kernel.entries());
        return all == 0 ? 1U : all;
    }
    virtual std::vector<RelationRow> relations() const { return {}; }
    // Usage error: the kernel is declared to compute something that relations do not apply to.
    virtual Status check_relations_apply(const CaseOptions& /*options*/) const { return {}; }
    // nullopt: the kernel does not compute what the relation is about.
    virtual Result<std::optional<Judgement>> check_relation(const RelationRow& /*relation*/, Kernel& /*kernel*/,
                                                            const CaseOptions& /*options*/) const {
        return std::optional<Judgement>();
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
