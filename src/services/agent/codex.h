// The Codex CLI as an agent: finding it, asking what it can do, refusing what it would refuse, running it.
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
    std::string default_effort;
    std::vector<std::string> efforts;
    bool listed = true;
    bool patches = true;  // has the patch tool
};

struct CodexProgram {
    std::filesystem::path path;         // of the program itself, not of a wrapper around it
    std::string version;                // "codex-cli 0.169.0"
    std::vector<CodexModel> models;     // empty: an older program that cannot say
    std::vector<std::string> features;  // names that --disable takes
    bool search_flag = false;           // `exec` has --search (older programs)
    bool has_json = true;               // `exec` has --json
};

// What `debug models --bundled` prints. Error bad_input.
Result<std::vector<CodexModel>> parse_codex_models(std::string_view text);
// Every effort that some model takes; empty: unknown.
std::vector<std::string> codex_efforts(const CodexProgram& program);

struct CodexWanted {
    std::filesystem::path program;                   // --codex-bin; empty: PATH and the places where applications are
    std::string effort;                              // prefers a program that has it; empty: any
    std::filesystem::path home;                      // the user's; for the second application folder
    std::map<std::string, std::string> environment;  // that codex will get; PATH is looked up in it
    std::filesystem::path nowhere;                   // an empty folder, where it is asked what it can do
};
// How to install it; for hints.
inline constexpr std::string_view k_codex_install = "npm install -g @openai/codex, then: codex login";

// The first program that has the wanted effort, else the first that does not say what it has (a warning); --codex-bin
// comes before PATH. Never starts a session. Errors: usage (no program; none has the effort: lists what each has).
Result<CodexProgram> find_codex(const CodexWanted& wanted, Process& process);

struct CodexSettings {
    CodexProgram program;
    std::string model;          // empty: the program's own default
    bool model_given = false;   // by the user; a default of ours that the program does not know is left out
    bool strict_model = false;  // an unknown model is an error
    std::string effort;
    std::string profile;
    bool search = false;
    bool json = true;  // false: the human output of old programs
    bool ephemeral = false;
    std::filesystem::path output_schema;
    std::vector<std::string> config;  // further KEY=VALUE for -c
};

// The words of one attempt; the prompt comes on standard input.
std::vector<std::string> codex_argv(const CodexSettings& settings, const std::filesystem::path& worktree,
                                    const std::filesystem::path& message_file, std::string_view resume_thread);

struct CodexChecked {
    CodexSettings settings;             // with what was decided
    std::vector<std::string> warnings;  // for people
};
// Everything that can be known to fail before a request is paid for: effort, model, profile file, schema, flags and
// configuration (an empty prompt makes codex say so and end; asked in `nowhere`, an empty folder, as it may be another
// program). Errors: usage, config.
Result<CodexChecked> check_codex(CodexSettings settings, const std::filesystem::path& nowhere,
                                 const std::map<std::string, std::string>& environment, Process& process);

std::unique_ptr<Agent> make_codex_agent(CodexSettings settings, Process& process, Clock& clock);

// Where a codex with this environment keeps its state and configuration; an empty CODEX_HOME is none, as for codex
// itself.
std::filesystem::path codex_home_of(const std::map<std::string, std::string>& environment);
// A CODEX_HOME of a run's own in `folder`: log-in, configuration, profiles and instructions are links to those of the
// user, threads and state are its own. Errors: config (`user_home` does not exist), local_io.
Status make_codex_home(const std::filesystem::path& folder, const std::filesystem::path& user_home);
// The variable that config.toml, or the profile (empty: none), names for the key of the model's provider (`env_key`);
// empty: none.
std::string codex_provider_variable(const std::filesystem::path& user_home, const std::string& profile);
// Whether codex finds the log-in of `user_home` there alone: one in a keyring is filed under the path of its home.
bool codex_login_needs_home(const std::filesystem::path& user_home);

// Whether `message` is JSON that obeys the schema (type, required, properties, additionalProperties, items, enum).
// Error bad_input: says where it does not.
Status check_against_schema(std::string_view message, std::string_view schema);

}  // namespace gdnctl
