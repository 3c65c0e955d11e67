// What a command may reach of the outside world. Built once by main (real) or by a test (fakes).
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>

namespace gdnctl {

class Clock;
class Config;
class Env;
class Http;
class Process;
class Terminal;

// How much of the world a command reaches for: a column of commands/table.cpp. Below Tier::http, Context::http refuses
// every request. Nothing is paid for in advance: every part of the Context is made on first use.
enum class Tier {
    none,     // files, clock, terminal only: never maps libcurl or libgit2
    process,  // starts child processes
    git,      // opens repositories (libgit2 or the git program, on first use)
    http,     // talks over the network (libcurl, on first use)
};

struct GlobalOptions {
    bool json = false;   // --json
    bool quiet = false;  // --quiet
    int verbose = 0;     // -v, -vv
    // As given; Context::config holds what they lead to. For commands that report on the configuration itself.
    std::optional<std::string> config_file;  // --config
    std::optional<std::string> target;       // --target
};

struct Context {
    const Env& env;
    Clock& clock;
    Terminal& terminal;
    const Config& config;
    Process& process;
    Http& http;
    std::stop_token stop;             // requested by SIGINT, SIGTERM, SIGHUP
    std::filesystem::path cwd;        // after -C DIR; absolute. Commands resolve relative paths against this
    std::filesystem::path state_dir;  // $STATE, not yet created
    std::string program;              // path of this program, for children that are to be it
    GlobalOptions global;
};

}  // namespace gdnctl
