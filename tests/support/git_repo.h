// A repository for one test, driven by the git program in a pinned environment.
#pragma once

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "platform/clock.h"
#include "platform/process.h"
#include "services/git/checkout.h"
#include "support/fake_clock.h"
#include "support/temp_dir.h"

namespace gdnctl::test {

// Pins the environment of every git that this process starts, including ours, while it lives.
class GitEnvironment {
public:
    GitEnvironment() {
        for (const auto& [name, value] : {std::pair{"GIT_CONFIG_GLOBAL", "/dev/null"},
                                          {"GIT_CONFIG_NOSYSTEM", "1"},
                                          {"GIT_AUTHOR_DATE", "1770000000 +0000"},
                                          {"GIT_COMMITTER_DATE", "1770000000 +0000"}}) {
            setenv(name, value, 1);
        }
    }
};

class GitRepo {
public:
    explicit GitRepo(const std::string& init_options = {})
        : m_path(std::filesystem::canonical(m_folder.path()) / "repo") {
        std::filesystem::create_directories(m_path);
        sh("git init -q -b main " + init_options +
           " . && git config user.name T && git config user.email t@example.org");
    }

    // Runs `sh -c COMMAND` in the repository, or in `in`, a minute after the last one by git's clock; it must succeed.
    // Returns its output without trailing newlines.
    std::string sh(const std::string& command, const std::filesystem::path& in = {}) const {
        ProcessSpec spec;
        spec.argv = {"sh", "-c", command};
        spec.cwd = in.empty() ? m_path : in;
        const std::string date = std::to_string(1'770'000'000 + 60 * m_tick++) + " +0000";
        spec.env = {{"GIT_AUTHOR_DATE", date}, {"GIT_COMMITTER_DATE", date}};
        auto result = system_process().run(spec);
        REQUIRE(result);
        INFO(command, "\n", result->err);
        REQUIRE(result->ok());
        while (!result->out.empty() && result->out.back() == '\n') result->out.pop_back();
        return result->out;
    }
    void write(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories((m_path / name).parent_path());
        write_text(m_path / name, text);
    }
    std::string read(const std::string& name) const { return read_text(m_path / name); }
    // Commits everything; returns the id.
    std::string commit(const std::string& message, const std::filesystem::path& in = {}) const {
        write_text(outside("message"), message);
        sh("git add -A . && git commit -q --allow-empty -F '" + outside("message").string() + "'", in);
        return sh("git rev-parse HEAD", in);
    }
    std::string head(const std::filesystem::path& in = {}) const { return sh("git rev-parse HEAD", in); }
    std::string status(const std::filesystem::path& in = {}) const { return sh("git status --porcelain", in); }
    const std::filesystem::path& path() const { return m_path; }
    std::filesystem::path outside(const std::string& name) const { return m_path.parent_path() / name; }
    GitCheckout open() const {
        auto opened = GitCheckout::open(m_path, system_process(), clock);
        if (!opened) FAIL("cannot open: " << opened.error().text());
        return std::move(*opened);
    }
    mutable FakeClock clock;

private:
    GitEnvironment m_world;
    TempDir m_folder;
    std::filesystem::path m_path;
    mutable int m_tick = 0;
};

template <class T>
T ok(Result<T> value) {
    if (!value) FAIL("failed: " << value.error().text());
    return std::move(*value);
}
inline void ok(const Status& status) {
    if (!status) FAIL("failed: " << status.error().text());
}

}  // namespace gdnctl::test
