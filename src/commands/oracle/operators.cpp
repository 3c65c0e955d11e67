#include "commands/oracle/operators.h"

#include <algorithm>

#include <fmt/format.h>

#include "commands/oracle/gdn.h"
#include "commands/oracle/linear_ce.h"
#include "core/text.h"
#include "harness/child/python_kernel.h"
#include "harness/files.h"
#include "oracle/tensor/tensor.h"
#include "platform/fs.h"
#include "target/target.h"

namespace gdnctl::commands {

Operators operators() {
    static constexpr const Operator* k_operators[] = {&oracle_gdn::k_operator, &oracle_layer::k_operator,
                                                      &linear_ce::k_operator};
    return k_operators;
}

std::string operators_help(std::span<const Operator* const> known) {
    std::string text = "the operator: ";
    for (std::size_t i = 0; i < known.size(); ++i) {
        const bool last = i + 1 == known.size();
        text += fmt::format("{}{}", i == 0 ? "" : !last ? ", " : i > 1 ? ", or " : " or ", known[i]->what);
    }
    return text;
}

Status refuse(std::string_view op, std::initializer_list<Lacking> options, std::string hint) {
    std::vector<std::string> given;
    for (const Lacking& one : options) {
        if (one.given) given.emplace_back(one.option);
    }
    if (given.empty()) return {};
    return fail(ErrorKind::usage, fmt::format("{} does not support {}", op, text::join(given, " and ")),
                std::move(hint));
}

namespace {

std::vector<std::string_view> names_of(const std::vector<const Operator*>& known) {
    std::vector<std::string_view> names;
    for (const Operator* each : known) names.push_back(each->name);
    return names;
}

tl::unexpected<Error> name_it(std::string_view what, const std::string& choices) {
    return fail(ErrorKind::usage, fmt::format("the argument OP is missing, and {} does not say which is meant", what),
                "OP: " + choices);
}

// What the text of a kernel says about itself: the object that it exports, or the arguments of its adapter.
std::string operator_in_source(std::string_view text, bool python) {
    const bool ce = text.find(python ? "labels" : "linear_ce_kernel") != std::string_view::npos;
    const bool gdn = text.find(python ? "beta" : "gdn_kernel") != std::string_view::npos;
    return ce == gdn ? std::string() : std::string(ce ? linear_ce::k_operator.name : oracle_gdn::k_operator.name);
}

// The text of src:PATH, lib:PATH and py:ADAPTER; empty: none.
std::string source_of(const std::string& kernel, const Context& context) {
    const std::size_t colon = kernel.find(':');
    if (colon == std::string::npos || kernel.starts_with("cmd:") || kernel.starts_with("builtin:")) return {};
    std::string path = kernel.substr(colon + 1);
    if (kernel.starts_with("py:")) {
        path = path.substr(0, path.find(':'));
        for (const harness::Adapter& adapter : harness::python_adapters()) {
            if (adapter.name == path) return std::string(adapter.source);
        }
    }
    constexpr std::size_t k_most = std::size_t{64} << 20;
    const auto text = read_file_if_exists(context.cwd / path, k_most);
    return text && *text ? **text : std::string();
}

}  // namespace

void describe_operator(cli::Args& args, std::string& op, const std::vector<const Operator*>& known) {
    args.positional(op, names_of(known), {.name = "OP", .help = operators_help(known)});
}

void describe_leading_operator(cli::Args& args, std::string& op, const std::vector<const Operator*>& known) {
    args.leading(op, names_of(known),
                 {.name = "OP", .help = operators_help(known) + "; may be left out where only one fits"});
}

Result<std::string> operator_of_kernel(const std::string& kernel, const Context& context) {
    std::vector<std::string_view> own;
    for (const Operator* each : operators()) {
        if (each->kernel_names == nullptr) continue;
        const auto names = each->kernel_names(false);
        if (std::find(names.begin(), names.end(), kernel) != names.end()) own.push_back(each->name);
    }
    if (own.size() == 1) return std::string(own.front());
    if (const auto target = select_target(context.config, context.cwd);
        target && target->oracle && target->oracle->kernel == kernel) {
        return target->oracle->op;
    }
    std::string found = operator_in_source(source_of(kernel, context), kernel.starts_with("py:"));
    if (found.empty()) return name_it("--kernel " + kernel, "gdn or linear-ce");
    return found;
}

Result<std::string> operator_of_inputs(const std::vector<std::string>& inputs, const Context& context) {
    GDNCTL_TRY_ASSIGN(const oracle::TensorFile file, oracle_files::read(context, inputs, {}));
    if (const auto op = file.metadata.find("op"); op != file.metadata.end()) {
        for (const Operator* each : operators()) {
            if (each->name == op->second) return op->second;
        }
    }
    const auto has = [&](std::initializer_list<std::string_view> names) {
        return file.any_name(
            [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); });
    };
    if (has({"qkvz", "conv_weight"})) return std::string(oracle_layer::k_operator.name);
    if (has({"labels"})) return std::string(linear_ce::k_operator.name);
    if (has({"q", "query"})) return std::string(oracle_gdn::k_operator.name);
    return name_it(inputs.front(), "gdn, gdn-layer or linear-ce");
}

}  // namespace gdnctl::commands
