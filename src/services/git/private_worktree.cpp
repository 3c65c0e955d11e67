// PrivateWorktree: a linked worktree, outside the repository, that moves from commit to commit.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

// What an unfinished operation leaves in a worktree's own git folder.
constexpr std::array k_unfinished = {"MERGE_HEAD", "MERGE_MSG",   "MERGE_MODE",       "MERGE_RR",      "AUTO_MERGE",
                                     "SQUASH_MSG", "REVERT_HEAD", "REBASE_HEAD",      "rebase-merge",  "rebase-apply",
                                     "sequencer",  "BISECT_LOG",  "BISECT_START",     "BISECT_TERMS",  "BISECT_NAMES",
                                     "index.lock", "HEAD.lock",   "CHERRY_PICK_HEAD", "ORIG_HEAD.lock"};

// The worktree's git folder in the repository: the one whose `gitdir` file names SLOT/.git. Empty: none.
fs::path admin_of(const GitCheckout& repository, const fs::path& folder) {
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(repository.common_dir() / "worktrees", problem)) {
        const auto text = read_file_if_exists(entry.path() / "gitdir");
        if (text && *text && fs::path(std::string(text::trim(**text))) == folder / ".git") return entry.path();
    }
    return {};
}

// An unused path for files that are in the way of a worktree.
fs::path lost_place(const fs::path& worktree) {
    std::error_code problem;
    for (int n = 1;; ++n) {
        fs::path place = worktree.string() + fmt::format(".lost-{}", n);
        if (!fs::exists(fs::symlink_status(place, problem))) return place;
    }
}

}  // namespace

Status git::move_folder(const fs::path& from, const fs::path& to) {
    std::error_code problem;
    fs::create_directories(to.parent_path(), problem);
    fs::rename(from, to, problem);
    if (!problem) return {};
    // On another file system.
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks, problem);
    if (!problem) fs::remove_all(from, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "move", from, problem.value()));
    return {};
}

Status PrivateWorktree::mend_link() const {
    const fs::path link = m_checkout.root() / ".git";
    const std::string wanted = "gitdir: " + m_admin.string() + "\n";
    std::error_code problem;
    if (fs::is_regular_file(fs::symlink_status(link, problem))) {
        const auto text = read_file_if_exists(link);
        if (text && *text && **text == wanted) return {};
    }
    fs::remove(link, problem);  // a folder that is not empty stays: see move_repositories_aside()
    return atomic_replace(link, wanted);
}

Result<PrivateWorktree> PrivateWorktree::open(const GitCheckout& repository, const fs::path& folder, bool ours,
                                              Process& process, Clock& clock) {
    GDNCTL_TRY(make_private_directory(folder.parent_path()));
    std::error_code problem;
    // git stores the resolved path.
    const fs::path place = fs::weakly_canonical(folder, problem);
    fs::path admin = admin_of(repository, place);
    const bool known = !admin.empty() && fs::exists(admin / "HEAD", problem) && fs::exists(admin / "index", problem);
    // Someone removed the folder, but the commit is known.
    const bool emptied = known && !fs::exists(place, problem);
    if (emptied) fs::create_directories(place, problem);
    const bool whole = emptied || (known && fs::exists(place / ".git", problem));
    if (!whole) {
        // Either an unfinished worktree of a killed run, or one whose registration was pruned.
        if (fs::exists(place, problem)) {
            const fs::path aside = lost_place(place);
            GDNCTL_TRY(git::move_folder(place, aside));
            log::warning("moved the contents of {} to {}", place.string(), aside.string());
        }
        // Forced twice: a git that was killed while creating a worktree leaves it locked.
        GDNCTL_TRY(repository.m_calls->done(
            {"worktree", "add", "-q", "-f", "-f", "--detach", "--no-checkout", place.string(), "HEAD"}));
        admin = admin_of(repository, place);
        if (admin.empty()) return fail(ErrorKind::bad_input, "git created no worktree at " + place.string());
    }
    GitCheckout checkout(std::make_unique<git::Calls>(place, admin, repository.common_dir(), process, clock));
    checkout.m_calls->overrides = repository.m_calls->overrides;
    checkout.m_calls->is_private = true;
    PrivateWorktree worktree(std::move(checkout), admin);
    if (emptied) GDNCTL_TRY(worktree.mend_link());
    GDNCTL_TRY_ASSIGN(const GitHead users, repository.head());
    GDNCTL_TRY(worktree.m_checkout.leave_unborn(users.sha, {}));
    GDNCTL_TRY_ASSIGN(const GitHead head, worktree.m_checkout.head());
    if (!whole || emptied) GDNCTL_TRY(worktree.m_checkout.m_calls->done({"reset", "-q", "--hard", head.sha}));
    if (!whole) return worktree;
    for (const char* name : {"index.lock", "HEAD.lock"}) fs::remove(admin / name, problem);
    if (ours) return worktree;
    GDNCTL_TRY(worktree.rescue_repositories());
    GDNCTL_TRY_ASSIGN(const GitSnapshot left, worktree.m_checkout.snapshot(head.sha, "left in a slot of codex-loop\n"));
    const std::string& tip = left.commit.empty() ? head.sha : left.commit;
    GDNCTL_TRY_ASSIGN(const bool kept, worktree.m_checkout.is_kept(tip));
    if (!kept) {
        const GitRefUpdate pin{"refs/gdnctl/rescued/" + tip, tip};
        GDNCTL_TRY(repository.update_refs(std::span(&pin, 1)));
        worktree.m_rescued.push_back(pin.name);
        log::warning("work that was left in {} is kept at {}", place.string(), pin.name);
    }
    return worktree;
}

namespace {

// For calls outside our repository: git only uses `-C` to find the place.
git::CallOptions elsewhere() {
    git::CallOptions options;
    for (const char* name : {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR"}) options.env[name] = std::nullopt;
    return options;
}

// Git does not look into an ignored folder. Finds repositories in it at any depth.
void find_repositories(const fs::path& root, const fs::path& folder, std::vector<std::string>& found) {
    std::error_code problem;
    if (!fs::is_directory(fs::symlink_status(folder, problem))) return;
    if (fs::exists(fs::symlink_status(folder / ".git", problem)))
        found.push_back(folder.lexically_relative(root).string());
    for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
        std::error_code inner;
        if (at->path().filename() != ".git" && at->is_directory(inner) && !at->is_symlink(inner)) {
            find_repositories(root, at->path(), found);
        }
    }
}

}  // namespace

Result<std::vector<std::string>> PrivateWorktree::unpublished() const {
    const git::Calls& calls = *m_checkout.m_calls;
    GDNCTL_TRY_ASSIGN(const std::string ignored,
                      calls.output({"ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"}));
    std::vector<std::string> all, found;
    for (const auto path : text::split(ignored, '\0')) {
        if (!path.ends_with('/')) continue;
        find_repositories(m_checkout.root(), m_checkout.root() / path.substr(0, path.size() - 1), all);
    }
    for (const auto& path : all) {
        // Is it below one that is already kept?
        if (!found.empty() && (path + "/").starts_with(found.back() + "/")) continue;
        const git::Words words = {
            "-C", (m_checkout.root() / path).string(), "rev-list", "--max-count=1", "--all", "--not", "--remotes"};
        GDNCTL_TRY_ASSIGN(const ProcessResult own, calls.run(words, elsewhere()));
        if (own.ok() && !text::trim(own.out).empty()) found.push_back(path);
    }
    return found;
}

Status PrivateWorktree::rescue_repositories() {
    GDNCTL_TRY_ASSIGN(std::vector<std::string> paths, unpublished());
    GDNCTL_TRY_ASSIGN(const GitNested nested, m_checkout.nested());
    paths.insert(paths.end(), nested.links.begin(), nested.links.end());
    for (const auto& folder : nested.around_files) paths.push_back(folder + "/.git");
    paths.insert(paths.end(), nested.bare.begin(), nested.bare.end());
    GDNCTL_TRY_ASSIGN(const auto entries, m_checkout.status());
    for (const auto& entry : entries) {
        const bool inside = entry.kind == GitStatusEntry::Kind::untracked && entry.path.ends_with('/');
        if (inside) paths.push_back(entry.path.substr(0, entry.path.size() - 1));
    }
    if (paths.empty()) return {};
    GDNCTL_TRY(m_checkout.move_inside(paths, lost_place(m_checkout.root())));
    std::error_code problem;
    for (const auto& link : nested.links) fs::create_directories(m_checkout.root() / link, problem);
    return {};
}

Status PrivateWorktree::mend(const GitCheckout& repository) {
    const fs::path root = m_checkout.root();
    std::error_code problem;
    if (fs::exists(m_admin / "HEAD", problem) && fs::exists(m_admin / "gitdir", problem)) {
        fs::create_directories(root, problem);
        // A repository of the agent's own is moved aside together with the others.
        if (fs::is_directory(fs::symlink_status(root / ".git", problem))) return {};
        return mend_link();
    }
    log::warning("{} is no longer a worktree of the repository: recreating it", root.string());
    const git::Calls& calls = *repository.m_calls;
    GDNCTL_TRY_ASSIGN(PrivateWorktree anew, open(repository, root, true, calls.process, calls.clock));
    *this = std::move(anew);
    return {};
}

Status PrivateWorktree::show(const std::vector<std::string>& hidden) {
    return git::show_files(*m_checkout.m_calls, hidden, {});
}

Result<std::vector<fs::path>> PrivateWorktree::move_repositories_aside(std::span<const std::string> paths,
                                                                       const fs::path& folder) {
    std::vector<fs::path> places;
    std::error_code problem;
    if (fs::is_directory(fs::symlink_status(m_checkout.root() / ".git", problem))) {
        fs::path to = folder / "dot-git";
        for (int n = 2; fs::exists(to, problem); ++n) to = folder / fmt::format("dot-git.{}", n);
        GDNCTL_TRY(git::move_folder(m_checkout.root() / ".git", to));
        places.push_back(std::move(to));
    }
    // Later calls look for the worktree's own.
    GDNCTL_TRY(mend_link());
    GDNCTL_TRY_ASSIGN(auto inside, m_checkout.move_inside(paths, folder));
    places.insert(places.end(), std::make_move_iterator(inside.begin()), std::make_move_iterator(inside.end()));
    return places;
}

namespace {

// Folders that even their owner may not empty, and unreadable files: module caches are made like that.
void open_up(const fs::path& folder) {
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(folder, problem)) {
        const auto status = entry.symlink_status(problem);
        const bool is_folder = status.type() == fs::file_type::directory;
        if (!is_folder && status.type() != fs::file_type::regular) continue;
        const fs::perms wanted = is_folder ? fs::perms::owner_all : fs::perms::owner_read;
        if ((status.permissions() & wanted) != wanted) {
            fs::permissions(entry.path(), wanted, fs::perm_options::add, problem);
        }
        if (is_folder) open_up(entry.path());
    }
}

bool is_denied(const Error& error) {
    const auto says = [&](std::string_view words) { return error.message.find(words) != std::string::npos; };
    return says("Permission denied") || says("Operation not permitted");
}

}  // namespace

Result<GitSnapshot> PrivateWorktree::snapshot(std::string_view parent, std::string_view message) {
    auto left = m_checkout.snapshot(parent, message);
    const auto unread = [&] { return left ? left->unread : is_denied(left.error()); };
    if (!unread()) return left;
    open_up(m_checkout.root());
    left = m_checkout.snapshot(parent, message);
    if (!unread()) return left;
    // Owned by another user, for example made in a container.
    GDNCTL_TRY(move_aside());
    GDNCTL_TRY(move_to(parent, {}));
    return m_checkout.snapshot(parent, message);
}

Status PrivateWorktree::move_aside() {
    const fs::path root = m_checkout.root();
    const fs::path aside = lost_place(root);
    std::error_code problem;
    GDNCTL_TRY(git::move_folder(root, aside));
    log::warning("files in {} cannot be read or removed: moved it to {} and recreated it", root.string(),
                 aside.string());
    fs::create_directories(root, problem);
    return mend_link();
}

Status PrivateWorktree::move_to(std::string_view commit, std::span<const std::string> keep) {
    Status moved = try_move_to(commit, keep);
    if (moved || !is_denied(moved.error())) return moved;
    open_up(m_checkout.root());
    moved = try_move_to(commit, keep);
    if (moved || !is_denied(moved.error())) return moved;
    GDNCTL_TRY(move_aside());
    return try_move_to(commit, keep);
}

Status PrivateWorktree::try_move_to(std::string_view commit, std::span<const std::string> keep) {
    const git::Calls& calls = *m_checkout.m_calls;
    std::error_code problem;
    fs::create_directories(m_checkout.root(), problem);
    GDNCTL_TRY(mend_link());
    for (const char* name : k_unfinished) fs::remove_all(m_admin / name, problem);
    GDNCTL_TRY_ASSIGN(const ProcessResult moved,
                      calls.run({"checkout", "-q", "--force", "--detach", std::string(commit)}));
    if (!moved.ok()) {
        // checkout fails if HEAD is damaged, and refuses some changes. HEAD is set first, because reset would otherwise
        // move a branch that an agent switched to.
        GDNCTL_TRY(calls.done({"update-ref", "--no-deref", "-m", "gdnctl: next", "HEAD", std::string(commit)}));
        GDNCTL_TRY(calls.done({"reset", "-q", "--hard", std::string(commit)}));
    }
    git::Words clean = {"clean", "-q", "-ffdx"};
    for (const auto& path : keep) {
        clean.emplace_back("-e");
        clean.push_back("/" + path);
    }
    GDNCTL_TRY_ASSIGN(const ProcessResult cleaned, calls.run(clean));
    if (cleaned.ok()) return {};
    // git reports it in a warning.
    const auto denied = cleaned.err.find("Permission denied");
    auto refused = calls.refused("clean", cleaned);
    if (denied != std::string::npos) refused.value().message += " (Permission denied)";
    return refused;
}

// Submodules in a worktree: cloned from the user's checkout with shared objects, so that nothing is fetched from a
// remote.

namespace {

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

Status PrivateWorktree::fill_submodules(const GitCheckout& repository) {
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

Result<std::vector<std::string>> PrivateWorktree::keep_submodules(const GitCheckout& repository, std::string_view ref) {
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
        if (inside->root() != fs::weakly_canonical(here, problem)) continue;  // not a repository: the worktree itself
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
