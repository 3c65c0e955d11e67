// Any bytes as a definition, a solution, a workload or a trace. What is read as a trace must read the same after it was
// written; what binds all axes of a workload must give shapes that can be counted.
#include "oracle/flashinfer/flashinfer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/fuzz.h"

namespace {

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::flashinfer;

void check_workload(const Workload& workload) {
    constexpr std::size_t k_small = std::size_t{1} << 20U;
    for (const GdnDefinition& d : gdn_definitions()) {
        const auto size = workload_size(d, workload);
        if (!size) continue;
        std::size_t largest = 0;
        for (const auto* specs : {&d.definition.inputs, &d.definition.outputs}) {
            for (const TensorSpec& spec : *specs) {
                const auto count = element_count(shape_of(d, workload, spec));
                require(count.has_value());
                largest = std::max(largest, *count);
            }
        }
        if (largest <= k_small) (void)make_workload_inputs(d, workload, {});
    }
}

}  // namespace

FUZZ(flashinfer) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto definition = parse_definition(text, "d")) {
        for (const GdnDefinition& d : gdn_definitions()) (void)check_definition(*definition, d, "d");
    }
    if (const auto solution = parse_solution(text, "s")) {
        require(!solution->sources.empty() && !solution->entry_function.empty());
        (void)check_runnable(*solution);
    }
    const auto trace = parse_trace(text, "t");
    if (!trace) return 0;
    const std::string line = trace_line(*trace);
    require(line.find('\n') == std::string::npos);
    const auto again = parse_trace(line, "again");
    require(again.has_value() && trace_line(*again) == line);
    check_workload(trace->workload);
    return 0;
}
