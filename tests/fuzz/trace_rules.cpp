// Rules files of traces: limits for `trace check`, and budgets.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/json.h"
#include "fuzz/fuzz.h"
#include "trace/report/budgets.h"
#include "trace/views/view.h"

FUZZ(trace_rules) {
    constexpr std::size_t k_longest = 65536;
    const std::string_view text(reinterpret_cast<const char*>(data), size < k_longest ? size : k_longest);
    const auto json = gdnctl::parse_json(text, "rules");
    if (!json) return -1;
    (void)gdnctl::trace::rules_of(*json);
    (void)gdnctl::trace::budgets_of({{"jit(f)/while/body/dot_general:", "while", 1.5}, {"a", "", 0}}, 2, *json);
    (void)gdnctl::trace::shell_deltas({{"a/b:", 1}}, {{"a/b:", 2}}, *json);
    return 0;
}
