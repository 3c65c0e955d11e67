// What the commands that download traces refuse, and what they do without a network.
#include "command_world.h"

namespace gdnctl::commands {

namespace {

using test::CommandWorld;

const std::string k_wandb = "http://127.0.0.1:9";

// Answers each exchange at the next step, from the script.
class ScriptedPool final : public HttpPool {
public:
    explicit ScriptedPool(Http& script) : m_script(script) {}
    Status start(HttpRequest request, HttpReceiver& receiver) override {
        m_waiting.emplace_back(std::move(request), &receiver);
        return {};
    }
    void cancel(HttpReceiver& receiver) override {
        std::erase_if(m_waiting, [&](const auto& one) { return one.second == &receiver; });
    }
    bool idle() const override { return m_waiting.empty(); }
    Status step(std::chrono::milliseconds /*wait*/) override {
        for (auto& [request, receiver] : std::exchange(m_waiting, {})) {
            GDNCTL_TRY_ASSIGN(const HttpResponse answer, m_script.send(request));
            HttpEnd end;
            end.unwanted = !receiver->on_head(answer.status, answer.headers) || !receiver->on_body(answer.body);
            receiver->on_end(end);
        }
        return {};
    }

private:
    Http& m_script;
    std::vector<std::pair<HttpRequest, HttpReceiver*>> m_waiting;
};

struct WandbWorld : CommandWorld {
    WandbWorld() {
        http.pool = [this] { return std::make_unique<ScriptedPool>(http); };
        env.values["WANDB_BASE_URL"] = k_wandb;
        env.values["WANDB_API_KEY"] = std::string(40, 'a');
    }
    void answers(std::string body, int status = 200) {
        http.on("POST " + k_wandb + "/graphql", status, std::move(body));
    }
    // Run r of e/p has one artifact of this type, with the file NAME.
    void has_artifact(const std::string& type, const std::string& name) {
        answers(R"({"data":{"project":{"run":{"artifacts":{"pageInfo":{"hasNextPage":false},"edges":[{"node":{)"
                R"("id":"QQ==","state":"COMMITTED","versionIndex":3,"updatedAt":"t","artifactType":{"name":")" +
                type + R"("},"artifactSequence":{"name":"n"},"aliases":[]}}]}}}}})");
        answers(R"({"data":{"artifact":{"currentManifest":{"file":{"directUrl":")" + k_wandb + R"(/manifest"}}}}})");
        answers(R"({"data":{"project":{"artifactCollection":{"artifactMembership":{"files":{"pageInfo":)"
                R"({"hasNextPage":false},"edges":[{"node":{"name":")" +
                name + R"(","directUrl":")" + k_wandb + R"(/bucket/1"}}]}}}}}})");
        http.on("GET " + k_wandb + "/manifest", 200,
                R"({"version":1,"storagePolicyConfig":{"storageLayout":"V2"},"contents":{")" + name +
                    R"(":{"digest":"LesExGuroDpNZ8uSu1zCHg==","size":18}}})");
        http.on("GET " + k_wandb + "/bucket/1", 200, R"({"traceEvents":[]})");
    }
};

}  // namespace

TEST_CASE("downloads: what is refused before anything is asked or written") {
    CommandWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {"hf-download-trace", {}, 2, ""},
        {"hf-download-trace", {"a/b/c/d/e/f://"}, 2, ""},
        {"hf-download-trace", {"me/traces", "--jobs", "0"}, 2, "--jobs 0: expected 1 to 64"},
        {"hf-download-trace", {"me/traces", "--retries", "-1"}, 2, "--retries -1: expected 0 to 1000"},
        {"hf-download-trace", {"me/traces", "--stall-timeout", "0"}, 2, "expected a number of seconds above 0"},
        {"hf-download-trace", {"me/traces", "--max-bytes", "-1"}, 2, "--max-bytes: expected 0 or more"},
        {"hf-download-trace", {"me/traces", "--token-file", "none"}, 2, "none"},
        {"wandb-download-trace", {}, 2, ""},
        {"wandb-download-trace", {"no-run"}, 2, "no-run"},
        {"wandb-download-trace", {"me/p/r", "--jobs", "65"}, 2, "--jobs 65: expected 1 to 64"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(world.http.asked.empty());
    CHECK(test::list_names(world.context.cwd).empty());
}

TEST_CASE("hf-download-trace --offline: nothing was downloaded before") {
    CommandWorld world;
    const int code = world.run("hf-download-trace", {"me/traces", "--offline", "--json"});
    CHECK(code == 4);
    CHECK(world.json()["error"]["kind"] == "network");
    CHECK(world.said.find("hint: pass the full commit id (40 digits) as --revision") != std::string::npos);
    CHECK(world.http.asked.empty());
}

TEST_CASE("wandb-download-trace: the profile of a run is written where it belongs, or nothing matches") {
    WandbWorld world;
    const std::string trace = "plugins/profile/1/profile.json";
    world.has_artifact("jax_profile", trace);
    CHECK(world.run("wandb-download-trace", {"e/p/r", "--json"}) == 0);
    CHECK(world.json()["run_id"] == "r");
    CHECK(world.json()["version"] == "v3");
    CHECK(world.read(".profiles/wandb/r/" + trace) == R"({"traceEvents":[]})");
    CHECK(world.said.find(std::string(40, 'a')) == std::string::npos);
    WandbWorld other;
    other.has_artifact("jax_profile", "notes.txt");
    CHECK(other.run("wandb-download-trace", {"e/p/r"}) == 3);
    CHECK(other.said.find("no matching files in n:v3") != std::string::npos);
    CHECK(test::list_names(other.context.cwd).empty());
}

TEST_CASE("wandb-download-trace: no key, a key that is refused, a run without a profile or that is not there") {
    WandbWorld keyless;
    keyless.env.values.erase("WANDB_API_KEY");
    keyless.check({"wandb-download-trace", {"e/p/r"}, 5, "no key for W&B"});
    CHECK(keyless.http.asked.empty());
    WandbWorld refused;
    refused.answers("no", 401);
    refused.check({"wandb-download-trace", {"e/p/r"}, 5, "W&B rejects the key of WANDB_API_KEY"});
    WandbWorld model;
    model.has_artifact("model", "a");
    model.check({"wandb-download-trace", {"e/p/r"}, 3, "it has: model"});
    WandbWorld gone;
    gone.answers(R"({"data":{"project":{"run":null}}})");
    gone.check({"wandb-download-trace", {"e/p/r"}, 6, "e/p"});
    gone.check({"wandb-download-trace", {"r", "--entity", "e"}, 2, ""});
}

}  // namespace gdnctl::commands
