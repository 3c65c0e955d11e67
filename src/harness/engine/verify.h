// oracle verify: one engine for all operators and kinds of kernels. It lists cases, asks the kernel, judges, asks
// again, groups what is wrong, and reports.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "harness/engine/operator.h"

namespace gdnctl::harness {

// The result of a kernel on one set of inputs.
struct Tried {
    Judgement judgement = {};
    std::optional<oracle::KernelFault> fault = {};
    bool bit_equal = true;                 // repeated calls with the same inputs gave the same bytes
    oracle::TensorFile outputs = {};       // of the call that the judgement is of
    std::optional<Disguised> inputs = {};  // of that call, where they are not those of the problem
};

// Asks a kernel and judges the result. A foreign kernel that is right is asked three times: with the inputs; with the
// inputs in disguise, on one thread; and with the inputs again.
Result<Tried> try_kernel(Kernel& kernel, Problem& problem, const Judging& how, std::uint64_t seed);

// One judged thing: a case that the kernel ran, a recorded outputs file, or a relation.
struct Item {
    std::string kind, name;
    std::string set;  // as `oracle cases` names it; "vectors" and "relations" for these
    Judgement judgement;
    oracle::Verdict expected = oracle::Verdict::ok;
    std::optional<oracle::KernelFault> fault;  // what the kernel did instead of computing
    bool bit_equal = true;
    bool gradients = false;           // some were compared
    std::optional<std::size_t> like;  // the item that was analysed for this one
    bool follows = false;             // gradients of a case whose forward is wrong
    std::size_t size = 0;             // bytes of its inputs
    std::string saved_as;             // the name of its files; empty: none

    bool failed() const { return fault || judgement.verdict != expected; }
    std::string_view verdict_name() const {
        return fault ? oracle::name_of(fault->kind) : oracle::name_of(judgement.verdict);
    }
};

struct VerifyRequest {
    std::string kernel;
    // Names, sets or globs; empty: all, and all vectors.
    std::vector<std::string> cases = {};
    std::optional<std::filesystem::path> vectors = {};  // folder of recorded inputs and outputs
    CaseOptions options = {};
    bool hidden_seed = false;  // nobody is to know options.seed
    bool metamorphic = false, slow = false;
    bool device_cases = false;                                // without `cases`: those of the set "device" alone
    bool fail_fast = false;                                   // nothing is run after the first failure
    bool verbose = false;                                     // a line for each item
    std::optional<std::filesystem::path> save_failures = {};  // folder, relative to the working directory
    Limits limits = {};
};

// Cases that a declared contract leaves out, or the kernel.
struct SkippedCase {
    std::string name;
    std::string reason;      // "needs head_map=tiled"
    bool by_kernel = false;  // it says itself that it does not support the case
};

struct Verified {
    std::vector<Item> items;
    std::vector<SkippedCase> skipped;
    // Cases that were asked for and that the kernel has no entry point for, by kind of item.
    std::vector<std::pair<std::string_view, int>> no_entry;
    int not_run = 0;
    std::string network;
    std::string_view dtype_name;         // of generated inputs
    Json environment = nullptr;          // as KernelFacts has it
    std::set<std::string> without = {};  // results that the kernel does not return

    const oracle::KernelFault* fault() const;  // the gravest; nullptr: none
    // The gravest of those without a fault: what could not be judged is not OK.
    oracle::Verdict verdict() const;
    std::string_view verdict_name() const;
    bool forward_only() const;  // no gradient was compared
    std::size_t failed() const;
    std::size_t count_of(std::string_view kind) const;
};

// `said` gets the lines for people: a summary of each set once it is done, then what is wrong. Errors: usage, a case
// that is not known; local_io, failures cannot be saved. A vector of another operator is skipped.
Result<Verified> verify_cases(const Operator& op, const VerifyRequest& request, Context& context,
                              const std::function<void(const std::string&)>& said);

// What was skipped and the verdict, for people; `notes` are lines before the verdict.
std::string ending_text(const VerifyRequest& request, const Verified& done, const std::string& notes);
// gdnctl.oracle-verify/1; `notes` are keys after `seed`.
Json json_of(const Operator& op, const VerifyRequest& request, const Verified& done, const Json& notes);

}  // namespace gdnctl::harness
