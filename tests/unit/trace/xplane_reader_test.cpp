#include <bit>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "trace/readers/readers.h"

namespace gdnctl::trace::xplane {

namespace {

// ---- A protobuf writer: concatenated fields ----

std::string varint(std::uint64_t n) {
    std::string out;
    for (; n > 127; n >>= 7) out += static_cast<char>((n & 127) | 128);
    return out += static_cast<char>(n);
}

std::string num(unsigned field, std::int64_t n) { return varint(field << 3) + varint(static_cast<std::uint64_t>(n)); }

std::string sub(unsigned field, std::string_view bytes) {
    return varint(field << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}

std::string real(unsigned field, double value) {
    std::string out = varint(field << 3 | 1);
    const auto bits = std::bit_cast<std::uint64_t>(value);
    for (int i = 0; i < 8; ++i) out += static_cast<char>(bits >> (8 * i));
    return out;
}

std::string list(unsigned field, const std::vector<std::int64_t>& values) {
    std::string all;
    for (const std::int64_t v : values) all += varint(static_cast<std::uint64_t>(v));
    return sub(field, all);
}

// The ids of stats in these tests.
enum : std::int64_t {
    category = 1,
    program_id,
    flops,
    breakdown,
    run_id,
    step_num,
    hlo_op,
    hlo_module,
    tf_op,
    label,
    llo
};

std::string stat_names() {
    static const char* names[] = {"hlo_category", "program_id", "flops",     "memory_access_breakdown",
                                  "run_id",       "step_num",   "hlo_op",    "hlo_module",
                                  "tf_op",        "name",       "llo_proto", "copy.7"};
    std::string out;
    std::int64_t id = 0;
    for (const char* name : names) {
        ++id;
        out += sub(5, num(1, id) + sub(2, num(1, id) + sub(2, name)));
    }
    return out;
}

std::string event_name(std::int64_t id, std::string_view name, const std::string& more = "") {
    return sub(4, num(1, id) + sub(2, num(1, id) + sub(2, name) + more));
}
std::string stat(unsigned field, const std::string& value) { return sub(field, value); }
std::string event(std::int64_t id, std::int64_t start, std::int64_t duration, const std::string& stats = "") {
    return sub(4, num(1, id) + num(2, start) + num(3, duration) + stats);
}
std::string line(std::string_view name, const std::string& events, std::int64_t timestamp_ns = 0) {
    return sub(3, num(1, 5) + sub(2, name) + num(3, timestamp_ns) + events);
}
std::string plane(std::string_view name, const std::string& rest) { return sub(1, sub(2, name) + rest); }

RawTrace read(const std::string& bytes, const ReadOptions& options = {}) {
    auto trace = read_xplane(bytes, options);
    REQUIRE_MESSAGE(trace.has_value(), (trace ? "" : trace.error().message));
    return std::move(*trace);
}

std::string error_of(const std::string& bytes) {
    const auto trace = read_xplane(bytes, {});
    REQUIRE_FALSE(trace.has_value());
    CHECK(trace.error().kind == ErrorKind::bad_input);
    return trace.error().message;
}

// A TPU plane: two runs of jit_f, each with one fusion, whose names come after the lines.
std::string tpu(const std::string& name = "/device:TPU:0") {
    const std::string memory = sub(1, num(1, 1) + num(2, 1) + num(3, 1000)) +
                               sub(1, num(1, 2) + num(2, 1) + num(3, 24)) + sub(1, num(1, 1) + num(2, 3) + num(3, 5));
    return plane(
        name,
        line("XLA Modules", event(1, 100, 50, stat(4, num(1, run_id) + num(4, -5))) +
                                event(1, 200, 60, stat(4, num(1, run_id) + num(4, -6)))) +
            line("XLA Ops", event(2, 110, 30) + event(2, 210, 31), 7) + event_name(1, "jit_f(12190760917235803885)") +
            event_name(2, "%fusion.1 = f32[8] fusion()",
                       sub(4, "fusion.1") + stat(5, num(1, category) + sub(5, "loop fusion")) +
                           stat(5, num(1, program_id) + num(3, static_cast<std::int64_t>(12190760917235803885ULL))) +
                           stat(5, num(1, flops) + num(4, 640)) + stat(5, num(1, breakdown) + sub(6, memory))) +
            stat_names());
}

const Op& op_of(const RawTrace& trace, std::size_t plane_index, std::size_t line_index, std::size_t i) {
    return trace.ops[trace.planes.at(plane_index).lines.at(line_index).events.at(i).op];
}

}  // namespace

TEST_CASE("xplane: a TPU plane whose metadata follows its lines") {
    const RawTrace trace = read(tpu());
    REQUIRE(trace.planes.size() == 1);
    REQUIRE(trace.planes[0].lines.size() == 2);
    const Line& modules = trace.planes[0].lines[0];
    CHECK(modules.name == "XLA Modules");
    CHECK(trace.ops[modules.events[0].op].name == "jit_f(12190760917235803885)");
    CHECK(trace.numbers[static_cast<std::size_t>(modules.events[1].number)] == -6);
    const Line& ops = trace.planes[0].lines[1];
    CHECK(ops.count == 2);
    CHECK(ops.events[1].start == 7210);  // timestamp_ns * 1000 + offset_ps
    CHECK(ops.events[1].duration == 31);
    CHECK(ops.events[1].number == -1);
    CHECK(ops.events[0].op == ops.events[1].op);
    const Op& op = trace.ops[ops.events[0].op];
    CHECK(op.name == "fusion.1");
    CHECK(op.text == "%fusion.1 = f32[8] fusion()");
    CHECK(op.program == "jit_f");
    CHECK(op.category == "loop fusion");
    CHECK(op.flops == 640.0);
    CHECK(op.hbm_bytes == 1024.0);
    CHECK_FALSE(op.model_flops.has_value());
}

TEST_CASE("xplane: equal operations of two devices are one") {
    const RawTrace trace = read(tpu() + tpu("/device:TPU:1"));
    CHECK(trace.planes.size() == 2);
    CHECK(trace.ops.size() == 2);
    CHECK(&op_of(trace, 0, 1, 0) == &op_of(trace, 1, 1, 0));
}

TEST_CASE("xplane: planes and lines of one name are merged, whatever their ids") {
    const std::string two = plane("/device:TPU:0", line("XLA Ops", event(1, 5, 1)) + line("Steps", event(1, 5, 1)) +
                                                       line("XLA Ops", event(1, 9, 1)) + event_name(1, "a"));
    const RawTrace trace = read(two + two);
    REQUIRE(trace.planes.size() == 1);
    REQUIRE(trace.planes[0].lines.size() == 2);
    CHECK(trace.planes[0].lines[0].count == 4);
    CHECK(trace.planes[0].lines[0].events.size() == 4);
    CHECK(trace.planes[0].lines[1].events.size() == 2);
}

TEST_CASE("xplane: an event's own stats win over those of its metadata") {
    const std::string own = stat(4, num(1, category) + num(7, 12)) + stat(4, num(1, flops) + real(2, 7.5));
    const RawTrace trace =
        read(plane("/device:TPU:0", line("XLA Ops", event(1, 1, 1) + event(1, 2, 1, own) + event(1, 3, 1)) +
                                        event_name(1, "a", stat(5, num(1, category) + sub(5, "sort"))) + stat_names()));
    CHECK(op_of(trace, 0, 0, 0).category == "sort");
    CHECK(op_of(trace, 0, 0, 1).category == "copy.7");
    CHECK(op_of(trace, 0, 0, 1).flops == 7.5);
    CHECK(&op_of(trace, 0, 0, 2) == &op_of(trace, 0, 0, 0));
}

TEST_CASE("xplane: unknown and impossible values count as absent") {
    const auto one = [](const std::string& stats) {
        return read(plane("/device:TPU:0", line("XLA Ops", event(1, 1, 1, stats)) + stat_names()));
    };
    CHECK(op_of(one(""), 0, 0, 0).name == "unknown op 1");
    CHECK(op_of(one(stat(4, num(1, category) + num(7, 99))), 0, 0, 0).category.empty());           // no such reference
    CHECK(op_of(one(stat(4, num(1, 99) + sub(5, "x"))), 0, 0, 0).category.empty());                // no such stat
    CHECK(op_of(one(stat(4, num(1, category) + sub(8, "\x1f\x8b?"))), 0, 0, 0).category.empty());  // broken gzip
    CHECK_FALSE(op_of(one(stat(4, num(1, flops) + num(4, -1))), 0, 0, 0).flops.has_value());
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK_FALSE(op_of(one(stat(4, num(1, flops) + real(2, nan))), 0, 0, 0).flops.has_value());
    CHECK_FALSE(op_of(one(stat(4, num(1, breakdown) + sub(6, ""))), 0, 0, 0).hbm_bytes.has_value());
    CHECK_FALSE(op_of(one(stat(4, num(1, breakdown) + sub(6, "\x0a"))), 0, 0, 0).hbm_bytes.has_value());
    const std::string on_chip = sub(1, num(1, 1) + num(2, 3) + num(3, 8));
    CHECK(op_of(one(stat(4, num(1, breakdown) + sub(6, on_chip))), 0, 0, 0).hbm_bytes == 0.0);
    CHECK(op_of(one(stat(4, num(1, category) + sub(5, "a\xff"))), 0, 0, 0).category == "a\xef\xbf\xbd");
}

TEST_CASE("xplane: an aggregate event is counted and not kept; a negative duration counts as 0") {
    const std::string aggregate = sub(4, num(1, 1) + num(5, 12) + num(3, 99));
    const RawTrace trace =
        read(plane("/device:TPU:0", line("XLA Ops", aggregate + event(1, 8, -3)) + event_name(1, "a")));
    const Line& ops = trace.planes[0].lines[0];
    CHECK(ops.count == 2);
    REQUIRE(ops.events.size() == 1);
    CHECK(ops.events[0].duration == 0);
    CHECK(trace.hints == std::vector<std::string>{"1 events have a negative duration, which counts as 0"});
}

TEST_CASE("xplane: of a host plane, operations and steps are kept") {
    const std::string op_stats = stat(4, num(1, hlo_op) + num(7, 12)) + stat(4, num(1, hlo_module) + sub(5, "jit_g")) +
                                 stat(4, num(1, run_id) + num(4, -1218073608));
    const std::string bytes =
        plane("/host:CPU", line("tf_XLAExecute/59", event(1, 10, 5, op_stats) + event(2, 20, 5)) +
                               line("python", event(3, 1, 90, stat(4, num(1, step_num) + num(4, 17)))) +
                               event_name(1, "thunk") + event_name(2, "noise") + event_name(3, "train") + stat_names());
    const RawTrace trace = read(bytes);
    const Line& ops = trace.planes[0].lines[0];
    CHECK(ops.count == 2);
    REQUIRE(ops.events.size() == 1);
    CHECK(op_of(trace, 0, 0, 0).name == "copy.7");
    CHECK(op_of(trace, 0, 0, 0).program == "jit_g");
    CHECK(op_of(trace, 0, 0, 0).is_host_op);
    CHECK(trace.numbers[static_cast<std::size_t>(ops.events[0].number)] == -1218073608);
    CHECK(op_of(trace, 0, 1, 0).is_step);
    CHECK(op_of(trace, 0, 1, 0).name == "train");
    CHECK(trace.numbers[static_cast<std::size_t>(trace.planes[0].lines[1].events[0].number)] == 17);

    ReadOptions all;
    all.all_events = true;
    const RawTrace more = read(bytes, all);
    REQUIRE(more.planes[0].lines[0].events.size() == 2);
    CHECK(op_of(more, 0, 0, 1).name == "noise");
    CHECK_FALSE(op_of(more, 0, 0, 1).is_host_op);
}

TEST_CASE("xplane: planes that only resemble a device's are host planes") {
    for (const char* name :
         {"/device:TPU:0 SparseCore 1", "/device:TPU:", "/device:TPU:0#Chip", "#Chip0", "/device:CUSTOM:1"}) {
        const RawTrace trace = read(plane(name, line("XLA Ops", event(1, 1, 1)) + event_name(1, "a")));
        CHECK(trace.planes.at(0).lines.at(0).count == 1);
        CHECK(trace.planes[0].lines[0].events.empty());
    }
}

TEST_CASE("xplane: a GPU's rows are its kernels") {
    const auto stats = [](std::string_view origin) {
        return stat(4, num(1, hlo_op) + sub(5, "command_buffer_91")) +
               stat(4, num(1, hlo_module) + sub(5, "jit_step")) +
               (origin.empty() ? "" : stat(4, num(1, tf_op) + sub(5, origin))) +
               stat(4, num(1, label) + sub(5, "jit(step)/dot"));
    };
    const RawTrace trace = read(plane(
        "/device:GPU:0", line("Stream #17(Kernel)", event(1, 1, 1, stats("XlaModule:#x")) + event(1, 2, 1, stats("")) +
                                                        event(1, 3, 1, stats("mine"))) +
                             event_name(1, "gemm_fusion.kd") + stat_names()));
    CHECK(op_of(trace, 0, 0, 0).name == "gemm_fusion");
    CHECK(op_of(trace, 0, 0, 0).program == "jit_step");
    CHECK(op_of(trace, 0, 0, 0).tf_op == "jit(step)/dot");
    CHECK(op_of(trace, 0, 0, 1).tf_op == "jit(step)/dot");
    CHECK(op_of(trace, 0, 0, 2).tf_op == "mine");
    CHECK(op_of(trace, 0, 0, 0).text.empty());
}

TEST_CASE("xplane: the Steps line's numbers come from step_num or from the name") {
    const RawTrace trace = read(
        plane("/device:TPU:0",
              line("Steps", event(1, 1, 1) + event(2, 2, 1, stat(4, num(1, step_num) + num(4, 4))) + event(3, 3, 1)) +
                  event_name(1, "train 12") + event_name(2, "9") + event_name(3, "x") + stat_names()));
    const std::vector<Event>& steps = trace.planes[0].lines[0].events;
    CHECK(trace.numbers[static_cast<std::size_t>(steps[0].number)] == 12);
    CHECK(trace.numbers[static_cast<std::size_t>(steps[1].number)] == 4);
    CHECK(steps[2].number == -1);
}

TEST_CASE("xplane: what is said about the machine") {
    const auto named = [](std::int64_t id, std::string_view name) {
        return sub(5, num(1, id) + sub(2, num(1, id) + sub(2, name)));
    };
    const std::string device =
        plane("/device:TPU:0", sub(6, num(1, 1) + sub(5, "TPU v6 Lite")) + sub(6, num(1, 2) + real(2, 918)) +
                                   sub(6, num(1, 3) + real(2, std::numeric_limits<double>::infinity())) +
                                   sub(6, num(1, 4) + num(3, -1)) + named(1, "device_type_string") +
                                   named(2, "peak_teraflops_per_second") + named(3, "bad") + named(4, "large"));
    const std::string host =
        plane("/host:metadata", sub(6, num(1, 1) + sub(5, "0.12.0")) + sub(6, num(1, 2) + num(7, 4)) +
                                    sub(6, num(1, 3) + sub(5, "libtpu 7")) + named(1, "jax_version") +
                                    named(2, "jaxlib_version") + named(3, "tpu_version") + named(4, "0.12.1"));
    const std::string environment = plane(
        "Task Environment", sub(6, num(1, 1) + num(3, 1741722099081044120)) + sub(6, num(1, 2) + sub(6, "\x08\x01")) +
                                named(1, "profile_start_time") + named(2, "profile_options"));
    const RawTrace trace =
        read(device + host + environment + sub(2, "lost a core") + sub(3, "slow") + sub(4, "vm0") + sub(4, "vm1"));
    CHECK(trace.kind == TraceKind::xplane);
    CHECK(trace.planes[0].texts.at("device_type_string") == "TPU v6 Lite");
    CHECK(trace.planes[0].numbers.at("peak_teraflops_per_second") == 918.0);
    CHECK(trace.planes[0].numbers.count("bad") == 0);
    CHECK(trace.planes[0].numbers.at("large") == 18446744073709551615.0);
    CHECK(trace.jax == "0.12.0");
    CHECK(trace.jaxlib == "0.12.1");
    CHECK(trace.libtpu == "libtpu 7");
    CHECK(trace.profile_start_ns == 1741722099081044120);
    CHECK(trace.profile_options == "\x08\x01");
    CHECK(trace.host == "vm0");
    CHECK(trace.hints == std::vector<std::string>{"lost a core", "slow"});
}

namespace {

RawTrace with_llo(std::string_view name, const std::string& proto) {
    return read(plane("/host:metadata", event_name(1, name, stat(5, num(1, llo) + sub(6, proto))) + stat_names()));
}

std::string unit(unsigned field, const std::vector<std::int64_t>& used, std::int64_t slots) {
    return sub(field, list(1, used) + num(2, slots));
}

}  // namespace

TEST_CASE("xplane: a compiler's schedule") {
    const std::string proto =
        sub(1, "kernel.1") + sub(6, unit(1, {2, 0, 1}, 2) + unit(5, {3, 1, 1}, 3) + unit(2, {}, 2) +
                                        list(8, {0, 4, 0}) + num(9, 1) + num(9, 0) + num(9, 2));
    const RawTrace trace = with_llo("jit_f(12)::kernel.1", proto);
    const Schedule& schedule = trace.schedules.at("jit_f::kernel.1");
    CHECK(schedule.bundles == 3);
    CHECK(schedule.spill == 4);
    CHECK(schedule.fill == 3);
    REQUIRE(schedule.units.size() == 7);
    CHECK(schedule.units[0].name == "mxu");
    CHECK(schedule.units[0].used == 3);
    CHECK(schedule.units[0].available == 6);
    CHECK(schedule.units[1].used == 0);
    CHECK(schedule.units[1].available == 6);
    CHECK(schedule.units[4].name == "vload");
    CHECK(schedule.units[4].used == 5);
    CHECK(trace.hints.empty());
}

TEST_CASE("xplane: a schedule whose lists differ in length has the bundles of the longest") {
    const RawTrace trace = with_llo("jit_f(1)::k", sub(6, unit(1, {1, 1}, 2) + list(8, {0, 0, 1, 0, 0, 0})));
    CHECK(trace.schedules.at("jit_f::k").bundles == 6);
    CHECK(trace.schedules.at("jit_f::k").units[0].available == 12);
    CHECK(trace.hints == std::vector<std::string>{"llo_proto of jit_f::k: its lists differ in length"});
}

TEST_CASE("xplane: a schedule that cannot be read is left out") {
    std::string deep = "x";
    for (int i = 0; i < 1000; ++i) deep = sub(6, deep);
    const std::string good = sub(6, unit(1, {2, 0, 1}, 2));
    for (const std::string& proto : {std::string(), deep, good.substr(0, good.size() - 1), sub(6, unit(1, {2, -1}, 2)),
                                     sub(6, unit(1, {1}, -2)), sub(6, list(8, {-4})), sub(6, sub(1, sub(1, "\x80")))}) {
        const RawTrace trace = with_llo("jit_f(1)::k", proto);
        CHECK(trace.schedules.empty());
        CHECK(trace.hints ==
              std::vector<std::string>{"llo_proto of jit_f::k cannot be read; its schedule is left out"});
    }
    CHECK(read(plane("/host:metadata", event_name(1, "a(1)::k", stat(5, num(1, llo) + sub(5, good))) + stat_names()))
              .schedules.empty());  // text where bytes belong
}

TEST_CASE("xplane: damage is named with its field and its offset") {
    const std::string good = tpu();
    CHECK(error_of(good + std::string("\x0a\x7f\x01", 3)) ==
          "xplane: field 1 at offset " + std::to_string(good.size()) + " claims 127 bytes, 1 remain");
    CHECK(error_of(sub(1, std::string("\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10))) ==
          "xplane: field 3 at offset 2 claims 9223372036854775807 bytes, 0 remain");
    CHECK(error_of(num(9, 1) + std::string("\x08", 1) + std::string(10, '\xff') + '\x01') ==
          "xplane: field 1 at offset 2: its value is a varint of more than 10 bytes");
    CHECK(error_of("\x0a\x80") == "xplane: field 1 at offset 0: its length is a varint that ends too early");
    CHECK(error_of("\x80") == "xplane: the field tag at offset 0 is a varint that ends too early");
    CHECK(error_of("\x0b\x0c") == "xplane: field 1 at offset 0 has wire type 3, which profiles do not use");
    CHECK(error_of("\x4c") == "xplane: field 9 at offset 0 has wire type 4, which profiles do not use");
    CHECK(error_of(std::string("\x00\x01", 2)) == "xplane: field 0 at offset 0: not a valid field number");
    CHECK(error_of(std::string("\x49\x01\x02", 3)) == "xplane: field 9 at offset 0 claims 8 bytes, 2 remain");
    CHECK(error_of(varint(std::uint64_t{1} << 35) + "\x01") ==
          "xplane: field 4294967296 at offset 0: not a valid field number");
}

TEST_CASE("xplane: unknown fields of every type are skipped") {
    const std::string unknown = num(100, -1) + real(101, 1.0) + sub(102, "abc") + varint(103 << 3 | 5) + "abcd";
    const RawTrace trace = read(
        unknown + plane("/device:TPU:0", unknown + sub(3, unknown + sub(2, "XLA Ops") +
                                                              sub(4, unknown + num(1, 1) + num(2, 4) + num(3, 2)))));
    CHECK(trace.planes.at(0).lines.at(0).events.at(0).start == 4);
}

TEST_CASE("xplane: a file that went through a text decoder is told") {
    std::string mangled("\x0a\xef\xbf\xbd\x0f", 5);
    for (int i = 0; i < 20; ++i) mangled += "\xef\xbf\xbd";
    const std::string message = error_of(mangled);
    CHECK(message.ends_with(
        "; the file looks re-encoded as UTF-8 (21 replacement characters): fetch it again in binary mode"));
    CHECK(error_of("\x0a\x70\xef\xbf\xbd").find("re-encoded") == std::string::npos);
}

TEST_CASE("xplane: times beyond 64 bits are an error") {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const auto at = [](std::int64_t timestamp, std::int64_t start, std::int64_t duration) {
        return plane("/device:TPU:0", line("XLA Ops", event(1, start, duration), timestamp) + event_name(1, "a"));
    };
    CHECK(error_of(at(-(most / 999), 0, 0)).find("field 3 (timestamp_ns)") != std::string::npos);
    CHECK(error_of(at(-(most / 1000), -1000, 0)).find("does not fit in 64 bits of picoseconds") != std::string::npos);
    CHECK(error_of(at(0, most, 1)).find("does not fit in 64 bits of picoseconds") != std::string::npos);
    CHECK(read(at(0, most, 0)).planes[0].lines[0].events[0].start == most);
    CHECK(read(at(-5, 0, 7)).planes[0].lines[0].events[0].start == -5000);
}

TEST_CASE("xplane: lines that count from 1970 begin at their first one") {
    const std::int64_t now = 1'790'000'000'000'000'000;
    const auto line_at = [](std::int64_t timestamp) { return line("XLA Ops", event(1, 3, 2), timestamp); };
    const auto trace = read(plane("/device:TPU:0", line_at(now) + line_at(now + 7) + event_name(1, "a")));
    REQUIRE(trace.planes[0].lines[0].events.size() == 2);
    CHECK(trace.planes[0].lines[0].events[0].start == 3);
    CHECK(trace.planes[0].lines[0].events[1].start == 7003);
}

TEST_CASE("xplane: a long text that many operations refer to does not fill the memory") {
    std::string names = sub(5, num(1, 50) + sub(2, num(1, 50) + sub(2, std::string(1 << 20, 'x')))), events;
    for (int i = 1; i <= 200; ++i) {
        names += event_name(i, "op" + std::to_string(i), stat(5, num(1, category) + num(7, 50)));
        events += event(i, i, 1);
    }
    CHECK(error_of(plane("/device:TPU:0", line("XLA Ops", events) + names + stat_names())) ==
          "xplane: the plane at offset 4: the texts of its operations (field 4) take more than 16 times the size of "
          "the file");
}

TEST_CASE("xplane: with salvage, every cut file gives the events before the cut") {
    const std::string whole = tpu() + tpu("/device:TPU:1") + sub(4, "vm0");
    ReadOptions salvage;
    salvage.salvage = true;
    CHECK(read(whole, salvage).damage.empty());
    std::size_t before = 0;
    for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
        const std::string part = whole.substr(0, cut);
        const RawTrace trace = read(part, salvage);
        std::size_t events = 0;
        for (const Plane& p : trace.planes) {
            for (const Line& l : p.lines) events += l.events.size();
        }
        CHECK(events >= before);
        before = events;
        const auto strict = read_xplane(part, {});
        CHECK(strict.has_value() == trace.damage.empty());
        if (!strict) CHECK(trace.damage == std::vector<std::string>{strict.error().message});
    }
    CHECK(before == 8);
}

TEST_CASE("xplane: with salvage, what follows damage inside a line is ignored") {
    const std::string bad_event = sub(4, num(1, 1) + "\x0b");
    const std::string bytes = plane("/device:TPU:0", line("XLA Ops", event(1, 1, 1) + bad_event + event(1, 3, 1)) +
                                                         line("Steps", event(1, 1, 1)) + event_name(1, "a")) +
                              tpu("/device:TPU:1");
    ReadOptions salvage;
    salvage.salvage = true;
    const RawTrace trace = read(bytes, salvage);
    REQUIRE(trace.planes.size() == 1);
    CHECK(trace.planes[0].lines[0].events.size() == 1);
    CHECK(trace.damage.size() == 1);
}

TEST_CASE("xplane: the fields of a file whose end is still to come") {
    const auto next_after = [](const std::string& bytes, std::size_t& next) {
        next = 0;
        return skip_fields(bytes + std::string(40, '\0'), next, 1000);
    };
    const std::string good = sub(1, "plane") + num(9, 7) + real(8, 1) + varint(7 << 3 | 5) + "1234";
    std::size_t next = 0;
    CHECK_FALSE(next_after(good, next));  // the zeros behind it
    CHECK(next == good.size());
    CHECK(next_after(good + varint(1 << 3 | 2) + varint(900), next));
    CHECK(next == good.size() + 3 + 900);
    CHECK_FALSE(next_after(good + varint(1 << 3 | 2) + varint(1000), next));
    CHECK_FALSE(next_after(good + varint(1 << 3 | 2) + varint(~std::uint64_t{0}), next));
    CHECK_FALSE(next_after(good + varint(1 << 3 | 3), next));
    CHECK(next == good.size());
    CHECK_FALSE(next_after(std::string(11, '\xff'), next));
}

TEST_CASE("xplane: no bytes are a trace without planes") { CHECK(read("").planes.empty()); }

}  // namespace gdnctl::trace::xplane
