// First byte: the size of the pieces and the options; the rest is JSON. How it is cut changes nothing, what comes out
// is consistent, and a list of events that an error cuts short can be salvaged.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>

#include "fuzz/fuzz.h"
#include "trace/readers/readers.h"

namespace {

using namespace gdnctl::trace;

gdnctl::Result<RawTrace> read_trace(std::string_view json, const ReadOptions& options, std::size_t piece) {
    ChromeReader reader(options);
    for (; !json.empty(); json.remove_prefix(std::min(piece, json.size()))) {
        // An error ends the reading, as in the tool; finish() has to return it again.
        if (!reader.feed(json.substr(0, piece))) break;
    }
    return reader.finish();
}

// Everything in a trace as text, after a check that its parts fit together.
std::string check_and_print(const RawTrace& trace) {
    std::string out = std::to_string(static_cast<int>(trace.kind)) + ' ' + std::to_string(trace.x_events) + trace.jax;
    std::set<std::string> planes;
    for (const Plane& plane : trace.planes) {
        require(planes.insert(plane.name).second);
        out += plane.name;
        for (const auto& [key, value] : plane.texts) out += key + value;
        std::set<std::string> lines;
        for (const Line& line : plane.lines) {
            require(lines.insert(line.name).second);
            require(line.count >= static_cast<std::int64_t>(line.events.size()));
            out += line.name + std::to_string(line.count);
            for (const Event& event : line.events) {
                require(event.duration >= 0 && event.self == 0 && event.op < trace.ops.size());
                require(event.start <= std::numeric_limits<Ps>::max() - event.duration);
                const Op& op = trace.ops[event.op];
                for (const std::string* field :
                     {&op.name, &op.text, &op.program, &op.category, &op.tf_op, &op.source, &op.stable_id}) {
                    out += *field + '|';
                }
                out += std::to_string(event.start) + '+' + std::to_string(event.duration);
                if (event.number < 0) continue;
                require(static_cast<std::size_t>(event.number) < trace.numbers.size());
                out += '#' + std::to_string(trace.numbers[static_cast<std::size_t>(event.number)]);
            }
        }
    }
    for (const std::string& damage : trace.damage) out += damage;
    return out;
}

}  // namespace

FUZZ(chrome_trace) {
    if (size == 0) return 0;
    const std::string_view json(reinterpret_cast<const char*>(data) + 1, size - 1);
    ReadOptions options;
    options.all_events = (data[0] & 1) != 0;
    options.salvage = (data[0] & 2) != 0;
    const std::size_t piece = 1u + data[0] / 4u;
    (void)detect_format(json);
    const gdnctl::Result<RawTrace> whole = read_trace(json, options, size);
    const gdnctl::Result<RawTrace> cut = read_trace(json, options, piece);
    require(whole.has_value() == cut.has_value());
    if (whole) {
        require(check_and_print(*whole) == check_and_print(*cut));
        require(options.salvage || whole->damage.empty());
    } else {
        require(whole.error().kind == gdnctl::ErrorKind::bad_input && whole.error().message == cut.error().message);
    }
    return 0;
}
