// The Codex CLI as an agent: finds it, queries its abilities, checks settings in advance, and runs it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "services/agent/agent.h"

namespace gdnctl {

struct CodexModel {
    std::string slug;
    std::vector<std::string> efforts;
    bool listed = true;
};

struct CodexProgram {
    std::filesystem::path path;         // of the program itself, not of a wrapper
    std::string version;                // "codex-cli 0.169.0"
    std::vector<CodexModel> models;     // empty: an older program that cannot list them
    std::vector<std::string> features;  // names that --disable accepts
    bool search_flag = false;           // `exec` has --search (older programs)
    bool has_json = true;               // `exec` has --json
};

// Parses the output of `debug models --bundled`. Error: bad_input.
Result<std::vector<CodexModel>> parse_codex_models(std::string_view text);
// Every effort that some model supports; empty: unknown.
std::vector<std::string> codex_efforts(const CodexProgram& program);

struct CodexWanted {
    std::filesystem::path program;                   // --codex-bin; empty: PATH and the common application folders
    std::string effort;                              // prefers a program that supports it; empty: any
    std::filesystem::path home;                      // the user's, for the second application folder
    std::map<std::string, std::string> environment;  // the environment for codex; its PATH is searched
    std::filesystem::path nowhere;                   // an empty folder in which the program is queried
};
// How to install it, for hints.
inline constexpr std::string_view k_codex_install = "npm install -g @openai/codex, then: codex login";

// The first program that supports the wanted effort, else the first that does not list its efforts (with a warning).
// --codex-bin comes before PATH. Never starts a session. Errors: usage (no program; or none supports the effort: lists
// what each supports).
Result<CodexProgram> find_codex(const CodexWanted& wanted, Process& process);

struct CodexSettings {
    CodexProgram program;
    std::string model;          // empty: the program's own default
    bool model_given = false;   // by the user; our own default is omitted if the program does not know it
    bool strict_model = false;  // an unknown model is an error
    std::string effort;
    std::string profile;
    bool search = false;
    bool json = true;  // false: the plain output of old programs
    bool ephemeral = false;
};

// The command line of one attempt; the prompt goes to standard input.
std::vector<std::string> codex_argv(const CodexSettings& settings, const std::filesystem::path& worktree,
                                    const std::filesystem::path& message_file, std::string_view resume_thread);

struct CodexChecked {
    CodexSettings settings;             // with the decisions made
    std::vector<std::string> warnings;  // for people
};
// Checks everything that can fail before a request is paid for: effort, model, profile file, flags and
// configuration. For the last two, it runs codex with an empty prompt, which makes codex complain and exit. It does so
// in the empty folder `nowhere`, since it may be another program. Errors: usage, config.
Result<CodexChecked> check_codex(CodexSettings settings, const std::filesystem::path& nowhere,
                                 const std::map<std::string, std::string>& environment, Process& process);

std::unique_ptr<Agent> make_codex_agent(CodexSettings settings, Process& process, Clock& clock);

// Where codex keeps state and configuration in this environment; an empty CODEX_HOME counts as unset, as in codex.
std::filesystem::path codex_home_of(const std::map<std::string, std::string>& environment);
// Creates a separate CODEX_HOME for a run in `folder`: log-in, configuration, profiles and instructions are links to
// the user's; threads and state are separate. Errors: config (`user_home` does not exist), local_io.
Status make_codex_home(const std::filesystem::path& folder, const std::filesystem::path& user_home);
// The variable for the model provider's key (`env_key`), from config.toml or the profile (empty: no profile); empty:
// none.
std::string codex_provider_variable(const std::filesystem::path& user_home, const std::string& profile);
// Whether codex finds the log-in of `user_home` only there: an entry in a keyring is stored under the path of its home.
bool codex_login_needs_home(const std::filesystem::path& user_home);

}  // namespace gdnctl
