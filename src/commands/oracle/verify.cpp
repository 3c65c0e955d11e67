#include "commands/oracle/verify.h"

#include <array>

#include "commands/oracle/gdn.h"
#include "commands/rows.h"

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
                               .group = "Contract"});
}

void describe_examples(cli::Args& args) {
    args.example("gdnctl oracle verify gdn --kernel builtin:chunk", "the chunked fp32 kernel on every case");
    args.example("gdnctl oracle verify gdn --kernel src:kernel.c", "your own kernel (docs/writing-a-kernel.md)");
    args.example("gdnctl oracle verify gdn --kernel 'cmd:python run.py' --case g1", "a program over tensor files");
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
        "process without network. Each call gets new arrays between inaccessible pages, with poisoned outputs, and "
        "each case runs three times. Forward, backward (gradients of every case) and decode (steps of 1 to 8 tokens, "
        "in place and not) are judged if the kernel has them; other cases are skipped and counted. With --vectors, "
        "recorded outputs of real implementations are judged too: each NAME.*.outputs.safetensors against "
        "NAME.inputs.safetensors in the same folder. The last line is the overall verdict. --contract and --set "
        "declare what the kernel computes: fields of precision apply to every case, and cases that need another value "
        "of any "
        "other field are skipped and counted. A program gets log decay, beta as a factor and states as [N,H,K,V], as "
        "loaded kernels do, unless another form is declared.");
    describe_operator(args, options, &Operator::verify);
    args.option(options.kernel, {.names = "--kernel",
                                 .value = "KERNEL",
                                 .help = kernel_help(),
                                 .complete = cli::Complete::kernel,
                                 .required = true});
    args.option(options.vectors, {.names = "--vectors",
                                  .value = "DIR",
                                  .help = "also judge the recorded outputs in this folder",
                                  .complete = cli::Complete::directory});
    args.option(options.cases, {.names = "--case",
                                .value = "NAME",
                                .help = "run only this case, vector or relation",
                                .complete = cli::Complete::oracle_case});
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
    describe_contract(args, options);
    args.check([&options] { return check(options); });
    oracle_gdn::describe_threads(args, options.threads);
    describe_limits(args, options.limits);
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

Result<ExitCode> run(const Options& options, Context& context) {
    Options all = options;
    GDNCTL_TRY_ASSIGN(all.hidden, take_hidden(context.env));
    return run_operator(all, &Operator::verify, context);
}

}  // namespace gdnctl::commands::oracle_verify

namespace gdnctl::commands {

constinit const cli::Command k_oracle_verify_row = cli::make<&oracle_verify::describe, &oracle_verify::run>(
    "oracle verify", "Oracle", "judge a kernel on generated cases", Tier::process);

}  // namespace gdnctl::commands
