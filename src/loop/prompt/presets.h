// Finds iteration prompts and session directives by name: first in the repository, then among the copies in this
// binary.
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
    // From the front matter of a directive. Without one, the title is the first heading.
    std::string title, slot;
    std::vector<std::string> applies;  // "tpu", "cpu"
    std::string text;  // the text for the agent: a prompt unchanged; a directive without front matter, trimmed
};

// All named documents: prompts before directives, each sorted. If two have the same name, the one found first. Empty
// `root`: only the embedded ones. Unreadable files are skipped.
std::vector<Document> documents(const std::filesystem::path& root);

// Errors: usage (unknown name, with a list of names; empty file), local_io, bad_input (too large).
Result<Document> find_document(DocumentKind kind, std::string_view name, const std::filesystem::path& root);
// The directive `preset NAME`, ready for a prompt. Errors: the same.
Result<std::string> preset_text(std::string_view name, const std::filesystem::path& root);

// The prompt if none is named: the target's, else the checkout's scripts/gdn/codex_iteration_prompt.md, else the
// embedded one with the target's name. Errors: usage (a configured prompt does not exist, or no prompt is found).
Result<Document> default_prompt(const Target& target, const std::filesystem::path& root);
// A prompt given by its path. Errors: usage (no such file), local_io, bad_input.
Result<Document> prompt_from_file(const std::filesystem::path& file);

// The files that a checkout following the recipe has in scripts/gdn: path and bytes of the prompt `prompt` and of every
// embedded directive, with front matter.
std::vector<std::pair<std::string, std::string_view>> recipe_files(std::string_view prompt);

struct DirectiveSources {
    std::span<const std::string> presets, files, inlines;  // paths relative to the root
};
// The texts in prompt order: presets, files, inline ones; trimmed, without blank inline ones. Errors: usage, in the
// recipe's words ("directive file not found for PATH: ABSOLUTE").
Result<std::vector<std::string>> session_directives(const DirectiveSources& sources, const std::filesystem::path& root);

}  // namespace gdnctl::loop
