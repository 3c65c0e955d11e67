// What the agent is told: template, directives, warnings about what was told. Pure.
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

// Placeholders are replaced in the template alone, {{ITERATION}}, {{TOTAL_ITERATIONS}}, {{HEAD_SHA}} in this order; the
// directives follow as they are. Without directives the rest of the template stays as it is, white space at its end
// too. Directives must be trimmed and not blank (see trimmed_directives()).
std::string assemble_prompt(std::string_view prompt_template, const PromptFacts& facts,
                            std::span<const std::string> directives);
// `{{NAME}}` that nothing replaces, each once, in order; for one warning.
std::vector<std::string> unknown_placeholders(std::string_view prompt_template);
// Trimmed, blank ones left out.
std::vector<std::string> trimmed_directives(std::span<const std::string> given);

// The directive that goes with a held dev TPU. `self`: how this program is called.
std::string managed_tpu_directive(std::string_view self, std::string_view cluster, std::string_view name,
                                  std::string_view type);
// The directive that goes with gates: what the loop does with a commit.
struct GateFacts {
    bool tests = false;  // else a profile alone
    std::string metric;  // empty: speed is not judged
    bool higher_is_better = true;
    std::string ce_implementation, ce_bwd_mode;  // of the profile; empty: it has no such setting
};
std::string gates_directive(const GateFacts& facts);
// What is wrong with post-checks while a dev TPU is held, without the prefix "[gdnctl] ".
std::vector<std::string> post_check_warnings(std::span<const std::string> post_checks, std::string_view cluster,
                                             std::string_view name);

}  // namespace gdnctl::loop
