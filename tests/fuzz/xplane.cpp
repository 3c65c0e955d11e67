// First byte: the options; the rest is an XSpace. With salvage there is always a trace, and damage is reported exactly
// where the file without salvage is refused.
#include <string_view>

#include "fuzz/fuzz.h"
#include "trace/readers/readers.h"

namespace {

using namespace gdnctl;
using namespace gdnctl::trace;

void check_lines(const RawTrace& trace) {
    for (const Plane& plane : trace.planes) {
        for (const Line& line : plane.lines) {
            const auto kept = static_cast<std::int64_t>(line.events.size());
            require(kept <= line.count);
            for (const Event& event : line.events) {
                require(event.op < trace.ops.size() && !trace.ops[event.op].name.empty());
                require(event.number < static_cast<std::int64_t>(trace.numbers.size()) && event.number >= -1);
                Ps end = 0;
                require(event.duration >= 0 && !__builtin_add_overflow(event.start, event.duration, &end));
            }
        }
    }
}

void check_rest(const RawTrace& trace, std::size_t input) {
    std::size_t texts = 0;
    for (const Op& op : trace.ops) {
        texts += op.name.size() + op.text.size() + op.program.size() + op.category.size() + op.tf_op.size();
        for (const auto& cost : {op.flops, op.model_flops, op.bytes_accessed, op.hbm_bytes})
            require(!cost || *cost >= 0);
        require(!op.is_step || !op.is_host_op);
    }
    require(texts <= (4u << 20) + 64 * input);
    for (const auto& [name, schedule] : trace.schedules) {
        require(schedule.bundles > 0 && schedule.spill >= 0 && schedule.fill >= 0 && schedule.units.size() == 7);
        for (const Schedule::Unit& unit : schedule.units) require(unit.used >= 0 && unit.available >= 0);
    }
}

}  // namespace

FUZZ(xplane) {
    if (size == 0) return 0;
    const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
    ReadOptions options;
    options.all_events = (data[0] & 1) != 0;
    const auto strict = read_xplane(input, options);
    options.salvage = true;
    const auto salvaged = read_xplane(input, options);
    require(salvaged.has_value() && strict.has_value() == salvaged->damage.empty());
    if (!strict) require(strict.error().kind == ErrorKind::bad_input && strict.error().message.starts_with("xplane: "));
    for (const RawTrace* trace : {strict ? &*strict : nullptr, &*salvaged}) {
        if (trace == nullptr) continue;
        check_lines(*trace);
        check_rest(*trace, input.size());
    }
    return 0;
}
