#include "commands/oracle/run.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "harness/files.h"
#include "oracle/gdn/report/report.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_run {

namespace {

constexpr std::array<cli::Choice<Method>, 4> k_methods = {{
    {"recurrent64", Method::recurrent64, "fp64 recurrence, the exact result, written as float64"},
    {"chunk", Method::chunk, "chunked form in fp32"},
    {"fused", Method::fused, "recurrence in fp32, fused: the fastest"},
    {"recurrent32", Method::recurrent32, "recurrence in fp32"},
}};

constexpr std::array<cli::Choice<oracle::DType>, 2> k_dtypes = {
    {{"f32", oracle::DType::f32}, {"bf16", oracle::DType::bf16}}};

std::string_view name_of(Method method) { return k_methods[static_cast<std::size_t>(method)].name; }

// As --dtype spells it.
std::string_view short_name(oracle::DType dtype) {
    switch (dtype) {
        case oracle::DType::bf16: return "bf16";
        case oracle::DType::f16: return "f16";
        case oracle::DType::f64: return "f64";
        default: return "f32";
    }
}

// The metadata from which the file can be judged or made again: every option that results depend on, and the resolved
// contract.
void describe_file(const Options& options, const oracle::ResolvedContract& contract, oracle::TensorFile& file) {
    for (auto& [field, value] : contract.as_metadata()) file.metadata[field] = value;
    file.metadata["op"] = options.op;
    file.metadata["contract"] = contract.name;
    file.metadata["method"] = name_of(options.method);
    file.metadata.erase("backward_method");
    if (options.backward) file.metadata["backward_method"] = name_of(backward_method(options.method));
    if (options.shape) file.metadata["shape"] = *options.shape;
    file.metadata["backward"] = options.backward ? "true" : "false";
    if (const auto q = oracle::find_gdn_tensor(file, "q"); q && *q != nullptr) {
        file.metadata["dtype"] = short_name((*q)->dtype);
    }
}

void print(const Options& options, const oracle::ResolvedContract& contract, const oracle::TensorFile& file,
           Context& context) {
    if (!context.global.json) {
        for (const auto& [name, tensor] : file.tensors) {
            context.terminal.out(
                fmt::format("{:<14} {:<9} {}\n", name, oracle::name_of(tensor.dtype), oracle::text_of(tensor.shape)));
        }
        context.terminal.out(oracle_report::contract_text(contract));
        const auto gradients = options.backward
                                   ? fmt::format(", gradients by {}", name_of(backward_method(options.method)))
                                   : std::string();
        context.terminal.out(fmt::format("method: {}{}\nwrote {}\n", name_of(options.method), gradients, options.out));
        return;
    }
    Json report = {{"schema", "gdnctl.oracle-run/1"}, {"op", options.op}, {"path", options.out}};
    report["method"] = name_of(options.method);
    report["backward_method"] = options.backward ? Json(name_of(backward_method(options.method))) : Json(nullptr);
    report["tensors"] = Json::array();
    for (const auto& [name, tensor] : file.tensors) {
        report["tensors"].push_back(
            {{"name", name}, {"dtype", oracle::name_of(tensor.dtype)}, {"shape", tensor.shape}});
    }
    report["contract"] = oracle_report::contract_json(contract);
    print_json(report, context);
}

Status check_generated(const Options& o) {
    if (!o.inputs.empty() && (o.seed || o.dtype != oracle::DType::f32)) {
        return fail(ErrorKind::usage, "--seed and --dtype are for generated inputs, not for --inputs");
    }
    if (o.seed && *o.seed < 0) return fail(ErrorKind::usage, "--seed must not be negative");
    return oracle_files::check_writable_name(o.out);
}

Status check(const Options& o) {
    GDNCTL_TRY(check_operator(o, &Operator::run));
    return check_generated(o);
}

// Where inputs come from.
void describe_inputs(cli::Args& args, Options& options) {
    args.option(options.shape, {.names = "--shape",
                                .value = "B,Hk,Hv,T,dk,dv",
                                .help = "generate random inputs of this shape",
                                .group = "Inputs"});
    args.option(options.case_name, {.names = "--case",
                                    .value = "NAME",
                                    .help = "generate a named case (`gdnctl oracle cases` lists them)",
                                    .group = "Inputs",
                                    .complete = cli::Complete::oracle_case});
    args.option(options.inputs, {.names = "--inputs",
                                 .value = "FILE",
                                 .help = "read inputs (.safetensors, .npz or .npy)",
                                 .group = "Inputs",
                                 .complete = cli::Complete::file});
    args.option(options.seed, {.names = "--seed",
                               .value = "N",
                               .help = "seed of the generated inputs",
                               .group = "Inputs",
                               .default_text = "the case's, or 1"});
    args.option(options.dtype, std::span<const cli::Choice<oracle::DType>>(k_dtypes),
                {.names = "--dtype",
                 .value = "DTYPE",
                 .help = "dtype of the generated q, k, v, g and beta",
                 .group = "Inputs"});
    args.flag(options.u2_as_bf16,
              {.names = "--u2-as-bf16", .help = "read uint16 arrays of NumPy files as bfloat16", .group = "Inputs"});
}

}  // namespace

Status check_sources(const Options& o) {
    const int sources = (o.shape ? 1 : 0) + (o.case_name ? 1 : 0) + (o.inputs.empty() ? 0 : 1);
    return sources == 1 ? Status{} : fail(ErrorKind::usage, "pass one of --shape, --case and --inputs");
}

Result<oracle::TensorFile> inputs(const Options& options, const Context& context,
                                  const std::function<Result<oracle::TensorFile>()>& generate) {
    return options.inputs.empty() ? generate() : oracle_files::read(context, options.inputs, {options.u2_as_bf16});
}

Status finish(const Options& options, const oracle::ResolvedContract& contract, oracle::TensorFile& file,
              Context& context) {
    describe_file(options, contract, file);
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    GDNCTL_TRY(oracle_files::write(context, options.out, file));
    print(options, contract, file, context);
    return {};
}

void describe(cli::Args& args, Options& options) {
    args.about(
        "Generates or reads inputs, computes the operator, and writes inputs and results to one file. Its metadata "
        "holds all options and the resolved contract, so that you can judge or recreate it. The same seed gives the "
        "same inputs on every machine.");
    args.about(
        "gdn-layer is the layer between its projections: causal convolution and SiLU, gates, operator, gated RMSNorm. "
        "It takes qkvz and ba (or q, k, v, z, b and a separately), conv_weight, A_log, dt_bias, norm_weight and both "
        "states.");
    describe_operator(args, options, &Operator::run);
    describe_inputs(args, options);
    args.option(options.method, std::span<const cli::Choice<Method>>(k_methods),
                {.names = "--method", .value = "METHOD", .help = "how to compute the result"});
    args.option(options.chunk, {.names = "--chunk", .value = "C", .help = "chunk length, as --set chunk=C"});
    args.flag(options.backward, {.names = "--backward",
                                 .help = "also write gradients: exact for recurrent64, otherwise from the chunked fp32 "
                                         "backward; d_out and d_final_state are generated if missing"});
    args.flag(options.parts, {.names = "--parts", .help = "gdn-layer: also write conv_out, g, beta and core_out"});
    args.option(options.stream, {.names = "--stream",
                                 .value = "TOKENS",
                                 .help = "gdn-layer: compute this many tokens at a time, passing on the states"});
    args.option(options.out, {.names = "--out",
                              .value = "FILE",
                              .help = "file to write (.safetensors or .npz)",
                              .complete = cli::Complete::file,
                              .required = true});
    oracle_gdn::describe_threads(args, options.threads);
    oracle_gdn::describe_contract(args, options.contract);
    linear_ce::describe_run(args, options.ce);
    linear_ce::describe_contract(args, options.ce_contract);
    args.check([&options] { return check(options); });
    args.example("gdnctl oracle run gdn --shape 1,2,4,256,64,64 --set head_map=interleaved --out truth.safetensors",
                 "random inputs and the exact result");
    args.example("gdnctl oracle run gdn --inputs in.safetensors --backward --out gradients.safetensors",
                 "and the exact gradients, for the d_out and d_final_state of the file");
    args.example("gdnctl oracle run gdn --inputs in.safetensors --method chunk --chunk 32 --out chunked.safetensors",
                 "the chunked form on your own inputs");
    args.example("gdnctl oracle run gdn-layer --shape 1,2,4,64,32,16 --backward --out layer.safetensors",
                 "the layer around the operator, with all gradients");
    args.exit_code(8, "the file cannot be written");
    args.exit_code(9, "inputs that cannot be read or are malformed, wrong shape or dtype, not enough memory");
    args.see_also("oracle cases");
    args.see_also("oracle compare");
}

Result<ExitCode> run(const Options& options, Context& context) {
    return run_operator(options, &Operator::run, context);
}

}  // namespace gdnctl::commands::oracle_run

namespace gdnctl::commands {

constinit const cli::Command k_oracle_run_row = cli::make<&oracle_run::describe, &oracle_run::run>(
    "oracle run", "Oracle", "write inputs and the exact result", Tier::none);

}  // namespace gdnctl::commands
