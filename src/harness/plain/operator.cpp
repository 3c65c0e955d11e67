#include "harness/plain/operator.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gdnctl::harness {

Result<Call> Problem::call(std::size_t /*pass*/, std::uint32_t /*dtypes*/, int /*threads*/) {
    return fail(ErrorKind::usage, "this operator has no interface for loaded kernels", "name a program: cmd:COMMAND");
}

std::string text_of(const CaseList& cases) {
    std::string text, set;
    for (const CaseRow& c : cases.rows) {
        if (c.set != set) {
            text +=
                fmt::format("{}{:<26} {:<{}} {}\n", set.empty() ? "" : "\n", c.set, cases.axes, cases.width, "special");
            set = c.set;
        }
        text += fmt::format("  {:<24} {:<{}} {}{}\n", c.name, c.shape, cases.width, c.about, c.note);
    }
    return text;
}

Json json_of(std::string_view op, const CaseList& cases) {
    Json report = {{"schema", "gdnctl.oracle-cases/1"}, {"op", op}, {"cases", Json::array()}};
    for (const CaseRow& c : cases.rows) {
        Json object = {{"name", c.name}, {"set", c.set}, {"about", c.about}};
        if (c.fields) c.fields(object);
        report["cases"].push_back(std::move(object));
    }
    return report;
}

}  // namespace gdnctl::harness
