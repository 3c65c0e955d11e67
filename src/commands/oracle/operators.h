// The operators that the oracle knows, a row each. A command finds the row of its OP and calls what the row has for it;
// nothing outside a row asks which operator it is.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "core/result.h"
#include "platform/context.h"

namespace gdnctl::harness {
class Operator;
class Reading;
}  // namespace gdnctl::harness

namespace gdnctl::oracle {
struct TensorFile;
}

namespace gdnctl::commands {

namespace oracle_bench {
struct Options;
}
namespace oracle_cases {
struct Options;
}
namespace oracle_compare {
struct Options;
}
namespace oracle_run {
struct Options;
}
namespace oracle_selftest {
struct Options;
}
namespace oracle_verify {
struct Options;
}

struct Operator;
struct ReadOptions;  // read.h

// What a command does for one operator.
template <class Options>
struct Verb {
    Result<ExitCode> (*run)(const Operator&, const Options&, Context&) = nullptr;  // nullptr: nothing
    // A usage error for options that mean nothing to this operator; nullptr: all of them mean something.
    Status (*check)(const Options&) = nullptr;
};

struct Operator {
    std::string_view name;  // as OP spells it, and the metadata of files
    std::string_view what;  // for help
    // Its cases, kernels and how it judges them, where verbs are those of plain.h.
    const harness::Operator& (*plain)() = nullptr;
    Verb<oracle_cases::Options> cases = {};
    // A file of inputs, checked and understood under the contract that file and options give it: what `run` adds
    // results to, and `compare` judges outputs of. `inputs` must outlive it.
    Result<std::unique_ptr<harness::Reading>> (*read)(const Operator& op, const oracle::TensorFile& inputs,
                                                      const ReadOptions& options) = nullptr;
    Verb<oracle_run::Options> run = {};
    Verb<oracle_compare::Options> compare = {};
    Verb<oracle_verify::Options> verify = {};
    Verb<oracle_bench::Options> bench = {};
    Verb<oracle_selftest::Options> selftest = {};
    // For completion. nullptr: as the first row's.
    std::vector<std::string> (*case_names)() = nullptr;
    std::vector<std::string> (*kernel_names)(bool timed) = nullptr;  // of our own, as --kernel spells them
};

using Operators = std::span<const Operator* const>;

// All, in the order of help. Options of the commands begin with these; a test gives others.
Operators operators();

// The row of that name that has the verb; nullptr: there is none.
template <class Options>
const Operator* find_operator(Operators all, std::string_view name, Verb<Options> Operator::* verb) {
    for (const Operator* op : all) {
        if (op->name == name && (op->*verb).run != nullptr) return op;
    }
    return nullptr;
}

// "the operator: Gated DeltaNet or fused linear cross-entropy"
std::string operators_help(std::span<const Operator* const> known);

// The rows that have the verb.
template <class Options>
std::vector<const Operator*> operators_with(Operators all, Verb<Options> Operator::* verb) {
    std::vector<const Operator*> known;
    for (const Operator* op : all) {
        if ((op->*verb).run != nullptr) known.push_back(op);
    }
    return known;
}

// An option that an operator lacks, and whether it was given.
struct Lacking {
    std::string_view option;
    bool given = false;
};
// A usage error that names those that were given, and no others.
Status refuse(std::string_view op, std::initializer_list<Lacking> options, std::string hint = {});

void describe_operator(cli::Args& args, std::string& op, const std::vector<const Operator*>& known);
void describe_leading_operator(cli::Args& args, std::string& op, const std::vector<const Operator*>& known);

// The operator of a kernel under test, where its spelling, its file or [targets.NAME.oracle] leaves no doubt. Error:
// usage, name the operator.
Result<std::string> operator_of_kernel(const std::string& kernel, const Context& context);
// The operator of a file of inputs, by its metadata or the names of its tensors. Error: usage, or that of the file.
Result<std::string> operator_of_inputs(const std::vector<std::string>& inputs, const Context& context);

// The positional OP, one of those that have the verb.
template <class Options>
void describe_operator(cli::Args& args, Options& options, Verb<Options> Operator::* verb) {
    describe_operator(args, options.op, operators_with(options.operators, verb));
}

// The same, but it may be left out: see operator_of_kernel() and operator_of_file().
template <class Options>
void describe_known_operator(cli::Args& args, Options& options, Verb<Options> Operator::* verb) {
    describe_leading_operator(args, options.op, operators_with(options.operators, verb));
}

// What the row refuses.
template <class Options>
Status check_operator(const Options& options, Verb<Options> Operator::* verb) {
    const Operator* op = find_operator(options.operators, options.op, verb);
    return op == nullptr || (op->*verb).check == nullptr ? Status{} : (op->*verb).check(options);
}

template <class Options>
Result<ExitCode> run_operator(const Options& options, Verb<Options> Operator::* verb, Context& context) {
    const Operator* op = find_operator(options.operators, options.op, verb);
    if (op == nullptr) return fail(ErrorKind::internal, "no operator of that name");  // the parser knows them all
    return (op->*verb).run(*op, options, context);
}

}  // namespace gdnctl::commands
