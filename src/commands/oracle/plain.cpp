#include "commands/oracle/plain.h"

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/oracle/verbs.h"
#include "core/json.h"
#include "harness/child/library.h"
#include "harness/files.h"
#include "harness/plain/bench.h"
#include "harness/plain/verify.h"
#include "oracle/judge/report.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_plain {

Result<ExitCode> cases(const Operator& op, const oracle_cases::Options& /*options*/, Context& context) {
    return oracle_cases::print(op.name, op.plain().cases(), context);
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
    GDNCTL_TRY_ASSIGN(
        const harness::Judgement j,
        reading->judge(dump.outputs, {!options.no_hints, threads, [&] { return context.stop.stop_requested(); }}));
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    const auto report = report_of(j, op.name);
    if (options.html) GDNCTL_TRY(atomic_replace(context.cwd / *options.html, report->page()));
    if (context.global.json) {
        Json object = {{"schema", "gdnctl.oracle-compare/1"}, {"op", op.name}};
        report->add_to(object);
        print_json(object, context);
    } else {
        context.terminal.out(report->text({options.inputs, options.outputs, options.heatmap}));
    }
    return oracle_report::exit_code_of(j.verdict, options.allow_suspect);
}

Result<ExitCode> verify(const Operator& op, const oracle_verify::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    const auto vectors = options.vectors ? std::optional(context.cwd / *options.vectors) : std::nullopt;
    const harness::VerifyRequest request{options.kernel,
                                         options.cases,
                                         vectors,
                                         options.hidden.seed ? options.hidden.seed : seed_of(options.seed),
                                         options.hidden.unseen,
                                         options.dtype == oracle_verify::StoredAs::bf16,
                                         threads,
                                         limits_of(options.limits),
                                         options.sets};
    const auto said = [&](const std::string& lines) {
        if (!context.global.json) context.terminal.out(lines);
    };
    GDNCTL_TRY_ASSIGN(const harness::Verified all, verify_cases(op.plain(), request, context, said));
    const oracle::KernelFault* fault = all.fault();
    const std::string_view name = fault != nullptr ? oracle::name_of(fault->kind) : oracle::name_of(all.verdict());
    if (context.global.json) {
        Json report = {{"schema", "gdnctl.oracle-verify/1"}, {"op", op.name}, {"kernel", options.kernel}};
        report["dtype"] = request.bf16 ? "bf16" : "case";
        report["seed"] = request.seed && !options.hidden.seed ? Json(*request.seed) : Json(nullptr);
        add_hidden(report, options.hidden);
        report["verdict"] = name;
        report["forward_only"] = all.forward_only();
        report["cases"] = all.count_of("case");
        report["vectors"] = all.count_of("vector");
        report["failed"] = all.failed();
        report["not_run"] = all.not_run;
        report["skipped"] = {{"contract", json_of(all.skipped)}};
        report["network_barrier"] = all.network.empty() ? Json(nullptr) : Json(all.network);
        report["items"] = Json::array();
        for (const harness::CaseVerdict& item : all.cases) report["items"].push_back(json_of(item));
        print_json(report, context);
    } else {
        if (!all.network.empty()) context.terminal.out(fmt::format("network blocked by: {}\n", all.network));
        context.terminal.out(text_of(all.skipped));
        context.terminal.out(hidden_text(options.hidden));
        if (all.forward_only()) context.terminal.out("FORWARD ONLY: no gradient was compared\n");
        const std::size_t judged = all.count_of("case");
        const std::size_t recorded = all.count_of("vector");
        context.terminal.out(fmt::format("verdict: {} ({} case{}{}{}{})\n", name, judged, judged == 1 ? "" : "s",
                                         recorded == 0 ? "" : fmt::format(", {} vectors", recorded),
                                         all.failed() == 0 ? "" : fmt::format("; {} failed", all.failed()),
                                         all.not_run == 0 ? "" : fmt::format(", {} not run", all.not_run)));
    }
    return fault != nullptr ? harness::exit_code_of(fault->kind)
                            : oracle_report::exit_code_of(all.verdict(), options.allow_suspect);
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
    harness::BenchRequest request;
    GDNCTL_TRY_ASSIGN(request.threads, oracle_files::thread_count(options.threads));
    request.isa = oracle_bench::isa_of(options.isa);
    if (!oracle::has_isa(request.isa)) {
        return fail(ErrorKind::nothing_done, fmt::format("this processor has no {}", oracle::name_of(request.isa)));
    }
    if (options.kernel) request.kernel = *options.kernel;
    request.peers = options.peers;
    request.bf16 = options.dtype == oracle_bench::DTypeChoice::bf16;
    request.rounds = options.rounds;
    request.runs = options.runs;
    request.limits = limits_of(options.limits);
    GDNCTL_TRY_ASSIGN(auto timed, inputs());
    timed.shape = [of = std::move(timed.shape), hidden = options.hidden](Json& report) {
        if (of) of(report);
        add_hidden(report, hidden);
    };
    GDNCTL_TRY_ASSIGN(const harness::BenchDone done, bench_case(op.plain(), std::move(timed), request, context));
    context.terminal.out(context.global.json ? done.json : done.text);
    return done.right ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::oracle_plain
