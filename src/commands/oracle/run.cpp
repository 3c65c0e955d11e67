#include "commands/oracle/run.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/layer.h"
#include "core/json.h"
#include "core/text.h"
#include "harness/files.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/kernels.h"
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

constexpr std::array<cli::Choice<InputDType>, 2> k_dtypes = {{{"f32", InputDType::f32}, {"bf16", InputDType::bf16}}};

std::string_view name_of(Method method) { return k_methods[static_cast<std::size_t>(method)].name; }

// There are two backwards: the exact adjoint, and the chunked one in fp32, which is that of every fp32 forward.
Method backward_method(const Options& options) {
    return options.method == Method::recurrent64 ? Method::recurrent64 : Method::chunk;
}

oracle::Passes passes_of(const Options& options) {
    return options.backward ? oracle::Passes::with_gradients : oracle::Passes::forward;
}

Result<oracle::TensorFile> generate(const Options& options) {
    oracle::GdnCase c;
    if (options.case_name) {
        const oracle::GdnCase* found = oracle::find_gdn_case(*options.case_name);
        if (found == nullptr) {
            const auto near = text::nearest(*options.case_name, oracle::gdn_case_names());
            return fail(ErrorKind::usage, fmt::format("unknown case '{}'", *options.case_name),
                        near ? fmt::format("did you mean '{}'?", *near) : "gdnctl oracle cases gdn lists them");
        }
        c = *found;
        if (c.set == "golden" && (options.seed || options.dtype != InputDType::f32)) {
            return fail(ErrorKind::usage,
                        fmt::format("--seed and --dtype cannot be combined with the golden case {}", c.name),
                        "its inputs are formulas in float64");
        }
    } else {
        GDNCTL_TRY_ASSIGN(c.dims, oracle_gdn::parse_shape(*options.shape));
        GDNCTL_TRY(oracle_files::check_memory(c.dims, static_cast<std::size_t>(c.dims.B), passes_of(options)));
        c.name = "shape " + *options.shape;
        c.state_scale = 0.1;
        // Unnormalised keys let the state explode unless the operator normalises them.
        GDNCTL_TRY_ASSIGN(const auto contract,
                          oracle::resolve_contract(options.contract.contract, {}, options.contract.sets));
        if (contract.value.l2norm == oracle::L2Norm::off) c.keys = oracle::KeyRecipe::unit;
        if (contract.value.g_kind == oracle::GateKind::raw) c.gate = oracle::GateRecipe::raw;
        const auto fields = contract.as_metadata();
        for (const char* field : {"state_layout", "g_kind", "beta_kind"}) {
            c.contract.push_back(fmt::format("{}={}", field, fields.at(field)));
        }
    }
    if (options.seed) c.seed = static_cast<std::uint64_t>(*options.seed);
    if (options.dtype == InputDType::bf16) c.dtype = oracle::DType::bf16;
    oracle::TensorFile file = oracle::make_inputs(c);
    if (options.backward) {
        oracle::TensorFile cotangents = oracle::make_cotangents(c);
        for (oracle::NamedTensor& entry : cotangents.tensors) file.tensors.push_back(std::move(entry));
    }
    return file;
}

oracle::GdnOutputs compute(const Options& options, const oracle::GdnProblem& problem,
                           const oracle::GdnContract& contract, int threads) {
    const oracle::Storage storage = oracle::storage_of(problem);
    switch (options.method) {
        case Method::chunk:
            return oracle::run_chunk32(problem, contract,
                                       {contract.chunk, oracle::GateSum::fp64_with_resets, contract.matmul, storage},
                                       threads);
        case Method::fused: return oracle::run_fused32(problem, contract, threads, oracle::best_isa(), storage);
        case Method::recurrent32: return oracle::run_recurrent32(problem, contract, threads);
        case Method::recurrent64: break;
    }
    return oracle::run_recurrent64(problem, contract, threads);
}

// Adds the gradients, and the cotangents where the file has none. Where out has 16 bits, d_out is written as it was
// used.
Status add_gradients(const Options& options, const oracle::GdnProblem& problem, const oracle::GdnContract& contract,
                     int threads, oracle::TensorFile& file) {
    std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
        return oracle::canonical_name(entry.name).role == oracle::GdnRole::gradient;
    });
    GDNCTL_TRY_ASSIGN(auto cotangents, oracle::read_cotangents(file, problem, contract));
    const auto append = [&file](oracle::TensorFile more) {
        for (oracle::NamedTensor& entry : more.tensors) file.tensors.push_back(std::move(entry));
    };
    const bool given = cotangents.has_value();
    if (!given) cotangents = oracle::random_cotangents(problem, static_cast<std::uint64_t>(options.seed.value_or(1)));
    const bool rounded = oracle::round_cotangent(*cotangents, oracle::out_dtype_of(contract, problem));
    if (!given || rounded) {
        oracle::TensorFile used = oracle::cotangents_file(problem, contract, *cotangents);
        if (given) used.tensors.resize(1);  // d_final_state stays as it is
        std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
            return oracle::canonical_name(entry.name).canonical == "d_out";
        });
        append(std::move(used));
    }
    const bool exact = backward_method(options) == Method::recurrent64;
    const auto gradients = exact ? oracle::run_adjoint64(problem, contract, *cotangents, threads)
                                 : oracle::run_backward32(problem, contract, *cotangents, threads, oracle::best_isa(),
                                                          oracle::storage_of(problem));
    const oracle::DType plain = exact ? oracle::DType::f64 : oracle::DType::f32;
    append(oracle::gradients_file(problem, contract, gradients, !exact && problem.in_bf16 ? oracle::DType::bf16 : plain,
                                  plain));
    return {};
}

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
    if (options.backward) file.metadata["backward_method"] = name_of(backward_method(options));
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
        const auto gradients =
            options.backward ? fmt::format(", gradients by {}", name_of(backward_method(options))) : std::string();
        context.terminal.out(fmt::format("method: {}{}\nwrote {}\n", name_of(options.method), gradients, options.out));
        return;
    }
    Json report = {{"schema", "gdnctl.oracle-run/1"}, {"op", options.op}, {"path", options.out}};
    report["method"] = name_of(options.method);
    report["backward_method"] = options.backward ? Json(name_of(backward_method(options))) : Json(nullptr);
    report["tensors"] = Json::array();
    for (const auto& [name, tensor] : file.tensors) {
        report["tensors"].push_back(
            {{"name", name}, {"dtype", oracle::name_of(tensor.dtype)}, {"shape", tensor.shape}});
    }
    report["contract"] = oracle_report::contract_json(contract);
    context.terminal.out(to_text(report, 2) + "\n");
}

Status check_layer(const Options& o) {
    if (o.op != oracle_gdn::k_layer_op) {
        if (o.parts || o.stream) return fail(ErrorKind::usage, "--parts and --stream are for gdn-layer");
        return {};
    }
    if (o.case_name) return fail(ErrorKind::usage, "--case: named cases exist only for the operator", "give --shape");
    if (o.method != Method::recurrent64 || o.chunk) {
        return fail(ErrorKind::usage, "gdn-layer is computed in fp64 only: drop --method and --chunk");
    }
    if (o.stream && *o.stream < 1) return fail(ErrorKind::usage, "--stream must be at least one token");
    return {};
}

Status check_generated(const Options& o) {
    if (!o.inputs.empty() && (o.seed || o.dtype != InputDType::f32)) {
        return fail(ErrorKind::usage, "--seed and --dtype are for generated inputs, not for --inputs");
    }
    if (o.seed && *o.seed < 0) return fail(ErrorKind::usage, "--seed must not be negative");
    return oracle_files::check_writable_name(o.out);
}

Status check_linear_ce(const Options& o) {
    const bool shape = o.ce.batch || o.ce.hidden || o.ce.vocab;
    const int sources = (shape ? 1 : 0) + (o.case_name ? 1 : 0) + (o.inputs.empty() ? 0 : 1);
    if (sources != 1) {
        return fail(ErrorKind::usage, "give one of --case, --inputs, and --batch with --hidden and --vocab");
    }
    const bool contract = o.contract.contract != oracle_gdn::ContractOptions{}.contract || !o.contract.sets.empty();
    if (contract || o.shape || o.method != Method::recurrent64 || o.chunk || o.backward || o.parts || o.stream) {
        return fail(ErrorKind::usage,
                    "linear-ce takes none of --contract, --set, --shape, --method, --chunk, --backward, --parts and "
                    "--stream",
                    "results and gradients are always exact");
    }
    return {};
}

Status check(const Options& o) {
    if (o.op == linear_ce::k_op) {
        GDNCTL_TRY(check_linear_ce(o));
        return check_generated(o);
    }
    GDNCTL_TRY(check_layer(o));
    const int sources = (o.shape ? 1 : 0) + (o.case_name ? 1 : 0) + (o.inputs.empty() ? 0 : 1);
    if (sources != 1) return fail(ErrorKind::usage, "give one of --shape, --case and --inputs");
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
                                    .help = "generate a named case (see oracle cases)",
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
    args.option(options.dtype, std::span<const cli::Choice<InputDType>>(k_dtypes),
                {.names = "--dtype",
                 .value = "DTYPE",
                 .help = "dtype of the generated q, k, v, g and beta",
                 .group = "Inputs"});
    args.flag(options.u2_as_bf16,
              {.names = "--u2-as-bf16", .help = "read uint16 arrays of NumPy files as bfloat16", .group = "Inputs"});
}

}  // namespace

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
        "It "
        "takes qkvz and ba (or q, k, v, z, b, a apart), conv_weight, A_log, dt_bias, norm_weight and both states.");
    oracle_gdn::describe_op_or_layer(args, options.op);
    describe_inputs(args, options);
    args.option(options.method, std::span<const cli::Choice<Method>>(k_methods),
                {.names = "--method", .value = "METHOD", .help = "how to compute"});
    args.option(options.chunk, {.names = "--chunk", .value = "C", .help = "chunk length, as --set chunk=C"});
    args.flag(options.backward, {.names = "--backward",
                                 .help = "also write gradients: exact for recurrent64, else by the chunked fp32 "
                                         "backward; d_out and d_final_state are generated if not given"});
    args.flag(options.parts, {.names = "--parts", .help = "gdn-layer: also write conv_out, g, beta and core_out"});
    args.option(options.stream, {.names = "--stream",
                                 .value = "TOKENS",
                                 .help = "gdn-layer: compute N tokens at a time, passing on the states"});
    args.option(options.out, {.names = "--out",
                              .value = "FILE",
                              .help = "where to write (.safetensors or .npz)",
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
                 "the chunked form on inputs of your own");
    args.example("gdnctl oracle run gdn-layer --shape 1,2,4,64,32,16 --backward --out layer.safetensors",
                 "the layer around the operator, with all gradients");
    args.exit_code(8, "the file cannot be written");
    args.exit_code(9, "inputs that cannot be read or are malformed, wrong shape or dtype, not enough memory");
    args.see_also("oracle cases");
    args.see_also("oracle compare");
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (options.op == oracle_gdn::k_layer_op) return oracle_layer::run(options, context);
    if (options.op == linear_ce::k_op) {
        return linear_ce::run(options.ce, options.ce_contract,
                              {options.case_name, options.inputs, options.seed, options.dtype == InputDType::bf16,
                               options.u2_as_bf16, options.threads, options.out},
                              context);
    }
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    oracle::TensorFile file;
    if (options.inputs.empty()) {
        GDNCTL_TRY_ASSIGN(file, generate(options));
    } else {
        GDNCTL_TRY_ASSIGN(file, oracle_files::read(context, options.inputs, {options.u2_as_bf16}));
    }
    GDNCTL_TRY_ASSIGN(auto contract,
                      oracle::resolve_contract(options.contract.contract, file.metadata, options.contract.sets));
    if (options.chunk) GDNCTL_TRY(oracle::set_field(contract, "chunk", fmt::format("{}", *options.chunk), "--chunk"));
    GDNCTL_TRY_ASSIGN(const auto problem, oracle::read_problem(file, contract));
    GDNCTL_TRY(oracle_files::check_memory(problem.dims, problem.sequences.size(), passes_of(options)));
    // Results of an earlier run in the same file are replaced.
    std::erase_if(file.tensors, [](const oracle::NamedTensor& entry) {
        return oracle::canonical_name(entry.name).role == oracle::GdnRole::output;
    });
    const bool exact = options.method == Method::recurrent64;
    const oracle::DType out = exact ? oracle::DType::f64 : oracle::out_dtype_of(contract.value, problem);
    oracle::TensorFile results =
        oracle::outputs_file(problem, contract.value, compute(options, problem, contract.value, threads), out,
                             exact ? oracle::DType::f64 : oracle::DType::f32);
    for (oracle::NamedTensor& entry : results.tensors) file.tensors.push_back(std::move(entry));
    if (options.backward) GDNCTL_TRY(add_gradients(options, problem, contract.value, threads, file));
    GDNCTL_TRY(finish(options, contract, file, context));
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::oracle_run
