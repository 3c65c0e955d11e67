// What every git that gdnctl starts is told, so that no configuration and no variable of a user or an agent changes
// what it sees or does.
#include <array>

#include "services/git/git.h"

namespace gdnctl {

namespace {

// The values are git's own defaults unless the comment says otherwise.
//
// These stay the user's:
// - Facts about the file system: core.fileMode, core.symlinks, core.ignoreCase, core.precomposeUnicode.
// - What a commit stores: core.autocrlf, core.eol, *.renormalize, filter.* (an agent's filters: GitCheckout::trust()).
// - Which files count at all: core.excludesFile, core.attributesFile (an agent's: GitSetup).
// - Formats that the user's git shares: core.splitIndex, index.*, feature.*, core.untrackedCache (which git verifies),
//   core.sharedRepository, extensions.*.
// - Speed and space: pack.*, core.fsync*, core.compression, *.threads, *.workers, fetch.parallel.
// - Whose commits they are: user.*, author.*, committer.*.
// - How the user merges: merge.renames, merge.directoryRenames, merge.log, merge.<driver>.*.
// - diff.ignoreSubmodules, submodule.<name>.ignore: no call here touches work inside a submodule of the user.
// - How to reach a server: remote.*, url.*, http.*, credential.*, protocol.*, core.sshCommand (see trust()).
// - safe.*, init.*; and alias.*, since an alias cannot replace a command of git.
constexpr std::array k_fixed = {
    // Programs. Not defaults: nothing is run, signed, paged or collected.
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "commit.gpgSign=false",
    "log.showSignature=false", "merge.verifySignatures=false", "gc.auto=0", "maintenance.auto=false",
    "fetch.writeCommitGraph=false",
    // Which files count as changed. `core.ignoreStat` would mark files so that git never looks at them again, and the
    // weaker comparisons miss an edit that keeps size and time.
    "status.showUntrackedFiles=normal", "core.ignoreStat=false", "core.checkStat=default", "core.trustctime=true",
    "add.ignoreErrors=false", "diff.autoRefreshIndex=true",
    // Which commits count as parents: a file that anybody may write must not say. Not the default.
    "core.commitGraph=false",
    // What calls do besides what they are asked.
    "merge.autoStash=false", "rebase.autoStash=false", "rebase.updateRefs=false", "rebase.autoSquash=false",
    "rebase.backend=merge", "rebase.forkPoint=false", "rebase.missingCommitsCheck=ignore", "rerere.enabled=false",
    "rerere.autoUpdate=false", "submodule.recurse=false", "fetch.prune=false", "fetch.pruneTags=false",
    "clone.rejectShallow=false",
    "apply.whitespace=warn",  // `git stash apply --index` goes through `git apply`
    "apply.ignoreWhitespace=no", "commit.cleanup=default", "i18n.commitEncoding=UTF-8", "core.filesRefLockTimeout=100",
    "core.packedRefsTimeout=1000",
    // What calls print.
    "i18n.logOutputEncoding=UTF-8", "core.quotePath=false", "core.safecrlf=false", "core.warnAmbiguousRefs=false",
    "advice.addEmbeddedRepo=false", "advice.objectNameWarning=false", "color.ui=false", "color.diff=false",
    "color.status=false", "color.branch=false", "color.grep=false", "color.advice=false", "color.remote=false",
    "column.ui=never", "column.status=never", "status.branch=false", "status.showStash=false",
    "status.relativePaths=false", "status.submoduleSummary=false", "merge.stat=false", "merge.verbosity=2",
    "rebase.stat=false", "grep.fullName=false", "log.showRoot=true", "log.diffMerges=separate", "log.follow=false",
    "log.mailmap=false", "diff.noprefix=false", "diff.mnemonicPrefix=false", "diff.suppressBlankEmpty=false",
    "diff.context=3", "diff.interHunkContext=0", "diff.algorithm=default", "diff.indentHeuristic=true",
    "diff.relative=false", "diff.submodule=short",
    "diff.orderFile=/dev/null",  // not the default, but as good: a missing file would end even `git status`
};

// Variables that would send a call elsewhere, change what it takes its arguments for, or write into its output.
// The user keeps GIT_CONFIG_GLOBAL, GIT_CONFIG_SYSTEM and GIT_CONFIG_NOSYSTEM (where the configuration is),
// GIT_AUTHOR_* and GIT_COMMITTER_*, GIT_SSH*, GIT_SSL_*, GIT_HTTP_*, GIT_PROXY_* (how to reach a server),
// GIT_CEILING_DIRECTORIES, GIT_DISCOVERY_ACROSS_FILESYSTEM (where to look for a repository) and GIT_EXEC_PATH.
constexpr std::array k_unset = {
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_CONFIG",
    "GIT_SHALLOW_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_ATTR_SOURCE",
    "GIT_ATTR_NOSYSTEM",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_MERGE_VERBOSITY",
    "GIT_REFLOG_ACTION",
    "GIT_NOTES_REF",
    "GIT_NOTES_DISPLAY_REF",
    "GIT_NOTES_REWRITE_REF",
    "GIT_NOTES_REWRITE_MODE",
    "GIT_ADVICE",
    "GIT_DEFAULT_HASH",
    "GIT_DEFAULT_REF_FORMAT",
    "GIT_CURL_VERBOSE",
    "GIT_TRACE",
    "GIT_TRACE_CURL",
    "GIT_TRACE_FSMONITOR",
    "GIT_TRACE_PACK_ACCESS",
    "GIT_TRACE_PACKET",
    "GIT_TRACE_PACKFILE",
    "GIT_TRACE_PERFORMANCE",
    "GIT_TRACE_REFS",
    "GIT_TRACE_SETUP",
    "GIT_TRACE_SHALLOW",
};

}  // namespace

std::vector<std::string> git_command(std::vector<std::string> words) {
    std::vector<std::string> argv = {"git"};
    for (const char* setting : k_fixed) argv.insert(argv.end(), {"-c", setting});
    argv.insert(argv.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
    return argv;
}

std::map<std::string, std::optional<std::string>> git_environment() {
    std::map<std::string, std::optional<std::string>> environment = {{"GIT_TERMINAL_PROMPT", "0"},
                                                                     {"GIT_OPTIONAL_LOCKS", "0"},
                                                                     {"GIT_NO_REPLACE_OBJECTS", "1"},
                                                                     // /dev/null itself would be reported as a graft
                                                                     {"GIT_GRAFT_FILE", "/dev/null/none"},
                                                                     {"GIT_TRACE2", "0"},
                                                                     {"GIT_TRACE2_EVENT", "0"},
                                                                     {"GIT_TRACE2_PERF", "0"},
                                                                     {"GIT_PAGER", "cat"},
                                                                     {"LC_ALL", "C"}};
    for (const char* name : k_unset) environment[name] = std::nullopt;
    return environment;
}

}  // namespace gdnctl
