#include "commands/oracle/compare.h"

#include <future>

#include "commands/rows.h"
#include "harness/files.h"

namespace gdnctl::commands::oracle_compare {

namespace {

// A dump, or a dataset: one of the two.
void describe_files_check(cli::Args& args, const Options& options) {
    args.check([&options]() -> Status {
        const bool dataset = oracle_flashinfer::wanted(options.flashinfer);
        if (dataset && !(options.inputs.empty() && options.outputs.empty())) {
            return fail(ErrorKind::usage,
                        "--flashinfer and --definition cannot be combined with --inputs and --outputs");
        }
        if (!dataset && options.inputs.empty()) {
            return fail(ErrorKind::usage, "--inputs is required", "pass the dump: --inputs FILE --outputs FILE");
        }
        if (!dataset && options.outputs.empty()) {
            return fail(ErrorKind::usage, "--outputs is required", "pass the dump: --inputs FILE --outputs FILE");
        }
        return {};
    });
}

void describe_examples(cli::Args& args) {
    args.example("gdnctl oracle compare gdn --inputs in.safetensors --outputs out.safetensors",
                 "judge a dump of Marin's kernel");
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
    describe_operator(args, options, &Operator::compare);
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
    return run_operator(options, &Operator::compare, context);
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

namespace gdnctl::commands {

constinit const cli::Command k_oracle_compare_row = cli::make<&oracle_compare::describe, &oracle_compare::run>(
    "oracle compare", "Oracle", "judge tensors dumped from a run", Tier::process);

}  // namespace gdnctl::commands
