#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "trace/readers/json_scanner.h"
#include "trace/readers/readers.h"

using namespace gdnctl;
using namespace gdnctl::trace;

namespace {

constexpr std::string_view k_device_names =
    "{'ph':'M','pid':3,'name':'process_name','args':{'name':'/device:TPU:0'}},"
    "{'ph':'M','pid':3,'tid':3,'name':'thread_name','args':{'name':'XLA Ops'}}";
constexpr std::string_view k_host_names =
    "{'ph':'M','pid':701,'name':'process_name','args':{'name':'/host:CPU'}},"
    "{'ph':'M','pid':701,'tid':1,'name':'thread_name','args':{'name':'python'}}";

// JSON may be written with single quotes here.
std::string json_quoted(std::string_view text) {
    std::string json(text);
    std::ranges::replace(json, '\'', '"');
    return json;
}

Result<RawTrace> read(std::string_view text, const ReadOptions& options = {}, std::size_t piece = 1u << 20) {
    const std::string all = json_quoted(text);
    std::string_view json = all;
    ChromeReader reader(options);
    for (; !json.empty(); json.remove_prefix(std::min(piece, json.size()))) {
        if (Status status = reader.feed(json.substr(0, piece)); !status) return tl::unexpected(status.error());
    }
    return reader.finish();
}

RawTrace good(std::string_view json, const ReadOptions& options = {}) {
    Result<RawTrace> trace = read(json, options);
    REQUIRE_MESSAGE(trace, (trace ? "" : trace.error().message));
    return std::move(*trace);
}

std::string error_of(std::string_view json) {
    const Result<RawTrace> trace = read(json);
    REQUIRE_FALSE(trace);
    CHECK(trace.error().kind == ErrorKind::bad_input);
    return trace.error().message;
}

std::string events(std::string_view list) {
    return "{'displayTimeUnit':'ns','traceEvents':[" + std::string(list) + "]}";
}

// Events after the names of one device line.
RawTrace on_device(std::string_view list, const ReadOptions& options = {}) {
    return good(events(std::string(k_device_names) + "," + std::string(list)), options);
}

// One line a plane, line and event, with everything that the reader found.
std::string dump(const RawTrace& trace) {
    std::string out = "kind " + std::to_string(static_cast<int>(trace.kind)) + " x " + std::to_string(trace.x_events) +
                      " " + trace.jax + " " + trace.jaxlib + "\n";
    for (const std::string& damage : trace.damage) out += damage + "\n";
    for (const Plane& plane : trace.planes) {
        out += plane.name;
        for (const auto& [key, value] : plane.texts) out += " " + key + "=" + value;
        out += "\n";
        for (const Line& line : plane.lines) {
            out += "  " + line.name + " " + std::to_string(line.count) + "\n";
            for (const Event& event : line.events) {
                const Op& op = trace.ops.at(event.op);
                out += "    " + std::to_string(event.start) + "+" + std::to_string(event.duration) + " " + op.name +
                       "|" + op.text + "|" + op.program + "|" + op.category + "|" + op.tf_op + "|" + op.source + "|" +
                       op.stable_id + "|" +
                       (op.is_host_op ? "host op"
                        : op.is_step  ? "step"
                                      : "");
                if (event.number >= 0) {
                    out += " #" + std::to_string(trace.numbers.at(static_cast<std::size_t>(event.number)));
                }
                out += "\n";
            }
        }
    }
    return out;
}

const Line& only_line(const RawTrace& trace) {
    REQUIRE(trace.planes.size() == 1);
    REQUIRE(trace.planes[0].lines.size() == 1);
    return trace.planes[0].lines[0];
}

const Op& op_of(const RawTrace& trace, const Event& event) { return trace.ops.at(event.op); }

// Everything the format can hold: names last, both ways to write numbers, escapes, pairs, other members around.
const std::string k_varied =
    "\xef\xbb\xbf \n{\"displayTimeUnit\" : \"ns\", \"other\":[[{\"a\":\"]\"}],-1.5e3,true,null,NaN],\n"
    "\"metadata\":{\"highres-ticks\":true,\"jax_version\":\"0.10.2\",\"jaxlib_version\":\"0.10.1\"},"
    "\"traceEvents\" : [ "
    R"({'ph':'X','pid':3,'tid':3,'ts':7.7999999999999999e-05,'dur':'2.5','name':'a\"b',)"
    R"('args':{'long_name':'%a = \u00e9\ud83d\ude00\ud800'}} , )"
    R"({'args':{'run_id':'-7','nested':[{'x':['}']},'\\']},'name':'jit_f{12}',)"
    "'dur':1e-06,'ts':12,'tid':2,'pid':3,'ph':'X'},"
    "{'ph':'B','pid':'3','tid':3,'ts':3,'name':'outer'},{'ph':'B','pid':3,'tid':3,'ts':4,'name':'inner'},"
    "{'ph':'E','pid':3,'tid':3,'ts':5},{'ph':'E','pid':3,'tid':3,'ts':'6e0'},{'ph':'i','name':'mark'},"
    "{'ph':'X','pid':701,'tid':1,'ts':1,'dur':2,'name':'call','args':{'hlo_op':'fusion.1','hlo_module':'jit_f','run_id'"
    ":5}},"
    "{'ph':'X','pid':701,'tid':1,'ts':1,'dur':2,'name':'train','args':{'step_num':'4'}},"
    "{'ph':'X','pid':701,'tid':1,'ts':1,'dur':2,'name':'python frame'}," +
    std::string(k_device_names) + "," + std::string(k_host_names) +
    ",{'ph':'M','pid':3,'tid':2,'name':'thread_name','args':{'name':'XLA Modules'}},{}],'last':{}} " + "\n";

const std::string k_kineto =
    "{'schemaVersion':1,'deviceProperties':[{'id':0,'name':'NVIDIA H200','list':[1,[2]]}],'traceEvents':["
    "{'ph':'X','cat':'kernel','name':'k','pid':0,'tid':7,'ts':4978691122982.003,'dur':3.616,'args':{'device':0,'stream'"
    ":7,'grid':[3,4,1]}},"
    "{'ph':'X','cat':'gpu_memcpy','name':'Memcpy "
    "HtoD','pid':0,'tid':7,'ts':4978691099707.489,'dur':3,'args':{'device':0,'stream':7}},"
    "{'ph':'X','cat':'user_annotation','name':'ProfilerStep#2','pid':1,'tid':1,'ts':4978691091597.541,'dur':9},"
    "{'ph':'X','cat':'gpu_user_annotation','name':'step_1','pid':0,'tid':7,'ts':4978691091598,'dur':9},"
    "{'ph':'X','cat':'user_annotation','name':'forward','pid':1,'tid':1,'ts':4978691091597.541,'dur':9},"
    "{'ph':'X','cat':'Trace','ts':4978691091148.624,'dur':100,'pid':'Spans','tid':'PyTorch Profiler','name':'PyTorch "
    "Profiler (0)'},"
    "{'ph':'M','pid':1,'tid':0,'name':'process_name','args':{'name':'python3'}},"
    "{'ph':'M','pid':0,'tid':0,'name':'process_name','args':{'name':'python3'}},"
    "{'ph':'M','pid':0,'tid':7,'name':'thread_name','args':{'name':'stream 7'}}],'traceName':'t.json'}";

std::optional<std::int64_t> ps(std::string_view microseconds) {
    const auto value = parse_microseconds(microseconds);
    if (!value) return std::nullopt;
    return static_cast<std::int64_t>(*value);
}

}  // namespace

TEST_CASE("decimal microseconds become the nearest picosecond") {
    CHECK(ps("0") == 0);
    CHECK(ps("-0.0e5") == 0);
    CHECK(ps("1000") == 1'000'000'000);
    CHECK(ps("7.7999999999999999e-05") == 78);
    CHECK(ps("0.00010900000000000001") == 109);
    CHECK(ps("26.318000000000001") == 26'318'000);
    CHECK(ps("97925088617.656006") == 97'925'088'617'656'006);
    CHECK(ps("4978691091597.541") == 4'978'691'091'597'541'000);
    CHECK(ps("-1.5") == -1'500'000);
    CHECK(ps("1E+3") == 1'000'000'000);
    CHECK(ps("0.00000049999999999999999999999999999999999999999999999999") == 0);
    CHECK(ps("0.0000005") == 1);
    CHECK(ps("-0.0000005") == -1);
    CHECK(ps("1e-400") == 0);
    CHECK(parse_microseconds("9e23"));
    CHECK_FALSE(parse_microseconds("1e24"));
    CHECK(ps("0e99999999999999999999") == 0);
    CHECK(ps("00000000000000000000000000000000000000000000000000001") == 1'000'000);
    CHECK(ps("1" + std::string(60, '0') + "e-60") == 1'000'000);
    CHECK(ps("0." + std::string(60, '0') + "1e61") == 1'000'000);
    CHECK(parse_microseconds("99999999999999999999") ==
          WidePs{99'999'999'999} * 1'000'000'000'000'000 + 999'999'999'000'000);
    for (const char* bad :
         {"", "-", "+1", ".5", "1.", "1e", "1e+", "nan", "Infinity", "0x1", "1 ", " 1", "1e31", "1e400"}) {
        CAPTURE(bad);
        CHECK_FALSE(ps(bad));
    }
}

TEST_CASE("the format is told from the first bytes") {
    CHECK(detect_format("\x1f\x8b\x08") == Format::gzip);
    CHECK(detect_format("{\"traceEvents\":[") == Format::json);
    CHECK(detect_format("\xef\xbb\xbf \r\n[") == Format::json);
    CHECK(detect_format("\n  {\n    \"schemaVersion\": 1") == Format::json);
    CHECK(detect_format("\n[{\"ph\"") == Format::json);
    CHECK(detect_format(std::string_view("\n\x7b\x08\x01\x12", 5)) == Format::xplane);
    CHECK(detect_format("\n\xa2\x1c\x08\x01\x12\x0d/device:TPU:0") == Format::xplane);
    CHECK(detect_format("PK\x03\x04") == Format::unknown);
    CHECK(detect_format("") == Format::unknown);
    CHECK(detect_format("  ") == Format::unknown);
}

TEST_CASE("an XLA operation carries its stats") {
    const RawTrace trace = on_device(
        "{'ph':'X','pid':3,'tid':3,'ts':1.5,'dur':2.25,'name':'fusion.1','args':{'long_name':'%fusion.1 = f32[8] "
        "fusion()',"
        "'hlo_category':'loop fusion','tf_op':'jit(f)/add:','source':'a.py:3','model_flops':'8','flops':9,"
        "'bytes_accessed':'64','raw_bytes_accessed':'1','device_duration_ps':'5','stable_op_id':'s1'}},"
        "{'ph':'X','pid':3,'tid':3,'ts':9,'dur':2,'name':'fusion.1','args':{'stable_op_id':'s1','bytes_accessed':'64',"
        "'flops':9,'model_flops':'8','source':'a.py:3','tf_op':'jit(f)/add:','hlo_category':'loop fusion',"
        "'long_name':'%fusion.1 = f32[8] fusion()','device_duration_ps':'7'}}");
    const Line& line = only_line(trace);
    CHECK(trace.kind == TraceKind::chrome_json);
    CHECK(trace.planes[0].name == "/device:TPU:0");
    CHECK(line.name == "XLA Ops");
    CHECK(line.count == 2);
    CHECK(trace.x_events == 2);
    REQUIRE(line.events.size() == 2);
    CHECK(line.events[0].start == 1'500'000);
    CHECK(line.events[0].duration == 2'250'000);
    CHECK(line.events[0].self == 0);
    CHECK(line.events[0].number == -1);
    REQUIRE(trace.ops.size() == 1);
    const Op& op = trace.ops[0];
    CHECK(op.name == "fusion.1");
    CHECK(op.text == "%fusion.1 = f32[8] fusion()");
    CHECK(op.category == "loop fusion");
    CHECK(op.tf_op == "jit(f)/add:");
    CHECK(op.source == "a.py:3");
    CHECK(op.stable_id == "s1");
    CHECK(op.model_flops == 8.0);
    CHECK(op.flops == 9.0);
    CHECK(op.bytes_accessed == 64.0);
    CHECK_FALSE(op.hbm_bytes);
    CHECK_FALSE(op.is_host_op);
}

TEST_CASE("module runs keep their id and may have a negative run_id") {
    const RawTrace trace = on_device(
        "{'ph':'X','pid':3,'tid':3,'ts':1,'dur':2,'name':'jit_f(12)','args':{'run_id':'-9223372036854775808'}},"
        "{'ph':'X','pid':3,'tid':3,'ts':1,'dur':2,'name':'jit_f(12)','args':{'run_id':18446744073709551615}},"
        "{'ph':'X','pid':3,'tid':3,'ts':1,'dur':2,'name':'jit_f(12)','args':{'run_id':'?'}},"
        "{'ph':'X','pid':3,'tid':3,'ts':1,'dur':2,'name':'jit_f(12)','args':{'run_id':-1}}");
    const Line& line = only_line(trace);
    CHECK(trace.ops.size() == 1);
    CHECK(trace.ops[0].name == "jit_f(12)");
    CHECK(trace.numbers == std::vector<std::int64_t>{INT64_MIN, -1});
    CHECK(line.events[0].number == 0);
    CHECK(line.events[1].number == 1);
    CHECK(line.events[2].number == -1);
    CHECK(line.events[3].number == 1);
}

TEST_CASE("XLA's duration of 1 ps means 0, and a negative one counts as 0") {
    const RawTrace trace = on_device(
        "{'ph':'X','pid':3,'tid':3,'ts':-2,'dur':1e-06,'name':'a'},{'ph':'X','pid':3,'tid':3,'ts':1,'dur':2e-06,'name':"
        "'a'},"
        "{'ph':'X','pid':3,'tid':3,'ts':1,'dur':-1,'name':'a'},{'ph':'X','pid':3,'tid':3,'ts':1,'name':'a'}");
    const Line& line = only_line(trace);
    CHECK(line.events[0].start == -2'000'000);
    CHECK(line.events[0].duration == 0);
    CHECK(line.events[1].duration == 2);
    CHECK(line.events[2].duration == 0);
    CHECK(line.events[3].duration == 0);
    CHECK(trace.hints == std::vector<std::string>{"1 events have a negative duration, which counts as 0"});
}

TEST_CASE("of a host plane only operations and steps are kept") {
    const std::string json =
        events(std::string(k_host_names) +
               ",{'ph':'X','pid':701,'tid':1,'ts':1,'dur':2,'name':'call','args':{'hlo_op':'fusion.1','hlo_module':'"
               "jit_f','run_id':'-3'}},"
               "{'ph':'X','pid':701,'tid':1,'ts':2,'dur':2,'name':'train','args':{'step_num':'4'}},"
               "{'ph':'X','pid':701,'tid':1,'ts':3,'dur':2,'name':'python frame'}");
    CHECK(dump(good(json)) ==
          "kind 1 x 3  \n/host:CPU\n  python 3\n"
          "    1000000+2000000 fusion.1||jit_f|||||host op #-3\n    2000000+2000000 train|||||||step #4\n");
    ReadOptions all;
    all.all_events = true;
    CHECK(only_line(good(json, all)).events.size() == 3);
}

TEST_CASE("names may come last, and the last one of a thread wins") {
    const std::string list =
        "{'ph':'X','pid':3,'tid':3,'ts':1,'dur':2,'name':'op'},{'ph':'X','pid':701,'tid':1,'ts':3,'dur':2,'name':'"
        "frame'},"
        "{'ph':'M','pid':3,'tid':3,'name':'thread_name','args':{'name':'first name'}}," +
        std::string(k_device_names) + "," + std::string(k_host_names) +
        ",{'ph':'M','pid':3,'name':'process_sort_index','args':{'sort_index':3}}";
    CHECK(dump(good(events(list))) ==
          "kind 1 x 2  \n/device:TPU:0\n  XLA Ops 1\n    1000000+2000000 op|||||||\n/host:CPU\n  python 1\n");
}

TEST_CASE("an unnamed process is a host") {
    CHECK(dump(good("[{'ph':'X','pid':'main','ts':1,'name':'a'},{'ph':'X','ts':1,'name':'b'}]")) ==
          "kind 1 x 2  \npid main\n  tid 0 1\npid 0\n  tid 0 1\n");
}

TEST_CASE("planes and lines of one name are one, in the file's order") {
    const RawTrace trace = on_device(
        "{'ph':'M','pid':9,'name':'process_name','args':{'name':'/device:TPU:0'}},"
        "{'ph':'M','pid':9,'tid':1,'name':'thread_name','args':{'name':'XLA Ops'}},"
        "{'ph':'X','pid':9,'tid':1,'ts':1,'dur':1,'name':'a'},{'ph':'X','pid':3,'tid':3,'ts':2,'dur':1,'name':'b'},"
        "{'ph':'X','pid':9,'tid':1,'ts':3,'dur':1,'name':'a'},{'ph':'X','pid':9,'tid':2,'ts':4,'dur':1,'name':'c'}");
    CHECK(dump(trace) ==
          "kind 1 x 4  \n/device:TPU:0\n  XLA Ops 3\n    1000000+1000000 a|||||||\n    2000000+1000000 b|||||||\n"
          "    3000000+1000000 a|||||||\n  tid 2 1\n    4000000+1000000 c|||||||\n");
}

TEST_CASE("begin and end pairs nest per thread") {
    const RawTrace trace = on_device(
        "{'ph':'E','pid':3,'tid':3,'ts':0},{'ph':'B','pid':3,'tid':3,'ts':1,'name':'outer'},"
        "{'ph':'B','pid':3,'tid':4,'ts':1,'name':'other'},{'ph':'B','pid':3,'tid':3,'ts':2,'name':'inner'},"
        "{'ph':'X','pid':3,'tid':3,'ts':2.5,'dur':1,'name':'whole'},"
        "{'ph':'E','pid':3,'tid':3,'ts':4},{'ph':'E','pid':3,'tid':3,'ts':8},{'ph':'B','pid':3,'tid':3,'ts':9,'name':'"
        "open'}");
    CHECK(
        dump(trace) ==
        "kind 1 x 1  \n/device:TPU:0\n  XLA Ops 3\n    1000000+7000000 outer|||||||\n    2000000+2000000 inner|||||||\n"
        "    2500000+1000000 whole|||||||\n  tid 4 0\n");
}

TEST_CASE("GPU operations take their tf_op from the stat name") {
    const std::string list =
        "{'ph':'M','pid':3,'name':'process_name','args':{'name':'/device:GPU:0'}},"
        "{'ph':'X','pid':3,'tid':3,'ts':1,'dur':1,'name':'loop_add','args':{'hlo_op':'command_buffer_91','hlo_module':'"
        "jit_f',"
        "'name':'jit(f)/add','tf_op':'XlaModule:#hlo_module=jit_f#'}},"
        "{'ph':'X','pid':3,'tid':3,'ts':2,'dur':1,'name':'loop_add','args':{'name':'jit(f)/add'}},"
        "{'ph':'X','pid':3,'tid':3,'ts':3,'dur':1,'name':'loop_add','args':{'name':'n','tf_op':'jit(f)/mul'}}";
    CHECK(dump(good(events(list))) ==
          "kind 1 x 3  \n/device:GPU:0\n  tid 3 3\n    1000000+1000000 loop_add||jit_f||jit(f)/add|||\n"
          "    2000000+1000000 loop_add||||jit(f)/add|||\n    3000000+1000000 loop_add||||jit(f)/mul|||\n");
}

TEST_CASE("kineto's device operations and steps have lines of their own") {
    CHECK(dump(good(k_kineto)) ==
          "kind 2 x 6  \n/device:GPU:0 device_type_string=NVIDIA H200 device_vendor=NVIDIA\n  Stream #7 2\n"
          "    31834003000+3616000 k|||kernel||||\n    8559489000+3000000 Memcpy HtoD|||gpu_memcpy||||\n"
          "/host:CPU\n  user_annotation 1\n    449541000+9000000 ProfilerStep|||||||step #2\n"
          "  gpu_user_annotation 1\n    450000000+9000000 step|||||||step #1\n"
          "python3\n  tid 1 1\npid Spans\n  tid PyTorch Profiler 1\n");
}

TEST_CASE("epoch times are shifted alike whichever event comes first") {
    const auto starts = [](std::string_view first, std::string_view second) {
        const auto event = [](std::string_view ts) {
            return "{'ph':'X','pid':3,'tid':3,'dur':1,'name':'a','ts':" + std::string(ts) + "}";
        };
        std::vector<Ps> result;
        const RawTrace trace = on_device(event(first) + "," + event(second));
        for (const Event& found : only_line(trace).events) result.push_back(found.start);
        return result;
    };
    CHECK(starts("1790857026000000.125", "1790857026000007.5") == std::vector<Ps>{125'000, 7'500'000});
    CHECK(starts("1790857026000007.5", "1790857026000000.125") == std::vector<Ps>{7'500'000, 125'000});
    CHECK(starts("5", "2e12") == std::vector<Ps>{0, 1'999'999'999'995'000'000});
    CHECK(starts("2e12", "5") == std::vector<Ps>{1'999'999'999'995'000'000, 0});
    CHECK(starts("5.25", "-7.5") == std::vector<Ps>{5'250'000, -7'500'000});
}

TEST_CASE("numbers that are no times are errors with their offset") {
    for (const char* ts : {"1e300", "NaN", "-Infinity", "\"soon\"", "\"\"", "[1]", "null", "12abc", "1e31"}) {
        CAPTURE(ts);
        const std::string json = "[{'ph':'X','dur':1,'ts':" + std::string(ts) + "}]";
        const std::size_t offset = std::string(ts).starts_with('"') ? 25 : 24;
        CHECK(error_of(json) == "trace JSON: ts is not a usable number at offset " + std::to_string(offset));
        CHECK(error_of("[{'ph':'X','ts':1,'dur':" + std::string(ts) + "}]") ==
              "trace JSON: dur is not a usable number at offset " + std::to_string(offset));
    }
    CHECK(error_of("[{'ph':'X','name':'a'}]") == "trace JSON: an event without ts ends at offset 22");
    CHECK(error_of("[{'ph':'X','ts':0},{'ph':'X','ts':-1e13}]") ==
          "trace JSON: the events span more than 106 days at offset 34");
    CHECK(read("[{'ph':'i','ts':'soon'}]"));
}

TEST_CASE("strings are decoded, and repaired where they are not UTF-8") {
    const auto name = [](std::string_view json) {
        const RawTrace trace = on_device("{'ph':'X','pid':3,'tid':3,'ts':1,'name':'" + std::string(json) + "\"}");
        return op_of(trace, only_line(trace).events.at(0)).name;
    };
    CHECK(name(R"(\"\\\/\b\f\n\r\t)") == "\"\\/\b\f\n\r\t");
    CHECK(name(R"(\u0041\u00e9\u20ac\uD83D\uDE00)") == "A\u00e9\u20ac\U0001F600");
    CHECK(name(R"(a\u0000b)") == std::string("a\0b", 3));
    CHECK(name(R"(\ud83dx\ude00)") == "\ufffdx\ufffd");
    CHECK(name(R"(\ud83d\u0041)") == "\ufffdA");
    CHECK(name(R"(\ud83d)") == "\ufffd");
    CHECK(name(R"(\u00)") == "u00");
    CHECK(name("\xff\xc3\xa9\xe2\x82") == "\ufffd\u00e9\ufffd");
    CHECK(name(std::string(100'000, 'n')).size() == 100'000);
    CHECK(good(R"([{"\u0070h":"X","ts":1}])").x_events == 1);
}

TEST_CASE("texts that are spelled differently are one operation") {
    const RawTrace trace =
        on_device(R"({'ph':'X','pid':3,'tid':3,'ts':1,'name':'a'},{'ph':'X','pid':3,'tid':3,'ts':2,'name':'\u0061'})");
    CHECK(trace.ops.size() == 1);
}

TEST_CASE("the last of duplicate keys wins") {
    const RawTrace trace = on_device(
        "{'ph':'M','ph':'X','pid':1,'pid':3,'tid':3,'ts':0,'ts':1,'name':'a','name':'b','args':{'tf_op':'x'},'args':{'"
        "tf_op':'y','tf_op':'z'}}");
    CHECK(trace.ops.at(0).name == "b");
    CHECK(trace.ops.at(0).tf_op == "z");
    CHECK(on_device("{'ph':'X','pid':3,'tid':3,'ts':1,'args':{'tf_op':'x'},'args':null}").ops.at(0).tf_op.empty());
}

TEST_CASE("args may nest 2,000 deep and not deeper") {
    const auto nested = [](std::size_t depth) {
        return "[{'ph':'X','ts':1,'args':{'a':" + std::string(depth, '[') + std::string(depth, ']') + "}}]";
    };
    CHECK(read(nested(256)));
    CHECK(read(nested(2000)));
    CHECK(error_of(nested(2001)).starts_with("trace JSON: values are nested over 2,000 deep at offset "));
    CHECK(error_of(nested(1'000'000)).starts_with("trace JSON: values are nested over 2,000 deep at offset "));
}

TEST_CASE("texts without a list of events") {
    CHECK(error_of("") == "trace JSON: unexpected end at offset 0");
    CHECK(error_of("  ") == "trace JSON: unexpected end at offset 2");
    CHECK(error_of("\xef\xbb\xbf") == "trace JSON: unexpected end at offset 3");
    CHECK(error_of("{}") == "trace JSON: no list of events (traceEvents)");
    CHECK(error_of("{'schemaVersion':1}") == "trace JSON: no list of events (traceEvents)");
    CHECK(error_of("{'traceEvents':{}}") == "trace JSON: traceEvents is not a list at offset 15");
    for (const char* empty : {"[]", " [ ] ", "{'traceEvents':[]}", "\xef\xbb\xbf[]", "[{}]", "{'traceEvents':[{}]}"}) {
        CAPTURE(empty);
        CHECK(good(empty).planes.empty());
    }
}

TEST_CASE("damaged JSON is an error with its offset") {
    CHECK(error_of("\xef\xbb[]") == "trace JSON: expected '{' or '[' at offset 0");
    CHECK(error_of(" \xef\xbb\xbf[]") == "trace JSON: expected '{' or '[' at offset 1");
    CHECK(error_of("hello") == "trace JSON: expected '{' or '[' at offset 0");
    CHECK(error_of("[{}] x") == "trace JSON: unexpected text after the end at offset 5");
    CHECK(error_of("{'traceEvents':[]}{}") == "trace JSON: unexpected text after the end at offset 18");
    CHECK(error_of("{'traceEvents':[],'traceEvents':[]}") == "trace JSON: a second traceEvents at offset 19");
    CHECK(error_of("[1]") == "trace JSON: expected an event, which begins with '{' at offset 1");
    CHECK(error_of("[{},]") == "trace JSON: expected an event, which begins with '{' at offset 4");
    CHECK(error_of("[{} {}]") == "trace JSON: expected ',' or ']' at offset 4");
    CHECK(error_of("[{'a' 1}]") == "trace JSON: expected ':' after a key at offset 6");
    CHECK(error_of("[{'a':1 'b':2}]") == "trace JSON: expected ',' or '}' at offset 8");
    CHECK(error_of("[{'a':tru}]") == "trace JSON: expected a value at offset 6");
    CHECK(error_of("[{'a':}]") == "trace JSON: expected a value at offset 6");
    CHECK(error_of("[{a:1}]") == "trace JSON: expected a key in double quotes at offset 2");
    CHECK(error_of("{'a':1,}") == "trace JSON: expected a key in double quotes at offset 7");
}

TEST_CASE("a text without its closing brackets is an error, or salvaged") {
    const std::string list = events(std::string(k_device_names) + ",{'ph':'X','pid':3,'tid':3,'ts':1,'name':'a'}");
    for (std::size_t cut = 1; cut <= 40; ++cut) {
        CAPTURE(cut);
        const std::string text = list.substr(0, list.size() - cut);
        const Result<RawTrace> trace = read(text);
        REQUIRE_FALSE(trace);
        const std::string message =
            "trace JSON: unexpected end before the closing brackets at offset " + std::to_string(text.size());
        CHECK(trace.error().message == message);
        CHECK(trace.error().hint == "pass --salvage to analyse the events before it");
        ReadOptions salvage;
        salvage.salvage = true;
        const RawTrace rest = good(text, salvage);
        CHECK(rest.x_events == (cut < 3 ? 1 : 0));
        CHECK(rest.damage == std::vector<std::string>{message});
    }
}

TEST_CASE("salvage keeps what lies before damage in the middle, but needs a list of events") {
    ReadOptions salvage;
    salvage.salvage = true;
    ChromeReader reader(salvage);
    CHECK(reader.feed(json_quoted("[{'ph':'X','pid':1,'tid':1,'ts':1},{'ph':'X','ts':?},")));
    CHECK(reader.feed(json_quoted("{'ph':'X','pid':1,'tid':1,'ts':1}]")));
    const Result<RawTrace> trace = reader.finish();
    REQUIRE(trace);
    CHECK(trace->x_events == 1);
    CHECK(trace->damage == std::vector<std::string>{"trace JSON: expected a value at offset 50"});
    ChromeReader not_json(salvage);
    CHECK(not_json.feed("hello"));
    CHECK_FALSE(not_json.finish());
    CHECK_FALSE(read("hello", salvage));
    CHECK_FALSE(read("", salvage));
    CHECK_FALSE(read("{'a':", salvage));
}

TEST_CASE("after an error every call returns it again") {
    ChromeReader reader(ReadOptions{});
    const Status first = reader.feed("[x");
    REQUIRE_FALSE(first);
    const Status second = reader.feed("{}]");
    REQUIRE_FALSE(second);
    CHECK(second.error().message == first.error().message);
    const Result<RawTrace> trace = reader.finish();
    REQUIRE_FALSE(trace);
    CHECK(trace.error().message == first.error().message);
}

TEST_CASE("the pieces' size changes nothing") {
    for (const std::string& text : {k_varied, k_kineto, k_varied.substr(0, k_varied.size() - 300), k_varied + "x",
                                    std::string("[{'ph':'X','ts':1},{'ph':'X','ts':1e99},{'ph':")}) {
        for (const bool salvage : {false, true}) {
            ReadOptions options;
            options.salvage = salvage;
            const Result<RawTrace> whole = read(text, options);
            for (std::size_t piece = 1; piece <= text.size(); piece += piece < 64 ? 1 : 61) {
                CAPTURE(piece);
                const Result<RawTrace> cut = read(text, options, piece);
                REQUIRE(cut.has_value() == whole.has_value());
                CHECK((cut ? dump(*cut) : cut.error().message) == (whole ? dump(*whole) : whole.error().message));
            }
        }
    }
}

TEST_CASE("a cut at every byte changes nothing") {
    const std::string text = json_quoted(k_varied);
    const std::string expected = dump(good(text));
    CHECK(expected.find("x 5 0.10.2 0.10.1\n") != std::string::npos);
    CHECK(expected.find("    78+2500000 a\"b|%a = \u00e9\U0001F600\ufffd||||||\n") != std::string::npos);
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        ChromeReader reader(ReadOptions{});
        REQUIRE(reader.feed(std::string_view(text).substr(0, cut)));
        REQUIRE(reader.feed(std::string_view(text).substr(cut)));
        Result<RawTrace> trace = reader.finish();
        REQUIRE(trace);
        CHECK(dump(*trace) == expected);
    }
}

TEST_CASE("an element over 64 MiB is an error") {
    const std::string half(std::size_t{33} << 20, 'x');
    ChromeReader reader(ReadOptions{});
    REQUIRE(reader.feed(json_quoted("[{'name':'")));
    REQUIRE(reader.feed(half));
    const Status status = reader.feed(half);
    REQUIRE_FALSE(status);
    CHECK(status.error().message == "trace JSON: an event or member is larger than 64 MiB at offset 1");
}
