// Iteration prompts and session directives by name: the repository's own first, then the copies in this binary.
//
//   prompts     scripts/gdn/codex_iteration_prompt.md, prompts/NAME.md
//   directives  scripts/gdn/session_directives/NAME.md, session_directives/NAME.md
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "target/target.h"

namespace gdnctl::loop {

enum class DocumentKind { prompt, directive };
std::string_view to_text(DocumentKind kind);

struct Document {
    DocumentKind kind = DocumentKind::directive;
    std::string name;
    std::filesystem::path file;  // empty: the copy in this binary
    // From the front matter of a directive; a title is otherwise the first heading.
    std::string title, slot;
    std::vector<std::string> applies;  // "tpu", "cpu"
    std::string text;  // what the agent gets: a prompt's bytes; a directive without front matter, trimmed
};

// Everything that has a name here: prompts before directives, each sorted; of two with one name the one that is found
// first. `root` empty: what this binary carries. A file that cannot be read is left out.
std::vector<Document> documents(const std::filesystem::path& root);

// Errors: usage (unknown, with the names that there are; empty file), local_io, bad_input (too large).
Result<Document> find_document(DocumentKind kind, std::string_view name, const std::filesystem::path& root);
// The directive `preset NAME`, ready for a prompt. Errors: the same.
Result<std::string> preset_text(std::string_view name, const std::filesystem::path& root);

// The prompt where none is named: the target's, else the checkout's scripts/gdn/codex_iteration_prompt.md, else the
// one with the target's name. Errors: usage (a configured prompt does not exist, or nothing is there).
Result<Document> default_prompt(const Target& target, const std::filesystem::path& root);
// A prompt that is named by its path. Errors: usage (no such file), local_io, bad_input.
Result<Document> prompt_from_file(const std::filesystem::path& file);

// What a checkout that follows the recipe has in scripts/gdn: path and bytes of the prompt `prompt` and of every
// directive that this binary carries, front matter included.
std::vector<std::pair<std::string, std::string_view>> recipe_files(std::string_view prompt);

struct DirectiveSources {
    std::span<const std::string> presets, files, inlines;  // paths against the root
};
// The texts in the order of a prompt: presets, files, inline ones; trimmed, blank inline ones left out. Errors: usage,
// in the recipe's words ("directive file not found for PATH: ABSOLUTE").
Result<std::vector<std::string>> session_directives(const DirectiveSources& sources, const std::filesystem::path& root);

}  // namespace gdnctl::loop
