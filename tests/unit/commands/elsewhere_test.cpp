// The command line that `oracle verify` runs on another machine, as a dashboard gets it.
#include <fmt/format.h>

#include "command_world.h"
#include "core/text.h"
#include "platform/process.h"

namespace gdnctl::commands {

namespace {

using test::CommandWorld;

const std::string k_address = "http://127.0.0.1:8265";

struct ElsewhereWorld : CommandWorld {
    Json submitted;  // the last job's request

    ElsewhereWorld() : CommandWorld(&system_process()) {
        write("program", "gdnctl");
        context.program = file("program").string();
        write("it's a kernel.py", "");
        ProcessSpec git;
        git.argv = {"git", "init", "-q", context.cwd.string()};
        REQUIRE(system_process().run(git)->ok());
        configure("target = \"t\"\n[targets.t]\ntest = [\"sh\", \"check.sh\"]\n");
        http.on("GET " + k_address + "/api/version", 200,
                R"({"version":"4","ray_version":"2.60.0","session_name":"session_1"})");
        http.otherwise = [this](const HttpRequest& request) {
            HttpResponse response;
            response.status = 200;
            if (request.method == "POST") {
                submitted = *parse_json(request.body, "the request");
                response.body = Json{{"submission_id", submitted["submission_id"]}}.dump();
            }
            return response;
        };
    }

    int verify(std::vector<std::string> words) {
        submitted = nullptr;
        words.insert(words.begin(), {"gdn", "--ray-address", k_address, "--no-wait"});
        return run("oracle verify", std::move(words));
    }

    // The words of gdnctl's own command line, as a shell there reads them.
    std::vector<std::string> words_there() const {
        const std::string entrypoint = json::text(submitted, "entrypoint");
        const std::string before = "GDNCTL_VERDICT_LINE=1 .gdnctl/gdnctl ";
        const auto at = entrypoint.find(before);
        REQUIRE_MESSAGE(at != std::string::npos, entrypoint);
        CHECK(entrypoint.find("chmod +x .gdnctl/gdnctl && ") < at);
        const auto words = text::shell_split(entrypoint.substr(at + before.size()));
        REQUIRE(words);
        return *words;
    }
};

std::vector<std::string> verifying(std::vector<std::string> more) {
    more.insert(more.begin(), {"oracle", "verify", "gdn", "--kernel"});
    return more;
}

}  // namespace

TEST_CASE("oracle verify elsewhere: names, paths and variables arrive as they were given") {
    ElsewhereWorld world;
    CHECK(world.verify({"--kernel", "py:it's a kernel.py:a.b", "--case", "device_*", "--python",
                        "uv run --directory 'a folder' python", "--env", "XLA_FLAGS=--a='b c' $HOME `id` \"d\"",
                        "--env", "EMPTY="}) == 0);
    CHECK(world.words_there() == verifying({"py:./it's a kernel.py:a.b", "--case", "device_*", "--python",
                                            "uv run --directory 'a folder' python", "--env",
                                            "XLA_FLAGS=--a='b c' $HOME `id` \"d\"", "--env", "EMPTY="}));
}

TEST_CASE("oracle verify elsewhere: paths are those from the project's root, and nothing outside of it is sent") {
    ElsewhereWorld world;
    world.write("sub/mine.py", "");
    world.context.cwd = world.file("sub");
    const auto kernel_there = [&](const std::string& kernel) {
        CHECK(world.verify({"--kernel", kernel}) == 0);
        return world.words_there().at(4);
    };
    CHECK(kernel_there("py:mine.py") == "py:./sub/mine.py");
    CHECK(kernel_there("py:../sub/./mine.py:f") == "py:./sub/mine.py:f");
    CHECK(kernel_there("py:" + world.file("mine.py").string()) == "py:./sub/mine.py");
    CHECK(kernel_there("py:levanter:a.b") == "py:levanter:a.b");
    CHECK(kernel_there("src:k.c") == "src:sub/k.c");
    CHECK(kernel_there("lib:../k.so") == "lib:k.so");
    CHECK(kernel_there("builtin:chunk") == "builtin:chunk");
    CHECK(kernel_there("cmd:python3 run.py '$x'") == "cmd:python3 run.py '$x'");
    for (const char* outside : {"py:../../mine.py", "py:/elsewhere/mine.py:f", "src:../../k.c", "lib:/usr/lib/k.so"}) {
        CAPTURE(outside);
        CHECK(world.verify({"--kernel", outside}) == 2);
        CHECK(world.said.find("is outside ") != std::string::npos);
        CHECK(world.submitted.is_null());
    }
}

TEST_CASE("oracle verify elsewhere: every option but those of the job is passed on") {
    ElsewhereWorld world;
    const std::vector<std::string> passed = {
        "--case", "a",          "--case",    "b",     "--cases",      "device",       "--contract",
        "marin",  "--set",      "chunk=32",  "--set", "eps=0.5",      "--dtype",      "bf16",
        "--seed", "random",     "--threads", "3",     "--time-limit", "0.25",         "--memory-limit",
        "99",     "--python",   "p",         "--env", "A=b",          "--no-network", "--allow-suspect",
        "--slow", "--fail-fast"};
    std::vector<std::string> given = passed;
    given.insert(given.begin(), {"--kernel", "py:levanter"});
    given.insert(given.end(), {"--submission-id", "mine", "-e", "JOB=1", "--tpu", "v5p-8", "--allow-cpu",
                               "--no-secrets", "--json", "--save-failures", "failed"});
    CHECK(world.verify(given) == 0);
    std::vector<std::string> expected = passed;
    expected.insert(expected.begin(), "py:levanter");
    CHECK(world.words_there() == verifying(expected));
    CHECK(world.submitted["submission_id"] == "mine");
    CHECK(world.submitted["runtime_env"]["env_vars"]["JOB"] == "1");
    CHECK(world.verify({"--kernel", "py:levanter", "--metamorphic"}) == 0);
    CHECK(world.words_there() == verifying({"py:levanter", "--metamorphic"}));
    CHECK(world.verify({"--kernel", "py:levanter", "--vectors", "."}) == 2);
    CHECK(world.said.find("--vectors is for kernels on this machine") != std::string::npos);
}

// A cluster shows command lines to everybody.
TEST_CASE("oracle verify elsewhere: no secret is on the command line") {
    ElsewhereWorld world;
    for (const char* name : {"HF_TOKEN", "MY_API_KEY"}) world.env.values[name] = "pa55-of-elsewhere";
    world.env.values["GDNCTL_EVAL_SEED"] = "987654321";
    CHECK(world.verify({"--kernel", "py:levanter", "-e", "MY_PASSWORD=pa55-of-elsewhere"}) == 0);
    const std::string line = json::text(world.submitted, "entrypoint");
    CHECK(line.find("pa55-of-elsewhere") == std::string::npos);
    CHECK(line.find("987654321") == std::string::npos);
    CHECK(world.submitted["runtime_env"]["env_vars"]["MY_PASSWORD"] == "pa55-of-elsewhere");
    CHECK(world.verify({"--kernel", "py:levanter", "--env", "HF_TOKEN=pa55-of-elsewhere"}) == 2);
    CHECK(world.said.find("--env HF_TOKEN") != std::string::npos);
    CHECK(world.said.find("pa55-of-elsewhere") == std::string::npos);
    CHECK(world.submitted.is_null());
}

TEST_CASE("oracle verify elsewhere: the interpreter is the target's, unless another one is named") {
    ElsewhereWorld world;
    world.write("lib/levanter/src/levanter/layers/gated_deltanet.py", "");
    world.configure("target = \"marin\"\n");
    const auto line = [&](std::vector<std::string> words) {
        words.insert(words.end(), {"--tpu", "v5p-8"});
        CHECK(world.verify(std::move(words)) == 0);
        return json::text(world.submitted, "entrypoint");
    };
    constexpr const char* k_there = "--python \"\\\"$venv\\\"/bin/python\"";
    const auto has = [](const std::string& line, const char* words) { return line.find(words) != std::string::npos; };
    const std::string plain = line({"--kernel", "py:levanter"});
    CHECK(has(plain, k_there));
    CHECK(has(plain, "uv sync"));
    CHECK(!has(plain, "pytest"));
    CHECK(!has(line({"--kernel", "py:levanter", "--python", "python3"}), k_there));
    CHECK(!has(line({"--kernel", "builtin:chunk"}), "--python"));
}

}  // namespace gdnctl::commands
