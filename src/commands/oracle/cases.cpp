#include "commands/oracle/cases.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/gdn.h"
#include "commands/oracle/linear_ce_run.h"
#include "core/json.h"
#include "oracle/gdn/cases/cases.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_cases {

void describe(cli::Args& args, Options& options) {
    args.about(
        "Lists the cases that `oracle verify` runs and `oracle run --case` writes: shapes of known test suites, inputs "
        "that break kernels, goldens with results from other programs, a covering array of conditions and contract "
        "fields (`crossed`), and steps for kernels that decode. A case has the same bytes on every machine.");
    oracle_gdn::describe_all_ops(args, options.op);
    args.example("gdnctl oracle cases gdn", "list the cases and what is special about each");
    args.example("gdnctl oracle cases gdn --json", "the same as gdnctl.oracle-cases/1");
    args.see_also("oracle run");
    args.see_also("oracle verify");
}

Result<ExitCode> run(const Options& options, Context& context) {
    if (options.op == linear_ce::k_op) {
        linear_ce::list_cases(context);
        return ExitCode::ok;
    }
    const auto shape_of = [](const oracle::GdnDims& d) {
        return fmt::format("{},{},{},{},{},{}", d.B, d.Hk, d.Hv, d.T, d.dk, d.dv);
    };
    const std::vector<oracle::GdnCase> cases = oracle::all_cases();
    if (!context.global.json) {
        std::string set;
        for (const oracle::GdnCase& c : cases) {
            if (c.set != set) {
                context.terminal.out(
                    fmt::format("{}{:<26} {:<18} {}\n", set.empty() ? "" : "\n", c.set, "B,Hk,Hv,T,dk,dv", "special"));
                set = c.set;
            }
            const bool unstable = c.expected == oracle::Verdict::unstable_input;
            context.terminal.out(fmt::format("  {:<24} {:<18} {}{}\n", c.name, shape_of(c.dims), c.about,
                                             unstable ? " (UNSTABLE_INPUT)" : ""));
        }
        return ExitCode::ok;
    }
    Json report = {{"schema", "gdnctl.oracle-cases/1"}, {"op", options.op}, {"cases", Json::array()}};
    for (const oracle::GdnCase& c : cases) {
        const oracle::GdnDims& d = c.dims;
        Json values = Json::object();
        for (const oracle::CaseValue& v : oracle::case_values(c)) values[v.factor] = v.value;
        report["cases"].push_back(
            {{"name", c.name},
             {"set", c.set},
             {"about", c.about},
             {"shape", {{"B", d.B}, {"Hk", d.Hk}, {"Hv", d.Hv}, {"T", d.T}, {"dk", d.dk}, {"dv", d.dv}}},
             {"seed", c.seed},
             {"dtype", oracle::name_of(c.dtype)},
             {"cu_seqlens", c.cu_seqlens.empty() ? Json(nullptr) : Json(c.cu_seqlens)},
             {"values", std::move(values)},
             {"contract_fields", c.contract},
             {"expected_verdict", oracle::name_of(c.expected)}});
    }
    context.terminal.out(to_text(report, 2) + "\n");
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::oracle_cases
