// The agent's instructions: template, directives, and warnings about them. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace gdnctl::loop
