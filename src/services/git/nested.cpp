// Repositories inside a checkout that are not its submodules. Git shows them as one link to a commit or, around tracked
// files, not at all; cleaning the checkout deletes their history.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"
#include "services/git/hidden.h"

namespace gdnctl {

namespace fs = std::filesystem;
using git::Words;

namespace {

bool has_git(const fs::path& folder) {
    std::error_code problem;
    return fs::exists(fs::symlink_status(folder / ".git", problem));
}

// What every bare repository has, even before its first commit.
bool is_bare(const fs::path& folder) {
    std::error_code problem;
    return fs::is_regular_file(folder / "HEAD", problem) && fs::is_directory(folder / "objects", problem) &&
           fs::is_directory(folder / "refs", problem);
}

// Git sees them as folders of untracked files.
Result<std::vector<std::string>> find_bare(const git::Calls& calls, const std::set<std::string>& tracked) {
    GDNCTL_TRY_ASSIGN(const std::string out, calls.output({"ls-files", "--others", "--exclude-standard", "-z"}));
    std::vector<std::string> found;
    for (const auto path : text::split(out, '\0')) {
        if (!path.ends_with("/HEAD")) continue;
        const std::string folder(path.substr(0, path.rfind('/')));
        const bool inside = !found.empty() && folder.starts_with(found.back() + "/");
        if (!inside && !tracked.contains(folder) && is_bare(calls.root / folder)) found.push_back(folder);
    }
    return found;
}

// Paths named by .gitmodules in `tree` ("" is the index).
Result<std::set<std::string>> named_modules(const git::Calls& calls, std::string_view tree) {
    GDNCTL_TRY_ASSIGN(const ProcessResult said,
                      calls.run({"config", "-z", "--blob", fmt::format("{}:.gitmodules", tree), "--get-regexp",
                                 R"(^submodule\..*\.path$)"}));
    std::set<std::string> paths;
    if (!said.ok()) return paths;  // the file is missing, or names none
    for (const auto item : text::split(said.out, '\0')) {
        const auto at = item.find('\n');
        if (at != std::string_view::npos) paths.emplace(item.substr(at + 1));
    }
    return paths;
}

// From the index: paths of links, and all folders that contain other files.
Status read_index(const git::Calls& calls, std::set<std::string>& links, std::set<std::string>& folders) {
    GDNCTL_TRY_ASSIGN(const std::string out, calls.output({"ls-files", "--stage", "-z"}));
    std::string_view last;
    for (const auto item : text::split(out, '\0')) {
        const auto tab = item.find('\t');  // MODE ID STAGE\tPATH
        if (tab == std::string_view::npos) continue;
        const std::string_view path = item.substr(tab + 1);
        if (item.starts_with("160000 ")) links.emplace(path);
        auto end = path.rfind('/');
        if (end == std::string_view::npos || path.substr(0, end) == last) continue;
        last = path.substr(0, end);
        for (; end != std::string_view::npos; end = path.rfind('/', end - 1)) {
            if (!folders.emplace(path.substr(0, end)).second || end == 0) break;
        }
    }
    return {};
}

// Git does not look into an ignored folder. Finds repositories in it at any depth.
void find_repositories(const fs::path& root, const fs::path& folder, std::vector<std::string>& found) {
    std::error_code problem;
    if (!fs::is_directory(fs::symlink_status(folder, problem))) return;
    if (has_git(folder)) found.push_back(folder.lexically_relative(root).string());
    for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
        std::error_code inner;
        if (at->path().filename() != ".git" && at->is_directory(inner) && !at->is_symlink(inner)) {
            find_repositories(root, at->path(), found);
        }
    }
}

}  // namespace

Result<std::vector<std::string>> GitCheckout::unnamed_links(std::string_view commit,
                                                            std::span<const std::string> paths) const {
    std::vector<std::string> unnamed;
    if (paths.empty()) return unnamed;
    GDNCTL_TRY_ASSIGN(const auto named, named_modules(*m_calls, commit));
    std::copy_if(paths.begin(), paths.end(), std::back_inserter(unnamed),
                 [&](const std::string& path) { return !named.contains(path); });
    return unnamed;
}

Result<GitNested> GitCheckout::nested() const {
    std::set<std::string> links, folders;
    GDNCTL_TRY(read_index(*m_calls, links, folders));
    GitNested found;
    std::vector<std::string> filled;
    for (const auto& path : links) {
        if (has_git(root() / path)) filled.push_back(path);
    }
    GDNCTL_TRY_ASSIGN(found.links, unnamed_links({}, filled));
    for (const auto& path : folders) {
        if (has_git(root() / path)) found.around_files.push_back(path);
    }
    GDNCTL_TRY_ASSIGN(found.bare, find_bare(*m_calls, folders));
    return found;
}

Result<bool> GitCheckout::has_link(std::string_view commit, std::string_view path) const {
    GDNCTL_TRY_ASSIGN(const std::string entry, m_calls->output({"--literal-pathspecs", "ls-tree", "-z", "--full-tree",
                                                                std::string(commit), "--", std::string(path)}));
    return entry.starts_with("160000 ");
}

Result<bool> GitCheckout::is_published(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const std::string own,
                      m_calls->output({"rev-list", "--max-count=1", std::string(commit), "--not", "--remotes"}));
    return own.empty();
}

Status GitCheckout::fetch_from(const fs::path& repository, std::string_view ref) const {
    GDNCTL_TRY_ASSIGN(
        const ProcessResult fetched,
        m_calls->run({"-c", "protocol.file.allow=always", "fetch", "-q", "--no-tags", "--no-write-fetch-head",
                      "--recurse-submodules=no", repository.string(), fmt::format("+HEAD:{}", ref)}));
    // One without a commit, or a damaged one.
    if (!fetched.ok()) log::debug("nothing is fetched from {}: {}", repository.string(), git::reason_of(fetched.err));
    return {};
}

Status GitCheckout::unstage(std::string_view path) const {
    git::CallOptions paths;
    paths.input = std::string(path) + '\0';
    return m_calls->done({"update-index", "-z", "--force-remove", "--stdin"}, paths);
}

Result<std::vector<fs::path>> GitCheckout::move_inside(std::span<const std::string> paths,
                                                       const fs::path& folder) const {
    std::vector<fs::path> places;
    for (const auto& path : paths) {
        fs::path to = folder / path;
        std::error_code problem;
        for (int n = 2; fs::exists(fs::symlink_status(to, problem)); ++n) to = folder / fmt::format("{}.{}", path, n);
        GDNCTL_TRY(git::move_folder(root() / path, to));
        log::warning("{} in {} is a nested repository: moved it to {}", path, root().string(), to.string());
        places.push_back(std::move(to));
    }
    return places;
}

Result<std::vector<std::string>> GitSlot::unpublished() const {
    const git::Calls& calls = *m_checkout.m_calls;
    GDNCTL_TRY_ASSIGN(const std::string ignored,
                      calls.output({"ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"}));
    std::vector<std::string> all, found;
    for (const auto path : text::split(ignored, '\0')) {
        if (!path.ends_with('/')) continue;
        find_repositories(m_checkout.root(), m_checkout.root() / path.substr(0, path.size() - 1), all);
    }
    git::CallOptions elsewhere;
    for (const char* name : {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR"}) elsewhere.env[name] = std::nullopt;
    for (const auto& path : all) {
        // Is it below one that is already kept?
        if (!found.empty() && (path + "/").starts_with(found.back() + "/")) continue;
        const Words words = {
            "-C", (m_checkout.root() / path).string(), "rev-list", "--max-count=1", "--all", "--not", "--remotes"};
        GDNCTL_TRY_ASSIGN(const ProcessResult own, calls.run(words, elsewhere));
        if (own.ok() && !text::trim(own.out).empty()) found.push_back(path);
    }
    return found;
}

}  // namespace gdnctl
