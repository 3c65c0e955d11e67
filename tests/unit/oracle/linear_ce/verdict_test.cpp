// Verdicts on real dumps, on spoilt ones, and on inputs that cannot be judged.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <doctest/doctest.h>

#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/mutants.h"
#include "oracle/linear_ce/judge/selftest.h"
#include "oracle/linear_ce/judge/truth.h"
#include "oracle/tensor/formats.h"

namespace gdnctl::oracle::linear_ce {

namespace {

TensorFile loaded(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
    auto file = parse_safetensors(bytes, path.string());
    REQUIRE(file);
    return std::move(*file);
}

Result<Problem> read(const TensorFile& inputs, const Overrides& overrides = {}) {
    GDNCTL_TRY_ASSIGN(auto contract, resolve(inputs.metadata, overrides));
    return read_problem(inputs, std::move(contract));
}

Tensor& tensor(TensorFile& file, std::string_view name) {
    for (NamedTensor& entry : file.tensors) {
        if (entry.name == name) return entry.tensor;
    }
    REQUIRE_MESSAGE(false, "no such tensor");
    return file.tensors.front().tensor;
}

}  // namespace

TEST_CASE("linear-ce: every dump of the real levanter is OK at every level") {
    int judged = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(GDNCTL_FIXTURES) / "linear_ce")) {
        const std::string name = entry.path().filename().string();
        if (!name.ends_with(".outputs.safetensors")) continue;
        const TensorFile inputs =
            loaded(entry.path().parent_path() / (name.substr(0, name.find('.')) + ".inputs.safetensors"));
        const auto problem = read(inputs);
        REQUIRE(problem);
        for (const Level level : {Level::exact, Level::sampled, Level::invariants}) {
            CompareOptions options;
            options.level = level;
            const auto report = compare(*problem, loaded(entry.path()), options);
            REQUIRE(report);
            CHECK_MESSAGE(report->verdict == Verdict::ok, name << " " << report->reason << " " << report->stage);
            CHECK(report->invariants_hold == (level == Level::invariants));
        }
        ++judged;
    }
    CHECK(judged > 25);
}

TEST_CASE("linear-ce: the selftest catches every mutant and flags no honest variant") {
    const SelftestReport report = run_selftest({2, {}});
    for (const SelftestFinding& f : report.findings)
        MESSAGE(f.kind << ": " << f.name << ": expected " << f.expected << ", got " << f.got);
    CHECK(report.mutants > 80);
    CHECK(report.caught == report.mutants);
    CHECK(report.false_alarms == 0);
    CHECK(report.right_stage * 10 >= report.mutants * 9);
}

TEST_CASE("linear-ce: nearly every mutant is named, by one to three hints") {
    std::size_t unnamed = 0;
    for (const Mutant& mutant : mutants()) {
        const auto problem = read(make_inputs(*find_case(mutant.on)));
        REQUIRE(problem);
        CompareOptions exact;
        exact.level = Level::exact;
        const auto report = compare(*problem, spoilt_outputs(*problem, mutant.fault, 1, {}), exact);
        REQUIRE(report);
        CHECK(report->hints.size() <= 3);
        if (!report->hints.empty()) continue;
        MESSAGE(mutant.name << " has no hint; stage " << report->stage);
        ++unnamed;
    }
    CHECK(unnamed * 20 <= mutants().size());
}

TEST_CASE("linear-ce: labels out of range, ignored rows, a cap that is none") {
    TensorFile inputs = make_inputs(*find_case("unit_normal"));
    tensor(inputs, "labels") = from_i64(std::vector<std::int64_t>(64, 259), {64});
    const auto wrong = read(inputs);
    REQUIRE(!wrong);
    CHECK(wrong.error().kind == ErrorKind::bad_input);
    CHECK(wrong.error().message == "labels[0] = 259 is outside [0, 259)");
    Overrides ignore;
    ignore.ignore_index = 259;
    const auto ignored = read(inputs, ignore);
    REQUIRE(ignored);
    CHECK(ignored->ignored_count == 64);
    CHECK(ignored->total_weight == 0);
    Overrides cap;
    cap.soft_cap = 0;
    CHECK(resolve(inputs.metadata, cap).error().kind == ErrorKind::bad_input);
    CHECK(resolve({}, {}).error().kind == ErrorKind::bad_input);
}

TEST_CASE("linear-ce: a row that is not finite is named") {
    TensorFile inputs = make_inputs(*find_case("unit_normal"));
    std::vector<double> x = to_f64(tensor(inputs, "x"));
    x[7 * 32 + 3] = std::numeric_limits<double>::quiet_NaN();
    tensor(inputs, "x") = from_f64(x, {64, 32}, DType::f32);
    const auto problem = read(inputs);
    REQUIRE(problem);
    CHECK(problem->unstable_reason == "row 7 of x is not finite");
    const auto report = compare(*problem, inputs, {});
    REQUIRE(report);
    CHECK(report->verdict == Verdict::unstable_input);
}

TEST_CASE("linear-ce: a small loss under a large logsumexp passes, and one that is off by more does not") {
    TensorFile inputs = make_inputs(*find_case("huge_30"));
    const auto drawn = read(inputs);
    REQUIRE(drawn);
    tensor(inputs, "labels") = from_i64(truth_of_rows(*drawn, all_of(drawn->batch), false, {}).argmax,
                                        {static_cast<std::int64_t>(drawn->batch)});
    const auto problem = read(inputs);
    REQUIRE(problem);
    TensorFile dump = kernel_outputs(*problem, {});
    std::vector<double> loss = to_f64(tensor(dump, "loss"));
    const std::vector<double> lse = to_f64(tensor(dump, "lse"));
    CHECK(std::abs(loss[0]) < 1e-3 * lse[0]);
    CHECK(compare(*problem, dump, {})->verdict == Verdict::ok);
    const auto shifted = [&](double of_lse) {
        std::vector<double> values = loss;
        values[0] += of_lse * lse[0];
        tensor(dump, "loss") = from_f64(values, {static_cast<std::int64_t>(values.size())}, DType::f32);
        CompareOptions exact;
        exact.level = Level::exact;
        return compare(*problem, dump, exact)->verdict;
    };
    CHECK(shifted(0.9e-5) == Verdict::ok);
    CHECK(shifted(1.5e-5) == Verdict::wrong);
}

TEST_CASE("linear-ce: nothing to compare is no pass, a missing gradient is said") {
    const TensorFile inputs = make_inputs(*find_case("unit_normal"));
    const auto problem = read(inputs);
    REQUIRE(problem);
    CHECK(compare(*problem, TensorFile{}, {})->verdict == Verdict::no_data);
    TensorFile forward = kernel_outputs(*problem, {});
    std::erase_if(forward.tensors, [](const NamedTensor& t) { return t.name == "gx" || t.name == "gw"; });
    const auto report = compare(*problem, forward, {});
    CHECK(report->verdict == Verdict::ok);
    CHECK(report->forward_only);
    CompareOptions invariants;
    invariants.level = Level::invariants;
    CHECK(compare(*problem, forward, invariants)->verdict == Verdict::no_data);
}

TEST_CASE("linear-ce: the backward's own cotangents stand in for reduction, weight and penalty") {
    TensorFile inputs = make_inputs(*find_case("cap_penalty_weights"));
    inputs.tensors.push_back({"d_loss", from_f64(std::vector<double>(64, 0.5), {64}, DType::f32)});
    inputs.tensors.push_back({"d_lse", from_f64(std::vector<double>(64, -0.25), {64}, DType::f32)});
    const auto problem = read(inputs);
    REQUIRE(problem);
    CHECK(problem->own_cotangents);
    const auto report = compare(*problem, kernel_outputs(*problem, {}), {});
    CHECK(report->verdict == Verdict::ok);
    for (const CheckReport& c : report->checks) CHECK((c.verdict == "OK" || c.name == "I2"));
}

}  // namespace gdnctl::oracle::linear_ce
