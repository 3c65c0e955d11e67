#include "services/devtpu/sync.h"

#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/signals.h"

namespace gdnctl::devtpu {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::minutes k_manifest_limit{2};
constexpr std::chrono::minutes k_idle_limit{5};  // without a byte from rsync or tar, which transfer large files
                                                 // silently

// The files of the tree that exist and do not lead out of it.
Result<WorkingTree> present(const WorkingTree& tree) {
    WorkingTree out{tree.root, {}};
    std::error_code problem;
    const fs::path root = fs::canonical(tree.root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "read", tree.root, problem.value()));
    for (const std::string& name : tree.files) {
        const fs::path path = tree.root / name;
        struct stat info{};
        if (lstat(path.c_str(), &info) != 0) continue;
        if (S_ISLNK(info.st_mode)) {
            const fs::path target = fs::canonical(path, problem);
            if (problem) continue;
            if (!is_inside(root, target)) {
                return fail(ErrorKind::local_io, "the link " + text::visible(name) + " leads out of the working tree",
                            "remove it, or exclude it with .gitignore");
            }
        }
        out.files.push_back(name);
    }
    return out;
}

// A word of rsync's `-e`, which knows quotes but no backslashes.
std::string rsync_word(std::string_view word) {
    std::string out = "'";
    for (const char c : word) out.append(c == '\'' ? 2 : 1, c);
    return out + "'";
}

// rsync's way to the host: ssh, without what the host's login shell prints before rsync's own bytes. They begin after
// the mark that k_rsync_there prints. `read` takes single bytes from a pipe, so the rest is left for `cat`.
std::string rsync_shell(const Road& road) {
    const std::string script = fmt::format(
        "exec 4>&1; rc=$({{ {{ \"$@\"; echo $? >&3; }} | {{ while IFS= read -r line; do case $line in *{0}) exec cat "
        ">&4;; "
        "esac; done; }} }} 3>&1); exit \"$rc\"",
        k_mark.substr(0, k_mark.size() - 1));
    std::string shell = "sh -c " + rsync_word(script) + " sh";
    for (auto word = road.ssh.begin(); word != road.ssh.end() - 1; ++word) shell += " " + rsync_word(*word);
    return shell;
}

Error transfer_error(const ProcessResult& result, const ProcessSpec& spec, std::string_view program) {
    // tar prints the second message if a file fits only partly.
    const bool full = result.err.find("No space left on device") != std::string::npos ||
                      result.err.find(": Wrote only ") != std::string::npos;
    if (full) {
        return {ErrorKind::infrastructure,
                "the disk of the TPU's host is full: the tree was not synced",
                "check with `gdnctl dev-tpu-execute --tpu-name NAME --no-sync -- df -h`",
                {}};
    }
    const bool by_ssh = result.exit_code == 255 || result.err.find("Permission denied (") != std::string::npos;
    if (by_ssh) return ssh_error(result.err);
    if (result.err.find("is your shell clean") != std::string::npos) {
        return {ErrorKind::infrastructure,
                "the login shell of the TPU's host prints text when it starts, which disturbs " + std::string(program),
                "look for `echo` and the like in ~/.bashrc there, and print only in interactive shells",
                {}};
    }
    std::string said;
    for (const auto line : text::split(text::trim(result.err), '\n')) said = text::visible(text::trim(line));
    return {ErrorKind::infrastructure,
            fmt::format("{} {}{}", program, describe_end(result, spec), said.empty() ? "" : ": " + said),
            {},
            {}};
}

bool lacks_rsync(const ProcessResult& result) {
    return result.exit_code == 127 || (result.exit_code == 12 && result.err.find("not found") != std::string::npos);
}

ProcessSpec transfer_spec(const WorkingTree& tree, std::stop_token stop) {
    ProcessSpec spec;
    spec.stdin_bytes = zero_list(tree.files);
    spec.cwd = tree.root;
    spec.idle_limit = k_idle_limit;
    spec.stop = std::move(stop);
    spec.leaves_behind = [](int) { return true; };
    return spec;
}

// false: rsync is missing, here or on the host.
Result<bool> by_rsync(const Road& road, const WorkingTree& tree, Process& process, std::stop_token stop) {
    ProcessSpec spec = transfer_spec(tree, std::move(stop));
    // By default rsync compares whole seconds and would miss a second edit of the same length.
    spec.argv = {"rsync",
                 "-azL",
                 "--modify-window=-1",
                 "--from0",
                 "--files-from=-",
                 "-e",
                 rsync_shell(road),
                 "--rsync-path=" + marked("rsync"),
                 "./",
                 road.ssh.back() + ":marin/"};
    auto result = process.run(spec);
    if (!result) return false;
    if (result->end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    constexpr int k_vanished = 24, k_partial = 23;
    if (result->ok() || result->exit_code == k_vanished) return true;
    // Files that disappeared during the transfer are no failure; any other error is.
    const bool only_gone = result->exit_code == k_partial && result->err.find("No such file") != std::string::npos &&
                           result->err.find("denied") == std::string::npos &&
                           result->err.find("failed to set") == std::string::npos &&
                           result->err.find("No space") == std::string::npos;
    if (only_gone) return true;
    if (lacks_rsync(*result)) return false;
    return tl::unexpected(transfer_error(*result, spec, "rsync"));
}

Status by_tar(const Road& road, const WorkingTree& tree, Process& process, std::stop_token stop) {
    ProcessSpec spec = transfer_spec(tree, std::move(stop));
    const auto there = road_argv(road, fmt::format("mkdir -p {0} && tar -xzf - -C {0}", road.tree));
    spec.argv = {"sh", "-c",
                 "tar --null --verbatim-files-from -T - --no-recursion -h --ignore-failed-read -czf - | " +
                     text::shell_join(there)};
    GDNCTL_TRY_ASSIGN(const ProcessResult result, process.run(spec));
    if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    if (!result.ok()) return tl::unexpected(transfer_error(result, spec, "tar over ssh"));
    return {};
}

bool same_file(const struct stat& a, const struct stat& b) {
    return S_ISREG(b.st_mode) && a.st_size == b.st_size && a.st_mode == b.st_mode &&
           a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

Status copy_file_to(const fs::path& from, const fs::path& to) {
    struct stat source{}, there{};
    if (stat(from.c_str(), &source) != 0 || !S_ISREG(source.st_mode)) return {};
    if (lstat(to.c_str(), &there) == 0 && same_file(source, there)) return {};
    std::error_code problem;
    fs::create_directories(to.parent_path(), problem);
    // Creates a new file, so that a program running from the old one continues.
    if (!problem) fs::remove(to, problem);
    if (!problem) fs::copy_file(from, to, fs::copy_options::overwrite_existing, problem);
    if (problem) {
        if (!fs::exists(from)) return {};
        return tl::unexpected(file_error(ErrorKind::local_io, "copy to", to, problem.value()));
    }
    const struct timespec times[2] = {source.st_atim, source.st_mtim};  // NOLINT(modernize-avoid-c-arrays)
    utimensat(AT_FDCWD, to.c_str(), times, 0);
    return {};
}

}  // namespace

std::string zero_list(const std::vector<std::string>& files) {
    std::vector<std::string> sorted = files;
    std::sort(sorted.begin(), sorted.end());
    std::string list;
    for (const std::string& name : sorted) list.append(name).push_back('\0');
    return list;
}

std::string manifest_line(const Road& road) {
    return fmt::format(
        "set -e; b={0} t={1}; mkdir -p \"$b\" \"$t\"; n=$b/manifest.new o=$b/manifest g=$b/gone; cat >\"$n\"; "
        "if [ -f \"$o\" ]; then LC_ALL=C comm -z -23 \"$o\" \"$n\" >\"$g\"; if [ -s \"$g\" ]; then cd \"$t\"; "
        "xargs -0 rm -f -- <\"$g\"; "
        "xargs -0 dirname -z -- <\"$g\" | sort -zu | xargs -0 rmdir -p --ignore-fail-on-non-empty -- 2>/dev/null || :; "
        "fi; rm -f \"$g\"; fi; mv \"$n\" \"$o\"",
        road.base, road.tree);
}

Status copy_tree(const WorkingTree& tree, const fs::path& into, std::stop_token stop) {
    for (const std::string& name : tree.files) {
        if (stop.stop_requested()) return tl::unexpected(stopped_error());
        GDNCTL_TRY(copy_file_to(tree.root / name, into / name));
    }
    return {};
}

Result<SyncReport> sync_tree(const Road& road, const WorkingTree& tree, Process& process, std::stop_token stop) {
    GDNCTL_TRY_ASSIGN(const WorkingTree now, present(tree));
    GDNCTL_TRY_ASSIGN(const Answer answer,
                      ask_host(road, manifest_line(road), zero_list(now.files), k_manifest_limit, process, stop));
    if (answer.exit_code != 0) {
        return fail(ErrorKind::infrastructure,
                    "cannot prepare the TPU's host for the sync: " + text::visible(text::trim(answer.err)));
    }
    SyncReport report{now.files.size(), "copy"};
    if (road.is_local()) {
        const auto words = text::shell_split(road.tree);
        GDNCTL_TRY(copy_tree(now, words->front(), stop));
        return report;
    }
    GDNCTL_TRY_ASSIGN(const bool synced, by_rsync(road, now, process, stop));
    report.by = synced ? "rsync" : "tar";
    if (!synced) GDNCTL_TRY(by_tar(road, now, process, stop));
    return report;
}

}  // namespace gdnctl::devtpu
