// A separate index, to make trees without changing the checkout.
#pragma once

#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "platform/fs.h"
#include "services/git/calls.h"

namespace gdnctl::git {

// A separate index next to the real one, removed with its owner.
class TemporaryIndex {
public:
    explicit TemporaryIndex(const Calls& calls) : m_path(calls.git_dir / fmt::format("gdnctl-index-{}", getpid())) {
        remove();
        options.env["GIT_INDEX_FILE"] = m_path.string();
        options.our_name = true;
    }
    ~TemporaryIndex() { remove(); }
    TemporaryIndex(const TemporaryIndex&) = delete;
    TemporaryIndex& operator=(const TemporaryIndex&) = delete;

    Status start_from(const std::filesystem::path& index) const {
        std::error_code problem;
        if (!std::filesystem::exists(index, problem)) return {};
        std::filesystem::copy_file(index, m_path, std::filesystem::copy_options::overwrite_existing, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "copy", index, problem.value()));
        // By the time of its index git knows which files may have changed within the clock's grain after it was
        // written.
        std::filesystem::last_write_time(m_path, std::filesystem::last_write_time(index, problem), problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "copy", index, problem.value()));
        return {};
    }
    CallOptions options;

private:
    void remove() const {
        std::error_code problem;
        std::filesystem::remove(m_path, problem);
        std::filesystem::remove(m_path.string() + ".lock", problem);
    }
    std::filesystem::path m_path;
};

}  // namespace gdnctl::git
