// Verdicts on real dumps, on spoilt ones, and on inputs that cannot be judged.
#include "oracle/linear_ce/judge/compare.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>

#include <doctest/doctest.h>

#include "oracle/linear_ce/judge/cases.h"
#include "oracle/linear_ce/judge/diagnose.h"
#include "oracle/linear_ce/judge/truth.h"
#include "oracle/tensor/formats.h"
#include "unit/oracle/mutants/linear_ce_mutants.h"

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

TEST_CASE("mutants: linear-ce catches every mutant and flags no correct variant") {
    const MutantReport report = run_mutant_set({2, {}});
    MESSAGE("caught ", report.caught, ", right stage ", report.right_stage, " of ", report.mutants, "; false alarms ",
            report.false_alarms, " of ", report.variants);
    for (const MutantFinding& f : report.findings)
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

// Roundings that kernels do: declared ones are OK, others are named; storage in 16 bits widens only what it touches.

namespace {

TensorFile recorded(const std::string& name) {
    const auto path = std::filesystem::path(GDNCTL_FIXTURES) / "linear_ce" / "judged" / (name + ".safetensors");
    std::ifstream in(path, std::ios::binary);
    const std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
    auto file = parse_safetensors(bytes, path.string());
    REQUIRE(file);
    return std::move(*file);
}

Problem problem_under(const TensorFile& inputs, const std::vector<std::string>& sets) {
    Overrides overrides;
    for (const std::string& set : sets) REQUIRE(set_field(set, overrides));
    auto contract = resolve(inputs.metadata, overrides);
    REQUIRE(contract);
    auto problem = read_problem(inputs, std::move(*contract));
    REQUIRE(problem);
    return std::move(*problem);
}

Report judged_under(const TensorFile& inputs, const TensorFile& dump, const std::vector<std::string>& sets,
                    Level level = Level::sampled) {
    CompareOptions options;
    options.level = level;
    const auto report = compare(problem_under(inputs, sets), dump, options);
    REQUIRE(report);
    return *report;
}

Tensor& tensor_of(TensorFile& file, std::string_view name) {
    for (NamedTensor& entry : file.tensors) {
        if (entry.name == name) return entry.tensor;
    }
    REQUIRE_MESSAGE(false, "no such tensor");
    return file.tensors.front().tensor;
}

void scale(Tensor& tensor, double by) {
    std::vector<double> values = to_f64(tensor);
    for (double& x : values) x *= by;
    tensor = from_f64(values, tensor.shape, tensor.dtype);
}

}  // namespace

TEST_CASE("linear-ce: logits rounded to bf16 are named, and OK once declared, with gradients of either logits") {
    const TensorFile inputs = recorded("ce_bf16_huge.inputs");
    for (const char* kernel : {"liger", "lev_batched_xla"}) {
        CAPTURE(kernel);
        TensorFile dump = recorded(std::string("ce_bf16_huge.") + kernel + ".outputs");
        for (const Level level : {Level::exact, Level::sampled}) {
            const Report undeclared = judged_under(inputs, dump, {}, level);
            CHECK(undeclared.verdict == Verdict::wrong);
            CHECK(undeclared.stage == "rounding");
            CHECK(undeclared.declare == std::vector<std::string>{"--set", "logits=bf16"});
            REQUIRE(undeclared.hints.size() == 1);
            CHECK(undeclared.hints[0].text == "the logits are rounded to bf16 (declare it: --set logits=bf16)");
            const Report declared = judged_under(inputs, dump, {"logits=bf16"}, level);
            CHECK_MESSAGE(declared.verdict == Verdict::ok, declared.reason);
            CHECK(declared.declare.empty());
        }
        // 8 % of a gradient is more than the roundings of either form.
        scale(tensor_of(dump, "gx"), 1.08);
        CHECK(judged_under(inputs, dump, {"logits=bf16"}).verdict == Verdict::wrong);
        CHECK(judged_under(inputs, dump, {}).declare.empty());
    }
}

TEST_CASE("linear-ce: a kernel with exact logits is not OK where rounded ones are declared") {
    const TensorFile inputs = make_inputs(*find_case("unit_normal"));
    const TensorFile dump = kernel_outputs(problem_under(inputs, {}), {});
    CHECK(judged_under(inputs, dump, {}).verdict == Verdict::ok);
    CHECK(judged_under(inputs, dump, {"logits=bf16"}).verdict == Verdict::wrong);
    CHECK(judged_under(inputs, dump, {"matmul=tf32"}).verdict == Verdict::wrong);
}

TEST_CASE("linear-ce: only the label's products rounded, as cut-cross-entropy does, is a form of rounded logits") {
    const TensorFile inputs = make_inputs(*find_case("unit_normal"));
    const Problem problem = problem_under(inputs, {});
    TensorFile dump = kernel_outputs(problem, {});
    std::vector<double> loss = to_f64(tensor_of(dump, "lse"));
    for (std::size_t i = 0; i < loss.size(); ++i) loss[i] -= label_products_of(problem, i);
    tensor_of(dump, "loss") = from_f64(loss, {static_cast<std::int64_t>(loss.size())}, DType::f32);
    std::erase_if(dump.tensors, [](const NamedTensor& t) { return t.name == "reduced"; });
    const Report report = judged_under(inputs, dump, {});
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "rounding");
    CHECK(judged_under(inputs, dump, {"logits=bf16"}).verdict == Verdict::ok);
}

TEST_CASE("linear-ce: operands rounded to tf32 are named, and OK once declared") {
    for (const char* name : {"unit_normal", "huge_30", "cap_penalty_weights"}) {
        CAPTURE(name);
        const TensorFile inputs = make_inputs(*find_case(name));
        const Problem tf32 = problem_under(inputs, {"matmul=tf32"});
        TensorFile dump = kernel_outputs(tf32, {});
        CHECK(judged_under(inputs, dump, {"matmul=tf32"}).verdict == Verdict::ok);
        const Report undeclared = judged_under(inputs, dump, {});
        CHECK(undeclared.verdict == Verdict::wrong);
        CHECK(undeclared.stage == "rounding");
        CHECK(undeclared.declare == std::vector<std::string>{"--set", "matmul=tf32"});
        scale(tensor_of(dump, "gw"), 1.01);
        CHECK(judged_under(inputs, dump, {"matmul=tf32"}).verdict == Verdict::wrong);
        CHECK(judged_under(inputs, dump, {}).declare.empty());
    }
}

TEST_CASE("linear-ce: a forward in tf32 is named, whatever its backward does") {
    const TensorFile inputs = make_inputs(*find_case("unit_normal"));
    const TensorFile exact = kernel_outputs(problem_under(inputs, {}), {});
    TensorFile forward = kernel_outputs(problem_under(inputs, {"matmul=tf32"}), {});
    for (const char* name : {"gx", "gw"}) tensor_of(forward, name) = *exact.find(name);
    const Report report = judged_under(inputs, forward, {});
    CHECK(report.stage == "rounding");
    CHECK(report.declare == std::vector<std::string>{"--set", "matmul=tf32"});
}

TEST_CASE("linear-ce: the backward's operands in bf16 are named where the forward is exact") {
    TensorFile inputs = make_inputs(*find_case("small_logits"));
    const Problem problem = problem_under(inputs, {});
    TensorFile dump = kernel_outputs(problem, {});
    // x^T bf16(delta) with x in bf16: what gw of a TPU has, under exact logits.
    const std::vector<double> x = rounded(to_f64(tensor_of(inputs, "x")));
    std::vector<double> gw(problem.w.count(), 0.0);
    for (std::size_t b = 0; b < problem.batch; ++b) {
        const std::vector<double> z = logits_of(problem, b, 0, problem.vocab);
        const double lse = logsumexp(z);
        for (std::size_t v = 0; v < problem.vocab; ++v) {
            const double hot = problem.labels[b] == static_cast<std::int64_t>(v) ? 1 : 0;
            const double delta = to_bf16(problem.d_loss[b] * (std::exp(z[v] - lse) - hot));
            for (std::size_t h = 0; h < problem.hidden; ++h) {
                gw[problem.c().layout == Layout::hv ? h * problem.vocab + v : v * problem.hidden + h] +=
                    delta * x[b * problem.hidden + h];
            }
        }
    }
    tensor_of(dump, "gw") = from_f64(gw, problem.w.shape, DType::f32);
    const Report report = judged_under(inputs, dump, {}, Level::exact);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stages == std::vector<std::string>{"rounding", "gw"});
    REQUIRE(report.hints.size() == 1);
    CHECK(report.hints[0].text == "matches if the operands of the gradients' products are rounded to bf16");
}

TEST_CASE("linear-ce: loss or lse stored in bf16 is no fault of what is derived from them") {
    for (const char* name : {"ce_bf16_loss", "ce_bf16_lse"}) {
        CAPTURE(name);
        for (const Level level : {Level::exact, Level::sampled}) {
            const Report report = judged_under(recorded(std::string(name) + ".inputs"),
                                               recorded(std::string(name) + ".outputs"), {}, level);
            CHECK_MESSAGE(report.verdict == Verdict::ok, report.reason);
        }
    }
    // All of it is still compared.
    const TensorFile inputs = recorded("ce_bf16_lse.inputs");
    for (const char* name : {"reduced", "gw", "gx"}) {
        TensorFile dump = recorded("ce_bf16_lse.outputs");
        scale(tensor_of(dump, name), std::string_view(name) == "reduced" ? 1.2 : 1.01);
        CHECK_MESSAGE(judged_under(inputs, dump, {}).verdict == Verdict::wrong, name);
    }
}

TEST_CASE("linear-ce: gradients stored in bf16 of fp32 inputs may be off by their storage, not by 4 %") {
    const TensorFile inputs = recorded("ce_gradient_stored_bf16_off_by_4_percent.inputs");
    TensorFile dump = recorded("ce_gradient_stored_bf16_off_by_4_percent.outputs");
    CHECK(judged_under(inputs, dump, {}, Level::exact).verdict == Verdict::wrong);
    const TensorFile exact = kernel_outputs(problem_under(inputs, {}), {});
    for (const DType narrow : {DType::bf16, DType::f16}) {
        for (const char* name : {"gx", "gw"}) {
            const Tensor* right = exact.find(name);
            tensor_of(dump, name) = from_f64(to_f64(*right), right->shape, narrow);
        }
        const Report report = judged_under(inputs, dump, {}, Level::exact);
        CHECK_MESSAGE(report.verdict == Verdict::ok, report.reason);
    }
}

TEST_CASE("linear-ce: ignored rows have no gradient, whatever d_loss and d_lse say there") {
    TensorFile inputs = make_inputs(*find_case("unit_normal"));
    const std::vector<double> ones(64, 1);
    inputs.tensors.push_back({"d_loss", from_f64(ones, {64}, DType::f32)});
    inputs.tensors.push_back({"d_lse", from_f64(ones, {64}, DType::f32)});
    std::vector<std::int64_t> labels = to_i64(tensor_of(inputs, "labels"));
    labels[3] = labels[40] = -100;
    tensor_of(inputs, "labels") = from_i64(labels, {64});
    Overrides ignore;
    ignore.ignore_index = -100;
    const auto contract = resolve(inputs.metadata, ignore);
    const auto problem = read_problem(inputs, *contract);
    REQUIRE(problem);
    CHECK(problem->d_loss[3] == 0);
    CHECK((*problem->d_lse)[40] == 0);
    CHECK(problem->d_loss[4] == 1);
    TensorFile dump = kernel_outputs(*problem, {});
    CHECK(compare(*problem, dump, {})->verdict == Verdict::ok);
    std::vector<double> gx = to_f64(tensor_of(dump, "gx"));
    gx[3 * 32] = 0.5;
    tensor_of(dump, "gx") = from_f64(gx, {64, 32}, DType::f32);
    CHECK(compare(*problem, dump, {})->verdict == Verdict::wrong);
}

TEST_CASE("linear-ce: a gradient that is wrong widens no invariant, and what is shown is what failed") {
    const TensorFile inputs = make_inputs(*find_case("bf16"));
    const Problem problem = problem_under(inputs, {});
    TensorFile dump = kernel_outputs(problem, {});
    scale(tensor_of(dump, "gx"), 1.4);
    const Report wrong = judged_under(inputs, dump, {});
    CHECK(wrong.verdict == Verdict::wrong);
    REQUIRE(wrong.worst);
    CHECK(wrong.worst->tensor == "gx");
    CHECK(wrong.reason.starts_with("gx is "));
    for (const CheckReport& c : wrong.checks) {
        if (c.name != "I1") continue;
        CHECK(c.verdict == "WRONG");
        CHECK(c.limit < 0.01);
    }
}

TEST_CASE("linear-ce: an invariant that fails alone shows its two sums") {
    const TensorFile inputs = make_inputs(*find_case("unit_normal"));
    TensorFile dump = kernel_outputs(problem_under(inputs, {}), {});
    scale(tensor_of(dump, "gw"), 1.2);
    CompareOptions options;
    options.level = Level::invariants;
    const auto report = compare(problem_under(inputs, {}), dump, options);
    REQUIRE(report);
    CHECK(report->verdict == Verdict::wrong);
    REQUIRE(report->worst);
    CHECK(report->worst->tensor == "I1");
    CHECK(std::fabs(report->worst->want / report->worst->got - 1.2) < 1e-3);
}

// Which check sees which defect, and by how much an unmasked tail is off.

namespace {

Result<Problem> problem_from(const TensorFile& inputs) {
    GDNCTL_TRY_ASSIGN(auto contract, resolve(inputs.metadata, {}));
    return read_problem(inputs, std::move(contract));
}

Report judged(const Problem& problem, const TensorFile& dump) {
    CompareOptions options;
    options.level = Level::exact;
    const auto report = compare(problem, dump, options);
    REQUIRE(report);
    return *report;
}

Tensor* tensor_in(TensorFile& file, std::string_view name) {
    for (NamedTensor& entry : file.tensors) {
        if (entry.name == name) return &entry.tensor;
    }
    return nullptr;
}

}  // namespace

TEST_CASE("linear-ce: each check sees what it can see, and is blind to the rest") {
    constexpr const char* k_sees = "WRONG";
    constexpr const char* k_blind = "OK";
    constexpr const char* k_none = "not_run";
    const struct {
        Fault fault;
        const char* on;
        const char *rows, *columns, *I1, *I2;
    } matrix[] = {
        {Fault::log_cap, "soft_cap", k_sees, k_sees, k_blind, k_none},
        {Fault::cap_derivative_missing, "soft_cap", k_sees, k_sees, k_blind, k_none},
        {Fault::log_penalty, "penalty", k_sees, k_sees, k_blind, k_sees},
        {Fault::tail_counted, "small_logits", k_sees, k_sees, k_blind, k_sees},
        {Fault::lse_in_bf16, "small_logits", k_sees, k_sees, k_blind, k_sees},
        // Rows that sum to 1 over the columns that are left hide it from I2.
        {Fault::last_block_dropped, "small_logits_blocks", k_sees, k_sees, k_blind, k_blind},
        {Fault::last_block_dropped_in_gx, "small_logits_blocks", k_sees, k_blind, k_sees, k_blind},
        {Fault::last_block_dropped_in_gw, "small_logits_blocks", k_blind, k_sees, k_sees, k_sees},
        {Fault::gx_hidden_block_lost, "unit_normal", k_sees, k_blind, k_sees, k_blind},
        {Fault::gw_half_lost, "unit_normal", k_blind, k_sees, k_sees, k_blind},
        {Fault::penalty_not_weighted, "penalty_weights", k_sees, k_sees, k_blind, k_sees},
        {Fault::penalty_without_two, "penalty_weights", k_sees, k_sees, k_blind, k_sees},
        {Fault::argmax_last_tie, "identity_136", k_sees, k_blind, k_blind, k_blind},
    };
    for (const auto& row : matrix) {
        const auto problem = problem_from(make_inputs(*find_case(row.on)));
        REQUIRE(problem);
        const Report report = judged(*problem, spoilt_outputs(*problem, row.fault, 1, {}));
        CHECK(report.verdict == Verdict::wrong);
        std::map<std::string, std::string> got;
        for (const CheckReport& c : report.checks) got[c.name] = c.verdict;
        const std::map<std::string, std::string> want = {
            {"rows", row.rows}, {"columns", row.columns}, {"I1", row.I1}, {"I2", row.I2}};
        for (const auto& [name, verdict] : want) {
            CHECK_MESSAGE(got[name] == verdict, row.on << ", fault " << static_cast<int>(row.fault) << ", " << name);
        }
    }
}

TEST_CASE("linear-ce: an unmasked tail at equal logits is off by log1p(P / V), and is named") {
    const auto problem = problem_from(make_inputs(*find_case("equal_logits")));
    REQUIRE(problem);
    const TensorFile right = kernel_outputs(*problem, {});
    CHECK(std::fabs(element(*right.find("lse"), 0) - 4.867534450455582) < 1e-6);
    TensorFile wrong = right;
    for (const char* name : {"loss", "lse"}) {
        std::vector<double> values = to_f64(*tensor_in(wrong, name));
        for (double& x : values) x += 0.677642994024;
        *tensor_in(wrong, name) = from_f64(values, {16}, DType::f32);
    }
    const Report report = judged(*problem, wrong);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "tail");
    const struct {
        double pad, off;
    } at_128256[] = {{256, 0.001994018607}, {768, 0.005970166987}, {2816, 0.021718523955}};
    for (const auto& row : at_128256) CHECK(std::fabs(std::log1p(row.pad / 128256) - row.off) < 1e-12);
}

TEST_CASE("linear-ce: a label below 0, and a weight of 0 on a row that is not finite") {
    TensorFile inputs = make_inputs(*find_case("zero_weights"));
    std::vector<std::int64_t> labels(64, 5);
    labels[17] = -1;
    *tensor_in(inputs, "labels") = from_i64(labels, {64});
    const auto refused = problem_from(inputs);
    REQUIRE(!refused);
    CHECK(refused.error().message == "labels[17] = -1 is outside [0, 130)");
    labels[17] = 5;
    *tensor_in(inputs, "labels") = from_i64(labels, {64});
    std::vector<double> x = to_f64(*tensor_in(inputs, "x"));
    x[4 * 32] = std::numeric_limits<double>::infinity();  // row 4 has weight 0
    *tensor_in(inputs, "x") = from_f64(x, {64, 32}, DType::f32);
    const auto problem = problem_from(inputs);
    REQUIRE(problem);
    CHECK(problem->weight[4] == 0);
    CHECK(problem->unstable_reason == "row 4 of x is not finite");
}

}  // namespace gdnctl::oracle::linear_ce
