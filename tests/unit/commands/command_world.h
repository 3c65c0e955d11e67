// Runs a command by its row and its words, on fakes, and tells what it decided.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "cli/args_cli11.h"
#include "cli/command.h"
#include "commands/table.h"
#include "core/config.h"
#include "core/json.h"
#include "core/log.h"
#include "platform/http.h"
#include "platform/toml.h"
#include "support/fake_clock.h"
#include "support/fake_env.h"
#include "support/fake_process.h"
#include "support/fake_terminal.h"
#include "support/temp_dir.h"

namespace gdnctl::test {

// A server by script: each request has its answers in order, of which the last one stays. A request that is not in the
// script fails the test.
class ScriptedHttp final : public Http {
public:
    ScriptedHttp& on(const std::string& request, int status, std::string body) {
        m_answers[request].push_back({status, std::move(body)});
        return *this;
    }
    Result<HttpResponse> send(const HttpRequest& request) override {
        const std::string line = request.method + " " + request.url;
        asked.push_back(line);
        const auto found = m_answers.find(line);
        if (found == m_answers.end()) {
            if (otherwise) return otherwise(request);
            FAIL_CHECK("unexpected request: " << line);
            return fail(ErrorKind::infrastructure, "unexpected request");
        }
        auto& answers = found->second;
        HttpResponse response;
        response.status = answers.front().first;
        response.body = answers.front().second;
        if (answers.size() > 1) answers.erase(answers.begin());
        if (request.on_chunk && response.status / 100 == 2) {
            request.on_chunk(response.body);
            response.body.clear();
        }
        return response;
    }
    Result<std::unique_ptr<HttpPool>> open_pool(const HttpPoolSettings& settings) override {
        return pool ? pool() : Http::open_pool(settings);
    }

    std::vector<std::string> asked;
    std::function<Result<HttpResponse>(const HttpRequest&)> otherwise;  // empty: what is not in the script fails
    std::function<std::unique_ptr<HttpPool>()> pool;                    // empty: none can be opened

private:
    std::map<std::string, std::vector<std::pair<int, std::string>>> m_answers;
};

struct CommandWorld {
    TempDir folder;
    FakeEnv env{{"USER", "me"}, {"HOME", (folder / "home").string()}};
    FakeClock clock;
    FakeTerminal terminal;
    Config config;
    FakeProcess process;
    ScriptedHttp http;
    std::stop_source stop;
    std::string said;  // what goes to stderr, and the error: a line each
    log::Diverted diverted{[this](std::string_view line) { (said += line) += '\n'; }};
    Context context;

    // `programs`: what starts programs, instead of the script of `process`.
    explicit CommandWorld(Process* programs = nullptr)
        : context{env,
                  clock,
                  terminal,
                  config,
                  programs != nullptr ? *programs : process,
                  http,
                  stop.get_token(),
                  folder / "work",
                  folder / "state",
                  "/bin/gdnctl",
                  {}} {
        for (const char* name : {"home", "work", "state"}) std::filesystem::create_directory(folder / name);
    }

    std::filesystem::path file(const std::string& name) const { return context.cwd / name; }
    void write(const std::string& name, std::string_view text) const { write_text(file(name), text); }
    std::string read(const std::string& name) const { return read_text(file(name)); }
    void configure(std::string_view toml) {
        auto table = parse_toml(toml, {});
        if (!table) FAIL("bad configuration: " << table.error().text());
        config.overlay(*table);
    }

    // The exit code of the command with these words, of which --json is a global one.
    int run(const cli::Command& row, std::vector<std::string> words) {
        terminal.out_text.clear();
        terminal.err_text.clear();
        said.clear();
        context.global.json = std::erase(words, "--json") > 0;
        const auto invocation = row.create();
        cli::Args args;
        invocation->describe(args);
        const auto lookup = [this](std::string_view name) { return env.get(name); };
        const Status parsed = cli::parse_words({}, args, words, lookup, [] { return false; });
        const auto result = parsed ? invocation->run(context) : Result<ExitCode>(tl::unexpected(parsed.error()));
        if (result) return static_cast<int>(*result);
        said += result.error().text();
        if (!result.error().hint.empty()) said += "\nhint: " + result.error().hint;
        return static_cast<int>(exit_code_of(result.error().kind));
    }

    // One line of a table of tests: the words, the exit code, and what stdout or stderr has to say.
    struct Case {
        const cli::Command& row;
        std::vector<std::string> words;
        int code;
        std::string_view says;
    };
    void check(const Case& one) {
        std::string line(one.row.name);
        for (const std::string& word : one.words) line += " " + word;
        INFO(line);
        const int code = run(one.row, one.words);
        const std::string all = terminal.out_text + terminal.err_text + said;
        INFO(all);
        CHECK(code == one.code);
        CHECK(all.find(one.says) != std::string::npos);
    }

    Json json() const {
        const auto parsed = parse_json(terminal.out_text, "output");
        if (!parsed) FAIL("not JSON: " << terminal.out_text);
        return *parsed;
    }
    bool printed(std::string_view text) const { return terminal.out_text.find(text) != std::string::npos; }
};

}  // namespace gdnctl::test
