// EDIT v1: how a model without tools changes files. Blocks of whole lines, found once, all of them or none. Pure.
//
//   EDIT v1 FILE
//   <<<<<<< SEARCH
//   old lines
//   =======
//   new lines
//   >>>>>>> REPLACE
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::loop::evolve {

// A separate line in a reply: the model proposes no edit.
inline constexpr std::string_view k_no_valid_edit = "<NO_VALID_EDIT/>";
bool abstains(std::string_view reply);

struct Edit {
    std::string file;
    std::vector<std::string> old_lines, new_lines;
    bool operator==(const Edit&) const = default;
};

struct EditReply {
    std::vector<Edit> edits;
    std::vector<std::string> problems;  // blocks that do not end, or lack a marker
};
EditReply parse_edits(std::string_view reply);

struct EditResult {
    std::string file;
    bool applied = false;
    std::string reason;  // empty when applied
};

struct AppliedEdits {
    bool all = false;                          // otherwise `files` is empty: nothing was applied
    std::map<std::string, std::string> files;  // those that changed, whole
    std::vector<EditResult> results;
    std::string near_misses;  // for the model: what the old lines are closest to; empty: nothing to say
};
// `files`: those that may be changed. The old lines must be in their file exactly once; indentation counts, and so do
// spaces at ends of lines. Files with CRLF keep it. More than `most` edits are refused.
AppliedEdits apply_edits(const EditReply& reply, const std::map<std::string, std::string>& files, std::size_t most = 2);

}  // namespace gdnctl::loop::evolve
