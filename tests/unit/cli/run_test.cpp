// From argv to the exit code. What is said is caught at the log's sink.
#include <map>
#include <stdexcept>

#include <doctest/doctest.h>

#include "cli/command.h"
#include "core/log.h"
#include "platform/http.h"

namespace gdnctl::cli {

namespace {

std::vector<std::string> g_lines;
bool g_ran = false;

struct Options {
    std::string how;
};

void describe_fail(Args& args, Options& o) {
    args.positional(o.how, {.name = "HOW", .help = "what goes wrong"});
    args.example("gdnctl fail x");
}

Result<ExitCode> run_fail(const Options& o, Context&) {
    g_ran = true;
    static const std::map<std::string, ErrorKind> kinds = {{"usage", ErrorKind::usage},
                                                           {"config", ErrorKind::config},
                                                           {"check_failed", ErrorKind::check_failed},
                                                           {"nothing_done", ErrorKind::nothing_done},
                                                           {"infrastructure", ErrorKind::infrastructure},
                                                           {"authentication", ErrorKind::authentication},
                                                           {"remote_missing", ErrorKind::remote_missing},
                                                           {"conflict", ErrorKind::conflict},
                                                           {"local_io", ErrorKind::local_io},
                                                           {"bad_input", ErrorKind::bad_input},
                                                           {"timeout", ErrorKind::timeout},
                                                           {"interrupted", ErrorKind::interrupted},
                                                           {"terminated", ErrorKind::terminated},
                                                           {"internal", ErrorKind::internal}};
    if (o.how == "throw") throw std::runtime_error("boom");
    if (o.how == "throw-int") throw 3;  // NOLINT: not an exception class on purpose
    if (o.how == "memory") throw std::bad_alloc();
    if (o.how == "three") return ExitCode::nothing_done;
    const auto found = kinds.find(o.how);
    if (found == kinds.end()) return ExitCode::ok;
    return tl::unexpected(Error{found->second, "it broke", o.how == "timeout" ? "try again" : "", "step one"});
}

struct NoOptions {};
void describe_asks(Args&, NoOptions&) {}
// Asks a host that no resolver has.
Result<ExitCode> run_asks(const NoOptions&, Context& context) {
    HttpRequest request;
    request.url = "http://host.invalid/";
    request.connect_timeout = std::chrono::milliseconds(200);
    GDNCTL_TRY(context.http.send(request));
    return ExitCode::ok;
}

constexpr Command k_fail = make<&describe_fail, &run_fail>("fail", "Tests", "fail", Tier::none).without_config();
constexpr Command k_git = make<&describe_asks, &run_asks>("asks-git", "Tests", "ask", Tier::git).without_config();
constexpr Command k_http = make<&describe_asks, &run_asks>("asks-http", "Tests", "ask", Tier::http).without_config();
constexpr TableRow k_table[] = {k_fail, k_git, k_http};

int call(std::vector<std::string> words) {
    g_lines.clear();
    g_ran = false;
    words.insert(words.begin(), "gdnctl");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    log::set_sink([](log::Level, std::string_view line) { g_lines.emplace_back(line); });
    const int code = run(k_table, static_cast<int>(words.size()), argv.data());
    log::set_sink(nullptr);
    return code;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("every kind of error has its exit code") {
    const std::map<std::string, int> codes = {
        {"usage", 2},          {"config", 2},         {"check_failed", 1},   {"nothing_done", 3},
        {"infrastructure", 4}, {"authentication", 5}, {"remote_missing", 6}, {"conflict", 7},
        {"local_io", 8},       {"bad_input", 9},      {"timeout", 124},      {"interrupted", 130},
        {"terminated", 143},   {"internal", 70},      {"three", 3},          {"ok", 0}};
    for (const auto& [how, code] : codes) {
        CAPTURE(how);
        CHECK(call({"fail", how}) == code);
        CHECK(g_ran);
    }
}

TEST_CASE("an error is one line with its context, then the hint") {
    CHECK(call({"fail", "timeout"}) == 124);
    CHECK(g_lines == Lines{"[gdnctl] error: step one: it broke", "[gdnctl] hint: try again"});
    CHECK(call({"fail", "--quiet", "timeout"}) == 124);
    CHECK(g_lines == Lines{"[gdnctl] error: step one: it broke", "[gdnctl] hint: try again"});
}

TEST_CASE("a usage error that a command finds points to its help page") {
    CHECK(call({"fail", "usage"}) == 2);
    CHECK(g_lines.back() == "[gdnctl] hint: `gdnctl fail --help` shows the options");
}

TEST_CASE("what escapes a command is 70 and asks for a report") {
    for (const char* how : {"throw", "throw-int", "internal"}) {
        CAPTURE(how);
        CHECK(call({"fail", how}) == 70);
        REQUIRE(g_lines.size() == 2);
        CHECK(g_lines[1].find("please report") != std::string::npos);
    }
    call({"fail", "throw"});
    CHECK(g_lines[0] == "[gdnctl] error: unexpected exception: boom");
}

TEST_CASE("only a command of the tier http reaches the network") {
    CHECK(call({"asks-git"}) == 70);
    CHECK(g_lines[0] == "[gdnctl] error: this command is listed as one that makes no network requests");
    CHECK(call({"asks-http"}) == 4);
}

TEST_CASE("too little memory is the input's size, not a bug") {
    CHECK(call({"fail", "memory"}) == 9);
    CHECK(g_lines == Lines{"[gdnctl] error: not enough memory for this"});
}

TEST_CASE("a usage error stops before the command runs") {
    for (const std::vector<std::string>& words : {std::vector<std::string>{"fail"},
                                                  {"fail", "a", "b"},
                                                  {"fail", "a", "--x"},
                                                  {"fial", "a"},
                                                  {"fail", "a", "--color", "x"},
                                                  {"fail", "a", "-C", "/does/not/exist"},
                                                  {"fail", "a", "--"}}) {
        CHECK(call(words) == 2);
        CHECK(!g_ran);
    }
}

TEST_CASE("an empty argv is a usage error") {
    char* argv[] = {nullptr};
    CHECK(run(k_table, 0, argv) == 2);
}

}  // namespace gdnctl::cli
