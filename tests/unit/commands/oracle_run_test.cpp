// The verbs of the oracle by their words: what they refuse, what they write, and what they say of right and of wrong.
#include "command_world.h"
#include "harness/files.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::commands {
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

}  // namespace gdnctl::commands
