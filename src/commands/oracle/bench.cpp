#include "commands/oracle/bench.h"

#include <array>

#include "commands/oracle/gdn.h"
#include "commands/rows.h"
#include "core/text.h"
#include "oracle/gdn/bench/bench.h"

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
        ", lib:PATH, src:FILE.c, cmd:COMMAND";
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
    args.flag(
        options.phases,
        {.names = "--phases",
         .help = "show how long each phase of our kernels takes and what limits it: arithmetic, memory or packing"});
    describe_limits(args, options.limits);
    linear_ce::describe_bench(args, options.ce);
    args.check([&options] { return check(options); });
    args.example("gdnctl oracle bench gdn", "forward, backward and decode at the shape of docs/benchmarks.md");
    args.example("gdnctl oracle bench gdn --kernel builtin:backward --threads 1", "only the gradients");
    args.example("gdnctl oracle bench gdn --kernel builtin:decode --shape 64,4,8,64,128,128",
                 "decode 64 sequences token by token, compared with moving the states");
    args.example("gdnctl oracle bench gdn --kernel builtin:chunk --phases --threads 1", "show where its time goes");
    args.example("gdnctl oracle bench gdn --shape 1,4,8,8192,64,64 --threads 1 --isa avx2 --json",
                 "output for a program");
    args.example("gdnctl oracle bench gdn --kernel src:kernel.c --peer builtin:fused", "your own kernel");
    args.exit_code(1, "a timed kernel is wrong, its outputs differ between rounds, or it crashed");
    args.exit_code(3, "this processor lacks the instruction set");
    args.exit_code(8, "a file cannot be read or written, or there is no compiler for src:");
    args.exit_code(9, "not enough memory; a source does not compile, or a library is not a kernel");
    args.exit_code(124, "a kernel reached --time-limit");
    args.see_also("oracle verify");
}

Result<ExitCode> run(const Options& options, Context& context) {
    Options all = options;
    GDNCTL_TRY_ASSIGN(all.hidden, take_hidden(context.env));
    if (all.hidden.seed) all.seed = static_cast<std::int64_t>(*all.hidden.seed >> 1U);
    return run_operator(all, &Operator::bench, context);
}

}  // namespace gdnctl::commands::oracle_bench

namespace gdnctl::commands {

constinit const cli::Command k_oracle_bench_row = cli::make<&oracle_bench::describe, &oracle_bench::run>(
    "oracle bench", "Oracle", "time kernels and compare them with sgemm", Tier::process);

}  // namespace gdnctl::commands
