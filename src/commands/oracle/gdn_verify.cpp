#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/gdn.h"
#include "commands/oracle/verify.h"
#include "commands/print.h"
#include "core/json.h"
#include "harness/child/kernel.h"
#include "harness/files.h"
#include "harness/verify/verifier.h"
#include "oracle/gdn/report/report.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_gdn {

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

}  // namespace gdnctl::commands::oracle_gdn
