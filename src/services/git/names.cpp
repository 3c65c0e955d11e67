// The objects of a repository's branches, tags, notes and stashes, and one commit that keeps all of them.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/clock.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"

namespace gdnctl {

Result<std::vector<GitName>> GitCheckout::names() const {
    // Without reading the objects: a single broken ref would abort the listing.
    GDNCTL_TRY_ASSIGN(const std::string out, m_calls->output({"for-each-ref", "--format=%(objectname) %(refname)",
                                                              "refs/heads", "refs/tags", "refs/notes", "refs/stash"}));
    std::vector<GitName> found;
    for (const auto line : text::split(out, '\n')) {
        const auto at = line.find(' ');
        if (at == std::string_view::npos) continue;
        GitName name{std::string(line.substr(at + 1)), std::string(line.substr(0, at))};
        if (name.ref == "refs/notes/gdnctl") continue;
        if (name.ref != k_stash_ref) {
            found.push_back(std::move(name));
            continue;
        }
        GDNCTL_TRY_ASSIGN(const auto all, stashes());
        for (const auto& one : all) found.push_back({name.ref, one.commit, one.message});
    }
    return found;
}

Result<std::string> GitCheckout::gather(const std::vector<GitName>& names, std::string_view message) const {
    git::CallOptions asked;
    for (const auto& name : names) asked.input += name.object + "^{commit}\n";
    std::set<std::string> parents;
    if (!names.empty()) {
        GDNCTL_TRY_ASSIGN(const std::string out,
                          m_calls->output({"cat-file", "--batch-check=%(objectname) %(objecttype)"}, asked));
        for (const auto line : text::split(out, '\n')) {
            // A tag of a file has no commit, and missing objects cannot be kept.
            if (line.ends_with(" commit")) parents.emplace(line.substr(0, line.find(' ')));
        }
    }
    GDNCTL_TRY_ASSIGN(const std::string tree, m_calls->line({"mktree"}));
    // Not by commit-tree: there may be more parents than fit on a command line.
    git::CallOptions commit;
    commit.input = "tree " + tree + "\n";
    for (const auto& parent : parents) commit.input += "parent " + parent + "\n";
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(m_calls->clock.wall().time_since_epoch()).count();
    for (const char* who : {"author", "committer"}) {
        commit.input += fmt::format("{} {} <{}> {} +0000\n", who, git::k_our_name, git::k_our_mail, now);
    }
    commit.input += fmt::format("\n{}", message);
    return m_calls->line({"hash-object", "-t", "commit", "-w", "--stdin"}, commit);
}

}  // namespace gdnctl
