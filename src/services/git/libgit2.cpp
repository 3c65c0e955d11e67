// The functions of libgit2 that gdnctl uses, opened on first use.
#include <unordered_map>

#include <fmt/format.h>
#include <git2.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/late_library.h"
#include "services/git/history.h"

namespace gdnctl::git {

#define GDNCTL_GIT2_API(X)             \
    X(git_libgit2_init)                \
    X(git_libgit2_opts)                \
    X(git_error_last)                  \
    X(git_repository_open_ext)         \
    X(git_repository_free)             \
    X(git_repository_is_bare)          \
    X(git_repository_is_shallow)       \
    X(git_revparse_single)             \
    X(git_object_peel)                 \
    X(git_object_free)                 \
    X(git_object_id)                   \
    X(git_commit_lookup)               \
    X(git_commit_free)                 \
    X(git_commit_id)                   \
    X(git_commit_message)              \
    X(git_commit_time)                 \
    X(git_commit_parentcount)          \
    X(git_commit_parent_id)            \
    X(git_commit_tree)                 \
    X(git_commit_tree_id)              \
    X(git_tree_free)                   \
    X(git_tree_entry_bypath)           \
    X(git_tree_entry_id)               \
    X(git_tree_entry_type)             \
    X(git_tree_entry_free)             \
    X(git_blob_lookup)                 \
    X(git_blob_free)                   \
    X(git_blob_rawcontent)             \
    X(git_blob_rawsize)                \
    X(git_revwalk_new)                 \
    X(git_revwalk_free)                \
    X(git_revwalk_sorting)             \
    X(git_revwalk_push)                \
    X(git_revwalk_next)                \
    X(git_oid_fromstr)                 \
    X(git_oid_tostr)                   \
    X(git_reference_iterator_glob_new) \
    X(git_reference_iterator_free)     \
    X(git_reference_next)              \
    X(git_reference_name_to_id)        \
    X(git_reference_peel)              \
    X(git_reference_free)

GDNCTL_LATE_API(Git2Api, GDNCTL_GIT2_API, "libgit2", "libgit2.so.1.5", "libgit2-1.5")

// The table of functions, after git_libgit2_init (once per process: it takes 5 ms) and the options that every use
// needs.
Result<const Git2Api*> git2();

// History through libgit2 1.5. Only reads: it does not touch index, work tree or refs.

Result<const Git2Api*> git2() {
    GDNCTL_TRY_ASSIGN(const Git2Api* api, late_api<Git2Api>());
    static const int k_state = [api] {
        const int state = api->git_libgit2_init();
        if (state < 0) return state;
        // Extensions of the format that do not matter for reading history.
        const char* extensions[] = {"worktreeconfig", "partialclone"};
        api->git_libgit2_opts(GIT_OPT_SET_EXTENSIONS, extensions, std::size_t{2});
        return state;
    }();
    if (k_state < 0) return fail(ErrorKind::infrastructure, "libgit2 does not start");
    return api;
}

namespace {

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

class Libgit2Repository final : public Repository {
public:
    Libgit2Repository(const Git2Api& api, Owned<git_repository> handle) : m_api(api), m_handle(std::move(handle)) {}

    Result<std::optional<Commit>> commit(std::string_view revision) override {
        if (revision == "HEAD") return head();
        GDNCTL_TRY_ASSIGN(const auto object, peeled(revision));
        if (!object) return std::optional<Commit>();
        return read_commit(*m_api.git_object_id(object.get()));
    }

    Result<std::vector<Commit>> history(std::span<const std::string> tips) override {
        std::vector<Commit> commits;
        GDNCTL_TRY(walk(tips, [&](const git_oid& id) -> Status {
            GDNCTL_TRY_ASSIGN(auto commit, read_commit(id));
            commits.push_back(std::move(commit));
            return {};
        }));
        return commits;
    }

    Result<std::vector<std::string>> tips_under(std::string_view prefix) override {
        git_reference_iterator* raw = nullptr;
        if (m_api.git_reference_iterator_glob_new(&raw, m_handle.get(), fmt::format("{}*", prefix).c_str()) < 0) {
            return broken("listing refs");
        }
        const Owned<git_reference_iterator> iterator(raw, m_api.git_reference_iterator_free);
        std::vector<std::string> tips;
        for (git_reference* next = nullptr; m_api.git_reference_next(&next, iterator.get()) == 0;) {
            const Owned<git_reference> reference(next, m_api.git_reference_free);
            git_object* target = nullptr;
            if (m_api.git_reference_peel(&target, reference.get(), GIT_OBJECT_COMMIT) < 0) continue;
            const Owned<git_object> object(target, m_api.git_object_free);
            tips.push_back(hex(*m_api.git_object_id(object.get())));
        }
        return tips;
    }

    Result<std::vector<FileVersion>> file_versions(std::string_view tip, std::string_view path) override {
        const std::string file(path);
        std::unordered_map<std::string, std::string> blob_of;  // commit -> blob, "" if it lacks the file
        const auto blob = [&](const git_oid& id) -> Result<std::string> {
            const std::string sha = hex(id);
            if (const auto known = blob_of.find(sha); known != blob_of.end()) return known->second;
            GDNCTL_TRY_ASSIGN(auto found, blob_in_commit(id, file));
            return blob_of.emplace(sha, std::move(found)).first->second;
        };
        std::vector<FileVersion> versions;
        const std::string start(tip);
        GDNCTL_TRY(walk({&start, 1}, [&](const git_oid& id) -> Status {
            GDNCTL_TRY_ASSIGN(auto now, blob(id));
            if (now.empty()) return {};
            GDNCTL_TRY_ASSIGN(const auto commit, lookup(id));
            FileVersion version{hex(id), now, {}};
            for (unsigned i = 0; i < m_api.git_commit_parentcount(commit.get()); ++i) {
                GDNCTL_TRY_ASSIGN(auto before, blob(*m_api.git_commit_parent_id(commit.get(), i)));
                if (before == now) return {};
                if (!before.empty()) version.parent_blobs.push_back(std::move(before));
            }
            versions.push_back(std::move(version));
            return {};
        }));
        return versions;
    }

    Result<std::vector<std::string>> blobs(std::span<const std::string> ids) override {
        std::vector<std::string> texts;
        for (const auto& id : ids) {
            GDNCTL_TRY_ASSIGN(auto text, read_blob(id));
            texts.push_back(std::move(text));
        }
        return texts;
    }

    Result<std::optional<std::string>> file_at(std::string_view revision, std::string_view path) override {
        GDNCTL_TRY_ASSIGN(const auto object, peeled(revision));
        if (!object) return fail(ErrorKind::usage, "no such revision: " + std::string(revision));
        GDNCTL_TRY_ASSIGN(const auto id, blob_in_commit(*m_api.git_object_id(object.get()), std::string(path)));
        if (id.empty()) return std::optional<std::string>();
        return read_blob(id);
    }

    Result<std::vector<std::string>> shallow_commits() override { return std::vector<std::string>(); }

private:
    tl::unexpected<Error> broken(std::string_view step) const {
        const git_error* last = m_api.git_error_last();
        return fail(ErrorKind::bad_input,
                    fmt::format("libgit2 failed {}: {}", step, last != nullptr ? last->message : "no reason given"));
    }

    std::string hex(const git_oid& id) const {
        std::array<char, GIT_OID_HEXSZ + 1> text{};
        m_api.git_oid_tostr(text.data(), text.size(), &id);
        return text.data();
    }

    // Not by git_revparse_single(), which leaks the reference if its object is lost.
    Result<std::optional<Commit>> head() const {
        git_oid id;
        const int found = m_api.git_reference_name_to_id(&id, m_handle.get(), "HEAD");
        if (found == GIT_ENOTFOUND || found == GIT_EUNBORNBRANCH) return std::optional<Commit>();
        if (found < 0) return broken("reading HEAD");
        return read_commit(id);
    }

    // The commit for a revision, or null.
    Result<Owned<git_object>> peeled(std::string_view revision) const {
        git_object* raw = nullptr;
        const int found = m_api.git_revparse_single(&raw, m_handle.get(), std::string(revision).c_str());
        Owned<git_object> object(raw, m_api.git_object_free);
        if (found == GIT_ENOTFOUND || found == GIT_EAMBIGUOUS || found == GIT_EINVALIDSPEC ||
            found == GIT_EUNBORNBRANCH) {
            return Owned<git_object>(nullptr, m_api.git_object_free);
        }
        if (found < 0) return broken("resolving a revision");
        git_object* commit = nullptr;
        if (m_api.git_object_peel(&commit, object.get(), GIT_OBJECT_COMMIT) < 0) commit = nullptr;
        return Owned<git_object>(commit, m_api.git_object_free);
    }

    Result<Owned<git_commit>> lookup(const git_oid& id) const {
        git_commit* raw = nullptr;
        if (m_api.git_commit_lookup(&raw, m_handle.get(), &id) < 0) return broken("reading commit " + hex(id));
        return Owned<git_commit>(raw, m_api.git_commit_free);
    }

    Result<Commit> read_commit(const git_oid& id) const {
        GDNCTL_TRY_ASSIGN(const auto raw, lookup(id));
        Commit commit;
        commit.sha = hex(id);
        commit.time = WallTime(std::chrono::seconds(m_api.git_commit_time(raw.get())));
        for (unsigned i = 0; i < m_api.git_commit_parentcount(raw.get()); ++i) {
            commit.parents.push_back(hex(*m_api.git_commit_parent_id(raw.get(), i)));
        }
        const char* message = m_api.git_commit_message(raw.get());
        commit.message = message != nullptr ? message : "";
        return commit;
    }

    // Blob id of the file in a commit; empty: missing.
    Result<std::string> blob_in_commit(const git_oid& id, const std::string& path) const {
        GDNCTL_TRY_ASSIGN(const auto commit, lookup(id));
        git_tree* raw_tree = nullptr;
        if (m_api.git_commit_tree(&raw_tree, commit.get()) < 0) return broken("reading the tree of " + hex(id));
        const Owned<git_tree> tree(raw_tree, m_api.git_tree_free);
        git_tree_entry* raw_entry = nullptr;
        const int found = m_api.git_tree_entry_bypath(&raw_entry, tree.get(), path.c_str());
        if (found == GIT_ENOTFOUND) return std::string();
        if (found < 0) return broken("reading the tree of " + hex(id));
        const Owned<git_tree_entry> entry(raw_entry, m_api.git_tree_entry_free);
        if (m_api.git_tree_entry_type(entry.get()) != GIT_OBJECT_BLOB) return std::string();
        return hex(*m_api.git_tree_entry_id(entry.get()));
    }

    Result<std::string> read_blob(const std::string& sha) const {
        git_oid id;
        git_blob* raw = nullptr;
        if (m_api.git_oid_fromstr(&id, sha.c_str()) < 0 || m_api.git_blob_lookup(&raw, m_handle.get(), &id) < 0) {
            return broken("reading file contents " + sha);
        }
        const Owned<git_blob> blob(raw, m_api.git_blob_free);
        return std::string(static_cast<const char*>(m_api.git_blob_rawcontent(blob.get())),
                           static_cast<std::size_t>(m_api.git_blob_rawsize(blob.get())));
    }

    // Children before parents; otherwise newest first.
    template <class F>
    Status walk(std::span<const std::string> tips, F use) const {
        git_revwalk* raw = nullptr;
        if (m_api.git_revwalk_new(&raw, m_handle.get()) < 0) return broken("walking the history");
        const Owned<git_revwalk> revwalk(raw, m_api.git_revwalk_free);
        m_api.git_revwalk_sorting(revwalk.get(), GIT_SORT_TOPOLOGICAL | GIT_SORT_TIME);
        git_oid id;
        for (const auto& tip : tips) {
            if (m_api.git_oid_fromstr(&id, tip.c_str()) < 0 || m_api.git_revwalk_push(revwalk.get(), &id) < 0) {
                return broken("walking the history from " + tip);
            }
        }
        int next = 0;
        while ((next = m_api.git_revwalk_next(&id, revwalk.get())) == 0) GDNCTL_TRY(use(id));
        if (next != GIT_ITEROVER) return broken("walking the history");
        return {};
    }

    const Git2Api& m_api;
    Owned<git_repository> m_handle;
};

// The repository's config file, which linked worktrees share.
std::string config_text(const std::filesystem::path& root) {
    namespace fs = std::filesystem;
    const auto read = [](const fs::path& path) {
        auto text = read_file_if_exists(path, std::size_t{1} << 20);
        return text && *text ? std::move(**text) : std::string();
    };
    fs::path folder = root / ".git";
    std::error_code ec;
    if (fs::is_regular_file(folder, ec)) {
        const std::string link = read(folder);  // `gitdir: PATH`
        const auto colon = link.find(':');
        if (colon == std::string::npos) return {};
        folder = root / std::string(text::trim(std::string_view(link).substr(colon + 1)));
        const std::string common = read(folder / "commondir");
        if (!common.empty()) folder /= std::string(text::trim(common));
    }
    return text::to_lower(read(folder / "config"));
}

// Why libgit2 1.5 must not read this repository; empty: it may. Checked before it opens anything, because it leaks
// memory when it refuses an extension.
std::string_view unreadable_because(const std::filesystem::path& root) {
    const std::string config = config_text(root);
    const auto has = [&](std::string_view word) { return config.find(word) != std::string::npos; };
    if (has("objectformat")) return "the repository does not use SHA-1";
    if (has("partialclone") || has("promisor")) return "the clone is partial";
    if (has("refstorage")) return "the refs are not kept in files";
    return {};
}

}  // namespace

Result<std::unique_ptr<Repository>> open_with_libgit2(const std::filesystem::path& root, std::string& why) {
    std::unique_ptr<Repository> nothing;
    const auto opened = git2();
    if (!opened) {
        why = opened.error().message;
        return nothing;
    }
    why = unreadable_because(root);
    if (!why.empty()) return nothing;
    const Git2Api& api = **opened;
    git_repository* raw = nullptr;
    if (api.git_repository_open_ext(&raw, root.c_str(), GIT_REPOSITORY_OPEN_NO_SEARCH, nullptr) < 0) {
        const git_error* last = api.git_error_last();
        why = last != nullptr ? last->message : "the repository does not open";
        return nothing;
    }
    Owned<git_repository> handle(raw, api.git_repository_free);
    if (api.git_repository_is_bare(handle.get()) == 1) {
        return fail(ErrorKind::usage, "a bare repository has no work tree: " + root.string(),
                    "run it in a checkout of that repository");
    }
    if (api.git_repository_is_shallow(handle.get()) == 1) {
        why = "the clone is shallow";
        return nothing;
    }
    return std::make_unique<Libgit2Repository>(api, std::move(handle));
}

}  // namespace gdnctl::git
