// The agent's instructions: template, directives, and warnings about them. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "target/target.h"

namespace gdnctl::loop {

struct PromptFacts {
    std::int64_t iteration = 0, total = 0;
    std::string head_sha;
};

// Replaces the placeholders {{ITERATION}}, {{TOTAL_ITERATIONS}}, {{HEAD_SHA}} in this order, in the template only, and
// appends the directives unchanged. Without directives, the rest of the template stays unchanged, including trailing
// white space. Directives must be trimmed and not blank (see trimmed_directives()).
std::string assemble_prompt(std::string_view prompt_template, const PromptFacts& facts,
                            std::span<const std::string> directives);
// Each `{{NAME}}` that nothing replaces, once, in order, for a warning.
std::vector<std::string> unknown_placeholders(std::string_view prompt_template);
// Trimmed, without blank ones.
std::vector<std::string> trimmed_directives(std::span<const std::string> given);

// The directive for a held dev TPU. `self`: the command for this program.
std::string managed_tpu_directive(std::string_view self, std::string_view cluster, std::string_view name,
                                  std::string_view type);
// The directive for gates: what the loop does with a commit.
struct GateFacts {
    bool tests = false;  // false: only a profile
    std::string metric;  // empty: speed is not judged
    bool higher_is_better = true;
    std::string ce_implementation, ce_bwd_mode;  // settings of the profile; empty: it has no such setting
};
std::string gates_directive(const GateFacts& facts);
// Problems with post-checks while a dev TPU is held, without the prefix "[gdnctl] ".
std::vector<std::string> post_check_warnings(std::span<const std::string> post_checks, std::string_view cluster,
                                             std::string_view name);

// Finds iteration prompts and session directives by name: first in the repository, then among the copies in this
// binary.
//
//   prompts     scripts/gdn/codex_iteration_prompt.md, prompts/NAME.md
//   directives  scripts/gdn/session_directives/NAME.md, session_directives/NAME.md

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

// The embedded copies of prompts/ and session_directives/, generated when CMake configures.

struct EmbeddedDocument {
    bool prompt;
    std::string_view name, text;
};
std::span<const EmbeddedDocument> embedded_documents();

}  // namespace gdnctl::loop
