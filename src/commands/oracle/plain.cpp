#include "commands/oracle/plain.h"

#include <algorithm>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/oracle/verbs.h"
#include "core/json.h"
#include "core/text.h"
#include "core/time.h"
#include "core/tone.h"
#include "core/version.h"
#include "harness/child/library.h"
#include "harness/engine/bench.h"
#include "harness/engine/verify.h"
#include "harness/files.h"
#include "oracle/judge/report.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/progress.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "target/target.h"

namespace gdnctl::commands::oracle_plain {

namespace {

std::optional<oracle::DType> dtype_of(oracle_verify::StoredAs stored) {
    using oracle_verify::StoredAs;
    switch (stored) {
        case StoredAs::f32: return oracle::DType::f32;
        case StoredAs::bf16: return oracle::DType::bf16;
        case StoredAs::f16: return oracle::DType::f16;
        case StoredAs::as_listed: break;
    }
    return std::nullopt;
}

}  // namespace

Result<ExitCode> cases(const Operator& op, const oracle_cases::Options& options, Context& context) {
    harness::CaseList list = op.plain().cases();
    const bool device = options.chosen == oracle_verify::CaseChoice::device;
    const bool known = std::any_of(list.rows.begin(), list.rows.end(), [](const auto& c) { return c.set == "device"; });
    std::erase_if(list.rows, [&](const auto& c) { return (c.set == "device") != (device && known); });
    return oracle_cases::print(op.name, list, context);
}

Result<std::unique_ptr<harness::Reading>> read(const Operator& op, const oracle::TensorFile& inputs,
                                               const ReadOptions& /*options*/) {
    return op.plain().read(inputs);
}

Result<ExitCode> compare(const Operator& op, const oracle_compare::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(const auto dump, oracle_compare::read(options, context));
    GDNCTL_TRY_ASSIGN(const auto reading,
                      op.read(op, dump.inputs, {options.contract, options.ce, {}, {options.rtol, options.atol}}));
    Progress progress(context.terminal, context.clock,
                      {.label = fmt::format("comparing {}", text::join(options.outputs, ", ")),
                       .quiet = context.global.quiet,
                       .after = std::chrono::seconds(2)});
    progress.tick();
    GDNCTL_TRY_ASSIGN(const harness::Judgement j,
                      reading->judge(dump.outputs, {!options.no_hints, threads,
                                                    ticking(progress, [&] { return context.stop.stop_requested(); })}));
    progress.finish();
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    const auto report = report_of(j, op.name);
    Json object = {{"schema", "gdnctl.oracle-compare/1"}, {"op", op.name}};
    if (options.html || context.global.json) report->add_to(object);
    if (options.html) {
        Json shown = object;
        shown["compared"] = {{"inputs", options.inputs},
                             {"outputs", options.outputs},
                             {"date", format_log_time(context.clock.wall()) + " UTC"},
                             {"version", version()}};
        GDNCTL_TRY(atomic_replace(context.cwd / *options.html, report->page(shown)));
    }
    if (context.global.json) {
        print_json(object, context);
    } else {
        const std::string text = report->text({options.inputs, options.outputs, options.heatmap});
        print_lines(toned_verdicts(text, context.terminal.color_out()), context);
    }
    return oracle_report::exit_code_of(j.verdict, options.allow_suspect);
}

Result<ExitCode> verify(const Operator& op, const oracle_verify::Options& options, Context& context) {
    const Hidden& hidden = options.hidden;
    if (options.save_failures && hidden.seed) {
        return fail(ErrorKind::usage,
                    "--save-failures cannot be combined with GDNCTL_EVAL_SEED: it would show hidden inputs");
    }
    harness::VerifyRequest request;
    request.kernel = options.kernel;
    request.cases = options.cases;
    if (options.vectors) request.vectors = context.cwd / *options.vectors;
    if (options.save_failures) request.save_failures = *options.save_failures;
    request.options.contract = options.contract;
    request.options.sets = options.sets;
    request.options.dtype = dtype_of(options.dtype);
    request.options.dtype_name = oracle_verify::name_of(options.dtype);
    request.options.seed = hidden.seed ? hidden.seed : seed_of(options.seed);
    request.options.unseen = hidden.unseen;
    GDNCTL_TRY_ASSIGN(request.options.threads, oracle_files::thread_count(options.threads));
    request.hidden_seed = hidden.seed.has_value();
    request.metamorphic = options.metamorphic;
    request.slow = options.slow;
    using oracle_verify::CaseChoice;
    request.device_cases = options.chosen == CaseChoice::device ||
                           (options.chosen == CaseChoice::as_suits_the_kernel && options.kernel.starts_with("py:"));
    request.fail_fast = options.fail_fast;
    request.verbose = context.global.verbose > 0;
    GDNCTL_TRY_ASSIGN(request.limits, limits_of(options.limits, options.python, {options.kernel}, context));
    GDNCTL_TRY_ASSIGN(const harness::Verified done,
                      verify_cases(op.plain(), request, context, [&](const std::string& lines) {
                          if (context.global.json) return;
                          print_lines(toned_verdicts(lines, context.terminal.color_out()), context);
                      }));
    if (context.global.json) {
        Json notes = Json::object();
        add_hidden(notes, hidden);
        print_json(json_of(op.plain(), request, done, notes), context);
    } else {
        print_lines(toned_verdicts(ending_text(request, done, hidden_text(hidden)), context.terminal.color_out()),
                    context);
        if (context.env.get(k_verdict_line)) {
            context.terminal.out(to_text(json_of(op.plain(), request, done, Json::object())) + "\n");
        }
    }
    const oracle::KernelFault* fault = done.fault();
    return fault != nullptr ? harness::exit_code_of(fault->kind)
                            : oracle_report::exit_code_of(done.verdict(), options.allow_suspect);
}

Result<harness::BenchRequest> bench_request(const oracle_bench::Options& options, int threads, const Context& context) {
    std::vector<std::string> kernels = options.peers;
    if (options.kernel) kernels.push_back(*options.kernel);
    PythonChoice python = options.python;
    python.timed = true;
    GDNCTL_TRY_ASSIGN(const harness::Limits limits, limits_of(options.limits, python, kernels, context));
    return harness::BenchRequest{options.kernel,
                                 options.peers,
                                 options.dtype == oracle_bench::DTypeChoice::bf16,
                                 static_cast<std::uint64_t>(options.seed),
                                 threads,
                                 options.rounds,
                                 options.runs,
                                 oracle_bench::isa_of(options.isa),
                                 limits,
                                 options.peak_tflops,
                                 [hidden = options.hidden](Json& report) { add_hidden(report, hidden); }};
}

Result<ExitCode> run_bench(std::string_view op, harness::BenchPlan& plan, const harness::BenchRequest& request,
                           const Hidden& hidden, Context& context) {
    GDNCTL_TRY_ASSIGN(const harness::BenchDone done, harness::bench(op, plan, request, context));
    if (context.global.json) {
        print_json(done.json, context);
        return done.code;
    }
    print_lines(toned_verdicts(done.text + hidden_text(hidden), context.terminal.color_out()), context);
    if (context.env.get(k_verdict_line)) context.terminal.out(to_text(done.json) + "\n");
    return done.code;
}

Result<ExitCode> bench(const Operator& op, const oracle_bench::Options& options, Context& context) {
    return bench_on(op, options, context, [&]() -> Result<harness::BenchCase> {
        const harness::CaseList list = op.plain().cases();
        const harness::CaseRow& timed = list.rows.back();
        const bool bf16 = options.dtype == oracle_bench::DTypeChoice::bf16;
        const auto inputs = [&op, name = timed.name, bf16](std::uint64_t seed) {
            return op.plain().inputs(name, seed, bf16);
        };
        return harness::BenchCase{inputs(static_cast<std::uint64_t>(options.seed)), inputs,
                                  fmt::format("{} {}", timed.name, timed.shape),
                                  [shape = timed.shape](Json& report) { report["shape"] = shape; }};
    });
}

Result<ExitCode> bench_on(const Operator& op, const oracle_bench::Options& options, Context& context,
                          const std::function<Result<harness::BenchCase>()>& inputs) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(harness::BenchRequest request, bench_request(options, threads, context));
    if (!request.kernel) request.kernel = "builtin:fused";
    if (!oracle::has_isa(request.isa)) {
        return fail(ErrorKind::nothing_done, fmt::format("this processor has no {}", oracle::name_of(request.isa)));
    }
    GDNCTL_TRY_ASSIGN(auto timed, inputs());
    const auto plan = harness::plan_of(op.plain(), std::move(timed), request, context);
    return run_bench(op.name, *plan, request, options.hidden, context);
}

}  // namespace gdnctl::commands::oracle_plain
