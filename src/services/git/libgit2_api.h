// The functions of libgit2 that gdnctl uses, opened on first use.
#pragma once

#include <git2.h>

#include "platform/late_library.h"

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

}  // namespace gdnctl::git
