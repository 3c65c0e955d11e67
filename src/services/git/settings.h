// What decides how git behaves in a repository, other than its commits: configuration, hooks, attributes, excludes,
// replaced objects, grafts, shallow and borrowed history, sparse checkouts, marks that hide files. An agent that
// changes one of these changes what the user's own git shows, runs or sends, long after the agent has ended.
//
//   <common dir>/gdnctl-settings/before-<run>         as it was when the agent was started
//   <common dir>/gdnctl-settings/<run>-<n>/           what was found after it, and files before/... of what was not
//                                                     put back, with a list of the places
//   refs/gdnctl-others/<run>/replace/<object>         a replacement object that was found
//
// These copies are in the repository's own folder, because addresses in a configuration may contain passwords.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "services/git/checkout.h"

namespace gdnctl {

class GitSettings {
public:
    // Of the checkout, of its repository with all other checkouts and submodules, and of the user.
    static Result<GitSettings> take(const GitCheckout& repository);
    Status save(const GitCheckout& repository, const std::string& run) const;
    static Result<std::optional<GitSettings>> load(const GitCheckout& repository, const std::string& run);
    using Time = std::filesystem::file_time_type;
    // Before a killed run is continued: if git refuses to work at `start`, puts back what that run remembered.
    static Status mend(const std::filesystem::path& start, const std::string& run, std::optional<Time> alive,
                       Process& process, Clock& clock);
    // What a killed run remembered, if there is such a run: loads it, puts it back, and forgets it.
    static Result<std::vector<std::string>> recover(const GitCheckout& repository, const std::string& run,
                                                    std::optional<Time> alive);
    static void forget(const GitCheckout& repository, const std::string& run);

    // Puts back what differs, keeps what was found, and reports both. These changes stay: a branch that newly follows a
    // remote that was configured before, history that a shallow clone has got since, and a worktree that was moved.
    // Reported, but not written: files outside the repository, and what changed after `alive`, when the killed session
    // was last seen alive. Returns the names of what was put back: keys, files, refs. Works with any configuration in
    // the repository.
    Result<std::vector<std::string>> put_back(const GitCheckout& repository, const std::string& run,
                                              std::optional<Time> alive = {});

private:
    struct Place {
        char kind = '-';  // '-': missing, f: file, l: link, o: something else
        unsigned mode = 0;
        std::string bytes;    // of the file; or where the link leads
        bool config = false;  // a file in the format of git config
        // A folder without which the place means nothing.
        std::filesystem::path home = {};
        bool same(const Place& other) const { return kind == other.kind && mode == other.mode && bytes == other.bytes; }
    };
    using Places = std::map<std::filesystem::path, Place>;
    class Found;

    static std::filesystem::path folder_of(const GitCheckout& repository);
    static Result<std::map<std::string, char>> marks_of(const GitCheckout& repository);
    static Place look_at(const std::filesystem::path& path);
    void watch(const std::filesystem::path& home, const std::filesystem::path& path, bool config = false);
    void watch_hooks(const std::filesystem::path& home, const std::filesystem::path& folder);
    void watch_repository(const std::filesystem::path& folder);
    void watch_modules(const std::filesystem::path& folder);
    Status watch_users(const GitCheckout& repository);
    Places differing() const;  // as they are now
    static std::optional<Time> changed_at(const std::filesystem::path& path, const std::filesystem::path& home);
    static bool is_moved_worktree(const std::filesystem::path& gitdir, const Place& now);

    static constexpr std::string_view k_replace = "refs/replace/";
    Places m_places;
    std::map<std::filesystem::path, std::filesystem::path> m_hooks;  // folder: home
    std::map<std::string, std::string> m_replaced;                   // refs/replace/...: object
    std::map<std::string, char> m_marks;                             // by `git ls-files -v`; a file without is not here
};

}  // namespace gdnctl
