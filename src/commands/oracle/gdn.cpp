#include "commands/oracle/gdn.h"

#include <algorithm>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/oracle/plain.h"
#include "commands/oracle/verbs.h"
#include "core/json.h"
#include "core/text.h"
#include "harness/child/library.h"
#include "harness/files.h"
#include "harness/gdn/bench.h"
#include "harness/gdn/run.h"
#include "harness/gdn/verify.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/report/report.h"
#include "oracle/gdn/selftest/selftest.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "oracle/linear_ce/judge/contract.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_gdn {

namespace {

void add_fields(const oracle::GdnCase& c, Json& object) {
    const oracle::GdnDims& d = c.dims;
    Json values = Json::object();
    for (const oracle::CaseValue& v : oracle::case_values(c)) values[v.factor] = v.value;
    object["shape"] = {{"B", d.B}, {"Hk", d.Hk}, {"Hv", d.Hv}, {"T", d.T}, {"dk", d.dk}, {"dv", d.dv}};
    object["seed"] = c.seed;
    object["dtype"] = oracle::name_of(c.dtype);
    object["cu_seqlens"] = c.cu_seqlens.empty() ? Json(nullptr) : Json(c.cu_seqlens);
    object["values"] = std::move(values);
    object["contract_fields"] = c.contract;
    object["expected_verdict"] = oracle::name_of(c.expected);
}

}  // namespace

Result<ExitCode> cases(const Operator& op, const oracle_cases::Options& /*options*/, Context& context) {
    harness::CaseList list{"B,Hk,Hv,T,dk,dv", 18, {}};
    const std::vector<oracle::GdnCase> all = oracle::all_cases();
    for (const oracle::GdnCase& c : all) {
        const oracle::GdnDims& d = c.dims;
        list.rows.push_back({c.name, c.set, c.about, fmt::format("{},{},{},{},{},{}", d.B, d.Hk, d.Hv, d.T, d.dk, d.dv),
                             c.expected == oracle::Verdict::unstable_input ? " (UNSTABLE_INPUT)" : "",
                             [&c](Json& object) { add_fields(c, object); }});
    }
    return oracle_cases::print(op.name, list, context);
}

Status check_run(const oracle_run::Options& o) {
    if (o.parts || o.stream) return fail(ErrorKind::usage, "--parts and --stream are for gdn-layer");
    return oracle_run::check_sources(o);
}

Result<ExitCode> run(const Operator& op, const oracle_run::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(oracle::TensorFile file,
                      oracle_run::inputs(options, context, [&] { return generate_gdn(options); }));
    GDNCTL_TRY_ASSIGN(const auto reading, op.read(op, file, {options.contract, {}, options.chunk}));
    const auto& gdn = static_cast<const harness::GdnReading&>(*reading);
    GDNCTL_TRY(add_gdn_results(gdn, options, threads, file));
    GDNCTL_TRY(oracle_run::finish(options, gdn.contract(), file, context));
    return ExitCode::ok;
}

namespace {

using harness::GdnRequest;
using harness::GdnVerified;
using harness::Item;
using oracle::KernelFault;
using oracle::Verdict;
using oracle_verify::StoredAs;

std::optional<oracle::DType> dtype_of(StoredAs stored) {
    switch (stored) {
        case StoredAs::f32: return oracle::DType::f32;
        case StoredAs::bf16: return oracle::DType::bf16;
        case StoredAs::f16: return oracle::DType::f16;
        case StoredAs::as_listed: break;
    }
    return std::nullopt;
}

Result<GdnRequest> request_of(const Operator& op, const oracle_verify::Options& options, int threads,
                              const Context& context) {
    GdnRequest request;
    GDNCTL_TRY_ASSIGN(request.declared, oracle::read_declared(options.contract, options.sets));
    request.truth_of = truth_of(op, {options.contract.value_or("marin"), options.sets});
    request.kernel = options.kernel;
    request.cases = options.cases;
    if (options.vectors) request.vectors = context.cwd / *options.vectors;
    request.dtype = dtype_of(options.dtype);
    request.dtype_name = oracle_verify::name_of(options.dtype);
    request.seed = options.hidden.seed ? options.hidden.seed : seed_of(options.seed);
    request.unseen = options.hidden.unseen;
    request.metamorphic = options.metamorphic;
    request.slow = options.slow;
    request.threads = threads;
    request.limits = limits_of(options.limits);
    return request;
}

Json json_of(std::string_view op, const oracle_verify::Options& options, const GdnRequest& request,
             const GdnVerified& done, std::string_view verdict) {
    const std::vector<Item>& items = done.items;
    Json report = {{"schema", "gdnctl.oracle-verify/1"}, {"op", op}, {"kernel", options.kernel}};
    report["dtype"] = request.dtype_name;
    report["seed"] = request.seed && !options.hidden.seed ? Json(*request.seed) : Json(nullptr);
    add_hidden(report, options.hidden);
    report["verdict"] = verdict;
    report["forward_only"] = forward_only(items);
    report["cases"] = count_of(items, "case");
    report["backward"] = count_of(items, "backward");
    report["decode"] = count_of(items, "decode");
    report["vectors"] = count_of(items, "vector");
    report["relations"] = count_of(items, "relation");
    report["failed"] = std::count_if(items.begin(), items.end(), [](const Item& i) { return i.failed(); });
    report["not_run"] = done.not_run;
    report["skipped"] = json_of(done.skipped);
    report["network_barrier"] = done.network.empty() ? Json(nullptr) : Json(done.network);
    report["items"] = Json::array();
    for (const Item& item : items) report["items"].push_back(json_of(item));
    return report;
}

}  // namespace

Result<ExitCode> verify(const Operator& op, const oracle_verify::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(const GdnRequest request, request_of(op, options, threads, context));
    GDNCTL_TRY_ASSIGN(const GdnVerified done, harness::verify_gdn(request, context, [&](const std::string& lines) {
                          if (!context.global.json) context.terminal.out(lines);
                      }));
    const std::vector<Item>& items = done.items;
    const Verdict verdict = overall(items);
    const KernelFault* fault = gravest_fault(items);
    const std::string_view name = fault != nullptr ? oracle::name_of(fault->kind) : oracle::name_of(verdict);
    if (context.global.json) {
        print_json(json_of(op.name, options, request, done, name), context);
    } else {
        const auto failed = std::count_if(items.begin(), items.end(), [](const Item& i) { return i.failed(); });
        if (!done.network.empty()) {
            context.terminal.out(fmt::format("network blocked by: {}\n", done.network));
        }
        context.terminal.out(text_of(done.skipped));
        if (request.seed && !options.hidden.seed) {
            context.terminal.out(fmt::format("inputs: --seed {}\n", *request.seed));
        }
        context.terminal.out(hidden_text(options.hidden));
        if (forward_only(items)) {
            const bool decode_only = count_of(items, "case") == 0 && count_of(items, "decode") > 0;
            context.terminal.out(
                fmt::format("{} ONLY: no gradient was compared\n", decode_only ? "DECODE" : "FORWARD"));
        }
        context.terminal.out(fmt::format("verdict: {} ({}{}{})\n", name, counted(items, options.metamorphic),
                                         failed == 0 ? "" : fmt::format("; {} failed", failed),
                                         done.not_run == 0 ? "" : fmt::format(", {} not run", done.not_run)));
    }
    return fault != nullptr ? harness::exit_code_of(fault->kind)
                            : oracle_report::exit_code_of(verdict, options.allow_suspect);
}

Result<ExitCode> bench(const Operator& op, const oracle_bench::Options& options, Context& context) {
    harness::GdnBenchRequest request;
    GDNCTL_TRY_ASSIGN(request.threads, oracle_files::thread_count(options.threads));
    request.op = op.name;
    request.truth_of = truth_of(op);
    request.kernel = options.kernel;
    request.peers = options.peers;
    request.shape = options.shape;
    GDNCTL_TRY_ASSIGN(request.dims, harness::parse_shape(options.shape));
    if (options.hidden.unseen) {
        const oracle::GdnDims& d = request.dims;
        request.dims.T = unseen_size(d.T, static_cast<std::uint64_t>(options.seed));
        request.shape = fmt::format("{},{},{},{},{},{}", d.B, d.Hk, d.Hv, d.T, d.dk, d.dv);
    }
    if (options.dtype == oracle_bench::DTypeChoice::bf16) request.storage = oracle::Storage::bf16;
    request.seed = static_cast<std::uint64_t>(options.seed);
    request.rounds = options.rounds;
    request.runs = options.runs;
    request.isa = oracle_bench::isa_of(options.isa);
    request.phases = options.phases;
    request.limits = limits_of(options.limits);
    harness::GdnBench bench(request, context);
    GDNCTL_TRY(bench.run());
    if (context.global.json) {
        Json report = bench.json();
        add_hidden(report, options.hidden);
        print_json(report, context);
    } else {
        context.terminal.out(bench.text() + hidden_text(options.hidden));
    }
    return bench.measured() ? bench.exit_code() : ExitCode::nothing_done;
}

namespace {

double percent(std::size_t part, std::size_t whole) {
    return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string line(std::string_view what, std::size_t part, std::size_t whole, std::string_view target) {
    return fmt::format("{:<22} {:>4} of {:<4} {:>6.1f} %   target {}\n", what, part, whole, percent(part, whole),
                       target);
}

std::string report_text(const oracle::SelftestReport& report) {
    std::string text;
    for (const oracle::SelftestFinding& f : report.findings) {
        text += fmt::format("{}: {}\n    expected {}, got {}\n", f.kind, f.name, f.expected, f.got);
    }
    for (const auto& [what, t] : {std::pair{"forward, faults that no hint knows", &report.unexpected},
                                  {"backward, faults that no hint knows", &report.backward_unexpected},
                                  {"forward", &report.totals},
                                  {"backward", &report.backward}}) {
        text += fmt::format("{}\n", what);
        text += line("  mutants caught", t->caught, t->mutants, "100 %");
        text += line("  right stage", t->right_stage, t->mutants, "90 %");
        text += line("  right head and chunk", t->right_place, t->mutants, "95 %");
        if (t->variants > 0) text += line("  false alarms", t->false_alarms, t->variants, "0");
    }
    return text + fmt::format("selftest: {}\n", report.passed() ? "passed" : "FAILED");
}

Json mutants_json(const oracle::SelftestTotals& t) {
    return {{"total", t.mutants}, {"caught", t.caught}, {"right_stage", t.right_stage}, {"right_place", t.right_place}};
}

Json variants_json(const oracle::SelftestTotals& t) {
    return {{"total", t.variants}, {"false_alarms", t.false_alarms}};
}

Json report_json(std::string_view op, const oracle::SelftestReport& report) {
    Json object = {
        {"schema", "gdnctl.oracle-selftest/1"},
        {"op", op},
        {"passed", report.passed()},
        {"mutants", mutants_json(report.totals)},
        {"honest_variants", variants_json(report.totals)},
        {"unexpected_mutants", mutants_json(report.unexpected)},
        {"backward",
         {{"mutants", mutants_json(report.backward)},
          {"honest_variants", variants_json(report.backward)},
          {"unexpected_mutants", mutants_json(report.backward_unexpected)}}},
        {"targets",
         {{"caught_percent", 100}, {"right_stage_percent", 90}, {"right_place_percent", 95}, {"false_alarms", 0}}},
        {"findings", Json::array()}};
    for (const oracle::SelftestFinding& f : report.findings) {
        object["findings"].push_back({{"kind", f.kind}, {"name", f.name}, {"expected", f.expected}, {"got", f.got}});
    }
    return object;
}

}  // namespace

Result<ExitCode> selftest(const Operator& op, const oracle_selftest::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    const auto report = oracle::run_selftest({threads, 1, [&] { return context.stop.stop_requested(); }});
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    if (context.global.json) {
        print_json(report_json(op.name, report), context);
    } else {
        context.terminal.out(report_text(report));
    }
    return report.passed() ? ExitCode::ok : ExitCode::check_failed;
}

namespace {

Result<std::unique_ptr<harness::Reading>> read(const Operator& /*op*/, const oracle::TensorFile& inputs,
                                               const ReadOptions& options) {
    return harness::GdnReading::read(inputs, options.contract, options.chunk, options.rule);
}

std::vector<std::string> kernel_names(bool timed) {
    if (timed) return oracle::timed_kernel_names();
    std::vector<std::string> names = oracle::builtin_kernel_names();
    for (std::string& name : names) name.insert(0, "builtin:");
    return names;
}

}  // namespace

constinit const Operator k_operator = {.name = "gdn",
                                       .what = "Gated DeltaNet",
                                       .cases = {&cases},
                                       .read = &read,
                                       .run = {&run, &check_run},
                                       .compare = {&oracle_plain::compare},
                                       .verify = {&verify},
                                       .bench = {&bench},
                                       .selftest = {&selftest},
                                       .case_names = &oracle::gdn_case_names,
                                       .kernel_names = &kernel_names};

harness::TruthOf truth_of(const Operator& op, const harness::ContractChoice& choice) {
    return [&op, choice](const oracle::TensorFile& inputs, int threads) -> Result<oracle::GdnReference> {
        GDNCTL_TRY_ASSIGN(const auto reading, op.read(op, inputs, {choice, {}}));
        return static_cast<harness::GdnReading&>(*reading).take_reference(threads);
    };
}

const std::string& contract_help() {
    static const std::string k_help =
        "contract that defines what the tensors mean: " + text::join(oracle::contract_names(), ", ");
    return k_help;
}

void describe_contract(cli::Args& args, ContractOptions& options) {
    static const std::string k_set_help =
        "change one contract field: " + text::join(oracle::contract_field_names(), ", ") +
        "; linear-ce: " + text::join(oracle::linear_ce::contract_field_names(), ", ");
    args.option(options.contract, {.names = "--contract",
                                   .value = "NAME",
                                   .help = contract_help(),
                                   .group = "Contract",
                                   .complete = cli::Complete::contract});
    args.option(options.sets, {.names = "--set", .value = "FIELD=VALUE", .help = k_set_help, .group = "Contract"});
}

void describe_threads(cli::Args& args, std::int64_t& threads) {
    args.option(threads, {.names = "--threads",
                          .value = "N",
                          .help = "number of threads; results do not depend on it",
                          .default_text = "all cores"});
}

void describe_tolerances(cli::Args& args, std::optional<double>& rtol, std::optional<double>& atol, bool& budget) {
    args.option(rtol, {.names = "--rtol",
                       .value = "R",
                       .help = "relative tolerance: judge by |x-y| <= A + R|y| instead of the error budget",
                       .group = "Judgement"});
    args.option(atol,
                {.names = "--atol", .value = "A", .help = "absolute tolerance A for --rtol", .group = "Judgement"});
    args.flag(
        budget,
        {.names = "--budget", .help = "judge by the error budget of these inputs (the default)", .group = "Judgement"});
    args.check([&rtol, &atol, &budget]() -> Status {
        if (rtol.has_value() != atol.has_value()) {
            return fail(ErrorKind::usage, "--rtol and --atol must be given together",
                        "pass both, or neither to use the budget");
        }
        if (rtol && budget) return fail(ErrorKind::usage, "--budget cannot be combined with --rtol and --atol");
        if (rtol && (*rtol < 0 || *atol < 0)) return fail(ErrorKind::usage, "--rtol and --atol must not be negative");
        return {};
    });
}

}  // namespace gdnctl::commands::oracle_gdn

namespace gdnctl::commands::oracle_layer {

namespace {

Result<std::unique_ptr<harness::Reading>> read(const Operator& /*op*/, const oracle::TensorFile& inputs,
                                               const ReadOptions& options) {
    return harness::LayerReading::read(inputs, options.contract);
}

Status check_run(const oracle_run::Options& o) {
    if (o.case_name) return fail(ErrorKind::usage, "--case: named cases exist only for the operator", "give --shape");
    if (o.method != oracle_run::Method::recurrent64 || o.chunk) {
        return fail(ErrorKind::usage, "gdn-layer is computed in fp64 only: drop --method and --chunk");
    }
    if (o.stream && *o.stream < 1) return fail(ErrorKind::usage, "--stream must be at least one token");
    return oracle_run::check_sources(o);
}

Result<ExitCode> run(const Operator& op, const oracle_run::Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const int threads, oracle_files::thread_count(options.threads));
    GDNCTL_TRY_ASSIGN(oracle::TensorFile file,
                      oracle_run::inputs(options, context, [&] { return generate_layer(options); }));
    GDNCTL_TRY_ASSIGN(const auto reading, op.read(op, file, {options.contract, {}}));
    const auto& layer = static_cast<const harness::LayerReading&>(*reading);
    GDNCTL_TRY(add_layer_results(layer, options, threads, file));
    GDNCTL_TRY(oracle_run::finish(options, layer.contract().resolved, file, context));
    return ExitCode::ok;
}

Status check_compare(const oracle_compare::Options& options) {
    if (options.heatmap || options.html || options.rtol || oracle_flashinfer::wanted(options.flashinfer)) {
        return fail(ErrorKind::usage,
                    "--heatmap, --html, --rtol, --atol, --flashinfer and --definition are for the operator, not for "
                    "gdn-layer");
    }
    return {};
}

}  // namespace

constinit const Operator k_operator = {.name = "gdn-layer",
                                       .what = "its layer (convolution, gates, norm)",
                                       .read = &read,
                                       .run = {&run, &check_run},
                                       .compare = {&oracle_plain::compare, &check_compare}};

}  // namespace gdnctl::commands::oracle_layer
