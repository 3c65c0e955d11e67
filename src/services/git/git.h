// Git as facts: the history of the repository around a path. Only reads.
//
// libgit2 is opened on first use. If it is not installed or cannot read the repository correctly (SHA-256 objects,
// partial and shallow clones), the `git` program answers the same queries.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/commit_facts.h"
#include "core/result.h"

namespace gdnctl {

class Process;

enum class GitReader { automatic, libgit2, program };

// Opens the repository that contains `start`. Answers are cached: many look-ups cost one walk of the history, and
// commits made after the first look-up are not seen.
// Errors: usage (not a repository, bare), config (git refuses it: safe.directory, with the command that fixes it; or
// neither libgit2 nor git is installed), bad_input (the repository is damaged).
// A `reader` other than automatic is for tests that compare the two.
Result<std::unique_ptr<CommitFacts>> open_commit_facts(const std::filesystem::path& start, Process& process,
                                                       GitReader reader = GitReader::automatic);

// argv of every `git` that gdnctl starts: fixes each setting that would change what the call sees or does. The table in
// calls.cpp says which, and which stay the user's.
std::vector<std::string> git_command(std::vector<std::string> words);
// Its environment (ProcessSpec::env). Settings for our caller's git, for example inside a hook, must not lead to
// another repository; git does not prompt, take optional locks, start a pager, replace objects or write traces.
std::map<std::string, std::optional<std::string>> git_environment();

}  // namespace gdnctl
