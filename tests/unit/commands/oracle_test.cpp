// The smallest operator of the oracle: y[r] = scale * sum_i x[r,i]. It shows what an operator has to say for itself.
#include <cmath>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command_world.h"
#include "commands/oracle/operators.h"
#include "commands/oracle/plain.h"
#include "commands/oracle/verbs.h"
#include "core/config.h"
#include "core/json.h"
#include "core/text.h"
#include "harness/files.h"
#include "harness/plain/operator.h"
#include "oracle/tensor/random.h"
#include "oracle/tensor/tensor.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "services/local/store.h"
#include "support/fake_env.h"
#include "support/fake_http.h"
#include "support/fake_process.h"
#include "support/fake_terminal.h"
#include "support/temp_dir.h"

namespace gdnctl::test {

namespace {

using oracle::TensorFile;

class ScaledSum final : public harness::Problem {
public:
    ScaledSum(const TensorFile& inputs, double scale)
        : m_inputs(inputs), m_shape(inputs.find("x")->shape), m_x(oracle::to_f64(*inputs.find("x"))), m_scale(scale) {}

    // `scale`: another one, of a kernel that is wrong.
    TensorFile sums(double scale) const {
        std::vector<double> y(static_cast<std::size_t>(m_shape[0]));
        for (std::size_t i = 0; i < m_x.size(); ++i) y[i / width()] += scale * m_x[i];
        return {{{"y", oracle::from_f64(y, {m_shape[0]}, oracle::DType::f32)}}, {}, {}, {}};
    }
    double scale() const { return m_scale; }
    double flop(std::size_t /*pass*/) const override { return static_cast<double>(m_x.size()); }
    TensorFile file() const override { return m_inputs; }

    // A sum of n terms in fp32 is within n eps of the sum of their sizes.
    Result<harness::Judgement> judge(const TensorFile& outputs, const harness::Judging& /*how*/) override {
        const oracle::Tensor* y = outputs.find("y");
        if (y == nullptr) return harness::Judgement{.reason = "y is not in the dump"};
        if (y->shape != oracle::Shape{m_shape[0]}) return fail(ErrorKind::bad_input, "y has another shape");
        harness::Judgement j{.verdict = oracle::Verdict::ok};
        for (std::size_t row = 0; row < y->count(); ++row) {
            double want = 0, size = 0;
            for (std::size_t i = 0; i < width(); ++i) {
                want += m_scale * m_x[row * width() + i];
                size += std::abs(m_scale * m_x[row * width() + i]);
            }
            const double got = oracle::element(*y, row);
            const double error = std::abs(got - want) / (static_cast<double>(width()) * size * 0x1p-24);
            if (error <= j.error) continue;
            j.error = error;
            j.worst = oracle::Worst{"y", "r", {static_cast<std::int64_t>(row)}, got, want};
        }
        if (j.error > 1) {
            j.verdict = oracle::Verdict::wrong;
            j.reason = fmt::format("y is off by {:.2g} times what rounding explains", j.error);
        }
        return j;
    }

private:
    std::size_t width() const { return static_cast<std::size_t>(m_shape[1]); }

    const TensorFile& m_inputs;
    oracle::Shape m_shape;
    std::vector<double> m_x;
    double m_scale;
};

class ToyOperator final : public harness::PlainOperator {
public:
    std::string_view name() const override { return "scaled-sum"; }

    harness::CaseList cases() const override {
        return {"R,N",
                8,
                {{"short", "sizes", "three terms", "2,3", {}, {}}, {"long", "sizes", "many terms", "5,1000", {}, {}}}};
    }

    TensorFile inputs(std::string_view case_name, std::optional<std::uint64_t> seed, bool bf16) const override {
        const oracle::Shape shape = case_name == "short" ? oracle::Shape{2, 3} : oracle::Shape{5, 1000};
        oracle::Random random(seed.value_or(1), 1);
        std::vector<double> x(oracle::element_count(shape).value_or(0));
        for (double& value : x) value = random.normal();
        const auto dtype = bf16 ? oracle::DType::bf16 : oracle::DType::f32;
        return {{{"x", oracle::from_f64(x, shape, dtype)}}, {}, {{"op", "scaled-sum"}, {"scale", "0.5"}}, {}};
    }

    Result<std::unique_ptr<harness::Problem>> read(const TensorFile& inputs) const override {
        const oracle::Tensor* x = inputs.find("x");
        const auto scale = inputs.metadata.find("scale");
        if (x == nullptr || x->shape.size() != 2 || scale == inputs.metadata.end()) {
            return fail(ErrorKind::bad_input, "scaled-sum needs x [R,N], and its scale as metadata");
        }
        return std::make_unique<ScaledSum>(inputs, std::stod(scale->second));
    }

    std::span<const std::string_view> passes() const override {
        static constexpr std::string_view k_passes[] = {"forward"};
        return k_passes;
    }

    Result<std::unique_ptr<harness::Kernel>> open(const std::string& spelling, const harness::Opening& how,
                                                  const Context& context) const override {
        if (spelling.starts_with("cmd:")) return harness::open_foreign(spelling, {}, how.limits, context);
        if (spelling != "builtin:fused" && spelling != "builtin:unscaled") {
            return fail(ErrorKind::usage, fmt::format("unknown kernel '{}'", spelling));
        }
        return std::make_unique<harness::OwnKernel>([scaled = spelling == "builtin:fused"](const harness::Asked& a) {
            const auto& problem = static_cast<const ScaledSum&>(a.inputs);
            return problem.sums(scaled ? problem.scale() : 1);
        });
    }
};

inline const harness::PlainOperator& toy() {
    static const ToyOperator k_toy;
    return k_toy;
}

inline constexpr commands::Operator k_toy_row = {.name = "scaled-sum",
                                                 .what = "a toy",
                                                 .plain = &toy,
                                                 .cases = {&commands::oracle_plain::cases},
                                                 .read = &commands::oracle_plain::read,
                                                 .compare = {&commands::oracle_plain::compare},
                                                 .verify = {&commands::oracle_plain::verify},
                                                 .bench = {&commands::oracle_plain::bench}};

}  // namespace

}  // namespace gdnctl::test

namespace gdnctl {

// The verbs of the oracle for an operator that the program does not know: a row in its table is all that it takes.

namespace {

constexpr const commands::Operator* k_rows[] = {&test::k_toy_row};

struct World {
    test::FakeEnv env;
    test::FakeTerminal terminal;
    Config config;
    test::FakeProcess process;
    test::FakeHttp http;
    test::TempDir folder;
    Context context{env, system_clock(), terminal,      config,   process, http,
                    {},  folder.path(),  folder.path(), "gdnctl", {}};

    Json json() const { return parse_json(terminal.out_text, "output").value(); }
    bool printed(std::string_view text) const { return terminal.out_text.find(text) != std::string::npos; }
};

template <class Options>
Options of_toy() {
    Options options;
    options.operators = k_rows;
    options.op = "scaled-sum";
    return options;
}

}  // namespace

TEST_CASE("an operator's cases are listed for people and for programs") {
    World world;
    const auto options = of_toy<commands::oracle_cases::Options>();
    CHECK(commands::oracle_cases::run(options, world.context).value() == ExitCode::ok);
    CHECK(world.printed(
        "sizes                      R,N      special\n  short                    2,3      three terms\n"));
    world.terminal.out_text.clear();
    world.context.global.json = true;
    CHECK(commands::oracle_cases::run(options, world.context).value() == ExitCode::ok);
    CHECK(world.json()["op"] == "scaled-sum");
    CHECK(world.json()["cases"].size() == 2);
    CHECK(world.json()["cases"][1]["name"] == "long");
}

TEST_CASE("compare judges a dump of an operator from a test") {
    World world;
    oracle::TensorFile inputs = test::toy().inputs("long", {}, false);
    const auto problem = test::toy().read(inputs).value();
    const auto& sums = static_cast<const test::ScaledSum&>(*problem);
    REQUIRE(oracle_files::write(world.context, "in.safetensors", inputs));
    REQUIRE(oracle_files::write(world.context, "right.safetensors", sums.sums(0.5)));
    REQUIRE(oracle_files::write(world.context, "wrong.safetensors", sums.sums(0.75)));
    auto options = of_toy<commands::oracle_compare::Options>();
    options.inputs = {"in.safetensors"};
    options.outputs = {"right.safetensors"};
    CHECK(commands::oracle_compare::run(options, world.context).value() == ExitCode::ok);
    CHECK(world.printed("verdict: OK\n"));
    world.terminal.out_text.clear();
    world.context.global.json = true;
    options.outputs = {"wrong.safetensors"};
    CHECK(commands::oracle_compare::run(options, world.context).value() == ExitCode::check_failed);
    CHECK(world.json()["verdict"] == "WRONG");
    CHECK(world.json()["worst"]["tensor"] == "y");
    CHECK(world.json()["error_over_budget"] > 1);
    options.html = "page.html";
    CHECK(commands::oracle_compare::run(options, world.context).value() == ExitCode::check_failed);
    const std::string page = read_file(world.folder.path() / "page.html", {1 << 20, ErrorKind::usage}).value();
    CHECK(page.find("<h1>scaled-sum: <span class=WRONG>WRONG</span></h1>") != std::string::npos);
    CHECK(page.find("<code>y[r=") != std::string::npos);
}

TEST_CASE("compare says what of a file an operator cannot use") {
    World world;
    REQUIRE(oracle_files::write(world.context, "in.safetensors", test::toy().inputs("short", {}, false)));
    auto options = of_toy<commands::oracle_compare::Options>();
    options.outputs = options.inputs = {"in.safetensors"};
    CHECK(commands::oracle_compare::run(options, world.context).value() == ExitCode::bad_input);
    CHECK(world.printed("verdict: NO_DATA: y is not in the dump\n"));
    REQUIRE(oracle_files::write(world.context, "none.safetensors", {}));
    options.inputs = {"none.safetensors"};
    CHECK(commands::oracle_compare::run(options, world.context).error().kind == ErrorKind::bad_input);
}

TEST_CASE("verify runs an operator's cases and tells a wrong kernel from a right one") {
    World world;
    auto options = of_toy<commands::oracle_verify::Options>();
    options.kernel = "builtin:fused";
    CHECK(commands::oracle_verify::run(options, world.context).value() == ExitCode::ok);
    CHECK(world.printed("verdict: OK (2 cases)\n"));
    world.terminal.out_text.clear();
    world.context.global.json = true;
    options.kernel = "builtin:unscaled";
    options.cases = {"short"};
    CHECK(commands::oracle_verify::run(options, world.context).value() == ExitCode::check_failed);
    CHECK(world.json()["verdict"] == "WRONG");
    CHECK(world.json()["cases"] == 1);
    CHECK(world.json()["items"][0]["worst"]["tensor"] == "y");
    options.cases = {"shirt"};
    const auto unknown = commands::oracle_verify::run(options, world.context);
    REQUIRE(!unknown);
    CHECK(unknown.error().kind == ErrorKind::usage);
    CHECK(unknown.error().hint == "did you mean 'short'?");
}

TEST_CASE("bench times an operator's kernels, and gives none to a wrong one") {
    World world;
    world.context.global.json = true;
    auto options = of_toy<commands::oracle_bench::Options>();
    options.rounds = 2;
    options.runs = 1;
    options.threads = 1;
    options.peers = {"builtin:unscaled"};
    CHECK(commands::oracle_bench::run(options, world.context).value() == ExitCode::ok);
    const Json report = world.json();
    CHECK(report["op"] == "scaled-sum");
    CHECK(report["forward"]["verified"] == true);
    CHECK(report["forward"]["median_ms"] > 0);
    CHECK(report["nominal_gflop"]["forward"] == doctest::Approx(5e-6));
    CHECK(report["peers"][0]["forward"]["verified"] == false);
    CHECK(report["peers"][0]["forward"]["median_ms"].is_null());
}

TEST_CASE("a command offers the operators that have something for it") {
    auto options = of_toy<commands::oracle_cases::Options>();
    cli::Args args;
    commands::oracle_cases::describe(args, options);
    REQUIRE(args.positionals().size() == 1);
    CHECK(args.positionals()[0].choices == std::vector<std::string>{"scaled-sum"});
    CHECK(args.positionals()[0].help == "the operator: a toy");
    const auto ours = commands::operators();
    CHECK(commands::find_operator(ours, "gdn-layer", &commands::Operator::compare) != nullptr);
    CHECK(commands::find_operator(ours, "gdn-layer", &commands::Operator::verify) == nullptr);
    CHECK(commands::find_operator(k_rows, "scaled-sum", &commands::Operator::run) == nullptr);
    CHECK(commands::operators_help(ours.first(2)) ==
          "the operator: Gated DeltaNet or its layer (convolution, gates, norm)");
}

TEST_CASE("a row refuses the options that say nothing about its operator") {
    commands::oracle_compare::Options compare;
    compare.op = "linear-ce";
    compare.heatmap = true;
    CHECK(!check_operator(compare, &commands::Operator::compare));
    compare.op = "gdn";
    CHECK(check_operator(compare, &commands::Operator::compare));
    commands::oracle_run::Options run;
    run.op = "gdn";
    run.parts = true;
    CHECK(!check_operator(run, &commands::Operator::run));
    run.op = "gdn-layer";
    CHECK(!check_operator(run, &commands::Operator::run));
    run.shape = "1,2,4,5,4,4";
    CHECK(check_operator(run, &commands::Operator::run));
}

}  // namespace gdnctl

namespace gdnctl::commands {

// The verbs of the oracle by their words: what they refuse, what they write, and what they say of right and of wrong.

namespace {

using test::CommandWorld;

// The tensor of that name in a file, off by one in its first element.
void spoil(CommandWorld& world, const std::string& from, const std::string& to, std::string_view name) {
    oracle::TensorFile file = oracle_files::read(world.context, {from}, {}).value();
    for (oracle::NamedTensor& one : file.tensors) {
        if (one.name != name) continue;
        std::vector<double> values = oracle::to_f64(one.tensor);
        values.front() += 1;
        one.tensor = oracle::from_f64(values, one.tensor.shape, one.tensor.dtype);
    }
    REQUIRE(oracle_files::write(world.context, to, file));
}

}  // namespace

TEST_CASE("commands of the oracle: what is refused before anything is computed") {
    CommandWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {k_oracle_cases_row, {"gdm"}, 2, "did you mean `gdn`?"},
        {k_oracle_cases_row, {"gdn-layer"}, 2, "OP"},
        {k_oracle_run_row, {"gdn"}, 2, "--out is required"},
        {k_oracle_run_row, {"gdn", "--out", "a.txt", "--shape", "1,1,1,3,4,4"}, 2, "a.txt"},
        {k_oracle_run_row, {"gdn", "--out", "a.npz", "--shape", "1,1"}, 2, "expected B,Hk,Hv,T,dk,dv"},
        {k_oracle_run_row, {"gdn", "--out", "a.npz", "--case", "g2", "--shape", "1,1,1,3,4,4"}, 2, "--"},
        {k_oracle_run_row, {"gdn-layer", "--out", "a.npz", "--case", "g1"}, 2, "only for the operator"},
        {k_oracle_compare_row, {"gdn"}, 2, "--inputs is required"},
        {k_oracle_compare_row, {"gdn", "--inputs", "a.npz", "--outputs", "b.npz"}, 2, "cannot read"},
        {k_oracle_compare_row, {"gdn", "--inputs", "a", "--outputs", "b", "--rtol", "1"}, 2, "given together"},
        {k_oracle_compare_row, {"linear-ce", "--inputs", "a", "--outputs", "b", "--heatmap"}, 2, "--heatmap"},
        {k_oracle_verify_row, {"gdn"}, 2, "--kernel is required"},
        {k_oracle_verify_row, {"gdn", "--kernel", "builtin:none"}, 2, "unknown kernel 'builtin:none'"},
        {k_oracle_verify_row, {"gdn", "--kernel", "src:none.c"}, 2, "none.c"},
        {k_oracle_verify_row, {"linear-ce", "--kernel", "builtin:fused", "--slow"}, 2, "linear-ce does not support"},
        {k_oracle_verify_row, {"gdn", "--kernel", "builtin:fused", "--case", "g11"}, 2, "unknown case 'g11'"},
        {k_oracle_bench_row, {"gdn", "--rounds", "0"}, 2, "at least 1"},
        {k_oracle_bench_row, {"gdn", "--kernel", "builtin:none"}, 2, "builtin:none"},
        {k_oracle_bench_row, {"linear-ce", "--phases"}, 2, "linear-ce does not support"},
        {k_oracle_selftest_row, {"gdn-layer"}, 2, "unknown operator 'gdn-layer'"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(test::list_names(world.context.cwd).empty());
    CHECK(world.process.calls.empty());
}

TEST_CASE("oracle run and compare: the exact result is OK, one that is off is WRONG, inputs without it are no data") {
    struct Operator {
        const char *name, *output;
        std::vector<std::string> made;
    };
    const Operator operators[] = {
        {"gdn", "out", {"--shape", "1,2,2,5,4,4", "--seed", "3", "--backward"}},
        {"gdn-layer", "out", {"--shape", "1,1,2,5,4,4"}},
        {"linear-ce", "loss", {"--case", "one_of_all"}},
    };
    for (const Operator& op : operators) {
        CAPTURE(op.name);
        CommandWorld world;
        std::vector<std::string> words = op.made;
        words.insert(words.begin(), op.name);
        words.insert(words.end(), {"--out", "all.safetensors", "--json"});
        CHECK(world.run(k_oracle_run_row, words) == 0);
        CHECK(world.json()["schema"] == "gdnctl.oracle-run/1");
        CHECK(world.json()["path"] == "all.safetensors");
        const std::vector<std::string> same = {op.name, "--inputs", "all.safetensors", "--outputs", "all.safetensors"};
        CHECK(world.run(k_oracle_compare_row, same) == 0);
        CHECK(world.printed("verdict: OK"));
        spoil(world, "all.safetensors", "off.safetensors", op.output);
        CHECK(world.run(k_oracle_compare_row,
                        {op.name, "--inputs", "all.safetensors", "--outputs", "off.safetensors", "--json"}) == 1);
        CHECK(world.json()["op"] == op.name);
        CHECK(world.json()["verdict"] == "WRONG");
        REQUIRE(oracle_files::write(world.context, "none.safetensors", {}));
        CHECK(world.run(k_oracle_compare_row,
                        {op.name, "--inputs", "all.safetensors", "--outputs", "none.safetensors"}) == 9);
        CHECK(world.run(k_oracle_compare_row,
                        {op.name, "--inputs", "none.safetensors", "--outputs", "all.safetensors"}) == 9);
    }
}

TEST_CASE("oracle cases and verify: the cases of a list, each by its name") {
    for (const auto& [op, name] : {std::pair("gdn", "t_hand"), std::pair("linear-ce", "one_row")}) {
        CAPTURE(op);
        CommandWorld world;
        CHECK(world.run(k_oracle_cases_row, {op, "--json"}) == 0);
        CHECK(world.json()["schema"] == "gdnctl.oracle-cases/1");
        const Json cases = world.json()["cases"];
        CHECK(std::any_of(cases.begin(), cases.end(), [&](const Json& one) { return one["name"] == name; }));
        const std::vector<std::string> words = {op, "--kernel", "builtin:fused", "--case", name, "--threads", "1"};
        CHECK(world.run(k_oracle_verify_row, words) == 0);
        CHECK(world.printed("verdict: OK (1 case"));
        std::vector<std::string> seeded = words;
        seeded.insert(seeded.end(), {"--seed", "7", "--json"});
        CHECK(world.run(k_oracle_verify_row, seeded) == 0);
        CHECK(world.json()["schema"] == "gdnctl.oracle-verify/1");
        CHECK(world.json()["seed"] == 7);
        CHECK(world.json()["cases"] == 1);
        CHECK(world.json()["failed"] == 0);
        world.stop.request_stop();
        CHECK(world.run(k_oracle_verify_row, words) == 130);
    }
}

TEST_CASE("oracle bench: a time for what is right, on the inputs that are named") {
    for (const auto& [op, size] : {std::pair<const char*, std::vector<std::string>>("gdn", {"--shape", "1,1,1,40,8,8"}),
                                   {"linear-ce", {"--batch", "4", "--hidden", "8", "--vocab", "16"}}}) {
        CAPTURE(op);
        CommandWorld world;
        std::vector<std::string> words = {op,       "--kernel", "builtin:fused", "--rounds", "1",
                                          "--runs", "1",        "--threads",     "1",        "--json"};
        words.insert(words.end(), size.begin(), size.end());
        CHECK(world.run(k_oracle_bench_row, words) == 0);
        CHECK(world.json()["schema"] == "gdnctl.oracle-bench/1");
        CHECK(world.json()["op"] == op);
        CHECK(world.json()["forward"]["verified"] == true);
        CHECK(world.json()["machine"]["threads"] == 1);
        world.stop.request_stop();
        CHECK(world.run(k_oracle_bench_row, words) == 130);
    }
}

TEST_CASE("oracle selftest: a stop ends it before its first fault") {
    CommandWorld world;
    world.stop.request_stop();
    CHECK(world.run(k_oracle_selftest_row, {"linear-ce"}) == 130);
    CHECK(world.run(k_oracle_selftest_row, {"gdn", "--threads", "1"}) == 130);
}

// The commands that this program starts itself with, and the one that writes its pages.

namespace {

using test::CommandWorld;
namespace fs = std::filesystem;

// The exit code of `work` in a process of its own, for commands that change the process that they run in.
template <class Work>
int in_child(const Work& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A job of the local backend that waits for its supervisor.
struct StagedJob : CommandWorld {
    local::Store store{context.state_dir / "local", clock};
    int code = 0;        // of the supervisor
    std::string answer;  // to the submitter

    explicit StagedJob(const std::string& command) {
        REQUIRE(store.create());
        fs::create_directories(store.job("j") / "work");
        local::LocalRequest request;
        request.submission_id = "j";
        request.entrypoint = command;
        test::write_text(store.file("j", "request.json"), local::to_json_text(request));
        JobDetails details;
        details.submission_id = "j";
        details.entrypoint = command;
        details.start_time = clock.wall();
        REQUIRE(store.write(details));
    }
    // As a process of its own, to which the submitter sends this.
    void supervise(const fs::path& folder, std::string_view environment) {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        REQUIRE(::write(ends[0], environment.data(), environment.size()) == static_cast<ssize_t>(environment.size()));
        shutdown(ends[0], SHUT_WR);
        code = in_child([&] {
            constexpr int k_socket = 3;  // where a supervisor looks for it
            const int far = dup(ends[1]);
            close(ends[0]);
            dup2(far, k_socket);
            return run(k_local_supervisor_row, {folder.string()});
        });
        close(ends[1]);
        char buffer[4096];
        for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
            answer.append(buffer, static_cast<std::size_t>(n));
        }
        close(ends[0]);
    }
};

// What is written to std::cout meanwhile.
class Printed {
public:
    Printed() : m_before(std::cout.rdbuf(m_text.rdbuf())) {}
    ~Printed() { std::cout.rdbuf(m_before); }
    Printed(const Printed&) = delete;
    Printed& operator=(const Printed&) = delete;
    std::string text() const { return m_text.str(); }

private:
    std::ostringstream m_text;
    std::streambuf* m_before;
};

}  // namespace

TEST_CASE("__docs: one reference of every command, or a page each, to stdout or a folder") {
    CommandWorld world;
    CHECK(world.run(k_docs_row, {"markdown"}) == 0);
    CHECK(world.printed("codex-loop"));
    CHECK(test::list_names(world.context.cwd).empty());
    const std::string reference = world.terminal.out_text;
    CHECK(world.run(k_docs_row, {"markdown", "--out", "a/b"}) == 0);
    CHECK(world.terminal.out_text.empty());
    CHECK(world.read("a/b/cli-reference.md") == reference);
    CHECK(world.run(k_docs_row, {"man", "--out", "man"}) == 0);
    CHECK(test::list_names(world.file("man")).find("gdnctl-codex-loop.1") != std::string::npos);
    world.check({k_docs_row, {"html"}, 2, "html"});
}

TEST_CASE("__dev-tpu-holder: the lease ends it, a stop ends it, a machine that is taken away ends it") {
    struct End {
        const char *preempted, *reason;
        bool stopped;
    };
    for (const End& end : {End{"FALSE", "lease", false}, End{"TRUE", "preempted", false}, End{"FALSE", "stop", true}}) {
        CAPTURE(end.reason);
        CommandWorld world;
        const std::string metadata = "http://127.0.0.1:9";
        world.env.values.insert({{"GDNCTL_HOLD_FILE", world.file("lease").string()},
                                 {"GDNCTL_HOLD_NAME", "a"},
                                 {"GDNCTL_METADATA_BASE", metadata},
                                 {"GDNCTL_HOLD_LEASE_S", "60"},
                                 {"GDNCTL_HOLD_GRACE_S", "60"},
                                 {"GDNCTL_HOLD_MAX_S", "600"}});
        for (const char* path : {"/instance/network-interfaces/0/access-configs/0/external-ip",
                                 "/instance/attributes/instance-id", "/instance/zone"}) {
            world.http.on("GET " + metadata + path, 200, "10.0.0.1");
        }
        world.http.on("GET " + metadata + "/instance/preempted", 200, end.preempted);
        if (end.stopped) world.stop.request_stop();
        const Printed printed;
        CHECK(world.run(k_dev_tpu_holder_row, {}) == 0);
        CHECK(printed.text().find("10.0.0.1") != std::string::npos);
        CHECK(printed.text().find(std::string("{\"reason\":\"") + end.reason + "\"}") != std::string::npos);
        CHECK(!fs::exists(world.file("lease")));
    }
    CommandWorld world;
    world.env.values["GDNCTL_HOLD_FILE"] = world.file("none/lease").string();
    CHECK(world.run(k_dev_tpu_holder_row, {}) == 8);
}

TEST_CASE("__local-supervisor: a job's end is on record, whatever it is, and a job that is not there is none") {
    const std::string_view environment("WORD=hello\0\0", 12);
    {
        StagedJob job("echo $WORD");
        job.supervise(job.store.job("j"), environment);
        CHECK(job.code == 0);
        CHECK(job.answer == "ready\n");
        CHECK(job.store.read("j")->state == JobState::succeeded);
        CHECK(test::read_text(job.store.file("j", "log")) == "hello\n");
        CHECK(!fs::exists(job.store.file("j", "work")));
    }
    {
        StagedJob job("exit 5");
        job.supervise(job.store.job("j"), environment);
        CHECK(job.code == 0);
        CHECK(job.store.read("j")->state == JobState::failed);
        CHECK(job.store.read("j")->driver_exit_code == 5);
    }
    StagedJob job("true");
    job.supervise(job.store.job("none"), environment);
    CHECK(job.code == 4);
    CHECK(job.answer.find("request.json") != std::string::npos);
    job.answer.clear();
    job.supervise(job.store.job("j"), "WORD=hel");
    CHECK(job.code == 4);
    CHECK(job.answer == "the submitter ended before it had sent the environment");
    CHECK(job.store.read("j")->state == JobState::pending);
}

TEST_CASE("__kernel-host: a program gets the files of both sides") {
    CommandWorld world;
    world.write("inputs.safetensors", "numbers");
    const std::string folder = world.context.cwd.string();
    const auto host = [&](std::vector<std::string> words) {
        return in_child([&] { return world.run(k_kernel_host_row, std::move(words)); });
    };
    CHECK(host({"program", folder, "cp"}) == 0);
    CHECK(world.read("outputs.safetensors") == "numbers");
    CHECK(!world.read("network").empty());
    CHECK(host({"program", folder, "exit 5;"}) == 5);
    CHECK(host({"script", folder, "cp"}) == 2);
}

}  // namespace gdnctl::commands
