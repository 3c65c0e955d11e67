#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/cases.h"
#include "commands/oracle/gdn.h"
#include "core/json.h"
#include "oracle/gdn/cases/cases.h"

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

}  // namespace gdnctl::commands::oracle_gdn
