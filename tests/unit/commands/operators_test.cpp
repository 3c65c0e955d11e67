// The verbs of the oracle for an operator that the program does not know: a row in its table is all that it takes.
#include "commands/oracle/operators.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "commands/oracle/bench.h"
#include "commands/oracle/cases.h"
#include "commands/oracle/compare.h"
#include "commands/oracle/run.h"
#include "commands/oracle/selftest.h"
#include "commands/oracle/verify.h"
#include "core/config.h"
#include "core/json.h"
#include "harness/files.h"
#include "platform/clock.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "support/fake_env.h"
#include "support/fake_http.h"
#include "support/fake_process.h"
#include "support/fake_terminal.h"
#include "support/temp_dir.h"
#include "unit/commands/toy_operator.h"

namespace gdnctl {
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
