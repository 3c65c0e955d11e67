// Everything outside the process that a command may use. main builds it once from the real parts, and tests from fakes.
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

// How much of the world a command reaches for: part of its row. Below Tier::http, Context::http refuses
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
    bool agent = false;  // a coding agent reads stdout: see cli/agent_mode.h
    // As given on the command line, for commands that report on the configuration itself. Context::config holds the
    // values that result.
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
    std::string program;              // path of this program, for starting itself as a child
    GlobalOptions global;
};

}  // namespace gdnctl
