// Git as facts: what the history of the repository around a path says. Nothing here writes.
//
// libgit2 is opened on first use. Where it is not installed or cannot read the repository correctly (SHA-256 objects,
// partial and shallow clones), the `git` program answers the same questions.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/commit_facts.h"
#include "core/result.h"

namespace gdnctl {

class Process;

enum class GitReader { automatic, libgit2, program };

// Opens the repository that `start` is in. Answers are cached: many look-ups cost one walk of the history, and what
// is committed after the first look-up is not seen.
// Errors: usage (not a repository, bare), config (git refuses it: safe.directory, with the command that mends it; or
// neither libgit2 nor git is installed), bad_input (the repository is damaged).
// `reader` other than automatic is for tests that compare the two ways.
Result<std::unique_ptr<CommitFacts>> open_commit_facts(const std::filesystem::path& start, Process& process,
                                                       GitReader reader = GitReader::automatic);

// For every `git` that is started (ProcessSpec::env): what our caller's git was told, inside a hook say, must not lead
// to another repository; nothing is asked, locked or paged.
std::map<std::string, std::optional<std::string>> git_environment();

}  // namespace gdnctl
