// Ignored files belong to users, so removing commits must not delete them.
#include <fmt/format.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fs.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"
#include "services/git/hidden.h"

namespace gdnctl {

namespace fs = std::filesystem;
using git::Words;

namespace {

// A folder with only the .gitignore files of a commit, so that its rules apply, not the checkout's current ones.
class RulesOf {
public:
    RulesOf(const git::Calls& calls, std::string_view commit)
        : m_calls(calls), m_commit(commit), m_folder(calls.git_dir / fmt::format("gdnctl-rules-{}", getpid())) {
        remove();
    }
    ~RulesOf() { remove(); }
    RulesOf(const RulesOf&) = delete;
    RulesOf& operator=(const RulesOf&) = delete;

    // Those of `paths` (each followed by a NUL) that the rules ignore.
    Result<std::string> ignored(std::string paths) const {
        git::CallOptions here;
        here.env = {{"GIT_INDEX_FILE", m_folder.string() + ".index"}, {"GIT_WORK_TREE", m_folder.string()}};
        std::error_code problem;
        fs::create_directory(m_folder, problem);
        GDNCTL_TRY(m_calls.done({"read-tree", m_commit}, here));
        git::CallOptions rules = here;
        GDNCTL_TRY_ASSIGN(rules.input,
                          m_calls.output({"ls-files", "-z", "--", ".gitignore", ":(glob)**/.gitignore"}, here));
        if (!rules.input.empty()) {
            GDNCTL_TRY(m_calls.done({"checkout-index", "-z", "--stdin", "--prefix=" + m_folder.string() + "/"}, rules));
        }
        here.input = std::move(paths);
        const Words check = {"-C", m_folder.string(), "check-ignore", "--no-index", "-z", "--stdin"};
        GDNCTL_TRY_ASSIGN(ProcessResult said, m_calls.run(check, here));
        constexpr int k_none = 1;
        if (said.ok() || (said.end == ProcessResult::End::exited && said.exit_code == k_none))
            return std::move(said.out);
        return m_calls.refused("check-ignore", said);
    }

private:
    void remove() const {
        std::error_code problem;
        fs::remove_all(m_folder, problem);
        for (const char* end : {".index", ".index.lock"}) fs::remove(m_folder.string() + end, problem);
    }
    const git::Calls& m_calls;
    std::string m_commit;
    fs::path m_folder;
};

}  // namespace

std::string git::exclude_line(std::string_view path) {
    std::string line = "/";
    for (const char c : path) {
        if (c == '*' || c == '?' || c == '[' || c == '\\' || c == ' ') line += '\\';
        line += c;
    }
    return line;
}

// An agent may have force-added an ignored file of the user's. Once out of the index and ignored again, it stays.
Result<ProcessResult> git::reset_beside_ignored(const GitCheckout& checkout, const Calls& calls, std::string_view base,
                                                std::string_view head) {
    const Words reset = {"reset", "-q", "--keep", std::string(base)};
    GDNCTL_TRY_ASSIGN(const auto changes, checkout.diff(base, head));
    std::string added, lines;
    for (const auto& change : changes) {
        if (change.status == 'A' && !change.is_submodule()) added += change.path + '\0';
    }
    if (added.empty()) return calls.run(reset);
    CallOptions paths;
    GDNCTL_TRY_ASSIGN(paths.input, RulesOf(calls, base).ignored(std::move(added)));
    if (paths.input.empty()) return calls.run(reset);
    GDNCTL_TRY(calls.done({"update-index", "-z", "--force-remove", "--stdin"}, paths));
    for (const auto path : text::split(paths.input, '\0')) {
        if (!path.empty()) lines += exclude_line(path) + '\n';
    }
    const fs::path rules = calls.git_dir / "gdnctl-exclude";
    GDNCTL_TRY(atomic_replace(rules, lines, 0600));
    Words words = {"-c", "core.excludesFile=" + rules.string()};
    words.insert(words.end(), reset.begin(), reset.end());
    auto done = calls.run(words);
    std::error_code problem;
    fs::remove(rules, problem);
    return done;
}

}  // namespace gdnctl
