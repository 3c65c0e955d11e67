#include "sweep/plan.h"

#include <set>

#include <doctest/doctest.h>

namespace gdnctl::sweep {

namespace {

ConfigValue at(int line, decltype(ConfigValue::value) value) {
    ConfigValue v;
    v.value = std::move(value);
    v.origin = {ConfigOrigin::Kind::project_file, "p.toml", line};
    return v;
}

ConfigValue numbers(std::initializer_list<std::int64_t> items) {
    ConfigArray array;
    for (const std::int64_t n : items) array.push_back(at(5, n));
    return at(5, std::move(array));
}

ConfigValue words(std::initializer_list<const char*> items) {
    ConfigArray array;
    for (const char* word : items) array.push_back(at(6, std::string(word)));
    return at(6, std::move(array));
}

ConfigValue shape(std::int64_t b, std::int64_t h, std::int64_t v) {
    ConfigTable table;
    table["batch"] = at(3, b);
    table["hidden"] = at(3, h);
    table["vocab"] = at(3, v);
    return at(3, std::move(table));
}

ConfigTable plan_table() {
    ConfigTable t;
    t["shapes"] = at(3, ConfigArray{shape(1024, 512, 1000), shape(2048, 512, 1000)});
    t["b"] = numbers({1024, 2048, 1024});
    t["v"] = numbers({512});
    t["command"] = words({"bench", "--b={b}", "{h}", "{v}", "{batch}x{hidden}x{vocab}", "{label}", "{\"json\": {}}"});
    return t;
}

std::string message(const ConfigTable& table) {
    const auto plan = parse_plan(table, "p.toml");
    REQUIRE_FALSE(plan.has_value());
    CHECK(plan.error().kind == ErrorKind::config);
    return plan.error().message;
}

}  // namespace

TEST_CASE("sweep plan: a plan is the product of its block sizes at each shape, and infer once more") {
    ConfigTable t = plan_table();
    t["infer_command"] = words({"bench", "{batch}"});
    const auto plan = parse_plan(t, "p.toml");
    REQUIRE(plan.has_value());
    CHECK(plan->repeats == 3);
    CHECK(plan->retries == 2);
    CHECK(plan->time_limit_s == 900);
    CHECK(!plan->budget_s);
    const auto all = configurations_of(*plan, "abc", {});
    REQUIRE(all.has_value());
    REQUIRE(all->size() == 6);
    CHECK((*all)[0].label == "b1024_h512_v512");
    CHECK((*all)[1].label == "b2048_h512_v512");
    CHECK((*all)[2].label == "infer");
    CHECK((*all)[3].shape.batch == 2048);
    const auto argv = command_of(*plan, (*all)[0], "/o", "/i");
    CHECK(argv == std::vector<std::string>{"bench", "--b=1024", "512", "512", "1024x512x1000", "b1024_h512_v512",
                                           "{\"json\": {}}"});
    CHECK(command_of(*plan, (*all)[2], "/o", "/i") == std::vector<std::string>{"bench", "1024"});
}

TEST_CASE("sweep plan: the key is of all that a time depends on, and of nothing else") {
    ConfigTable t = plan_table();
    const auto key = [](const ConfigTable& table, const std::string& revision,
                        const std::map<std::string, std::string>& switches,
                        const std::map<std::string, std::string>& found = {}) {
        return configurations_of(*parse_plan(table, "p.toml"), revision, switches, found)->front().key;
    };
    const std::string base = key(t, "abc", {});
    CHECK(base.size() == 32);
    t["repeats"] = at(9, std::int64_t{7});
    t["time_limit_s"] = at(9, 3.5);
    t["budget_s"] = at(9, std::int64_t{100});
    t["name"] = at(9, std::string("other"));
    CHECK(key(t, "abc", {}) == base);
    std::set<std::string> keys = {base, key(t, "abd", {}), key(t, "abc", {{"XLA_FLAGS", "x"}})};
    t["x_dtype"] = at(9, std::string("bf16"));
    keys.insert(key(t, "abc", {}));
    t["soft_cap"] = at(9, 1.5);
    keys.insert(key(t, "abc", {}));
    t["device_kind"] = at(9, std::string("TPU v5"));
    keys.insert(key(t, "abc", {}));
    CHECK(keys.size() == 6);
    keys.insert(key(t, "abc", {}, {{"device", "v5p-8"}}));
    keys.insert(key(t, "abc", {}, {{"device", "v6e-4"}}));
    keys.insert(key(t, "abc", {}, {{"device", "v5p-8"}, {"file bench.sh", "0a"}}));
    keys.insert(key(t, "abc", {}, {{"device", "v5p-8"}, {"file bench.sh", "0b"}}));
    CHECK(keys.size() == 10);
    const auto switches = switches_of({{"LIBTPU_INIT_ARGS", "a"}, {"LEVANTER_CE_XLA_FAST_BWD", "1"}, {"HOME", "/h"}});
    CHECK(switches.size() == 2);
}

TEST_CASE("sweep plan: mistakes name the line") {
    ConfigTable t = plan_table();
    t["repeat"] = at(8, std::int64_t{3});
    CHECK(message(t) == "p.toml:8: unknown key repeat");
    t = plan_table();
    t["repeats"] = at(8, std::int64_t{0});
    CHECK(message(t) == "p.toml:8: repeats must be a whole number from 1 to 1000");
    t = plan_table();
    t["b"] = numbers({0});
    CHECK(message(t).starts_with("p.toml:5: b must be"));
    t = plan_table();
    t["command"] = at(6, std::string("bench {b}"));
    CHECK(message(t).find("list of strings") != std::string::npos);
    t = plan_table();
    t.erase("shapes");
    CHECK(message(t) == "p.toml: `shapes` is missing");
    t = plan_table();
    t.erase("b");
    t.erase("v");
    CHECK(message(t).find("the plan has no block sizes") != std::string::npos);
    t = plan_table();
    t["check"] = at(8, std::string("sampled"));
    CHECK(message(t) == "p.toml: `inputs` is missing");
    t["inputs"] = at(8, std::string("in.safetensors"));
    CHECK(message(t).find("{outputs}") != std::string::npos);
    t["check"] = at(8, std::string("most"));
    CHECK(message(t) == "p.toml:8: check must be none, sampled or exact");
    t = plan_table();
    t["soft_cap"] = at(8, 0.0);
    CHECK(message(t).starts_with("p.toml:8: soft_cap must be"));
    t = plan_table();
    t["infer_command"] = words({"bench", "{b}"});
    CHECK(message(t).starts_with("p.toml:6: infer_command"));
}

TEST_CASE("sweep plan: the estimate of VMEM, and the limit that it is held against") {
    Plan plan;
    plan.x_dtype = "bfloat16";
    CHECK(estimated_vmem_bytes(plan, {1024, 512, 1024}) ==
          4.0 * (1024 * 1024 + 2 * 1024 * 512) + 2 * 2.0 * (2 * 1024 * 512));
    CHECK(scoped_vmem_limit_bytes("") == 16.0 * 1024 * 1024);
    CHECK(scoped_vmem_limit_bytes("--a --xla_tpu_scoped_vmem_limit_kib=50000") == 50000 * 1024.0);
}

}  // namespace gdnctl::sweep
