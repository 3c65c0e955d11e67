// Submodules in a slot: cloned from the user's checkout with shared objects, so that nothing is fetched from a remote.
#include <fmt/format.h>

#include "core/text.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

// For calls outside our repository: git only uses `-C` to find the place.
git::CallOptions elsewhere() {
    git::CallOptions options;
    for (const char* name : {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR"}) options.env[name] = std::nullopt;
    return options;
}

struct Link {
    std::string path, commit;
};

Result<std::vector<Link>> links_of(const git::Calls& calls) {
    std::vector<Link> links;
    std::error_code problem;
    if (!fs::exists(calls.root / ".gitmodules", problem)) return links;
    GDNCTL_TRY_ASSIGN(const std::string out, calls.output({"ls-tree", "-r", "-z", "HEAD"}));
    for (const auto item : text::split(out, '\0')) {
        const auto tab = item.find('\t');  // 160000 commit ID\tPATH
        if (!item.starts_with("160000 commit ") || tab == std::string_view::npos) continue;
        links.push_back({std::string(item.substr(tab + 1)), std::string(item.substr(14, tab - 14))});
    }
    return links;
}

}  // namespace

Status GitSlot::fill_submodules(const GitCheckout& repository) {
    const git::Calls& calls = *m_checkout.m_calls;
    GDNCTL_TRY_ASSIGN(const auto links, links_of(calls));
    for (const auto& link : links) {
        const fs::path source = repository.root() / link.path;
        const fs::path here = m_checkout.root() / link.path;
        std::error_code problem;
        if (!fs::exists(source / ".git", problem)) continue;  // the user has not checked it out either
        if (!fs::exists(here / ".git", problem)) {
            GDNCTL_TRY(calls.done({"-c", "protocol.file.allow=always", "clone", "-q", "--shared", "--no-checkout", "--",
                                   source.string(), here.string()},
                                  elsewhere()));
        }
        const git::Words words = {"-C", here.string(), "checkout", "-q", "--force", "--detach", link.commit};
        GDNCTL_TRY_ASSIGN(const ProcessResult moved, calls.run(words, elsewhere()));
        if (!moved.ok()) {
            return fail(ErrorKind::config,
                        fmt::format("the submodule {} of {} lacks the commit {}", link.path, repository.root().string(),
                                    link.commit.substr(0, 12)),
                        "git submodule update --init " + text::shell_quote(link.path));
        }
        GDNCTL_TRY(calls.done({"-C", here.string(), "clean", "-q", "-ffdx"}, elsewhere()));
    }
    return {};
}

Result<std::vector<std::string>> GitSlot::keep_submodules(const GitCheckout& repository, std::string_view ref) {
    const git::Calls& calls = *m_checkout.m_calls;
    GDNCTL_TRY_ASSIGN(const auto links, links_of(calls));
    std::vector<std::string> kept;
    for (const auto& link : links) {
        const fs::path source = repository.root() / link.path;
        const fs::path here = m_checkout.root() / link.path;
        std::error_code problem;
        if (!fs::exists(here / ".git", problem)) continue;
        // The agent cloned a submodule that the user has not checked out; its content goes to the repository itself.
        const bool users = fs::exists(source / ".git", problem);
        auto inside = GitCheckout::open(here, calls.process, calls.clock);
        if (!inside && !users) continue;
        if (!inside) return tl::unexpected(inside.error());
        if (inside->root() != fs::weakly_canonical(here, problem)) continue;  // not a repository: the slot itself
        GDNCTL_TRY_ASSIGN(const GitHead head, inside->head());
        GDNCTL_TRY_ASSIGN(const GitSnapshot left, inside->snapshot(head.sha, "left in a submodule\n"));
        const std::string& tip = left.commit.empty() ? head.sha : left.commit;
        GDNCTL_TRY_ASSIGN(const GitCheckout origin,
                          GitCheckout::open(users ? source : repository.root(), calls.process, calls.clock));
        const std::string name = users ? std::string(ref) : fmt::format("{}-in-submodule-{}", ref, kept.size() + 1);
        const auto fetch = [&](const std::string& commit, const std::string& to) {
            return calls.done(
                {"-c", "protocol.file.allow=always", "-C", origin.root().string(), "fetch", "-q", "--no-tags",
                 "--no-write-fetch-head", "--recurse-submodules=no", here.string(), fmt::format("+{}:{}", commit, to)},
                elsewhere());
        };
        if (!users) {
            // Updating the submodule fetches its commit from the remote, which may lack it.
            GDNCTL_TRY_ASSIGN(const auto linked, inside->resolve(link.commit));
            GDNCTL_TRY_ASSIGN(const bool followed, linked ? inside->is_published(*linked) : Result<bool>(true));
            if (!followed) GDNCTL_TRY(fetch(link.commit, name + "-link"));
            GDNCTL_TRY_ASSIGN(const bool published, inside->is_published(tip));
            if (published) continue;
        }
        GDNCTL_TRY_ASSIGN(const auto known, origin.resolve(tip));
        if (known && users) continue;
        GDNCTL_TRY(fetch(tip, name));
        kept.push_back(link.path);
    }
    return kept;
}

}  // namespace gdnctl
