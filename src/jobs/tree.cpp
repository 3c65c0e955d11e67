#include "jobs/tree.h"

#include <algorithm>
#include <compare>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "services/git/git.h"
#include "target/target.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

Result<ProcessResult> git(const fs::path& root, std::vector<std::string> words, Context& context) {
    ProcessSpec spec;
    words.insert(words.begin(), {"-C", root.string()});
    spec.argv = git_command(std::move(words));
    spec.env = git_environment();
    spec.capture_limit = std::size_t{256} << 20;
    spec.wall_limit = std::chrono::minutes(2);
    spec.stop = context.stop;
    GDNCTL_TRY_ASSIGN(ProcessResult result, context.process.run(spec));
    if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    return result;
}

// Lists the files of a folder as a package takes them, including those of submodules, of other repositories inside it,
// and behind links to folders.
class TreeLister {
public:
    TreeLister(fs::path root, Context& context, TreeFilter filter)
        : m_root(std::move(root)), m_context(context), m_filter(filter) {}

    Result<std::vector<std::string>> list() {
        if (find_repository_root(m_root)) {
            GDNCTL_TRY(add_repository(""));
        } else {
            GDNCTL_TRY(walk());
        }
        std::sort(m_files.begin(), m_files.end());
        std::sort(m_links.begin(), m_links.end());
        for (const Link& link : m_links) GDNCTL_TRY(follow(link.name, link, {}));
        m_files.insert(m_files.end(), m_linked.begin(), m_linked.end());
        std::erase_if(m_files, [this](const std::string& name) { return !is_wanted(name); });
        std::sort(m_files.begin(), m_files.end());
        m_files.erase(std::unique(m_files.begin(), m_files.end()), m_files.end());
        return std::move(m_files);
    }

    // "vendor (a submodule that is not checked out)", for the user.
    const std::vector<std::string>& left_out() const { return m_left_out; }

private:
    struct Link {
        std::string name;
        std::string target;  // a folder below the root
        auto operator<=>(const Link&) const = default;
    };

    bool is_wanted(const std::string& name) const {
        if (m_filter == TreeFilter::packaged) return is_packaged(name);
        for (const std::string_view part : text::split(name, '/')) {
            if (part == ".git" || part == ".venv") return false;
        }
        return true;
    }

    Result<std::vector<std::string>> names_in(const std::string& prefix) {
        const fs::path folder = m_root / prefix;
        GDNCTL_TRY_ASSIGN(const ProcessResult listed,
                          git(folder, {"ls-files", "-z", "--cached", "--others", "--exclude-standard"}, m_context));
        if (!listed.ok() || listed.out_truncated) {
            return fail(ErrorKind::local_io,
                        "git cannot list the files of " + folder.string() + ": " + std::string(text::trim(listed.err)),
                        "`--working-dir none` runs the job without them");
        }
        std::vector<std::string> names;
        for (std::string_view name : text::split(listed.out, '\0')) {
            if (name.ends_with('/')) name.remove_suffix(1);  // an untracked repository
            if (!name.empty()) names.push_back(prefix + std::string(name));
        }
        std::sort(names.begin(), names.end());
        names.erase(std::unique(names.begin(), names.end()), names.end());
        return names;
    }

    // `prefix`: of the repository, relative to the root; empty or ending with '/'.
    Status add_repository(const std::string& prefix) {
        GDNCTL_TRY_ASSIGN(const auto names, names_in(prefix));
        for (const std::string& name : names) {
            std::error_code ignored;
            if (fs::symlink_status(m_root / name, ignored).type() != fs::file_type::directory) {
                add(name);
                continue;
            }
            if (!is_wanted(name)) continue;
            if (fs::exists(m_root / name / ".git", ignored)) {
                GDNCTL_TRY(add_repository(name + "/"));
                continue;
            }
            // If files are listed below it, a folder has replaced a tracked file.
            const auto below = std::lower_bound(names.begin(), names.end(), name + "/");
            if (below != names.end() && below->starts_with(name + "/")) continue;
            leave_out(name, "a submodule that is not checked out: git submodule update --init");
        }
        return {};
    }

    Status walk() {
        std::error_code problem;
        fs::recursive_directory_iterator it(m_root, problem);
        for (; !problem && it != fs::recursive_directory_iterator(); it.increment(problem)) {
            const std::string relative = it->path().lexically_relative(m_root).string();
            if (!it->is_symlink(problem) && it->is_directory(problem)) {
                if (!is_wanted(relative + "/")) it.disable_recursion_pending();
                continue;
            }
            add(relative);
        }
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "read", m_root, problem.value()));
        return {};
    }

    // A file, or a link to anything.
    void add(const std::string& name) {
        std::error_code problem;
        const fs::path path = m_root / name;
        const bool is_link = fs::is_symlink(path, problem);
        if (is_link && !is_wanted(name)) return;
        if (is_link && !fs::exists(path, problem)) return leave_out(name, "a broken link");
        if (!is_link || !fs::is_directory(path, problem)) {
            m_files.push_back(name);
            return;
        }
        const fs::path target = fs::canonical(path, problem).lexically_relative(fs::canonical(m_root, problem));
        if (target.begin() != target.end() && *target.begin() == "..") {
            m_files.push_back(name);  // packing refuses it
        } else {
            m_links.push_back({name, target.string()});
        }
    }

    // Adds the contents of the link's folder as if they were in a folder `name`. `within`: the folders on the way here.
    Status follow(const std::string& name, const Link& link, std::vector<std::string> within) {
        const bool circle = link.target == "." || name.starts_with(link.target + "/") ||
                            std::find(within.begin(), within.end(), link.target) != within.end();
        if (circle) {
            leave_out(name, "a link to a folder that contains it");
            return {};
        }
        within.push_back(link.target);
        const std::string folder = link.target + "/";
        const std::size_t before = m_linked.size();
        for (auto it = std::lower_bound(m_files.begin(), m_files.end(), folder);
             it != m_files.end() && it->starts_with(folder); ++it) {
            m_linked.push_back(name + "/" + it->substr(folder.size()));
        }
        constexpr std::size_t k_most = 100'000;
        if (m_linked.size() > k_most) {
            return fail(ErrorKind::usage, fmt::format("the working directory links to more than {} files", k_most),
                        "exclude links to large folders with .gitignore, such as " + name);
        }
        bool any = m_linked.size() > before;
        for (const Link& inner : m_links) {
            if (!inner.name.starts_with(folder)) continue;
            any = true;
            GDNCTL_TRY(follow(name + "/" + inner.name.substr(folder.size()), inner, within));
        }
        if (!any) leave_out(name, "a link to a folder without tracked files");
        return {};
    }

    void leave_out(const std::string& name, std::string_view why) {
        m_left_out.push_back(fmt::format("{} ({})", text::visible(name), why));
    }

    fs::path m_root;
    Context& m_context;
    TreeFilter m_filter;
    std::vector<std::string> m_files, m_linked, m_left_out;
    std::vector<Link> m_links;  // to folders below the root
};

Result<std::vector<std::string>> names_by(const fs::path& root, std::vector<std::string> words, Context& context) {
    GDNCTL_TRY_ASSIGN(const ProcessResult listed, git(root, std::move(words), context));
    if (!listed.ok() || listed.out_truncated) {
        return fail(ErrorKind::local_io, "git cannot compare " + root.string() +
                                             " with its last commit: " + std::string(text::trim(listed.err)));
    }
    std::vector<std::string> names;
    for (const std::string_view name : text::split(listed.out, '\0')) {
        if (!name.empty()) names.emplace_back(name);
    }
    return names;
}

// What a job would find at this path.
Result<std::string> content_at(const fs::path& path, Context& context) {
    std::error_code problem;
    const fs::file_status status = fs::symlink_status(path, problem);
    if (status.type() == fs::file_type::not_found) return std::string("absent");
    if (status.type() == fs::file_type::symlink) return "link " + fs::read_symlink(path, problem).string();
    if (status.type() == fs::file_type::directory) {
        // A submodule; or a folder in the place of a file, whose content is not tracked.
        if (!fs::exists(path / ".git", problem)) return std::string("folder");
        return source_state(path, {}, context);
    }
    const bool runs = (status.permissions() & fs::perms::owner_exec) != fs::perms::none;
    GDNCTL_TRY_ASSIGN(std::string hash, hash_file_hex(HashKind::sha256, path));
    return (runs ? "program " : "file ") + hash;
}

}  // namespace

Result<WorkingTree> list_working_tree(const fs::path& root, Context& context, TreeFilter filter) {
    std::error_code ignored;
    if (!fs::is_directory(root, ignored)) {
        return fail(ErrorKind::usage, "--working-dir: not a folder: " + root.string());
    }
    TreeLister lister(root, context, filter);
    WorkingTree tree{root, {}};
    GDNCTL_TRY_ASSIGN(tree.files, lister.list());
    constexpr std::size_t k_named = 10;
    const auto& left_out = lister.left_out();
    for (std::size_t i = 0; i < std::min(left_out.size(), k_named); ++i) {
        log::warning("not in the job's working directory: {}", left_out[i]);
    }
    if (left_out.size() > k_named) log::warning("{} more are missing from it", left_out.size() - k_named);
    return tree;
}

std::string head_commit(const fs::path& root, Context& context) {
    if (!find_repository_root(root)) return {};
    const auto head = git(root, {"rev-parse", "--verify", "-q", "HEAD"}, context);
    return head && head->ok() ? std::string(text::trim(head->out)) : "unborn";
}

bool has_commit(const fs::path& root, const std::string& commit, Context& context) {
    const bool is_hash = (commit.size() == 40 || commit.size() == 64) &&
                         commit.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!is_hash) return false;
    const auto found = git(root, {"cat-file", "-e", commit + "^{commit}"}, context);
    return found && found->ok();
}

Result<std::string> source_state(const fs::path& root, const std::set<std::string>& apart, Context& context) {
    if (!find_repository_root(root)) return std::string();
    const auto head = git(root, {"rev-parse", "--verify", "-q", "HEAD"}, context);
    if (!head) return tl::unexpected(head.error());
    std::string state(text::trim(head->out));
    // Before the first commit, all files differ.
    std::vector<std::string> words = {"ls-files", "-z"};
    if (!state.empty()) {
        words = {"-c",
                 "core.fsmonitor=false",
                 "diff",
                 "--name-only",
                 "-z",
                 "--no-ext-diff",
                 "--no-renames",
                 "--no-relative",
                 "--ignore-submodules=none",
                 "HEAD"};
    }
    GDNCTL_TRY_ASSIGN(const auto changed, names_by(root, words, context));
    std::set<std::string> names(changed.begin(), changed.end());
    // Files whose changes git was told to overlook.
    GDNCTL_TRY_ASSIGN(const auto flagged, names_by(root, {"ls-files", "-v", "-z"}, context));
    for (const std::string& line : flagged) {
        const bool overlooked = line.size() > 2 && (line[0] == 'S' || (line[0] >= 'a' && line[0] <= 'z'));
        std::error_code ignored;
        if (overlooked && fs::exists(fs::symlink_status(root / line.substr(2), ignored))) names.insert(line.substr(2));
    }
    for (const std::string& name : apart) names.erase(name);
    if (names.empty()) return state;
    std::string all;
    for (const std::string& name : names) {
        GDNCTL_TRY_ASSIGN(const std::string content, content_at(root / name, context));
        all += name + '\0' + content + '\n';
    }
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_hex(HashKind::sha256, all));
    return state + "+" + hash.substr(0, 16);
}

std::map<std::string, std::string> git_facts(const fs::path& root, Context& context) {
    std::map<std::string, std::string> facts;
    if (!find_repository_root(root)) return facts;
    if (const auto head = git(root, {"rev-parse", "--verify", "HEAD"}, context); head && head->ok()) {
        facts["git_sha"] = std::string(text::trim(head->out));
    }
    // Untracked files are sent with the tree, so they count.
    if (const auto status = git(root, {"status", "--porcelain", "-unormal"}, context); status && status->ok()) {
        facts["dirty"] = text::trim(status->out).empty() ? "false" : "true";
    }
    return facts;
}

}  // namespace gdnctl
