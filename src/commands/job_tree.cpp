#include "commands/job_tree.h"

#include <algorithm>

#include "gdnctl/core/target.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/fs.h"
#include "gdnctl/platform/process.h"
#include "gdnctl/platform/signals.h"
#include "gdnctl/services/git.h"

namespace gdnctl::commands {

namespace {

namespace fs = std::filesystem;

Result<ProcessResult> git(const fs::path& root, std::vector<std::string> words, Context& context) {
    ProcessSpec spec;
    spec.argv = {"git", "-C", root.string()};
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    spec.env = git_environment();
    spec.capture_limit = std::size_t{256} << 20;
    spec.wall_limit = std::chrono::minutes(2);
    spec.stop = context.stop;
    GDNCTL_TRY_ASSIGN(ProcessResult result, context.process.run(spec));
    if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    return result;
}

Result<std::vector<std::string>> walk(const fs::path& root) {
    std::vector<std::string> files;
    std::error_code problem;
    fs::recursive_directory_iterator it(root, problem);
    for (; !problem && it != fs::recursive_directory_iterator(); it.increment(problem)) {
        const std::string relative = it->path().lexically_relative(root).string();
        if (it->is_directory(problem)) {
            if (!is_packaged(relative + "/")) it.disable_recursion_pending();
            continue;
        }
        files.push_back(relative);
    }
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "read", root, problem.value()));
    return files;
}

}  // namespace

Result<WorkingTree> list_working_tree(const fs::path& root, Context& context) {
    std::error_code ignored;
    if (!fs::is_directory(root, ignored)) {
        return fail(ErrorKind::usage, "--working-dir is no folder: " + root.string());
    }
    WorkingTree tree{root, {}};
    if (find_repository_root(root)) {
        GDNCTL_TRY_ASSIGN(const ProcessResult listed,
                          git(root, {"ls-files", "-z", "--cached", "--others", "--exclude-standard"}, context));
        if (!listed.ok() || listed.out_truncated) {
            return fail(ErrorKind::local_io,
                        "git cannot list the files of " + root.string() + ": " + std::string(text::trim(listed.err)),
                        "`--working-dir none` runs the job without them");
        }
        for (const std::string_view name : text::split(listed.out, '\0')) {
            if (!name.empty()) tree.files.emplace_back(name);
        }
    } else {
        GDNCTL_TRY_ASSIGN(tree.files, walk(root));
    }
    std::erase_if(tree.files, [](const std::string& name) { return !is_packaged(name); });
    std::sort(tree.files.begin(), tree.files.end());
    tree.files.erase(std::unique(tree.files.begin(), tree.files.end()), tree.files.end());
    return tree;
}

std::map<std::string, std::string> git_facts(const fs::path& root, Context& context) {
    std::map<std::string, std::string> facts;
    if (!find_repository_root(root)) return facts;
    if (const auto head = git(root, {"rev-parse", "--verify", "HEAD"}, context); head && head->ok()) {
        facts["git_sha"] = std::string(text::trim(head->out));
    }
    // Files that nobody has added yet travel with the tree, so they count.
    if (const auto status = git(root, {"status", "--porcelain", "-unormal"}, context); status && status->ok()) {
        facts["dirty"] = text::trim(status->out).empty() ? "false" : "true";
    }
    return facts;
}

}  // namespace gdnctl::commands
