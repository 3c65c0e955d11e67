#include "commands/oracle/verbs.h"

#include <array>
#include <future>
#include <vector>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/oracle/elsewhere.h"
#include "commands/oracle/gdn.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/text.h"
#include "core/tone.h"
#include "harness/child/python_kernel.h"
#include "harness/files.h"
#include "jobs/job_destination.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/report/report.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands {

namespace {

constexpr std::array<cli::Choice<oracle_verify::CaseChoice>, 2> k_case_choices = {
    {{"device", oracle_verify::CaseChoice::device, "few shapes, which accelerators compile, with inputs of every kind"},
     {"full", oracle_verify::CaseChoice::full, "all others"}}};

}  // namespace

}  // namespace gdnctl::commands

namespace gdnctl::commands::oracle_cases {

void describe(cli::Args& args, Options& options) {
    args.about(
        "Lists the cases that `oracle verify` runs and `oracle run --case` writes: shapes of known test suites, inputs "
        "that break kernels, goldens with results from other programs, a covering array of conditions and contract "
        "fields (`crossed`), and steps for kernels that decode. A case has the same bytes on every machine.");
    describe_operator(args, options, &Operator::cases);
    args.option(options.chosen, k_case_choices, "--cases CASES", "which cases to list");
    args.example("gdnctl oracle cases gdn", "list the cases and what is special about each");
    args.example("gdnctl oracle cases gdn --json", "print JSON (gdnctl.oracle-cases/1)");
    args.see_also("oracle run");
    args.see_also("oracle verify");
}

Result<ExitCode> run(const Options& options, Context& context) {
    return run_operator(options, &Operator::cases, context);
}

ExitCode print(std::string_view op, const harness::CaseList& cases, Context& context) {
    if (context.global.json) {
        print_json(json_of(op, cases), context);
    } else {
        print_lines(text_of(cases), context, 28 + cases.width);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::oracle_cases

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
            print_lines(
                fmt::format("{:<14} {:<9} {}\n", name, oracle::name_of(tensor.dtype), oracle::text_of(tensor.shape)),
                context);
        }
        print_lines(oracle_report::contract_text(contract), context);
        const auto gradients = options.backward
                                   ? fmt::format(", gradients by {}", name_of(backward_method(options.method)))
                                   : std::string();
        print_lines(fmt::format("method: {}{}\nwrote {}\n", name_of(options.method), gradients, options.out), context);
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

namespace gdnctl::commands::oracle_verify {

namespace {

constexpr std::array<cli::Choice<StoredAs>, 4> k_dtypes = {{
    {"case", StoredAs::as_listed, "as each case says: fp32, with a few exceptions"},
    {"f32", StoredAs::f32, "single precision"},
    {"bf16", StoredAs::bf16, "bfloat16; a loaded kernel without bf16 support gets the same values in fp32"},
    {"f16", StoredAs::f16, "half precision; cases whose values do not fit are skipped"},
}};

Status check(const Options& options) {
    GDNCTL_TRY(check_operator(options, &Operator::verify));
    GDNCTL_TRY(check_seed(options.seed));
    if (options.metamorphic && options.dtype != StoredAs::as_listed) {
        return fail(ErrorKind::usage, "--metamorphic cannot be combined with --dtype: its inputs are fp32");
    }
    if (options.metamorphic && options.slow) {
        return fail(ErrorKind::usage, "--metamorphic cannot be combined with --slow: relations have their own inputs");
    }
    if (options.metamorphic && options.vectors) {
        return fail(ErrorKind::usage, "--metamorphic cannot be combined with --vectors: it needs to call the kernel");
    }
    return {};
}

// What is judged.
void describe_cases(cli::Args& args, Options& options) {
    args.option(options.vectors, {.names = "--vectors",
                                  .value = "DIR",
                                  .help = "also judge the recorded outputs in this folder",
                                  .complete = cli::Complete::directory});
    args.option(options.cases, {.names = "--case",
                                .value = "NAME",
                                .help = "run only this case, vector or relation; a set of `oracle cases`, or a pattern "
                                        "such as gva_*, selects several",
                                .complete = cli::Complete::case_or_set});
    args.option(options.chosen, k_case_choices, "--cases CASES", "which cases to run without --case",
                {.default_text = "full; py: device"});
    args.option(options.dtype, std::span<const cli::Choice<StoredAs>>(k_dtypes),
                {.names = "--dtype",
                 .value = "DTYPE",
                 .help = "how to store q, k and v of the generated cases, and the outputs"});
    args.option(options.seed, {.names = "--seed",
                               .value = "N",
                               .help = "generate all inputs from seed N; `random`: from a new random seed",
                               .default_text = "each case has its own"});
    args.flag(options.slow, {.names = "--slow", .help = "also run the case of 65,537 tokens (takes a few seconds)"});
    args.flag(options.metamorphic,
              {.names = "--metamorphic",
               .help = "check relations between the kernel's own results instead of comparing with a reference"});
}

void describe_contract(cli::Args& args, Options& options) {
    args.option(options.contract, {.names = "--contract",
                                   .value = "NAME",
                                   .help = "gdn: judge the kernel by this " + oracle_gdn::contract_help(),
                                   .group = "Contract",
                                   .default_text = "as each case says",
                                   .complete = cli::Complete::contract});
    args.option(options.sets, {.names = "--set",
                               .value = "FIELD=VALUE",
                               .help = "declare one field of the kernel's contract, for example matmul=bf16",
                               .group = "Contract",
                               .complete = cli::Complete::contract_set});
}

void describe_examples(cli::Args& args) {
    args.example("gdnctl oracle verify gdn --kernel builtin:chunk", "the chunked fp32 kernel on every case");
    args.example("gdnctl oracle verify gdn --kernel src:kernel.c", "your own kernel in C (docs/writing-a-kernel.md)");
    args.example("gdnctl oracle verify gdn --kernel py:./my_gdn.py",
                 "a JAX or torch function (docs/python-kernels.md)");
    args.example("gdnctl oracle verify gdn --kernel py:levanter --cluster us-central1 --tpu v5p-8",
                 "the same on a cluster's TPU");
    args.example("gdnctl oracle verify gdn --kernel 'cmd:python run.py' --case g1", "a program over tensor files");
    args.example("gdnctl oracle verify gdn --kernel src:kernel.c --case golden --case 'gva_*' --fail-fast",
                 "one set and some cases, up to the first failure");
    args.example("gdnctl oracle verify gdn --kernel src:kernel.c --save-failures failures",
                 "keep the tensors of failures for `oracle compare`");
    args.example("gdnctl oracle verify gdn --kernel src:kernel.c --dtype bf16", "the same cases stored in bf16");
    args.example("gdnctl oracle verify gdn --kernel src:kernel.c --set matmul=bf16",
                 "a kernel that multiplies in bf16 and says so");
    args.example("gdnctl oracle verify gdn --kernel lib:./mine.so --seed random",
                 "inputs that the kernel cannot have seen");
    args.example("gdnctl oracle verify gdn --kernel lib:./mine.so --metamorphic", "relations between its results");
    args.example("gdnctl oracle verify gdn --kernel builtin:chunk --vectors vectors --json", "with recorded vectors");
}

}  // namespace

std::string_view name_of(StoredAs dtype) { return k_dtypes[static_cast<std::size_t>(dtype)].name; }

void describe(cli::Args& args, Options& options) {
    args.about(
        "Runs a kernel on every generated case and judges its results. A kernel that is not built in runs in a child "
        "process, in C without network. Each call in C gets new arrays between inaccessible pages, with poisoned "
        "outputs, and "
        "each case runs three times. Forward, backward (gradients of every case) and decode (steps of 1 to 8 tokens, "
        "in place and not) are judged if the kernel has them; other cases are skipped and counted. With --vectors, "
        "recorded outputs of real implementations are judged too: each NAME.*.outputs.safetensors against "
        "NAME.inputs.safetensors in the same folder. The output counts what is OK in each set of cases. Failures that "
        "look "
        "alike are shown once, with the smallest case in full; -v prints a line for each case. The line that begins "
        "with verdict: is the "
        "overall verdict. --contract and --set "
        "declare what the kernel computes: fields of precision apply to every case, and cases that need another value "
        "of any "
        "other field are skipped and counted. A program gets log decay, beta as a factor and states as [N,H,K,V], as "
        "loaded kernels do, unless another form is declared.");
    describe_known_operator(args, options, &Operator::verify);
    args.option(options.kernel, {.names = "--kernel",
                                 .value = "KERNEL",
                                 .help = kernel_help(),
                                 .complete = cli::Complete::kernel,
                                 .required = true});
    describe_cases(args, options);
    args.flag(options.fail_fast, {.names = "--fail-fast", .help = "stop after the first failure"});
    args.option(options.save_failures,
                {.names = "--save-failures",
                 .value = "DIR",
                 .help = "write inputs, outputs and verdict of the first 20 failures to this folder",
                 .complete = cli::Complete::directory});
    describe_contract(args, options);
    args.check([&options] { return check(options); });
    oracle_gdn::describe_threads(args, options.threads);
    describe_limits(args, options.limits);
    describe_python(args, options.python);
    describe_elsewhere(args, options.elsewhere);
    args.flag(options.allow_suspect, {.names = "--allow-suspect", .help = "also exit with 0 for SUSPECT"});
    describe_examples(args);
    args.exit_code(1,
                   "WRONG, or SUSPECT without --allow-suspect; or the kernel crashed, used too much memory, wrote "
                   "outside its arrays, left outputs unwritten, or depends on more than its inputs");
    args.exit_code(8, "a file cannot be read or written, or there is no compiler for src:");
    args.exit_code(9,
                   "no case is left to judge; a vector cannot be read or judged; the source does not compile, the "
                   "library is not a kernel, or a program's outputs have the wrong shape");
    args.exit_code(124, "the kernel reached --time-limit");
    args.see_also("oracle cases");
    args.see_also("oracle compare");
}

namespace {

// The same command for another machine.
Result<RemoteCommand> words_there(const Options& o, const Context& context) {
    if (o.vectors) return fail(ErrorKind::usage, "--vectors is for kernels on this machine");
    RemoteCommand words("verify", o.op, context);
    words.kernel("--kernel", o.kernel);
    words.add("--case", o.cases);
    if (o.chosen != CaseChoice::as_suits_the_kernel) {
        words.add("--cases", o.chosen == CaseChoice::device ? "device" : "full");
    }
    words.add("--contract", o.contract);
    words.add("--set", o.sets);
    if (o.dtype != StoredAs::as_listed) words.add("--dtype", name_of(o.dtype));
    words.add("--seed", o.seed);
    words.add_unless<std::int64_t>(0, "--threads", o.threads);
    words.limits(o.limits);
    words.python(o.python);
    words.flag("--allow-suspect", o.allow_suspect);
    words.flag("--metamorphic", o.metamorphic);
    words.flag("--slow", o.slow);
    words.flag("--fail-fast", o.fail_fast);
    words.flag("-v", context.global.verbose > 0);
    return words;
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    Options all = options;
    if (all.op.empty()) {
        GDNCTL_TRY_ASSIGN(all.op, operator_of_kernel(all.kernel, context));
        GDNCTL_TRY(check(all));
    }
    GDNCTL_TRY_ASSIGN(all.hidden, take_hidden(context.env));
    if (!options.elsewhere.wanted()) return run_operator(all, &Operator::verify, context);
    GDNCTL_TRY_ASSIGN(const auto words, words_there(all, context));
    all.elsewhere.save_failures = options.save_failures;
    return run_elsewhere(all.elsewhere, words, context);
}

}  // namespace gdnctl::commands::oracle_verify

namespace gdnctl::commands::oracle_compare {

namespace {

// A dump, or a dataset: one of the two. IN and OUT stand for --inputs and --outputs.
void describe_files_check(cli::Args& args, Options& options) {
    args.check([&options]() -> Status {
        if (options.in) {
            if (!options.inputs.empty() || !options.outputs.empty()) {
                return fail(ErrorKind::usage, "IN and OUT cannot be combined with --inputs and --outputs");
            }
            if (!options.out) return fail(ErrorKind::usage, "the argument OUT is missing", "pass both: IN OUT");
            options.inputs = {*options.in};
            options.outputs = {*options.out};
        }
        const bool dataset = oracle_flashinfer::wanted(options.flashinfer);
        if (dataset && !(options.inputs.empty() && options.outputs.empty())) {
            return fail(ErrorKind::usage,
                        "--flashinfer and --definition cannot be combined with --inputs and --outputs");
        }
        if (!dataset && options.inputs.empty()) {
            return fail(ErrorKind::usage, "--inputs is required", "pass the dump: oracle compare OP IN OUT");
        }
        if (!dataset && options.outputs.empty()) {
            return fail(ErrorKind::usage, "--outputs is required", "pass the dump: oracle compare OP IN OUT");
        }
        return {};
    });
}

void describe_examples(cli::Args& args) {
    args.example("gdnctl oracle compare in.safetensors out.safetensors", "judge a dump of Marin's kernel");
    args.example("gdnctl oracle compare gdn --inputs in.npz --outputs out.npz --contract hf --set head_map=tiled",
                 "transformers' contract with one field changed");
    args.example(
        "gdnctl oracle compare gdn --inputs in.safetensors --outputs out.safetensors \\\n    "
        "--heatmap --html page.html",
        "show where it is wrong, in the terminal and as a page");
    args.example("gdnctl oracle compare gdn --flashinfer dataset --definition gdn_decode_qk4_v8_d128_k_last",
                 "run a dataset's solutions, one trace line per workload");
    args.exit_code(1,
                   "WRONG, or SUSPECT without --allow-suspect; with --flashinfer also a solution that does not pass");
    args.exit_code(3, "the dataset has no workload of the definition");
    args.exit_code(8, "a page or trace file cannot be written");
    args.exit_code(9,
                   "malformed file, wrong shape or dtype, NO_DATA, UNSTABLE_INPUT; with --flashinfer also a solution "
                   "that does not compile or is not in C");
    args.exit_code(124, "a solution reached --time-limit");
    args.see_also("oracle run");
    args.see_also("oracle verify");
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Judges tensors dumped from a run by comparing them with the fp64 recurrence on the same inputs. Errors are "
        "shown as "
        "multiples of the rounding error that a correct kernel makes on the same inputs: up to 4 times is OK, up to 30 "
        "SUSPECT, beyond that WRONG. Inputs on which the exact result explodes are UNSTABLE_INPUT, and a dump without "
        "out and final_state is NO_DATA, never OK.");
    args.about(
        "A contract says what the tensors mean. Its fields come from the named contract, then from the string metadata "
        "of the inputs file, then from --set; every verdict prints them with their origins. Gradients are judged if "
        "the dump has them and the inputs (or the dump) have d_out or d_final_state; the output names what is "
        "missing.");
    args.about(
        "For a wrong dump, the output names heads, chunks and the first wrong token, the stage of the computation, and "
        "each known mistake that reproduces the dump.");
    args.about(
        "With --flashinfer, every solution in C of a FlashInfer-Bench dataset is judged instead, on every workload of "
        "its definition. A trace line records FlashInfer-Bench's own status and speedup, and our verdict.");
    describe_known_operator(args, options, &Operator::compare);
    args.positional(options.in, "IN", "input tensors, as --inputs", {.complete = cli::Complete::file});
    args.positional(options.out, "OUT", "output tensors, as --outputs", {.complete = cli::Complete::file});
    args.option(options.inputs, {.names = "--inputs",
                                 .value = "FILE",
                                 .help = "input tensors: q, k, v, g, beta, ... (.safetensors, .npz or .npy)",
                                 .complete = cli::Complete::file});
    args.option(
        options.outputs,
        {.names = "--outputs",
         .value = "FILE",
         .help =
             "output tensors: out, final_state, dq, dk, dv, dg, dbeta, d_initial_state (.safetensors, .npz or .npy)",
         .complete = cli::Complete::file});
    describe_files_check(args, options);
    args.flag(options.u2_as_bf16, {.names = "--u2-as-bf16", .help = "read uint16 arrays of NumPy files as bfloat16"});
    oracle_gdn::describe_threads(args, options.threads);
    oracle_gdn::describe_contract(args, options.contract);
    oracle_gdn::describe_tolerances(args, options.rtol, options.atol, options.budget);
    args.flag(options.allow_suspect,
              {.names = "--allow-suspect", .help = "also exit with 0 for SUSPECT", .group = "Judgement"});
    args.flag(options.heatmap, {.names = "--heatmap",
                                .help = "show a map of error / budget by value head and chunk (not with --json)",
                                .group = "Report"});
    args.option(options.html, {.names = "--html",
                               .value = "FILE",
                               .help = "write a self-contained HTML page: map, error by token, worst elements, hints",
                               .group = "Report",
                               .complete = cli::Complete::file});
    oracle_flashinfer::describe(args, options.flashinfer);
    linear_ce::describe_compare(args, options.ce);
    args.check([&options] { return check_operator(options, &Operator::compare); });
    args.flag(options.no_hints, {.names = "--no-hints",
                                 .help = "do not search for the mistake that explains a wrong dump",
                                 .group = "Judgement"});
    describe_examples(args);
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (oracle_flashinfer::wanted(options.flashinfer)) {
        GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
        return oracle_flashinfer::run(options.flashinfer, threads, options.allow_suspect, context);
    }
    if (!options.op.empty()) return run_operator(options, &Operator::compare, context);
    Options known = options;
    GDNCTL_TRY_ASSIGN(known.op, operator_of_inputs(options.inputs, context));
    GDNCTL_TRY(check_operator(known, &Operator::compare));
    return run_operator(known, &Operator::compare, context);
}

Result<Dump> read(const Options& options, const Context& context) {
    const oracle::NpyOptions npy{options.u2_as_bf16};
    // Both at once: half a second for a large dump on a cold disk.
    auto later = std::async(std::launch::async, [&] { return oracle_files::read(context, options.outputs, npy); });
    auto given = oracle_files::read(context, options.inputs, npy);
    auto dumped = later.get();
    Dump dump;
    GDNCTL_TRY_ASSIGN(dump.inputs, std::move(given));
    GDNCTL_TRY_ASSIGN(dump.outputs, std::move(dumped));
    return dump;
}

}  // namespace gdnctl::commands::oracle_compare

namespace gdnctl::commands::oracle_bench {

namespace {

constexpr std::array<cli::Choice<IsaChoice>, 4> k_isas = {{
    {"best", IsaChoice::best, "the widest that this processor has"},
    {"scalar", IsaChoice::scalar, "works on every processor"},
    {"avx2", IsaChoice::avx2, "AVX2 and FMA; OpenBLAS uses its Haswell kernels"},
    {"avx512", IsaChoice::avx512, "AVX-512"},
}};

constexpr std::array<cli::Choice<DTypeChoice>, 2> k_dtypes = {{
    {"f32", DTypeChoice::f32, "single precision"},
    {"bf16", DTypeChoice::bf16, "stored as bf16, computed in fp32; gates, beta and states stay fp32"},
}};

Status check(const Options& options) {
    if (options.rounds < 1 || options.runs < 1) return fail(ErrorKind::usage, "--rounds and --runs must be at least 1");
    GDNCTL_TRY(check_operator(options, &Operator::bench));
    if (options.seed < 0) return fail(ErrorKind::usage, "--seed must not be negative");
    return {};
}

}  // namespace

oracle::Isa isa_of(IsaChoice choice) {
    switch (choice) {
        case IsaChoice::scalar: return oracle::Isa::scalar;
        case IsaChoice::avx2: return oracle::Isa::avx2;
        case IsaChoice::avx512: return oracle::Isa::avx512;
        case IsaChoice::best: break;
    }
    return oracle::best_isa();
}

void describe(cli::Args& args, Options& options) {
    args.about(
        "Times a kernel and its peers alternately, along with OpenBLAS's matrix product and bare multiply-adds on the "
        "same threads. Rates count the nominal operations of the chunked form, regardless of what a kernel executes. "
        "The "
        "outputs of the timed runs are judged, and a wrong kernel gets no time. Without --kernel, the command times "
        "our forward, backward and decode kernels. Your own kernels get new inputs in every run. Without libopenblas, "
        "sgemm is not measured.");
    describe_operator(args, options, &Operator::bench);
    static const std::string k_kernel_help =
        "kernel to time, instead of one for each pass: " + text::join(oracle::timed_kernel_names(), ", ") +
        ", lib:PATH, src:FILE.c, cmd:COMMAND, py:ADAPTER[:FUNCTION]";
    args.option(
        options.kernel,
        {.names = "--kernel", .value = "KERNEL", .help = k_kernel_help, .complete = cli::Complete::timed_kernel});
    args.option(options.peers, {.names = "--peer",
                                .value = "KERNEL",
                                .help = "another kernel to time in the same rounds",
                                .complete = cli::Complete::timed_kernel});
    args.option(options.shape, {.names = "--shape", .value = "B,Hk,Hv,T,dk,dv", .help = "shape of the inputs"});
    args.option(options.dtype, std::span<const cli::Choice<DTypeChoice>>(k_dtypes),
                {.names = "--dtype", .value = "DTYPE", .help = "how to store q, k, v, out and their gradients"});
    args.option(options.seed, {.names = "--seed", .value = "N", .help = "seed of the inputs"});
    oracle_gdn::describe_threads(args, options.threads);
    args.option(options.isa, std::span<const cli::Choice<IsaChoice>>(k_isas),
                {.names = "--isa", .value = "ISA", .help = "instruction set to use"});
    args.option(
        options.rounds,
        {.names = "--rounds", .value = "N", .help = "number of rounds; median and minimum are over all of them"});
    args.option(options.runs, {.names = "--runs", .value = "N", .help = "runs per round; the fastest counts"});
    args.option(options.peak_tflops, "--peak TFLOPS", "peak rate of the accelerator that py: kernels run on",
                {.default_text = "as its name says"});
    describe_limits(args, options.limits);
    describe_python(args, options.python);
    describe_chained(args, options.python);
    linear_ce::describe_bench(args, options.ce);
    describe_elsewhere(args, options.elsewhere);
    args.check([&options] { return check(options); });
    args.example("gdnctl oracle bench gdn", "forward, backward and decode at the shape of docs/benchmarks.md");
    args.example("gdnctl oracle bench gdn --kernel builtin:backward --threads 1", "only the gradients");
    args.example("gdnctl oracle bench gdn --kernel builtin:decode --shape 64,4,8,64,128,128",
                 "decode 64 sequences token by token, compared with moving the states");
    args.example("gdnctl oracle bench gdn --shape 1,4,8,8192,64,64 --threads 1 --isa avx2 --json",
                 "output for a program");
    args.example("gdnctl oracle bench gdn --kernel src:kernel.c --peer builtin:fused", "your own kernel");
    args.example("gdnctl oracle bench gdn --kernel py:./mine.py --peer py:levanter", "two JAX functions");
    args.example("gdnctl oracle bench gdn --kernel py:levanter --cluster us-central1 --tpu v5p-8",
                 "on a cluster's TPU");
    args.exit_code(1, "a timed kernel is wrong, its outputs differ between rounds, or it crashed");
    args.exit_code(3, "this processor lacks the instruction set");
    args.exit_code(8, "a file cannot be read or written, or there is no compiler for src:");
    args.exit_code(9, "not enough memory; a source does not compile, or a library is not a kernel");
    args.exit_code(124, "a kernel reached --time-limit");
    args.see_also("oracle verify");
}

namespace {

// The same command for another machine.
RemoteCommand words_there(const Options& o, const Context& context) {
    const Options usual;
    RemoteCommand words("bench", o.op, context);
    if (o.kernel) words.kernel("--kernel", *o.kernel);
    for (const std::string& peer : o.peers) words.kernel("--peer", peer);
    words.add_unless(usual.shape, "--shape", o.shape);
    if (o.dtype != usual.dtype) words.add("--dtype", k_dtypes[static_cast<std::size_t>(o.dtype)].name);
    if (o.isa != usual.isa) words.add("--isa", k_isas[static_cast<std::size_t>(o.isa)].name);
    words.add_unless(usual.seed, "--seed", o.seed);
    words.add_unless(usual.threads, "--threads", o.threads);
    words.add_unless(usual.rounds, "--rounds", o.rounds);
    words.add_unless(usual.runs, "--runs", o.runs);
    words.add("--peak", o.peak_tflops);
    words.add_unless(usual.ce.batch, "--batch", o.ce.batch);
    words.add_unless(usual.ce.hidden, "--hidden", o.ce.hidden);
    words.add_unless(usual.ce.vocab, "--vocab", o.ce.vocab);
    words.add_unless(usual.ce.soft_cap, "--soft-cap", o.ce.soft_cap);
    words.add_unless(usual.ce.logsumexp_weight, "--logsumexp-weight", o.ce.logsumexp_weight);
    words.limits(o.limits);
    words.python(o.python);
    return words;
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    Options all = options;
    GDNCTL_TRY_ASSIGN(all.hidden, take_hidden(context.env));
    if (options.elsewhere.wanted()) return run_elsewhere(options.elsewhere, words_there(options, context), context);
    if (all.hidden.seed) all.seed = static_cast<std::int64_t>(*all.hidden.seed >> 1U);
    return run_operator(all, &Operator::bench, context);
}

}  // namespace gdnctl::commands::oracle_bench

namespace gdnctl::commands::oracle_selftest {

namespace {

// nullptr: there is no such operator.
const Operator* meant(const Options& options) {
    if (!options.op) return operators_with(options.operators, &Operator::selftest).front();
    return find_operator(options.operators, *options.op, &Operator::selftest);
}

std::string text_of(std::string_view what, const oracle::SelftestTotals& t) {
    std::string text = what.empty() ? "" : fmt::format("{}\n", what);
    const auto line = [&](std::string_view name, std::size_t part, std::size_t whole, std::string_view target) {
        text += fmt::format("{}{:<15} {:>4} of {:<4} target {}\n", what.empty() ? "" : "  ", name, part, whole, target);
    };
    line("mistakes found", t.caught, t.mistakes, "100 %");
    line("right stage", t.right_stage, t.mistakes, "90 %");
    line("right place", t.right_place, t.mistakes, "95 %");
    line("false alarms", t.false_alarms, t.variants, "0");
    return text;
}

// The keys of the totals, added to `object`.
void add_totals(Json& object, const oracle::SelftestTotals& t) {
    object["mutants"] = {
        {"total", t.mistakes}, {"caught", t.caught}, {"right_stage", t.right_stage}, {"right_place", t.right_place}};
    object["honest_variants"] = {{"total", t.variants}, {"false_alarms", t.false_alarms}};
}

Json json_of(std::string_view op, const oracle::SelftestReport& report) {
    Json object = {{"schema", "gdnctl.oracle-selftest/1"}, {"op", op}, {"passed", report.passed()}};
    add_totals(object, report.totals);
    if (report.backward) add_totals(object["backward"], *report.backward);
    object["targets"] = {
        {"caught_percent", 100}, {"right_stage_percent", 90}, {"right_place_percent", 95}, {"false_alarms", 0}};
    object["findings"] = Json::array();
    for (const oracle::SelftestFinding& f : report.findings) {
        object["findings"].push_back({{"kind", f.kind}, {"name", f.name}, {"expected", f.expected}, {"got", f.got}});
    }
    return object;
}

}  // namespace

Result<ExitCode> print(const Operator& op, const oracle::SelftestReport& report, Context& context) {
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    if (context.global.json) {
        print_json(json_of(op.name, report), context);
    } else {
        std::string text;
        for (const oracle::SelftestFinding& f : report.findings) {
            text += fmt::format("{}: {}\n    expected {}, got {}\n", f.kind, f.name, f.expected, f.got);
        }
        text += text_of(report.backward ? "forward" : "", report.totals);
        if (report.backward) text += text_of("backward", *report.backward);
        text +=
            fmt::format("selftest: {}\n", toned(report.passed() ? "passed" : "FAILED", context.terminal.color_out()));
        context.terminal.out(text);
    }
    return report.passed() ? ExitCode::ok : ExitCode::check_failed;
}

void describe(cli::Args& args, Options& options) {
    args.about(
        "Checks that the oracle tells right from wrong on this machine. It makes the mistakes that `oracle compare` "
        "can name, one at a time, on a small case. Each must be found and located, and the results of the built-in "
        "kernels on other cases must be OK. Takes a few seconds.");
    const std::string_view first = operators_with(options.operators, &Operator::selftest).front()->name;
    args.positional(options.op, {.name = "OP", .help = fmt::format("the operator (default: {})", first)});
    args.check([&options]() -> Status {
        const Operator* op = meant(options);
        if (op != nullptr) return op->selftest.check == nullptr ? Status{} : op->selftest.check(options);
        std::vector<std::string> known;
        for (const Operator* each : operators_with(options.operators, &Operator::selftest)) {
            known.emplace_back(each->name);
        }
        return fail(ErrorKind::usage, fmt::format("unknown operator '{}'", *options.op),
                    "known: " + text::join(known, ", "));
    });
    oracle_gdn::describe_threads(args, options.threads);
    args.example("gdnctl oracle selftest", "run it");
    args.example("gdnctl oracle selftest linear-ce", "the same for the fused cross-entropy");
    args.example("gdnctl oracle selftest --json", "print JSON (gdnctl.oracle-selftest/1)");
    args.exit_code(1, "a mistake was missed, a correct result rejected, or too many places or stages were wrong");
    args.see_also("oracle compare");
    args.see_also("oracle verify");
}

Result<ExitCode> run(const Options& options, Context& context) {
    const Operator& op = *meant(options);
    return op.selftest.run(op, options, context);
}

}  // namespace gdnctl::commands::oracle_selftest

namespace gdnctl::commands::oracle_adapter {

namespace {

// The value of a line NAME = "VALUE" of the adapter; "-": there is none.
std::string stated(std::string_view source, std::string_view name) {
    for (const std::string_view line : text::split(source, '\n')) {
        if (!line.starts_with(fmt::format("{} = \"", name))) continue;
        const auto first = line.find('"') + 1;
        return std::string(line.substr(first, line.find('"', first) - first));
    }
    return "-";
}

std::string passes_of(const harness::Adapter& adapter) {
    if (adapter.source.find("labels") != std::string_view::npos) return "forward, gradients";
    const bool packed = adapter.source.find("no packed sequences") == std::string_view::npos;
    return packed ? "forward, backward, packed" : "forward, backward";
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Lists the adapters for Python kernels that gdnctl brings along, or prints one: a file to start your own from. "
        "An adapter says how a function is called; `oracle verify --kernel py:NAME` and py:./FILE.py use it.");
    args.positional(options.name, "NAME", "print this adapter", {.complete = cli::Complete::adapter});
    args.flag(options.host, "--host", "print the program that runs the adapters");
    args.example("gdnctl oracle adapter", "list them");
    args.example("gdnctl oracle adapter levanter", "print one");
    args.see_also("oracle verify");
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (options.host) {
        context.terminal.out(harness::python_host_source());
        return ExitCode::ok;
    }
    const auto all = harness::python_adapters();
    if (options.name) {
        const auto found = std::find_if(all.begin(), all.end(), [&](const auto& a) { return a.name == *options.name; });
        if (found != all.end()) {
            context.terminal.out(found->source);
            return ExitCode::ok;
        }
        std::vector<std::string> names;
        for (const harness::Adapter& adapter : all) names.emplace_back(adapter.name);
        return fail(ErrorKind::usage, fmt::format("no adapter is named '{}'", *options.name),
                    "known: " + text::join(names, ", "));
    }
    Json report = {{"schema", "gdnctl.oracle-adapters/1"}, {"adapters", Json::array()}};
    std::string lines =
        fmt::format("{:<14} {:<9} {:<8} {:<26} {}\n", "ADAPTER", "FRAMEWORK", "CONTRACT", "PASSES", "FUNCTION");
    for (const harness::Adapter& adapter : all) {
        const std::string framework = stated(adapter.source, "framework"),
                          contract = stated(adapter.source, "contract");
        const std::string function = stated(adapter.source, "function"), passes = passes_of(adapter);
        lines += fmt::format("{:<14} {:<9} {:<8} {:<26} {}\n", adapter.name, framework, contract, passes, function);
        report["adapters"].push_back({{"name", adapter.name},
                                      {"framework", framework},
                                      {"contract", contract == "-" ? Json(nullptr) : Json(contract)},
                                      {"passes", passes},
                                      {"function", function == "-" ? Json(nullptr) : Json(function)}});
    }
    if (context.global.json) {
        print_json(report, context);
    } else {
        print_lines(lines, context);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::oracle_adapter

namespace gdnctl::commands {

Rows oracle_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&oracle_verify::describe, &oracle_verify::run>("oracle verify", "Oracle",
                                                                 "judge a kernel on generated cases", Tier::http)
            .prints_report(),
        cli::make<&oracle_compare::describe, &oracle_compare::run>("oracle compare", "Oracle",
                                                                   "judge tensors dumped from a run", Tier::process)
            .prints_report(),
        cli::make<&oracle_run::describe, &oracle_run::run>("oracle run", "Oracle", "write inputs and the exact result",
                                                           Tier::none),
        cli::make<&oracle_bench::describe, &oracle_bench::run>("oracle bench", "Oracle",
                                                               "time kernels and compare them with sgemm", Tier::http)
            .prints_report(),
        cli::make<&oracle_cases::describe, &oracle_cases::run>("oracle cases", "Oracle", "list the generated cases",
                                                               Tier::none),
        cli::make<&oracle_adapter::describe, &oracle_adapter::run>(
            "oracle adapter", "Oracle", "list or print the adapters for Python kernels", Tier::none),
        cli::make<&oracle_selftest::describe, &oracle_selftest::run>(
            "oracle selftest", "Oracle", "check that the oracle finds planted faults on this machine", Tier::none)};
    return k_rows;
}

}  // namespace gdnctl::commands
