// FlashInfer-Bench's formats: what is read, what is refused with which words, and what is written again.
#include "oracle/flashinfer/flashinfer.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include <doctest/doctest.h>

#include "oracle/gdn/under_test/kernel_under_test.h"
#include "unit/oracle/judging.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::flashinfer;

namespace {

std::string file_text(const std::filesystem::path& path) {
    const auto bytes = testing::file_bytes(path);
    return {bytes.begin(), bytes.end()};
}

std::filesystem::path dataset() { return std::filesystem::path(GDNCTL_FIXTURES) / "flashinfer"; }

std::string definition_text(const std::string& name) {
    return file_text(dataset() / "definitions/gdn" / (name + ".json"));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

template <class T>
std::string error_of(const Result<T>& result) {
    REQUIRE(!result);
    CHECK(result.error().kind == ErrorKind::bad_input);
    return result.error().message;
}

const GdnDefinition& known(const std::string& name) {
    const GdnDefinition* found = find_gdn_definition(name);
    REQUIRE(found != nullptr);
    return *found;
}

Workload workload(const std::string& axes, const std::string& inputs = "{}") {
    const auto trace = parse_trace(
        R"({"definition":"d","workload":{"uuid":"u","axes":)" + axes + R"(,"inputs":)" + inputs + "}}", "w");
    REQUIRE_MESSAGE(trace, (trace ? std::string() : trace.error().message));
    return trace->workload;
}

const char* const k_decode = "gdn_decode_qk4_v8_d128_k_last";
const char* const k_prefill = "gdn_prefill_qk4_v8_d128_k_last";
const char* const k_mtp = "gdn_mtp_qk4_v8_d128_k_last";
const char* const k_prefill_axes = R"({"total_seq_len":5,"num_seqs":2,"len_cu_seqlens":3})";

Tensor offsets(const std::vector<std::int64_t>& values) {
    return from_i64(values, {static_cast<std::int64_t>(values.size())});
}

Tensor indices(const std::vector<std::int64_t>& values) {
    std::vector<double> wide(values.begin(), values.end());
    return from_f64(wide, {static_cast<std::int64_t>(values.size())}, DType::i32);
}

const std::string k_offsets_input = R"({"cu_seqlens":{"type":"safetensors","path":"x","tensor_key":"c"}})";
const std::string k_indices_input = R"({"initial_state_indices":{"type":"safetensors","path":"x","tensor_key":"i"}})";

constexpr double k_no_number = std::numeric_limits<double>::quiet_NaN();
constexpr double k_infinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("flashinfer: the nine definitions, and files of them that say the same") {
    CHECK(gdn_definitions().size() == 9);
    for (const std::string& name : gdn_definition_names()) {
        CAPTURE(name);
        const auto read = parse_definition(definition_text(name), name);
        REQUIRE_MESSAGE(read, (read ? std::string() : read.error().message));
        CHECK(read->op_type == "gdn");
        const Status same = check_definition(*read, known(name), name);
        CHECK_MESSAGE(same, (same ? std::string() : same.error().message));
    }
    const Definition& d = known(k_mtp).definition;
    std::string order;
    for (const TensorSpec& spec : d.inputs) order += spec.name + " ";
    CHECK(order == "q k v initial_state initial_state_indices A_log a dt_bias b scale intermediate_states_buffer ");
    CHECK(known("gdn_prefill_qk16_v32_d128_k_last").value_heads == 32);
    CHECK(find_gdn_definition("gdn_decode_qk4_v8_d128_v_last") == nullptr);
}

TEST_CASE("flashinfer: a definition that means something else is refused") {
    const std::string text = definition_text(k_prefill);
    const auto refused = [&](const std::string& from, const std::string& to) {
        const auto read = parse_definition(replaced(text, from, to), "d.json");
        REQUIRE_MESSAGE(read, (read ? std::string() : read.error().message));
        const Status same = check_definition(*read, known(k_prefill), "d.json");
        REQUIRE(!same);
        CHECK(same.error().kind == ErrorKind::bad_input);
        return same.error().message;
    };
    CHECK(refused("\"value\": 8\n", "\"value\": 16\n") == "d.json: axis 'num_v_heads' is 16, expected 8");
    CHECK(refused("\"dtype\": \"int64\"", "\"dtype\": \"int32\"") ==
          "d.json: input 9 is 'cu_seqlens' [len_cu_seqlens] int32, expected 'cu_seqlens' [len_cu_seqlens] int64");
    CHECK(refused("\"A_log\": {", "\"A\": {") ==
          "d.json: input 5 is 'A' [num_v_heads] float32, expected 'A_log' [num_v_heads] float32");
}

TEST_CASE("flashinfer: malformed definitions say what and where") {
    const auto read = [](const std::string& text) { return error_of(parse_definition(text, "d.json")); };
    CHECK(read("{") == "d.json: not valid JSON at byte 2");
    CHECK(read("[]") == "d.json: is not a JSON object");
    CHECK(read("{}") == "d.json: has no 'name'");
    CHECK(read(R"({"name":""})") == "d.json: 'name' is not a non-empty string");
    const auto with = [](const std::string& axes, const std::string& inputs) {
        return R"({"name":"n","op_type":"gdn","reference":"def run(): pass","axes":)" + axes + R"(,"inputs":)" +
               inputs + R"(,"outputs":{}})";
    };
    CHECK(read(with("{}", R"({"q":{"shape":["T"],"dtype":"float32"}})")) ==
          "d.json: inputs 'q': axis 'T' is not defined");
    CHECK(read(with("{}", R"({"q":{"shape":null,"dtype":"complex64"}})")) ==
          "d.json: inputs 'q': dtype 'complex64' is not known");
    CHECK(read(with("{}", R"({"q":{"dtype":"float32"}})")) == "d.json: inputs 'q': has no 'shape'");
    CHECK(read(with(R"({"T":{"type":"const","value":-1}})", "{}")) == "d.json: axis 'T': 'value' is not a size");
    CHECK(read(with(R"({"T":{"type":"dynamic"}})", "{}")) ==
          "d.json: axis 'T': type 'dynamic' is neither const nor var");
}

TEST_CASE("flashinfer: workload lines") {
    const auto trace = parse_trace(
        R"({"definition":"d","workload":{"uuid":"u","axes":{"T":3},"inputs":{"q":{"type":"random"},"s":{"value":2},)"
        R"("c":{"type":"safetensors","path":"a/b","tensor_key":"k"}},"note":"kept"},"solution":null,"evaluation":null})",
        "w");
    REQUIRE(trace);
    CHECK(!trace->solution);
    CHECK(!trace->evaluation);
    CHECK(trace->workload.axes.at("T") == 3);
    CHECK(trace->workload.find("s")->kind == InputSource::Kind::scalar);
    CHECK(trace->workload.find("s")->scalar == 2);
    CHECK(trace->workload.find("c")->path == "a/b");
    CHECK(trace->workload.find("x") == nullptr);
    CHECK(trace_line(*trace).find(R"("note":"kept")") != std::string::npos);

    const auto read = [](const std::string& w) {
        return error_of(parse_trace(R"({"definition":"d","workload":)" + w + "}", "w:1"));
    };
    CHECK(read("null") == "w:1: has no 'workload'");
    CHECK(read(R"({"uuid":"u","axes":{"T":-1},"inputs":{}})") == "w:1: workload: axes: 'T' is not a size");
    CHECK(read(R"({"uuid":"u","axes":{"T":1e99},"inputs":{}})") == "w:1: workload: axes: 'T' is not a size");
    CHECK(read(R"({"uuid":"u","axes":{},"inputs":{"q":{"type":"npz"}}})") ==
          "w:1: workload: input 'q': type 'npz' is not random, scalar or safetensors");
    CHECK(read(R"({"uuid":"u","axes":{},"inputs":{"q":{"type":"safetensors","path":"x"}}})") ==
          "w:1: workload: input 'q': has no 'tensor_key'");
    CHECK(read(R"({"uuid":"u","axes":{},"inputs":{"q":{"type":"scalar","value":"x"}}})") ==
          "w:1: workload: input 'q': 'value' is not a number");
}

TEST_CASE("flashinfer: traces are written as they are read, NaN and infinity as words") {
    Trace t;
    t.definition = "d";
    t.workload = workload("{}");
    t.solution = "mine";
    Evaluation e;
    e.status = TraceStatus::incorrect_numerical;
    e.hardware = "cpu";
    e.libs = {{"gdnctl", "1"}};
    e.timestamp = "2026-03-10T12:00:00Z";
    e.log = "line\nline \xff";
    e.correctness = Correctness{k_infinite, k_no_number, R"({"gdnctl":{"holes":["x"]}})"};
    t.evaluation = e;
    const std::string line = trace_line(t);
    CHECK(line.find('\n') == std::string::npos);
    CHECK(line.find(R"("max_relative_error":"Infinity","max_absolute_error":"NaN")") != std::string::npos);
    const auto again = parse_trace(line, "t");
    REQUIRE_MESSAGE(again, (again ? std::string() : again.error().message));
    CHECK(trace_line(*again) == line);
    CHECK(again->solution == "mine");
    CHECK(again->evaluation->status == TraceStatus::incorrect_numerical);
    CHECK(std::isinf(again->evaluation->correctness->max_relative_error));
    CHECK(std::isnan(again->evaluation->correctness->max_absolute_error));

    const auto read = [](const std::string& evaluation) {
        return error_of(parse_trace(
            R"({"definition":"d","workload":{"uuid":"u","axes":{},"inputs":{}},"solution":"s","evaluation":)" +
                evaluation + "}",
            "t"));
    };
    const std::string rest = R"(,"environment":{"hardware":"cpu"},"timestamp":"now")";
    CHECK(read(R"({"status":"FINE")" + rest + "}") == "t: evaluation: status 'FINE' is not known");
    CHECK(read(R"({"status":"PASSED")" + rest + R"(,"correctness":{}})") ==
          "t: evaluation: PASSED needs 'performance'");
    CHECK(read(R"({"status":"TIMEOUT")" + rest + R"(,"correctness":{}})") ==
          "t: evaluation: TIMEOUT excludes 'correctness'");
    CHECK(read(R"({"status":"PASSED")" + rest + R"(,"correctness":{},"performance":{"latency_ms":-1}})") ==
          "t: evaluation: performance: a figure is negative or not a number");
    CHECK(read(R"({"status":"TIMEOUT","environment":{"hardware":""},"timestamp":"now"})") ==
          "t: evaluation: environment: 'hardware' is not a non-empty string");
}

TEST_CASE("flashinfer: solutions") {
    const auto text = [](const std::string& spec, const std::string& sources) {
        return R"({"name":"mine","definition":"d","author":"me","spec":)" + spec + R"(,"sources":)" + sources + "}";
    };
    const std::string spec = R"({"language":"c","target_hardware":["cpu"],"entry_point":"k.c::run"})";
    const std::string sources = R"([{"path":"k.c","content":"int x;"},{"path":"sub/k.h","content":"int y;"}])";
    const auto solution = parse_solution(text(spec, sources), "s");
    REQUIRE_MESSAGE(solution, (solution ? std::string() : solution.error().message));
    CHECK(solution->entry_file == "k.c");
    CHECK(solution->entry_function == "run");
    CHECK(solution->destination_passing);
    CHECK(check_runnable(*solution));

    const auto bad = [&](const std::string& s, const std::string& c) {
        return error_of(parse_solution(text(s, c), "s"));
    };
    CHECK(bad(spec, R"([{"path":"/k.c","content":"x"}])") ==
          "s: source 1: path '/k.c' is not a file below the solution's folder");
    CHECK(bad(spec, R"([{"path":"a/../../k.c","content":"x"}])") ==
          "s: source 1: path 'a/../../k.c' is not a file below the solution's folder");
    CHECK(bad(spec, R"([{"path":"k.c","content":"x"},{"path":"k.c","content":"y"}])") ==
          "s: source 2: 'k.c' appears twice");
    CHECK(bad(spec, R"([{"path":"other.c","content":"x"}])") ==
          "s: the entry point's file 'k.c' is not among the sources");
    CHECK(bad(spec, "[]") == "s: 'sources' is empty");
    CHECK(bad(replaced(spec, "k.c::run", "k.c"), sources) ==
          "s: spec: entry_point 'k.c' is not of the form FILE::FUNCTION");
    CHECK(bad(replaced(spec, "k.c::run", "k.c::a::b"), sources) ==
          "s: spec: entry_point 'k.c::a::b' is not of the form FILE::FUNCTION");
    CHECK(bad(replaced(spec, R"(["cpu"])", "[]"), sources) == "s: spec: 'target_hardware' is empty");

    const auto refused = [&](const std::string& from, const std::string& to) {
        const auto read = parse_solution(text(replaced(spec, from, to), sources), "s");
        REQUIRE(read);
        const Status status = check_runnable(*read);
        REQUIRE(!status);
        CHECK(status.error().kind == ErrorKind::bad_input);
        return status.error().message;
    };
    CHECK(refused(R"("c")", R"("triton")") == "solution 'mine' cannot be run here: it is written in triton");
    CHECK(refused(R"("k.c::run")", R"("k.c::run","binding":"torch")") ==
          "solution 'mine' cannot be run here: its binding is torch");
    CHECK(refused(R"("k.c::run")", R"("k.c::run","destination_passing_style":false)") ==
          "solution 'mine' cannot be run here: it returns its outputs (destination_passing_style is false)");
    const auto cpp = parse_solution(text(spec, replaced(sources, "sub/k.h", "k.cpp")), "s");
    REQUIRE(cpp);
    CHECK(check_runnable(*cpp).error().message == "solution 'mine' cannot be run here: its source k.cpp is not C");
}

TEST_CASE("flashinfer: axes that do not fit") {
    const auto refused = [](const char* name, const std::string& axes, const std::string& inputs = "{}") {
        return error_of(workload_size(known(name), workload(axes, inputs)));
    };
    CHECK(refused(k_decode, "{}") == "workload u: axis 'batch_size' has no value");
    CHECK(refused(k_decode, R"({"batch_size":0})") ==
          "workload u: axis 'batch_size' is 0: there is nothing to compute");
    CHECK(refused(k_decode, R"({"batch_size":2,"seq_len":2})") ==
          "workload u: axis 'seq_len' is 2, but must be 1 in gdn_decode_qk4_v8_d128_k_last");
    CHECK(refused(k_decode, R"({"batch_size":2,"rows":2})") ==
          "workload u: gdn_decode_qk4_v8_d128_k_last has no axis 'rows'");
    CHECK(refused(k_decode, R"({"batch_size":2})", R"({"x":{"type":"random"}})") ==
          "workload u: gdn_decode_qk4_v8_d128_k_last has no input 'x'");
    CHECK(refused(k_decode, R"({"batch_size":1099511627776})") ==
          "workload u: tensor 'q' [1099511627776,1,4,128] is too large");
    CHECK(refused(k_prefill, R"({"total_seq_len":5,"num_seqs":2,"len_cu_seqlens":2})") ==
          "workload u: len_cu_seqlens is 2, but num_seqs + 1 is 3");
    CHECK(refused(k_mtp, R"({"batch_size":2,"seq_len":1,"pool_size":4})") ==
          "workload u: seq_len is 1, but gdn_mtp_qk4_v8_d128_k_last needs more than 1");
    const auto size = workload_size(known(k_mtp), workload(R"({"batch_size":2,"seq_len":3,"pool_size":4})"));
    REQUIRE(size);
    CHECK(size->dims.B == 2);
    CHECK(size->dims.T == 3);
    CHECK(size->dims.Hv == 8);
    CHECK(size->sequences == 2);
    CHECK(size->states == 4);
}

TEST_CASE("flashinfer: inputs that are random are the same each time, and differ between inputs and workloads") {
    const Workload w = workload(R"({"batch_size":2})", R"({"scale":{"type":"scalar","value":0.25}})");
    const auto inputs = make_workload_inputs(known(k_decode), w, {});
    REQUIRE_MESSAGE(inputs, (inputs ? std::string() : inputs.error().message));
    CHECK(!inputs->random.empty());
    CHECK(inputs->file.find("q")->shape == Shape{2, 1, 4, 128});
    CHECK(inputs->file.find("q")->dtype == DType::bf16);
    CHECK(inputs->file.find("state")->dtype == DType::f32);
    CHECK(element(*inputs->file.find("scale"), 0) == 0.25);
    const auto again = make_workload_inputs(known(k_decode), w, {});
    CHECK(again->file.find("q")->bytes == inputs->file.find("q")->bytes);
    CHECK(inputs->file.find("k")->bytes != inputs->file.find("q")->bytes);
    Workload other = w;
    other.uuid = "v";
    CHECK(make_workload_inputs(known(k_decode), other, {})->file.find("q")->bytes != inputs->file.find("q")->bytes);
    double sum = 0;
    double squares = 0;
    for (const double x : to_f64(*inputs->file.find("state"))) {
        sum += x;
        squares += x * x;
    }
    const auto count = static_cast<double>(inputs->file.find("state")->count());
    CHECK(std::abs(sum / count) < 0.01);
    CHECK(squares / count == doctest::Approx(1).epsilon(0.02));
}

TEST_CASE("flashinfer: random offsets and indices are refused, and so are ones that do not fit") {
    const GdnDefinition& prefill = known(k_prefill);
    const Workload w = workload(k_prefill_axes, k_offsets_input);
    const auto with = [&](const Tensor& cu) { return make_workload_inputs(prefill, w, {{"cu_seqlens", cu}}); };
    CHECK(error_of(make_workload_inputs(prefill, workload(k_prefill_axes), {})) ==
          "workload u: cu_seqlens must come from a file: random values would be meaningless");
    CHECK(with(offsets({0, 2, 5})));
    CHECK(with(offsets({0, 0, 5})));
    CHECK(error_of(with(offsets({0, 2, 4}))) == "workload u: cu_seqlens ends at 4, but total_seq_len is 5");
    CHECK(error_of(with(offsets({0, 6, 5}))) == "workload u: cu_seqlens does not start at 0 and increase");
    CHECK(error_of(with(offsets({1, 2, 5}))) == "workload u: cu_seqlens does not start at 0 and increase");
    CHECK(error_of(with(offsets({0, 5}))) == "workload u: tensor 'cu_seqlens': expected [3] int64, got [2] int64");
    CHECK(error_of(with(indices({0, 2, 5}))) == "workload u: tensor 'cu_seqlens': expected [3] int64, got [3] int32");

    const GdnDefinition& mtp = known(k_mtp);
    const Workload pool = workload(R"({"batch_size":2,"seq_len":2,"pool_size":3})", k_indices_input);
    const auto at = [&](const Tensor& i) { return make_workload_inputs(mtp, pool, {{"initial_state_indices", i}}); };
    CHECK(error_of(at(indices({0, 3}))) == "workload u: initial_state_indices[1] is 3, but the pool has 3 states");
    CHECK(error_of(at(indices({-1, 0}))) == "workload u: initial_state_indices[0] is -1, but the pool has 3 states");
    CHECK(error_of(make_workload_inputs(mtp, pool, {})) ==
          "workload u: initial_state_indices must come from a file: random indices would be meaningless");
    const auto inputs = at(indices({2, 2}));
    REQUIRE(inputs);
    const Tensor& states = *inputs->file.find("initial_state");
    CHECK(states.shape == Shape{2, 8, 128, 128});
    CHECK(std::equal(states.bytes.begin(), states.bytes.begin() + static_cast<std::ptrdiff_t>(states.bytes.size() / 2),
                     states.bytes.begin() + static_cast<std::ptrdiff_t>(states.bytes.size() / 2)));
    // The same row of the pool, whoever asks for it.
    const auto one_of = at(indices({0, 2}));
    CHECK(std::equal(
        states.bytes.begin(), states.bytes.begin() + 4096,
        one_of->file.find("initial_state")->bytes.begin() + static_cast<std::ptrdiff_t>(states.bytes.size() / 2)));
}

TEST_CASE("flashinfer: gates recorded without the axis of the one token are read with a warning") {
    const GdnDefinition& d = known(k_decode);
    const Workload w = workload(R"({"batch_size":2})", R"({"a":{"type":"safetensors","path":"x","tensor_key":"a"}})");
    const Tensor flat = from_f64(std::vector<double>(16, 0.5), {2, 8}, DType::bf16);
    const auto inputs = make_workload_inputs(d, w, {{"a", flat}});
    REQUIRE(inputs);
    CHECK(inputs->file.find("a")->shape == Shape{2, 1, 8});
    REQUIRE(inputs->warnings.size() == 1);
    CHECK(inputs->warnings[0] == "workload u: tensor 'a' is [2,8], read as [2,1,8]");
    const Tensor wrong = from_f64(std::vector<double>(16, 0.5), {8, 2}, DType::bf16);
    CHECK(error_of(make_workload_inputs(d, w, {{"a", wrong}})) ==
          "workload u: tensor 'a': expected [2,1,8] bfloat16, got [8,2] bfloat16");
}

TEST_CASE("flashinfer: the fixture's workloads can be judged, one for each definition") {
    for (const GdnDefinition& d : gdn_definitions()) {
        CAPTURE(d.definition.name);
        std::istringstream lines(file_text(dataset() / "workloads/gdn" / (d.definition.name + ".jsonl")));
        std::string line;
        REQUIRE(std::getline(lines, line));
        const auto trace = parse_trace(line, "w");
        REQUIRE(trace);
        CHECK(trace->definition == d.definition.name);
        std::map<std::string, Tensor> loaded;
        for (const auto& [name, source] : trace->workload.inputs) {
            if (source.kind != InputSource::Kind::safetensors) continue;
            const TensorFile blob = testing::load_safetensors(dataset() / source.path);
            const Tensor* tensor = blob.find(source.tensor_key);
            REQUIRE(tensor != nullptr);
            loaded[name] = *tensor;
        }
        const auto inputs = make_workload_inputs(d, trace->workload, loaded);
        REQUIRE_MESSAGE(inputs, (inputs ? std::string() : inputs.error().message));
        if (d.key_heads > 4) continue;  // the rest takes its time
        const GdnReference reference = testing::reference_for(inputs->file, "flashinfer");
        CHECK(reference.unstable_reason == "");
        CHECK(reference.contract.value.empty == EmptySequence::zeros);
        auto kernel = find_builtin_kernel("builtin:fused");
        const auto run = run_pass(**kernel, KernelPass::forward, inputs->file, reference.contract, 2);
        REQUIRE(run);
        const auto verdict = judge_run(*run, inputs->file, reference, 2, KernelPass::forward);
        CHECK(!verdict.fault);
        CHECK(verdict.report.verdict == Verdict::ok);
    }
}

// FlashInfer-Bench's rule of correctness, element by element, and what it cannot see.
using namespace gdnctl::oracle::flashinfer;

namespace {

TensorFile one(const std::vector<double>& values, DType dtype = DType::f32) {
    TensorFile file;
    file.tensors.push_back({"out", from_f64(values, {static_cast<std::int64_t>(values.size())}, dtype)});
    return file;
}

constexpr double k_nan = std::numeric_limits<double>::quiet_NaN();
constexpr double k_inf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("flashinfer: an element fails beyond both tolerances only") {
    CHECK(apply_rule(one({0.009}), one({0})).status == TraceStatus::passed);
    CHECK(apply_rule(one({100.5}), one({100})).status == TraceStatus::passed);
    const RuleResult r = apply_rule(one({102, 1}), one({100, 1}));
    CHECK(r.status == TraceStatus::incorrect_numerical);
    CHECK(r.outside == 1);
    CHECK(r.max_absolute_error == 2);
    CHECK(r.max_relative_error == doctest::Approx(0.02));
    CHECK(apply_rule(one({1}, DType::bf16), one({1})).status == TraceStatus::incorrect_dtype);
    CHECK(apply_rule(one({1, 1}), one({1})).status == TraceStatus::incorrect_shape);
    CHECK(apply_rule({}, one({1})).status == TraceStatus::incorrect_shape);
}

TEST_CASE("flashinfer: where the reference is NaN or infinite any finite result passes, and the maximum hides it") {
    const RuleResult r = apply_rule(one({5, 7, 1}), one({k_nan, 7, 1}));
    CHECK(r.status == TraceStatus::passed);
    CHECK(r.non_finite_reference == 1);
    CHECK(r.max_absolute_error == 0);
    CHECK(apply_rule(one({5}), one({k_inf})).status == TraceStatus::passed);
    const auto holes = rule_holes(r, Stage::decode, false, 0);
    REQUIRE(holes.size() == 2);
    CHECK(holes[0] == "1 values of the reference are NaN or infinite: no finite result can fail there");
    // A result that is not finite fails even where the reference is not either.
    const RuleResult nan = apply_rule(one({k_nan}), one({k_nan}));
    CHECK(nan.status == TraceStatus::incorrect_numerical);
    CHECK(std::isnan(nan.max_absolute_error));
    CHECK(std::isinf(apply_rule(one({k_nan, k_inf}), one({1, 1})).max_relative_error));
}

TEST_CASE("flashinfer: holes are named where they matter") {
    const RuleResult small = apply_rule(one({0.001, 0.002}), one({0.009, -0.004}));
    CHECK(small.status == TraceStatus::passed);
    const auto holes = rule_holes(small, Stage::mtp, false, 1e5);
    REQUIRE(holes.size() == 3);
    CHECK(holes[0] == "no value of out is beyond 0.01: a result of zeros would pass");
    CHECK(holes[1] == "the rule accepts 1e+05 times the error of a correct kernel");
    CHECK(holes[2] == "the rule checks the unchanged pool, not the states");
    CHECK(rule_holes(apply_rule(one({1}), one({1})), Stage::mtp, true, 1).empty());
    const auto strict = rule_holes(apply_rule(one({2}), one({1})), Stage::decode, true, 1);
    REQUIRE(strict.size() == 1);
    CHECK(strict[0] == "1 values exceed both tolerances, but so does a correct kernel");
}
